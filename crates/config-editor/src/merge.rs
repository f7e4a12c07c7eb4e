//! Joins what a person changed in a copy with what programs changed in the file meanwhile. Nothing is dropped silently:
//! where it can't be joined byte for byte, it is refused.

use crate::document::Document;
use crate::error::Error;
use crate::format::Format;
use crate::key::{Key, Step};
use crate::value::Value;

/// One key that differs; without a value it is gone.
type Change = (Key, Option<Value>);

/// `ours` with what changed between `base` and `theirs`.
///
/// `ours` keeps its comments and layout. The other side may have changed keys alone: more than that can't be carried over.
pub fn merge(format: Format, base: &str, ours: &str, theirs: &str) -> Result<Document, Error> {
    let mut merged = Document::parse(format, ours)?;
    if base == theirs {
        return Ok(merged);
    }
    let conflict = |why: String| Error::Conflict(why);
    let mut replayed = Document::parse(format, base)?;
    let before = replayed.value().clone();
    let changes = differences(&before, Document::parse(format, theirs)?.value())?;
    let carried = apply(&changes, &mut replayed);
    if carried.is_err() || replayed.to_text() != theirs {
        return Err(conflict("the file was changed meanwhile in more than its keys".to_owned()));
    }
    let own = differences(&before, merged.value())?;
    for (key, value) in &changes {
        let clash = own.iter().find(|(mine, wanted)| mine.overlaps(key) && (mine != key || wanted != value));
        if let Some((mine, _)) = clash {
            return Err(conflict(format!("'{mine}' was changed here, and '{key}' in the file meanwhile")));
        }
    }
    apply(&changes, &mut merged).map_err(|error| conflict(format!("what changed meanwhile does not fit: {error}")))?;
    Ok(merged)
}

fn apply(changes: &[Change], document: &mut Document) -> Result<(), Error> {
    for (key, value) in changes {
        match value {
            Some(value) => document.set(key, value)?,
            None => document.unset(key)?,
        };
    }
    Ok(())
}

/// The keys that differ, as far down as maps lead.
fn differences(from: &Value, to: &Value) -> Result<Vec<Change>, Error> {
    let mut found = Vec::new();
    compare(&mut Vec::new(), from, to, &mut found)?;
    Ok(found)
}

fn compare(path: &mut Vec<Step>, from: &Value, to: &Value, found: &mut Vec<Change>) -> Result<(), Error> {
    if let (Value::Map(old), Value::Map(new)) = (from, to) {
        let known: std::collections::HashMap<&str, &Value> =
            old.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let kept: std::collections::HashSet<&str> = new.iter().map(|(name, _)| name.as_str()).collect();
        for (name, _) in old.iter().filter(|(name, _)| !kept.contains(name.as_str())) {
            path.push(Step::Name(name.clone()));
            found.push((Key::new(path.clone())?, None));
            path.pop();
        }
        for (name, value) in new {
            path.push(Step::Name(name.clone()));
            match known.get(name.as_str()) {
                Some(before) => compare(path, before, value, found)?,
                None => found.push((Key::new(path.clone())?, Some(value.clone()))),
            }
            path.pop();
        }
    } else if from != to {
        if path.is_empty() {
            return Err(Error::Conflict("the document is of another kind now".to_owned()));
        }
        found.push((Key::new(path.clone())?, Some(to.clone())));
    }
    Ok(())
}
