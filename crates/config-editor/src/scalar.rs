//! How a value is written in YAML: without quotes only where no reader of any version could take it for something else.

use crate::json::{self, is_number};
use crate::value::Value;
use crate::yaml::meaning;

/// Words that mean something else to a reader of YAML 1.1.
const WORDS: [&str; 14] =
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "none", "infinity", "nil"];

/// A text.
pub(crate) fn yaml(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { json::quoted(text) }
}

fn is_plain(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '/';
    let rest = |c: char| c.is_ascii_alphanumeric() || "_-./+@ ".contains(c);
    text.starts_with(first)
        && text.len() <= 120
        && text.chars().all(rest)
        && !text.ends_with(' ')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
        && matches!(meaning(text), Value::Text(_))
}

/// A value on one line.
pub(crate) fn yaml_flow(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) if is_number(number) || matches!(meaning(number), Value::Number(_)) => number.clone(),
        Value::Number(text) | Value::Time(text) | Value::Text(text) => yaml(text),
        Value::Tagged(_, value) => yaml_flow(value),
        Value::List(items) => format!("[{}]", items.iter().map(yaml_flow).collect::<Vec<_>>().join(", ")),
        Value::Map(fields) => {
            let field = |(name, value): &(String, Value)| format!("{}: {}", yaml(name), yaml_flow(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A text in the quotes that the old one had, where they can hold it.
pub(crate) fn yaml_like(old: &str, value: &Value) -> String {
    match value {
        Value::Text(text) if old.starts_with('"') => json::quoted(text),
        Value::Text(text) if old.starts_with('\'') && text.chars().all(|c| (' '..='~').contains(&c)) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        other => yaml_flow(other),
    }
}

/// A field over as many lines as its maps need; the first line is not indented.
pub(crate) fn yaml_field(name: &str, value: &Value, indent: usize, unit: usize, line_break: &str) -> String {
    let name = yaml(name);
    match value {
        Value::Map(fields) if !fields.is_empty() => {
            format!("{name}:{line_break}{}", yaml_lines(fields, indent + unit, unit, line_break))
        }
        other => format!("{name}: {}", yaml_flow(other)),
    }
}

/// Fields, one below the other.
pub(crate) fn yaml_lines(fields: &[(String, Value)], indent: usize, unit: usize, line_break: &str) -> String {
    let space = " ".repeat(indent);
    let field =
        |(name, value): &(String, Value)| format!("{space}{}", yaml_field(name, value, indent, unit, line_break));
    fields.iter().map(field).collect::<Vec<_>>().join(line_break)
}
