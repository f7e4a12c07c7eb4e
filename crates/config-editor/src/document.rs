//! A document that can be changed key by key. Each change is tried on the text, read again and compared: what comes out
//! is the old document with just that change, or nothing happens. Knows no file.

use crate::block;
use crate::error::Error;
use crate::flow::Flow;
use crate::format::Format;
use crate::json;
use crate::key::Key;
use crate::limits::FILE_BYTES_MAX;
use crate::node::{Body, Node};
use crate::scalar;
use crate::splice::{Splice, line_break, spliced};
use crate::toml;
use crate::value::{Plan, Value};
use crate::yaml;

const BOM: char = '\u{feff}';

/// The text of a file, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    format: Format,
    /// Without its mark.
    text: String,
    /// The text began with a byte order mark, and will again.
    marked: bool,
    value: Value,
    /// Where everything stands, for the formats that are spliced.
    root: Option<Node>,
}

impl Document {
    /// Reads a text; an empty one is an empty map.
    pub fn parse(format: Format, text: &str) -> Result<Document, Error> {
        if text.len() > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let body = text.strip_prefix(BOM).unwrap_or(text);
        let (value, root) = read(format, body)?;
        Ok(Document { format, text: body.to_owned(), marked: body.len() < text.len(), value, root })
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Everything it says.
    pub fn value(&self) -> &Value {
        &self.value
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.value.get(key)
    }

    /// The text as it belongs into a file.
    pub fn to_text(&self) -> String {
        if self.marked { format!("{BOM}{}", self.text) } else { self.text.clone() }
    }

    /// Puts a value at a key; parents that are missing are made. Whether that changed anything.
    pub fn set(&mut self, key: &Key, value: &Value) -> Result<bool, Error> {
        if self.get(key) == Some(value) {
            return Ok(false);
        }
        let plan = Plan::set(&self.value, key, value)?;
        self.apply(key, &plan)?;
        Ok(true)
    }

    /// Takes a key away, with all below it. Whether it was there.
    pub fn unset(&mut self, key: &Key) -> Result<bool, Error> {
        let Some(plan) = Plan::remove(&self.value, key) else { return Ok(false) };
        self.apply(key, &plan)?;
        Ok(true)
    }

    fn apply(&mut self, key: &Key, plan: &Plan) -> Result<(), Error> {
        let expected = plan.applied(&self.value);
        expected.check_depth(0)?;
        let texts = match self.format {
            Format::Toml => toml::proposals(&self.text, &self.value, plan).map_err(|error| match error {
                Error::Entangled { why, .. } => Error::Entangled { key: key.to_string(), why },
                other => other,
            })?,
            Format::Yaml | Format::Json => {
                let proposals = match self.format {
                    Format::Json => json_proposals(&self.text, self.root.as_ref(), plan),
                    Format::Yaml | Format::Toml => block::proposals(&self.text, self.root.as_ref(), plan),
                };
                proposals.iter().filter_map(|splices| spliced(&self.text, splices)).collect()
            }
        };
        for text in texts {
            if text.len() > FILE_BYTES_MAX {
                return Err(Error::TooLarge);
            }
            let Ok((value, root)) = read(self.format, &text) else { continue };
            let same = match self.format {
                Format::Toml => value.same_without_order(&expected),
                Format::Yaml | Format::Json => value == expected,
            };
            if same {
                (self.text, self.value, self.root) = (text, value, root);
                return Ok(());
            }
        }
        let bound = self.format == Format::Yaml && self.text.contains(['&', '*', '!']);
        let why = bound.then_some("an anchor, an alias or a tag may stand in the way; change it by hand");
        Err(Error::Entangled { key: key.to_string(), why })
    }
}

/// The value, and for the formats that are spliced the places of its parts.
fn read(format: Format, text: &str) -> Result<(Value, Option<Node>), Error> {
    let root = match format {
        Format::Toml => {
            let value = toml::read(text)?;
            value.check_depth(0)?;
            return Ok((value, None));
        }
        Format::Yaml => yaml::read(text)?,
        Format::Json => json::read(text)?,
    };
    let value = match root.as_ref().map(Node::value) {
        None | Some(Value::Null) => Value::Map(Vec::new()),
        Some(value) => value,
    };
    Ok((value, root))
}

fn json_proposals(text: &str, root: Option<&Node>, plan: &Plan) -> Vec<Vec<Splice>> {
    let newline = line_break(text);
    let first = |name: &str, value: &Value| {
        json::pretty(&Value::Map(vec![(name.to_owned(), value.clone())]), "", "  ", newline)
    };
    let Some(root) = root else {
        let Plan::AddField { name, value, .. } = plan else { return Vec::new() };
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
        return vec![vec![Splice::insert(text.len(), format!("{gap}{}{newline}", first(name, value)))]];
    };
    let flow = |path: &[usize]| root.at(path).and_then(|node| Flow::new(text, Format::Json, node));
    let splices = match plan {
        Plan::Replace { path, value } => path.split_last().and_then(|(_, above)| {
            let (parent, node) = (flow(above)?, root.at(path)?);
            Some(parent.replace(node, value))
        }),
        Plan::AddField { path, name, value } => {
            let bare = path.is_empty() && matches!(&root.body, Body::Map { fields, .. } if fields.is_empty());
            if bare && text[root.span.clone()].bytes().filter(|byte| !byte.is_ascii_whitespace()).count() == 2 {
                Some(vec![Splice::replace(root.span.clone(), first(name, value))])
            } else {
                flow(path).map(|parent| parent.add(Some(name), value))
            }
        }
        Plan::AddItem { path, value } => flow(path).map(|parent| parent.add(None, value)),
        Plan::Remove { path } => path.split_last().and_then(|(last, above)| flow(above)?.remove(*last)),
    };
    splices.into_iter().collect()
}

impl Value {
    /// A value as a person types it: what is a value of the format is one, anything else is a text.
    ///
    /// ```
    /// use lockkeeper_config_editor::{Format, Value};
    ///
    /// assert_eq!(Value::typed(Format::Toml, "5"), Value::from(5));
    /// assert_eq!(Value::typed(Format::Toml, "5m"), Value::from("5m"));
    /// assert_eq!(Value::typed(Format::Yaml, "\"5\""), Value::from("5"));
    /// assert_eq!(Value::typed(Format::Json, "[1, true]"), Value::List(vec![1.into(), true.into()]));
    /// ```
    pub fn typed(format: Format, text: &str) -> Value {
        let structured = text.starts_with(['[', '{', '"']);
        let as_json = || json::read(text).ok().flatten().map(|node| node.value());
        let found = match format {
            _ if text != text.trim() || text.contains(['\n', '#']) && !structured => None,
            Format::Json => as_json(),
            Format::Toml => toml::typed(text).or_else(|| as_json().filter(|_| structured)),
            Format::Yaml if structured || text.starts_with('\'') => {
                yaml::read(text).ok().flatten().map(|node| node.value())
            }
            Format::Yaml => Some(yaml::meaning(text)).filter(|_| !text.is_empty()),
        };
        found.unwrap_or_else(|| Value::text(text))
    }

    /// As a person reads it: a text without quotes, a map or list as the format writes it.
    pub fn shown(&self, format: Format) -> String {
        match (self.untagged(), format) {
            (Value::Null, _) => "null".to_owned(),
            (Value::Bool(truth), _) => truth.to_string(),
            (Value::Number(text) | Value::Time(text) | Value::Text(text), _) => text.clone(),
            (value, Format::Toml) => toml::written(value).unwrap_or_else(|_| json::compact(value)),
            (Value::Map(fields), Format::Yaml) if !fields.is_empty() => scalar::yaml_lines(fields, 0, 2, "\n"),
            (value, Format::Yaml) => scalar::yaml_flow(value),
            (value, Format::Json) => json::pretty(value, "", "  ", "\n"),
        }
    }

    /// As JSON on one line. What JSON has no word for (a time, an infinite number) becomes a text.
    pub fn to_json(&self) -> String {
        json::compact(self)
    }
}
