//! A document as a tree whose parts know their bytes. Knows no rule of any format.

use std::ops::Range;

use crate::value::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Of a block of YAML: from its first part to the end of its last.
    pub(crate) span: Range<usize>,
    pub(crate) body: Body,
    pub(crate) tag: Option<String>,
    /// A text over several lines whose bytes begin behind its `|` or `>`.
    pub(crate) headed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Scalar(Value),
    /// The value of something that stands elsewhere.
    Alias(Value),
    List {
        items: Vec<Node>,
        flow: bool,
    },
    Map {
        fields: Vec<Field>,
        flow: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) name_span: Range<usize>,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn value(&self) -> Value {
        let value = match &self.body {
            Body::Scalar(value) | Body::Alias(value) => value.clone(),
            Body::List { items, .. } => Value::List(items.iter().map(Node::value).collect()),
            Body::Map { fields, .. } => {
                Value::Map(fields.iter().map(|field| (field.name.clone(), field.value.value())).collect())
            }
        };
        match &self.tag {
            Some(tag) => Value::Tagged(tag.clone(), Box::new(value)),
            None => value,
        }
    }

    /// The node at a path of positions; none where the way leads through an alias.
    pub(crate) fn at(&self, path: &[usize]) -> Option<&Node> {
        path.iter().try_fold(self, |node, position| match &node.body {
            Body::List { items, .. } => items.get(*position),
            Body::Map { fields, .. } => fields.get(*position).map(|field| &field.value),
            Body::Scalar(_) | Body::Alias(_) => None,
        })
    }

    pub(crate) fn is_flow(&self) -> bool {
        matches!(&self.body, Body::List { flow: true, .. } | Body::Map { flow: true, .. })
    }

    /// The bytes of each part, with its name.
    pub(crate) fn parts(&self) -> Vec<Range<usize>> {
        match &self.body {
            Body::List { items, .. } => items.iter().map(|item| item.span.clone()).collect(),
            Body::Map { fields, .. } => {
                let whole = |field: &Field| field.name_span.start..field.value.span.end.max(field.name_span.end);
                fields.iter().map(whole).collect()
            }
            Body::Scalar(_) | Body::Alias(_) => Vec::new(),
        }
    }
}
