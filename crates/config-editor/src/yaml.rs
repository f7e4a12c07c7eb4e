//! Reads YAML 1.2 into a tree that knows its bytes. An alias is expanded in the value only, and what it comes to is
//! counted: a document that would fill the memory is refused.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, Span, StructureStyle, Tag};

use crate::error::Error;
use crate::format::Format;
use crate::limits::{DEPTH_MAX, FILE_BYTES_MAX, NODES_MAX};
use crate::node::{Body, Field, Node};
use crate::value::Value;

/// None: there is nothing but comments.
pub(crate) fn read(text: &str) -> Result<Option<Node>, Error> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = DEPTH_MAX;
    options.block_nesting_limit = DEPTH_MAX;
    let mut builder =
        Builder { text, frames: Vec::new(), anchors: HashMap::new(), nodes: 0, bytes: 0, root: None, documents: 0 };
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((event, span)) => builder.take(event, &span)?,
            Err(error) if *error.kind() == ErrorKind::RecursionLimitExceeded => return Err(Error::TooDeep),
            Err(error) => {
                let mark = error.marker();
                let (line, column) = (mark.line().max(1), mark.col() + 1);
                return Err(Error::Syntax { format: Format::Yaml, line, column, reason: error.info().clone() });
            }
        }
    }
    Ok(builder.root)
}

/// The parser's number of the anchor of a node that has none.
const NO_ANCHOR: usize = 0;

/// What an alias of an anchor stands for.
struct Anchored {
    value: Value,
    nodes: usize,
    bytes: usize,
    height: usize,
}

/// A list or map that is still open.
struct Frame {
    start: usize,
    body: Body,
    /// The name of a field whose value has not come yet.
    name: Option<(String, Range<usize>)>,
    names: HashSet<String>,
    anchor: usize,
    tag: Option<String>,
    nodes_before: usize,
    bytes_before: usize,
    height: usize,
}

struct Builder<'t> {
    text: &'t str,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    bytes: usize,
    root: Option<Node>,
    documents: usize,
}

impl Builder<'_> {
    fn wrong(&self, at: usize, reason: &str) -> Error {
        Error::syntax(Format::Yaml, self.text, at, reason)
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Error> {
        let bytes = span.byte_range().unwrap_or(0..0);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.wrong(bytes.start, "a second document begins here, and keys would name both"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, text.len())?;
                let plain = style == ScalarStyle::Plain;
                let length = text.len();
                let value = if plain && tag.is_none() { meaning(&text) } else { Value::Text(text.into_owned()) };
                let headed = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let node = Node { span: bytes, body: Body::Scalar(value), tag: named(tag), headed };
                self.remember(anchor, &node, (1, length), 0);
                self.attach(node, 0)?;
            }
            Event::SequenceStart(style, anchor, tag) => {
                let body = Body::List { items: Vec::new(), flow: style == StructureStyle::Flow };
                self.open(bytes.start, body, anchor, tag)?;
            }
            Event::MappingStart(style, anchor, tag) => {
                let body = Body::Map { fields: Vec::new(), flow: style == StructureStyle::Flow };
                self.open(bytes.start, body, anchor, tag)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(bytes.end)?,
            Event::Alias(anchor) => {
                let Some(Anchored { value, nodes, bytes: length, height }) = self.anchors.get(&anchor) else {
                    return Err(self.wrong(bytes.start, "an alias stands inside the anchor that it names"));
                };
                let (nodes, length, height) = (*nodes, *length, *height);
                if self.frames.len() + height > DEPTH_MAX {
                    return Err(Error::TooDeep);
                }
                // Counted first: only what fits is expanded.
                let too_many = self.nodes + nodes > NODES_MAX || self.bytes + length > 4 * FILE_BYTES_MAX;
                let body = Body::Alias(if too_many { Value::Null } else { value.clone() });
                self.count(nodes, length)?;
                self.attach(Node { span: bytes, body, tag: None, headed: false }, height)?;
            }
            // The rest carries no value: the stream's ends, and what the options switch off.
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, bytes: usize) -> Result<(), Error> {
        self.nodes += nodes;
        self.bytes += bytes;
        if self.nodes > NODES_MAX || self.bytes > 4 * FILE_BYTES_MAX { Err(Error::TooMany) } else { Ok(()) }
    }

    fn open(&mut self, start: usize, body: Body, anchor: usize, tag: Option<Cow<'_, Tag>>) -> Result<(), Error> {
        let (nodes_before, bytes_before) = (self.nodes, self.bytes);
        self.count(1, 0)?;
        if self.frames.len() >= DEPTH_MAX {
            return Err(Error::TooDeep);
        }
        let (name, names, tag) = (None, HashSet::new(), named(tag));
        self.frames.push(Frame { start, body, name, names, anchor, tag, nodes_before, bytes_before, height: 0 });
        Ok(())
    }

    fn close(&mut self, end: usize) -> Result<(), Error> {
        let Frame { start, body, anchor, tag, nodes_before, bytes_before, height, .. } =
            self.frames.pop().expect("the parser closes what it opened");
        let mut node = Node { span: start..end, body, tag, headed: false };
        if !node.is_flow() {
            // The parser ends a block where the next thing begins.
            let parts = node.parts();
            node.span.end = parts.last().map_or(start, |part| part.end);
            // A list that is not indented begins, for the parser, behind its first dash.
            let dash = self.text[..start].trim_end_matches([' ', '\r', '\n']);
            let behind = parts.first().is_some_and(|part| part.start == start);
            if matches!(node.body, Body::List { .. }) && behind && dash.ends_with('-') {
                node.span.start = dash.len() - 1;
            }
        }
        let size = (self.nodes - nodes_before, self.bytes - bytes_before);
        self.remember(anchor, &node, size, height + 1);
        self.attach(node, height + 1)
    }

    fn remember(&mut self, anchor: usize, node: &Node, (nodes, bytes): (usize, usize), height: usize) {
        if anchor != NO_ANCHOR {
            self.anchors.insert(anchor, Anchored { value: node.value(), nodes, bytes, height });
        }
    }

    fn attach(&mut self, node: Node, height: usize) -> Result<(), Error> {
        let text = self.text;
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let wrong = |at: usize, reason: &str| Error::syntax(Format::Yaml, text, at, reason);
        frame.height = frame.height.max(height);
        match &mut frame.body {
            Body::List { items, .. } => items.push(node),
            Body::Map { fields, .. } => match frame.name.take() {
                Some((name, name_span)) => fields.push(Field { name, name_span, value: node }),
                None => {
                    let name = match node.value() {
                        Value::Text(text) | Value::Number(text) => text,
                        // Written out, as it stands there.
                        Value::Null | Value::Bool(_) => text.get(node.span.clone()).unwrap_or_default().to_owned(),
                        _ => return Err(wrong(node.span.start, "the name of a field is a word without a tag")),
                    };
                    if !frame.names.insert(name.clone()) {
                        return Err(wrong(node.span.start, "this name stands here a second time"));
                    }
                    frame.name = Some((name, node.span));
                }
            },
            Body::Scalar(_) | Body::Alias(_) => unreachable!("a scalar is never open"),
        }
        Ok(())
    }
}

fn named(tag: Option<Cow<'_, Tag>>) -> Option<String> {
    tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()))
}

/// What a word without quotes means: the core schema of YAML 1.2, and nothing of 1.1.
pub(crate) fn meaning(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ if is_number(text) => Value::Number(text.to_owned()),
        _ => Value::text(text),
    }
}

fn is_number(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let based = |mark: &str, base: u32| {
        text.strip_prefix(mark).is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_digit(base)))
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let special = ["inf", "Inf", "INF"].iter().any(|word| unsigned.strip_prefix('.') == Some(*word));
    if based("0x", 16) || based("0o", 8) || special || [".nan", ".NaN", ".NAN"].contains(&text) {
        return true;
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value::{Bool, Null, Number, Text};

    #[test]
    fn words_mean_what_the_core_schema_says() {
        for number in
            ["0", "-3", "+12", "007", "0x1F", "0o17", "1.5", "1.", ".5", "1e3", "-1.5E-7", ".inf", "-.INF", ".NaN"]
        {
            assert_eq!(meaning(number), Number(number.to_owned()), "{number}");
        }
        for text in ["yes", "on", "0x", "0xg", "1.2.3", "1e", "e3", ".", "+", "1_000", "inf", "nan", "2020-01-01", "-"]
        {
            assert_eq!(meaning(text), Text(text.to_owned()), "{text}");
        }
        assert_eq!([meaning("~"), meaning(""), meaning("True")], [Null, Null, Bool(true)]);
    }
}
