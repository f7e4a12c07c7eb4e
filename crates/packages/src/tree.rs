//! YAML as a tree whose nodes know their place. An alias is a second way to one node, so that a document which
//! expands to gigabytes takes no more memory than its text; what it would expand to is counted and bounded.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span, Tag};
use serde_json::{Map, Number, Value};

use crate::limits::{DEPTH_MAX, DOCUMENT_BYTES_MAX, NODES_MAX, TEXT_BYTES_MAX};
use crate::problem::{Check, Place, Problems, shortened};
use crate::scalar::{Meaning, Scalar};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u32);

#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub place: Place,
    pub content: Content<'a>,
}

#[derive(Debug)]
pub(crate) enum Content<'a> {
    Scalar(Scalar<'a>),
    List(Vec<NodeId>),
    Map(Vec<Field>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub name: NodeId,
    pub value: NodeId,
}

#[derive(Debug)]
pub(crate) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    root: NodeId,
}

impl<'a> Tree<'a> {
    /// Reads a text; what is wrong with it is told. Without a tree, something was told.
    pub(crate) fn read(text: &'a str, problems: &mut Problems) -> Option<Tree<'a>> {
        if text.len() > DOCUMENT_BYTES_MAX {
            let message =
                format!("the document has {} bytes; at most {DOCUMENT_BYTES_MAX} (4 MiB) are read", text.len());
            problems.add(Check::Yaml, Place::START, "", "", message).hint("split the feature");
            return None;
        }
        let mut options = Options::default();
        options.set_emit_comments(false);
        options.flow_nesting_limit = DEPTH_MAX;
        options.block_nesting_limit = DEPTH_MAX;
        let mut builder = Builder::new(problems);
        for next in Parser::new_from_str_with_options(text, options) {
            let told = match next {
                Ok((event, span)) => builder.take(event, span),
                Err(error) => builder.refuse_syntax(&error, text),
            };
            if let Err(Told) = told {
                return None;
            }
        }
        builder.finish()
    }

    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node<'a> {
        &self.nodes[id.0 as usize]
    }

    /// The text of a scalar that means a text.
    pub(crate) fn text(&self, id: NodeId) -> Option<&str> {
        match &self.node(id).content {
            Content::Scalar(scalar) => match scalar.meaning() {
                Meaning::Text(text) => Some(text),
                Meaning::Null | Meaning::Bool(_) | Meaning::Integer(_) | Meaning::Float(_) => None,
            },
            Content::List(_) | Content::Map(_) => None,
        }
    }

    /// The name of a field, whatever it would mean as a value.
    pub(crate) fn name(&self, field: Field) -> &str {
        match &self.node(field.name).content {
            Content::Scalar(scalar) => &scalar.text,
            Content::List(_) | Content::Map(_) => "",
        }
    }

    pub(crate) fn field(&self, id: NodeId, name: &str) -> Option<NodeId> {
        match &self.node(id).content {
            Content::Map(fields) => fields.iter().find(|field| self.name(**field) == name).map(|field| field.value),
            Content::Scalar(_) | Content::List(_) => None,
        }
    }

    pub(crate) fn items(&self, id: NodeId) -> &[NodeId] {
        match &self.node(id).content {
            Content::List(items) => items,
            Content::Scalar(_) | Content::Map(_) => &[],
        }
    }

    /// Every text at or below a node; names of fields are none.
    pub(crate) fn texts<'t>(&'t self, id: NodeId, found: &mut Vec<&'t str>) {
        match &self.node(id).content {
            Content::Scalar(_) => found.extend(self.text(id)),
            Content::List(items) => items.iter().for_each(|item| self.texts(*item, found)),
            Content::Map(fields) => fields.iter().for_each(|field| self.texts(field.value, found)),
        }
    }

    /// What stands there, as a problem may repeat it.
    pub(crate) fn shown(&self, id: NodeId) -> String {
        match &self.node(id).content {
            Content::Scalar(scalar) => shortened(&scalar.text),
            Content::List(items) if items.is_empty() => "[]".to_owned(),
            Content::List(_) => "[…]".to_owned(),
            Content::Map(fields) => fields.first().map_or("{}".to_owned(), |first| format!("{}: …", self.name(*first))),
        }
    }

    /// The same with every alias expanded; the bounds of reading keep it small.
    pub(crate) fn value(&self, id: NodeId) -> Value {
        match &self.node(id).content {
            Content::Scalar(scalar) => match scalar.meaning() {
                Meaning::Null => Value::Null,
                Meaning::Bool(truth) => Value::Bool(truth),
                Meaning::Integer(number) => Value::Number(number.into()),
                Meaning::Float(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
                Meaning::Text(text) => Value::String(text.to_owned()),
            },
            Content::List(items) => items.iter().map(|item| self.value(*item)).collect(),
            Content::Map(fields) => Value::Object(
                fields
                    .iter()
                    .map(|field| (self.name(*field).to_owned(), self.value(field.value)))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

/// The parser's number of the anchor of a node that has none.
const NO_ANCHOR: usize = 0;

/// The problem was told, and reading ends.
struct Told;

/// What an alias of an anchor stands for.
#[derive(Clone, Copy)]
struct Anchored {
    node: NodeId,
    /// Everything below counted as if it had been written out.
    nodes: usize,
    bytes: usize,
    height: usize,
}

/// A list or map that is still open.
struct Frame<'a> {
    place: Place,
    content: Content<'a>,
    /// The name of a field whose value has not come yet.
    name: Option<NodeId>,
    anchor: usize,
    nodes_before: usize,
    bytes_before: usize,
    height: usize,
}

struct Builder<'a, 'p> {
    nodes: Vec<Node<'a>>,
    frames: Vec<Frame<'a>>,
    /// By the parser's number; an anchor whose node is still open is not in it.
    anchors: HashMap<usize, Anchored>,
    nodes_total: usize,
    bytes_total: usize,
    root: Option<NodeId>,
    documents: usize,
    problems: &'p mut Problems,
}

impl<'a, 'p> Builder<'a, 'p> {
    fn new(problems: &'p mut Problems) -> Builder<'a, 'p> {
        Builder {
            nodes: Vec::new(),
            frames: Vec::new(),
            anchors: HashMap::new(),
            nodes_total: 0,
            bytes_total: 0,
            root: None,
            documents: 0,
            problems,
        }
    }

    fn take(&mut self, event: Event<'a>, span: Span) -> Result<(), Told> {
        let place = place(&span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return self.refuse(place, "---", "a second document begins here; one file holds one document");
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(place, 1, text.len())?;
                let bytes = text.len();
                let forced = self.judge_tag(place, tag)?;
                let plain = style == ScalarStyle::Plain && !forced;
                let node = self.push(Node { place, content: Content::Scalar(Scalar { text, plain }) });
                self.remember(anchor, Anchored { node, nodes: 1, bytes, height: 0 });
                self.attach(node, 0)?;
            }
            Event::SequenceStart(_, anchor, tag) => self.open(place, Content::List(Vec::new()), anchor, tag)?,
            Event::MappingStart(_, anchor, tag) => self.open(place, Content::Map(Vec::new()), anchor, tag)?,
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor).copied() else {
                    return self.refuse(place, "", "an alias stands inside the anchor that it names");
                };
                self.count(place, target.nodes, target.bytes)?;
                if self.frames.len() + target.height > DEPTH_MAX {
                    return self.refuse_depth(place);
                }
                self.attach(target.node, target.height)?;
            }
            // The rest carries no value: the stream's ends, and what the options switch off.
            _ => {}
        }
        Ok(())
    }

    fn open(
        &mut self,
        place: Place,
        content: Content<'a>,
        anchor: usize,
        tag: Option<Cow<'a, Tag>>,
    ) -> Result<(), Told> {
        let (nodes_before, bytes_before) = (self.nodes_total, self.bytes_total);
        self.count(place, 1, 0)?;
        self.judge_tag(place, tag)?;
        if self.frames.len() >= DEPTH_MAX {
            return self.refuse_depth(place);
        }
        self.frames.push(Frame { place, content, name: None, anchor, nodes_before, bytes_before, height: 0 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Told> {
        let frame = self.frames.pop().expect("the parser closes what it opened");
        if let Content::Map(fields) = &frame.content {
            self.tell_duplicates(fields);
        }
        let height = frame.height + 1;
        let node = self.push(Node { place: frame.place, content: frame.content });
        let nodes = self.nodes_total - frame.nodes_before;
        let bytes = self.bytes_total - frame.bytes_before;
        self.remember(frame.anchor, Anchored { node, nodes, bytes, height });
        self.attach(node, height)
    }

    fn remember(&mut self, anchor: usize, target: Anchored) {
        if anchor != NO_ANCHOR {
            self.anchors.insert(anchor, target);
        }
    }

    fn push(&mut self, node: Node<'a>) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("nodes are bounded"));
        self.nodes.push(node);
        id
    }

    fn attach(&mut self, id: NodeId, height: usize) -> Result<(), Told> {
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(id);
            return Ok(());
        };
        frame.height = frame.height.max(height);
        match &mut frame.content {
            Content::List(items) => items.push(id),
            Content::Map(fields) => match frame.name.take() {
                None => {
                    let node = &self.nodes[id.0 as usize];
                    if !matches!(node.content, Content::Scalar(_)) {
                        let place = node.place;
                        return self.refuse(place, "", "the name of a field is a word, not a list or a map");
                    }
                    frame.name = Some(id);
                }
                Some(name) => fields.push(Field { name, value: id }),
            },
            Content::Scalar(_) => unreachable!("a scalar is never open"),
        }
        Ok(())
    }

    fn tell_duplicates(&mut self, fields: &[Field]) {
        let mut seen = HashSet::with_capacity(fields.len());
        for field in fields {
            let node = &self.nodes[field.name.0 as usize];
            let Content::Scalar(name) = &node.content else { continue };
            if seen.insert(&*name.text) {
                continue;
            }
            if self.problems.room() == 0 {
                self.problems.leave_out(1);
            } else {
                let message = format!("the field {} stands here a second time", shortened(&name.text));
                self.problems.add(Check::Yaml, node.place, "", &name.text, message);
            }
        }
    }

    fn count(&mut self, place: Place, nodes: usize, bytes: usize) -> Result<(), Told> {
        // Both stay small: a sum beyond the bound ends the reading.
        self.nodes_total += nodes;
        self.bytes_total += bytes;
        if self.nodes_total > NODES_MAX {
            let message = format!("the document has more than {NODES_MAX} nodes, with its aliases expanded");
            return self.refuse(place, "", &message);
        }
        if self.bytes_total > TEXT_BYTES_MAX {
            let message = format!("the document has more than {TEXT_BYTES_MAX} bytes, with its aliases expanded");
            return self.refuse(place, "", &message);
        }
        Ok(())
    }

    /// Whether the tag makes a text of what would be a number.
    fn judge_tag(&mut self, place: Place, tag: Option<Cow<'a, Tag>>) -> Result<bool, Told> {
        match tag.as_deref() {
            None => Ok(false),
            Some(tag) => match tag.core_suffix() {
                Some(suffix) => Ok(suffix == "str"),
                None if tag.handle().is_empty() && tag.suffix() == "!" => Ok(true),
                None => self.refuse(place, &tag.to_string(), "a tag of one's own means nothing here").map(|()| false),
            },
        }
    }

    fn refuse(&mut self, place: Place, text: &str, message: &str) -> Result<(), Told> {
        self.problems.add(Check::Yaml, place, "", text, message);
        Err(Told)
    }

    fn refuse_depth(&mut self, place: Place) -> Result<(), Told> {
        self.refuse(place, "", &format!("the document is nested deeper than {DEPTH_MAX} levels"))
    }

    fn refuse_syntax(&mut self, error: &ScanError, text: &str) -> Result<(), Told> {
        let mark = error.marker();
        let place = Place { line: mark.line().max(1) as u32, column: mark.col() as u32 + 1 };
        if *error.kind() == ErrorKind::RecursionLimitExceeded {
            return self.refuse_depth(place);
        }
        let line = text.lines().nth(place.line as usize - 1).unwrap_or_default();
        let told =
            self.problems.add(Check::Yaml, place, "", line, format!("this is not YAML: {}", shortened(&error.info())));
        // Only some of the parser's messages say so.
        if line.trim_start_matches(' ').starts_with('\t') {
            told.hint("indent with spaces: YAML takes no tabs");
        }
        Err(Told)
    }

    fn finish(self) -> Option<Tree<'a>> {
        let Some(root) = self.root else {
            self.problems.add(Check::Yaml, Place::START, "", "", "the document is empty");
            return None;
        };
        Some(Tree { nodes: self.nodes, root })
    }
}

fn place(span: &Span) -> Place {
    Place { line: span.start.line().max(1) as u32, column: span.start.col() as u32 + 1 }
}
