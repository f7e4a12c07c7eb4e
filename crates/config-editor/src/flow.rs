//! Changes lists and maps between brackets: JSON, and what of YAML looks like it. Says which bytes; judges nothing.

use std::ops::Range;

use crate::format::Format;
use crate::json;
use crate::node::Node;
use crate::scalar;
use crate::splice::{Splice, indentation, line_break, line_end, line_start, next_line};
use crate::value::Value;

/// A list or map between brackets, with its text.
pub(crate) struct Flow<'t> {
    text: &'t str,
    format: Format,
    node: &'t Node,
    parts: Vec<Range<usize>>,
}

impl<'t> Flow<'t> {
    /// None: there are no brackets around it.
    pub(crate) fn new(text: &'t str, format: Format, node: &'t Node) -> Option<Flow<'t>> {
        let whole = text.get(node.span.clone())?;
        let brackets =
            (whole.starts_with('{') && whole.ends_with('}')) || (whole.starts_with('[') && whole.ends_with(']'));
        (node.is_flow() && brackets).then(|| Flow { text, format, node, parts: node.parts() })
    }

    fn open(&self) -> usize {
        self.node.span.start + 1
    }

    fn close(&self) -> usize {
        self.node.span.end - 1
    }

    /// The indentation of the parts, if each has lines of its own.
    fn lines(&self) -> Option<String> {
        let outer = || format!("{}{}", indentation(self.text, self.close()), unit(self.text));
        match (self.parts.first(), self.parts.last()) {
            (Some(first), Some(last)) => {
                let leads = self.text[self.open()..first.start].contains('\n');
                let ends = self.text[last.end..self.close()].contains('\n');
                let start = line_start(self.text, first.start);
                if leads && self.text[start..first.start].trim_start_matches([' ', '\t']).is_empty() {
                    Some(self.text[start..first.start].to_owned())
                } else {
                    (leads || ends).then(outer)
                }
            }
            _ => self.text[self.open()..self.close()].contains('\n').then(outer),
        }
    }

    fn written(&self, name: Option<&str>, value: &Value, indent: Option<&str>) -> String {
        match self.format {
            Format::Yaml | Format::Toml => match name {
                Some(name) => format!("{}: {}", scalar::yaml(name), scalar::yaml_flow(value)),
                None => scalar::yaml_flow(value),
            },
            Format::Json => {
                let value = self.json(value, indent);
                name.map_or(value.clone(), |name| format!("{}: {value}", json::quoted(name)))
            }
        }
    }

    fn json(&self, value: &Value, indent: Option<&str>) -> String {
        match indent {
            Some(indent) => json::pretty(value, indent, unit(self.text), line_break(self.text)),
            None => json::compact(value),
        }
    }

    /// In place of a part, or of the value of a field.
    pub(crate) fn replace(&self, part: &Node, value: &Value) -> Vec<Splice> {
        let text = match self.format {
            Format::Json => self.json(value, self.lines().as_deref()),
            Format::Yaml | Format::Toml => scalar::yaml_flow(value),
        };
        vec![Splice::replace(part.span.clone(), text)]
    }

    /// Behind the last part.
    pub(crate) fn add(&self, name: Option<&str>, value: &Value) -> Vec<Splice> {
        let lines = self.lines();
        let entry = self.written(name, value, lines.as_deref());
        let inner = &self.text[self.open()..self.close()];
        // Behind the last part or comment, before the space that leads to the bracket.
        let behind = self.open() + inner.trim_end_matches([' ', '\t', '\r', '\n']).len();
        let newline = line_break(self.text);
        let separator = lines.map_or(" ".to_owned(), |indent| format!("{newline}{indent}"));
        let Some(last) = self.parts.last() else {
            let first = if inner.trim().is_empty() && !inner.contains('\n') {
                Splice::replace(self.open()..self.close(), entry)
            } else {
                Splice::insert(behind, format!("{separator}{entry}"))
            };
            return vec![first];
        };
        if self.comma_behind(last.end).is_some() {
            return vec![Splice::insert(behind, format!("{separator}{entry},"))];
        }
        vec![Splice::insert(last.end, ","), Splice::insert(behind.max(last.end), format!("{separator}{entry}"))]
    }

    fn comma_behind(&self, end: usize) -> Option<usize> {
        json::skip_space(self.text, end, self.format).filter(|at| self.text[*at..].starts_with(','))
    }

    /// The part, its comma, and its line if nothing else is on it.
    pub(crate) fn remove(&self, position: usize) -> Option<Vec<Splice>> {
        let part = self.parts.get(position)?.clone();
        let mut splices = Vec::new();
        let mut gone = part.clone();
        if let Some(comma) = self.comma_behind(part.end) {
            gone.end = comma + 1;
        } else if let Some(before) = position.checked_sub(1) {
            let comma = self.comma_behind(self.parts[before].end)?;
            splices.push(Splice::remove(comma..comma + 1));
        }
        let start = line_start(self.text, gone.start);
        let alone = self.text[start..gone.start].trim().is_empty() && start > self.node.span.start;
        let end = line_end(self.text, gone.end);
        let behind = self.text[gone.end..end].trim();
        let comment = match self.format {
            Format::Json => {
                behind.starts_with("//")
                    || (behind.starts_with("/*") && behind.find("*/") == behind.len().checked_sub(2))
            }
            Format::Yaml | Format::Toml => behind.starts_with('#'),
        };
        if alone && (behind.is_empty() || comment) && end < self.close() {
            gone = start..next_line(self.text, gone.end);
        } else if position + 1 < self.parts.len() {
            gone.end += self.text[gone.end..].len() - self.text[gone.end..].trim_start_matches(' ').len();
        } else {
            let from = splices.last().map_or(self.open(), |comma| comma.range.end);
            gone.start = from + self.text[from..gone.start].trim_end_matches(' ').len();
        }
        splices.push(Splice::remove(gone));
        Some(splices)
    }
}

/// One step of indentation, as the first indented line has it.
pub(crate) fn unit(text: &str) -> &str {
    let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
    indented.map(|line| indentation(line, 0)).filter(|unit| unit.len() <= 8).unwrap_or("  ")
}
