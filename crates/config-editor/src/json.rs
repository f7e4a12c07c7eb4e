//! Reads JSON, with comments and commas at the end, into a tree that knows its bytes; and writes JSON.
//!
//! An own reader, because others forget where things stood.

use std::collections::HashSet;
use std::fmt::Write;

use crate::error::Error;
use crate::format::Format;
use crate::limits::{DEPTH_MAX, NODES_MAX};
use crate::node::{Body, Field, Node};
use crate::value::Value;

/// None: there is nothing but space and comments.
pub(crate) fn read(text: &str) -> Result<Option<Node>, Error> {
    let mut reader = Reader { text, at: 0, nodes: 0 };
    reader.skip()?;
    if reader.at == text.len() {
        return Ok(None);
    }
    let root = reader.node(0)?;
    reader.skip()?;
    if reader.at < text.len() {
        return Err(reader.wrong("something stands behind the document"));
    }
    Ok(Some(root))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    nodes: usize,
}

impl Reader<'_> {
    fn wrong(&self, reason: &str) -> Error {
        Error::syntax(Format::Json, self.text, self.at, reason)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self) -> Result<(), Error> {
        self.at = skip_space(self.text, self.at, Format::Json).ok_or_else(|| self.wrong("a comment is not closed"))?;
        Ok(())
    }

    fn node(&mut self, depth: usize) -> Result<Node, Error> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(Error::TooMany);
        }
        let start = self.at;
        let body = match self.peek() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => return Err(Error::TooDeep),
            Some(b'{') => Body::Map { fields: self.fields(depth)?, flow: true },
            Some(b'[') => Body::List { items: self.items(depth)?, flow: true },
            Some(b'"') => Body::Scalar(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => Body::Scalar(self.number()?),
            _ => Body::Scalar(self.word()?),
        };
        Ok(Node { span: start..self.at, body, tag: None, headed: false })
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<Field>, Error> {
        let mut fields = Vec::new();
        let mut known = HashSet::new();
        self.at += 1;
        while self.more(b'}', fields.is_empty())? {
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a name in double quotes is missing"));
            }
            let name = self.string()?;
            let name_span = start..self.at;
            if !known.insert(name.clone()) {
                self.at = start;
                return Err(self.wrong("this name stands here a second time"));
            }
            self.skip()?;
            if self.peek() != Some(b':') {
                return Err(self.wrong("a colon is missing"));
            }
            self.at += 1;
            self.skip()?;
            fields.push(Field { name, name_span, value: self.node(depth + 1)? });
        }
        Ok(fields)
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, Error> {
        let mut items = Vec::new();
        self.at += 1;
        while self.more(b']', items.is_empty())? {
            items.push(self.node(depth + 1)?);
        }
        Ok(items)
    }

    /// Goes to the next part, or behind the end.
    fn more(&mut self, end: u8, first: bool) -> Result<bool, Error> {
        self.skip()?;
        if !first && self.peek() == Some(b',') {
            self.at += 1;
            self.skip()?;
        } else if !first && self.peek() != Some(end) {
            return Err(self.wrong("a comma or the end is missing"));
        }
        let ended = self.peek() == Some(end);
        if ended {
            self.at += 1;
        }
        Ok(!ended)
    }

    fn word(&mut self) -> Result<Value, Error> {
        let words = [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)];
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let (word, value) = words
            .into_iter()
            .find(|(word, _)| *word == &rest[..length])
            .ok_or_else(|| self.wrong("a value is missing"))?;
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Error> {
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
        if !is_number(&rest[..length]) {
            return Err(self.wrong("this is no number"));
        }
        let number = rest[..length].to_owned();
        self.at += length;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, Error> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').unwrap_or(rest.len());
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.wrong("a control character stands in a text")),
                None => return Err(self.wrong("a text is not closed")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let letter = self.text.as_bytes().get(self.at + 1).copied();
        let character = match letter {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.wrong("this escape means nothing")),
        };
        self.at += 2;
        Ok(character)
    }

    fn unicode(&mut self) -> Result<char, Error> {
        let four = |at: usize| {
            let digits = self.text.get(at..at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            digits.and_then(|digits| u32::from_str_radix(digits, 16).ok())
        };
        let half = |code: u32, from: u32| (from..from + 0x400).contains(&code).then(|| code - from);
        let first = four(self.at + 2).ok_or_else(|| self.wrong("four hexadecimal digits are missing"))?;
        let (code, length) = match half(first, 0xD800) {
            None => (first, 6),
            Some(high) => {
                let second = self.text.get(self.at + 6..self.at + 8).filter(|mark| *mark == "\\u");
                let low = second.and_then(|_| four(self.at + 8)).and_then(|code| half(code, 0xDC00));
                let low = low.ok_or_else(|| self.wrong("half a character stands alone"))?;
                (0x10000 + (high << 10) + low, 12)
            }
        };
        let character = char::from_u32(code).ok_or_else(|| self.wrong("half a character stands alone"))?;
        self.at += length;
        Ok(character)
    }
}

/// Behind space and comments; none if a comment has no end.
pub(crate) fn skip_space(text: &str, mut at: usize, format: Format) -> Option<usize> {
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        let rest = &text[at..];
        let line = match format {
            Format::Json => rest.starts_with("//"),
            Format::Yaml | Format::Toml => rest.starts_with('#'),
        };
        if line {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if format == Format::Json && rest.starts_with("/*") {
            at += 2 + rest[2..].find("*/")? + 2;
        } else {
            return Some(at);
        }
    }
}

/// Whether it is a number as JSON writes it.
pub(crate) fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

/// On one line.
pub(crate) fn compact(value: &Value) -> String {
    let mut out = String::new();
    write(value, None, &mut out);
    out
}

/// Over several lines; lists of plain values stay on one.
pub(crate) fn pretty(value: &Value, indent: &str, unit: &str, line_break: &str) -> String {
    let mut out = String::new();
    write(value, Some(Layout { indent: indent.to_owned(), unit, line_break }), &mut out);
    out
}

#[derive(Clone)]
struct Layout<'u> {
    indent: String,
    unit: &'u str,
    line_break: &'u str,
}

fn write(value: &Value, layout: Option<Layout<'_>>, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) if is_number(number) => out.push_str(number),
        // Of another format, such as 0x1F or .inf.
        Value::Number(text) | Value::Time(text) | Value::Text(text) => out.push_str(&quoted(text)),
        Value::Tagged(_, value) => write(value, layout, out),
        Value::List(items) => {
            let simple = |item: &Value| !matches!(item.untagged(), Value::List(_) | Value::Map(_));
            let layout = layout.filter(|_| !items.iter().all(simple));
            parts(('[', ']'), items.iter().map(|item| (None, item)), layout, out);
        }
        Value::Map(fields) => {
            parts(('{', '}'), fields.iter().map(|(name, value)| (Some(name.as_str()), value)), layout, out);
        }
    }
}

fn parts<'v>(
    (open, close): (char, char),
    parts: impl ExactSizeIterator<Item = (Option<&'v str>, &'v Value)>,
    layout: Option<Layout<'_>>,
    out: &mut String,
) {
    let layout = layout.filter(|_| parts.len() > 0);
    let inner =
        layout.as_ref().map(|layout| Layout { indent: format!("{}{}", layout.indent, layout.unit), ..layout.clone() });
    out.push(open);
    for (at, (name, value)) in parts.enumerate() {
        match &inner {
            Some(Layout { indent, line_break, .. }) => {
                let _ = write!(out, "{}{line_break}{indent}", if at > 0 { "," } else { "" });
            }
            None => out.push_str(if at > 0 { ", " } else { "" }),
        }
        if let Some(name) = name {
            let _ = write!(out, "{}: ", quoted(name));
        }
        write(value, inner.clone(), out);
    }
    if let Some(Layout { indent, line_break, .. }) = layout {
        let _ = write!(out, "{line_break}{indent}");
    }
    out.push(close);
}

/// In double quotes, for JSON and for YAML: what YAML does not print, or takes for a line break, is escaped too.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
