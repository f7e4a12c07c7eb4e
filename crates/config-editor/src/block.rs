//! Changes YAML: which bytes to replace, several proposals for each change, the nicest first. Whether one does what it
//! should is judged by whoever asked, so that a proposal may be wrong, but never do harm.

use crate::flow::{self, Flow};
use crate::format::Format;
use crate::node::{Body, Node};
use crate::scalar;
use crate::splice::{Splice, line_break, line_end, line_start, next_line};
use crate::value::{Plan, Value};

pub(crate) fn proposals(text: &str, root: Option<&Node>, plan: &Plan) -> Vec<Vec<Splice>> {
    let Some(root) = root else { return vec![append(text, plan)] };
    let yaml = Yaml { text, root, newline: line_break(text), unit: unit(text) };
    let found = match plan {
        Plan::Replace { path, value } => yaml.replace(path, value),
        Plan::AddField { path, name, value } => match root.at(path) {
            Some(map) if matches!(map.body, Body::Map { .. }) => yaml.add(map, Some(name), value),
            // An empty document with a marker: its value is nothing.
            Some(_) if path.is_empty() => Some(vec![append(text, plan)]),
            _ => None,
        },
        Plan::AddItem { path, value } => root.at(path).and_then(|list| yaml.add(list, None, value)),
        Plan::Remove { path } => yaml.remove(path),
    };
    found.unwrap_or_default()
}

/// Behind everything, in a document without a value.
fn append(text: &str, plan: &Plan) -> Vec<Splice> {
    let Plan::AddField { name, value, .. } = plan else { return Vec::new() };
    let newline = line_break(text);
    let entry = scalar::yaml_field(name, value, 0, unit(text), newline);
    let before = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
    vec![Splice::insert(text.len(), format!("{before}{entry}{newline}"))]
}

/// One step of indentation, in spaces.
fn unit(text: &str) -> usize {
    flow::unit(text).bytes().filter(|byte| *byte == b' ').count().clamp(1, 8)
}

struct Yaml<'t> {
    text: &'t str,
    root: &'t Node,
    newline: &'static str,
    unit: usize,
}

impl Yaml<'_> {
    fn flow<'n>(&'n self, node: &'n Node) -> Option<Flow<'n>> {
        Flow::new(self.text, Format::Yaml, node)
    }

    fn column(&self, at: usize) -> usize {
        self.text[line_start(self.text, at)..at].chars().count()
    }

    /// Behind the colon of a field.
    fn colon(&self, name_end: usize) -> Option<usize> {
        let rest = self.text.get(name_end..)?;
        let space = rest.len() - rest.trim_start().len();
        rest[space..].starts_with(':').then_some(name_end + space + 1)
    }

    fn replace(&self, path: &[usize], value: &Value) -> Option<Vec<Vec<Splice>>> {
        let node = self.root.at(path)?;
        let (last, above) = path.split_last()?;
        let parent = self.root.at(above)?;
        if let Some(flow) = self.flow(parent) {
            return Some(vec![flow.replace(node, value)]);
        }
        let old = self.text.get(node.span.clone())?;
        let written = scalar::yaml_like(old, value);
        let in_place = vec![Splice::replace(node.span.clone(), written.clone())];
        // A block of text ends with its last line, and what follows needs a line of its own.
        let with_break = vec![Splice::replace(node.span.clone(), format!("{written}{}", self.newline))];
        let Body::Map { fields, .. } = &parent.body else { return Some(vec![in_place, with_break]) };
        let field = &fields[*last];
        let colon = self.colon(field.name_span.end)?;
        let mut found = Vec::new();
        if node.headed {
            let header = self.text.get(colon..node.span.start)?.lines().next().unwrap_or_default();
            let comment = header.find(" #").map_or("", |at| header[at..].trim_end());
            let end = self.text[..node.span.end].trim_end().len().max(colon);
            return Some(vec![vec![Splice::replace(colon..end, format!(" {written}{comment}"))]]);
        }
        let block = matches!(&node.body, Body::List { flow: false, .. } | Body::Map { flow: false, .. });
        if old.is_empty() || block {
            // Comments behind the colon stay.
            let between = self.text.get(colon..node.span.start.max(colon))?.trim_end();
            let range = colon..node.span.end.max(colon);
            if let (Value::Map(new), true) = (value, old.is_empty())
                && !new.is_empty()
            {
                let indent = self.column(field.name_span.start) + self.unit;
                let lines = scalar::yaml_lines(new, indent, self.unit, self.newline);
                let end = line_end(self.text, colon);
                found.push(vec![Splice::insert(end, format!("{}{lines}", self.newline))]);
            }
            found.push(vec![Splice::replace(range, format!(" {written}{between}"))]);
        }
        found.extend([in_place, with_break]);
        Some(found)
    }

    fn add(&self, node: &Node, name: Option<&str>, value: &Value) -> Option<Vec<Vec<Splice>>> {
        if let Some(flow) = self.flow(node) {
            return Some(vec![flow.add(name, value)]);
        }
        let (first, last) = (node.parts().into_iter().next()?, node.parts().pop()?);
        let (entry, indent) = match name {
            Some(name) => {
                let indent = self.column(node.span.start);
                (scalar::yaml_field(name, value, indent, self.unit, self.newline), indent)
            }
            None => (format!("- {}", scalar::yaml_flow(value)), self.column(node.span.start)),
        };
        let space = " ".repeat(indent);
        let content = self.text[..last.end].trim_end().len();
        let end = line_end(self.text, content.max(first.start));
        let below = vec![Splice::insert(end, format!("{}{space}{entry}", self.newline))];
        // Empty lines at the end may belong to a text.
        let at = if self.text[..last.end].ends_with('\n') { last.end } else { next_line(self.text, last.end) };
        let before = if self.text[..at].ends_with('\n') { "" } else { self.newline };
        let behind = vec![Splice::insert(at, format!("{before}{space}{entry}{}", self.newline))];
        Some(vec![below, behind])
    }

    fn remove(&self, path: &[usize]) -> Option<Vec<Vec<Splice>>> {
        let (last, above) = path.split_last()?;
        let parent = self.root.at(above)?;
        if let Some(flow) = self.flow(parent) {
            return Some(vec![flow.remove(*last)?]);
        }
        let parts = parent.parts();
        if parts.len() == 1 && !above.is_empty() {
            let empty = if matches!(parent.body, Body::Map { .. }) { Value::Map(vec![]) } else { Value::List(vec![]) };
            return self.replace(above, &empty);
        }
        let part = parts.get(*last)?.clone();
        let start = line_start(self.text, part.start);
        let end = self.text[..part.end].trim_end().len().max(part.start);
        let mut found = Vec::new();
        found.push(vec![Splice::remove(start..next_line(self.text, end))]);
        if part.end > end {
            // A text that keeps its empty lines takes them along.
            found.push(vec![Splice::remove(start..part.end)]);
        }
        if let Some(next) = parts.get(last + 1) {
            found.push(vec![Splice::remove(part.start..next.start)]);
        }
        Some(found)
    }
}
