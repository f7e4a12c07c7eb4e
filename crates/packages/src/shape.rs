//! Holds a tree against the JSON Schema, and tells every place where they differ. Knows the keywords that this
//! project's own schema uses, and nothing of what a field means.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use lockkeeper_core::text::distance;
use serde_json::Value;

use crate::problem::{Check, Problems, shortened};
use crate::scalar::Meaning;
use crate::schema::{PATTERNS, shared};
use crate::tree::{Content, Field, NodeId, Tree};

/// Names that a problem lists before it says that there are more.
const NAMES_SHOWN_MAX: usize = 16;

pub(crate) fn check(tree: &Tree<'_>, problems: &mut Problems) {
    let mut walk = Walk { tree, problems, root: shared(), path: String::new() };
    walk.node(tree.root(), shared());
}

struct Walk<'w, 't> {
    tree: &'w Tree<'t>,
    problems: &'w mut Problems,
    root: &'static Value,
    path: String,
}

impl Walk<'_, '_> {
    fn node(&mut self, id: NodeId, schema: &'static Value) {
        let rule = self.resolve(schema);
        let allowed = types(rule);
        match &self.tree.node(id).content {
            Content::Scalar(scalar) => match scalar.meaning() {
                Meaning::Text(text) if allowed.contains(&"string") => self.text(id, text, rule),
                Meaning::Integer(number) if allowed.contains(&"integer") => self.integer(id, number, rule),
                Meaning::Float(_) if allowed.contains(&"number") => {}
                Meaning::Bool(_) if allowed.contains(&"boolean") => {}
                Meaning::Null => {
                    let message = format!("{} has no value", self.subject());
                    self.tell(id, message, Some(format!("give it {}, or leave it out", noun(&allowed))));
                }
                other => {
                    let hint = allowed.contains(&"string").then(|| format!("write \"{}\"", self.tree.shown(id)));
                    self.mistyped(id, other.noun(), &allowed, hint);
                }
            },
            Content::List(items) if allowed.contains(&"array") => self.list(id, items, rule),
            Content::Map(fields) if allowed.contains(&"object") => self.map(id, fields, rule),
            Content::List(_) => self.mistyped(id, "a list", &allowed, None),
            Content::Map(_) => self.mistyped(id, "a map", &allowed, None),
        }
    }

    fn resolve(&self, schema: &'static Value) -> &'static Value {
        let Some(reference) = schema["$ref"].as_str() else { return schema };
        let pointer = reference.strip_prefix('#').expect("references of our own schema are local");
        self.root.pointer(pointer).expect("references of our own schema lead somewhere")
    }

    fn text(&mut self, id: NodeId, text: &str, rule: &'static Value) {
        let limits = (rule["minLength"].as_u64(), rule["maxLength"].as_u64());
        if limits != (None, None) {
            let count = text.chars().count() as u64;
            if let Some(max) = limits.1.filter(|max| count > *max) {
                self.tell(id, format!("{} has {count} characters; at most {max} are taken", self.subject()), None);
            }
            if limits.0.is_some_and(|min| count < min) {
                self.tell(id, format!("{} is empty", self.subject()), None);
            }
        }
        let Some(wanted) = rule["pattern"].as_str() else { return };
        let pattern = PATTERNS.iter().find(|known| known.text == wanted).expect("our own schema has known patterns");
        if !(pattern.takes)(text) {
            let message = format!("'{}' is not {}", shortened(text), pattern.noun);
            self.tell(id, message, Some(format!("for example {}", pattern.example)));
        }
    }

    fn integer(&mut self, id: NodeId, number: i64, rule: &'static Value) {
        let (min, max) = (rule["minimum"].as_i64(), rule["maximum"].as_i64());
        if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
            let bounds = match (min, max) {
                (Some(min), Some(max)) if min == max => format!("it is {min}"),
                (min, max) => format!("it goes from {} to {}", min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX)),
            };
            self.tell(id, format!("{} can't be {number}; {bounds}", self.subject()), None);
        }
    }

    fn list(&mut self, id: NodeId, items: &[NodeId], rule: &'static Value) {
        let count = items.len() as u64;
        if let Some(max) = rule["maxItems"].as_u64().filter(|max| count > *max) {
            self.tell(id, format!("{} has {count} entries; at most {max} are taken", self.subject()), None);
            return;
        }
        if rule["minItems"].as_u64().is_some_and(|min| count < min) {
            self.tell(id, format!("{} needs at least one entry", self.subject()), None);
        }
        let inner = &rule["items"];
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let unique = rule["uniqueItems"].as_bool() == Some(true);
        let tree = self.tree;
        for (index, item) in items.iter().enumerate() {
            let length = self.path.len();
            write!(self.path, "[{index}]").expect("a string takes everything");
            if inner.is_object() {
                self.node(*item, inner);
            }
            if let Some(text) = tree.text(*item).filter(|_| unique)
                && let Some(first) = seen.insert(text, index)
            {
                self.tell(*item, format!("'{}' stands here already, as entry {first}", shortened(text)), None);
            }
            self.path.truncate(length);
        }
    }

    fn map(&mut self, id: NodeId, fields: &[Field], rule: &'static Value) {
        let Some(known) = rule["properties"].as_object() else { return };
        let tree = self.tree;
        let mut present: HashSet<&str> = HashSet::new();
        for field in fields {
            let name = tree.name(*field);
            present.insert(name);
            let length = self.path.len();
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(&shortened(name));
            match known.get(name) {
                Some(inner) => self.node(field.value, inner),
                // A million of them would take their time for words that nobody sees.
                None if self.problems.room() == 0 => self.problems.leave_out(1),
                None => {
                    let hint = suggestion(name, known.keys().map(String::as_str));
                    self.tell(field.name, format!("there is no field '{}' here", shortened(name)), Some(hint));
                }
            }
            self.path.truncate(length);
        }
        let required = rule["required"].as_array().map_or(&[][..], Vec::as_slice);
        for name in required.iter().filter_map(Value::as_str).filter(|name| !present.contains(name)) {
            let place = if self.path.is_empty() { "the document".to_owned() } else { self.subject() };
            let about = known[name]["description"].as_str().map(str::to_owned);
            self.tell(id, format!("{place} lacks the field {name}"), about);
        }
    }

    fn mistyped(&mut self, id: NodeId, found: &str, allowed: &[&str], hint: Option<String>) {
        self.tell(id, format!("{} is {found}, where {} belongs", self.subject(), noun(allowed)), hint);
    }

    /// What the message is about: the last part of the path.
    fn subject(&self) -> String {
        if self.path.is_empty() {
            return "the document".to_owned();
        }
        self.path.rsplit('.').next().unwrap_or_default().to_owned()
    }

    fn tell(&mut self, id: NodeId, message: String, hint: Option<String>) {
        let place = self.tree.node(id).place;
        let told = self.problems.add(Check::Schema, place, self.path.as_str(), &self.tree.shown(id), message);
        if let Some(hint) = hint {
            told.hint(hint);
        }
    }
}

fn types(rule: &'static Value) -> Vec<&'static str> {
    match &rule["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        single => single.as_str().into_iter().collect(),
    }
}

fn noun(allowed: &[&str]) -> &'static str {
    match allowed {
        ["string"] => "a text",
        ["integer"] => "a whole number",
        ["array"] => "a list",
        ["object"] => "a map",
        _ => "a value",
    }
}

/// The known name that was probably meant, or else all of them.
fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let mut names: Vec<&str> = known.collect();
    if name == "<<" {
        return "YAML 1.2 has no merge keys; write the fields out".to_owned();
    }
    // Only short names are worth comparing letter by letter.
    let near = (name.len() <= 64).then(|| {
        names.iter().map(|known| (distance(name, known), *known)).min().filter(|(distance, _)| *distance <= 2)
    });
    if let Some(Some((_, near))) = near {
        return format!("did you mean {near}?");
    }
    let more = if names.len() > NAMES_SHOWN_MAX { " …" } else { "" };
    names.truncate(NAMES_SHOWN_MAX);
    format!("known are {}{more}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        assert_eq!(suggestion("prioritty", ["priority", "locks"].into_iter()), "did you mean priority?");
        assert_eq!(suggestion("zzz", ["priority", "locks"].into_iter()), "known are priority locks");
    }
}
