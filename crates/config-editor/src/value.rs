//! A value, whatever file it came from. Knows no text and no place.

use crate::error::Error;
use crate::key::{Key, Step};
use crate::limits::DEPTH_MAX;

/// What a document holds. Numbers are kept as they are written, so that none is rounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(String),
    /// A date or time, which only TOML tells from a text.
    Time(String),
    Text(String),
    List(Vec<Value>),
    /// In the order of the file.
    Map(Vec<(String, Value)>),
    /// A value of YAML with a tag of its own.
    Tagged(String, Box<Value>),
}

impl Value {
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// The value at a key, if there is one. `[]` names nothing that is there.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        key.steps().iter().try_fold(self, |value, step| value.child(value.position(step)?))
    }

    /// What stands below a tag.
    pub fn untagged(&self) -> &Value {
        match self {
            Value::Tagged(_, value) => value.untagged(),
            other => other,
        }
    }

    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a truth value",
            Value::Number(_) => "a number",
            Value::Time(_) => "a time",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Tagged(..) => "a value with a tag",
        }
    }

    /// Which of the parts a step leads to.
    pub(crate) fn position(&self, step: &Step) -> Option<usize> {
        match (self, step) {
            (Value::Map(fields), Step::Name(name)) => fields.iter().position(|(known, _)| known == name),
            (Value::List(items), step) => index(step).filter(|index| *index < items.len()),
            _ => None,
        }
    }

    pub(crate) fn child(&self, position: usize) -> Option<&Value> {
        match self {
            Value::Map(fields) => fields.get(position).map(|(_, value)| value),
            Value::List(items) => items.get(position),
            _ => None,
        }
    }

    pub(crate) fn at_mut(&mut self, path: &[usize]) -> &mut Value {
        path.iter().fold(self, |value, position| match value {
            Value::Map(fields) => &mut fields[*position].1,
            Value::List(items) => &mut items[*position],
            _ => unreachable!("a path was made by this very document"),
        })
    }

    /// Refuses what lies too deep; the readers of the formats have bounds of their own, which may be others.
    pub(crate) fn check_depth(&self, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::TooDeep);
        }
        match self {
            Value::List(items) => items.iter().try_for_each(|item| item.check_depth(depth + 1)),
            Value::Map(fields) => fields.iter().try_for_each(|(_, value)| value.check_depth(depth + 1)),
            Value::Tagged(_, value) => value.check_depth(depth),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Time(_) | Value::Text(_) => Ok(()),
        }
    }

    /// Equal but for the order of maps, which TOML makes no promise about.
    pub(crate) fn same_without_order(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::List(mine), Value::List(theirs)) => {
                mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(a, b)| a.same_without_order(b))
            }
            (Value::Map(mine), Value::Map(theirs)) => {
                let sorted = |fields: &'_ Vec<(String, Value)>| {
                    let mut places: Vec<usize> = (0..fields.len()).collect();
                    places.sort_unstable_by(|a, b| fields[*a].0.cmp(&fields[*b].0));
                    places
                };
                let pairs = sorted(mine).into_iter().zip(sorted(theirs));
                mine.len() == theirs.len()
                    && pairs.map(|(a, b)| (&mine[a], &theirs[b])).all(|((name, value), (other_name, other))| {
                        name == other_name && value.same_without_order(other)
                    })
            }
            _ => self == other,
        }
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Bool(truth)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number.to_string())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::text(text)
    }
}

fn index(step: &Step) -> Option<usize> {
    match step {
        Step::Item(index) => Some(*index),
        // No leading zeros or signs: one item has one name.
        Step::Name(name) => name.parse().ok().filter(|index: &usize| index.to_string() == *name),
        Step::New => None,
    }
}

/// What a change of one key comes to, in this very document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// There is something already. The path is made of positions.
    Replace {
        path: Vec<usize>,
        value: Value,
    },
    /// A map gets one more field; what is missing in between is part of the value.
    AddField {
        path: Vec<usize>,
        name: String,
        value: Value,
    },
    AddItem {
        path: Vec<usize>,
        value: Value,
    },
    Remove {
        path: Vec<usize>,
    },
}

impl Plan {
    pub(crate) fn set(root: &Value, key: &Key, value: &Value) -> Result<Plan, Error> {
        let mut path = Vec::new();
        let mut here = root;
        for (depth, step) in key.steps().iter().enumerate() {
            let rest = &key.steps()[depth + 1..];
            let wrapped = |from: usize| wrap(&key.steps()[from..], value);
            if let Some(position) = here.position(step) {
                here = here.child(position).expect("it was found there");
                path.push(position);
                // Null has no parts, and nobody loses anything if it gets some.
                if *here == Value::Null && !rest.is_empty() {
                    return Ok(Plan::Replace { path, value: wrapped(depth + 1)? });
                }
                continue;
            }
            return match (here, step) {
                (Value::Map(_), Step::Name(name)) => {
                    Ok(Plan::AddField { path, name: name.clone(), value: wrapped(depth + 1)? })
                }
                (Value::List(_), Step::New) => Ok(Plan::AddItem { path, value: value.clone() }),
                (Value::List(items), step) if index(step).is_some() => {
                    Err(Error::NoSuchItem { at: shown(key, depth), count: items.len() })
                }
                (other, _) => Err(Error::NotBelow { key: key.to_string(), at: shown(key, depth), noun: other.noun() }),
            };
        }
        Ok(Plan::Replace { path, value: value.clone() })
    }

    /// None: nothing is there to be removed.
    pub(crate) fn remove(root: &Value, key: &Key) -> Option<Plan> {
        let mut path = Vec::new();
        let mut here = root;
        for step in key.steps() {
            let position = here.position(step)?;
            here = here.child(position)?;
            path.push(position);
        }
        Some(Plan::Remove { path })
    }

    /// The document as it has to be afterwards.
    pub(crate) fn applied(&self, root: &Value) -> Value {
        let mut changed = root.clone();
        match self {
            Plan::Replace { path, value } => *changed.at_mut(path) = value.clone(),
            Plan::AddField { path, name, value } => match changed.at_mut(path) {
                Value::Map(fields) => fields.push((name.clone(), value.clone())),
                _ => unreachable!("a field is added to a map"),
            },
            Plan::AddItem { path, value } => match changed.at_mut(path) {
                Value::List(items) => items.push(value.clone()),
                _ => unreachable!("an item is added to a list"),
            },
            Plan::Remove { path } => {
                let (last, parent) = path.split_last().expect("the whole document is never removed");
                match changed.at_mut(parent) {
                    Value::Map(fields) => drop(fields.remove(*last)),
                    Value::List(items) => drop(items.remove(*last)),
                    _ => unreachable!("only lists and maps have parts"),
                }
            }
        }
        changed
    }
}

/// The value with the parents that are missing above it.
fn wrap(steps: &[Step], value: &Value) -> Result<Value, Error> {
    steps.iter().rev().try_fold(value.clone(), |value, step| match step {
        Step::Name(name) => Ok(Value::Map(vec![(name.clone(), value)])),
        Step::New => Ok(Value::List(vec![value])),
        Step::Item(_) => Err(Error::NoSuchItem { at: "the new list".to_owned(), count: 0 }),
    })
}

/// The beginning of a key.
fn shown(key: &Key, depth: usize) -> String {
    match Key::new(key.steps()[..depth].to_vec()) {
        Ok(key) => key.to_string(),
        Err(_) => "the document".to_owned(),
    }
}
