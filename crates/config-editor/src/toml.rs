//! Changes TOML through `toml_edit`, which keeps comments, order and layout.

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table};

use crate::error::Error;
use crate::format::Format;
use crate::splice::{Splice, line_start, next_line, spliced};
use crate::value::{Plan, Value};

pub(crate) fn read(text: &str) -> Result<Value, Error> {
    // Only a document that can be changed knows its numbers as they are written.
    Ok(table_value(parse(text)?.into_mut().as_table()))
}

fn parse(text: &str) -> Result<toml_edit::Document<String>, Error> {
    toml_edit::Document::parse(text.to_owned()).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Error::syntax(Format::Toml, text, at, error.message().trim())
    })
}

/// Texts that may be what is wanted, the nicest first.
pub(crate) fn proposals(text: &str, value: &Value, plan: &Plan) -> Result<Vec<String>, Error> {
    let crlf = text.matches("\r\n").count();
    if crlf > 0 && crlf != text.matches('\n').count() {
        return Err(Error::syntax(Format::Toml, text, 0, "its lines end in two different ways"));
    }
    let mut found = Vec::new();
    let document = parse(text)?;
    if let Plan::Remove { path } = plan
        && let Some(splice) = line_of(text, document.as_table(), value, path)
    {
        found.extend(spliced(text, &[splice]));
    }
    let mut document = document.into_mut();
    if changed(&mut document, value, plan)?.is_some() {
        let mut new = document.to_string();
        if let (Plan::AddField { .. }, true) = (plan, document.len() == 1 && *value == Value::Map(vec![])) {
            // Comments of a file that had nothing else stay where a reader expects them: above.
            let mut fresh = DocumentMut::new();
            changed(&mut fresh, value, plan)?;
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            new = format!("{text}{gap}{fresh}");
        }
        if crlf > 0 {
            new = new.replace("\r\n", "\n").replace('\n', "\r\n");
        }
        found.push(new);
    }
    Ok(found)
}

/// The lines of a value that has them for itself. Comments above it stay.
fn line_of(text: &str, root: &Table, value: &Value, path: &[usize]) -> Option<Splice> {
    let mut table = root;
    let mut here = value;
    let (last, above) = path.split_last()?;
    for position in above {
        let Value::Map(fields) = here else { return None };
        let (name, below) = &fields[*position];
        (table, here) = (table.get(name)?.as_table()?, below);
    }
    let Value::Map(fields) = here else { return None };
    let (key, item) = table.get_key_value(&fields[*last].0)?;
    let (first, end) = match item {
        Item::Value(value) => (key.span()?.start, value.span()?.end),
        Item::Table(table) => {
            let headline = table.span()?;
            let ends = table.iter().filter_map(|(_, item)| Some(item.as_value()?.span()?.end));
            (headline.start, ends.fold(headline.end, usize::max))
        }
        Item::ArrayOfTables(_) | Item::None => return None,
    };
    let start = line_start(text, first);
    let range = start..next_line(text, end);
    let alone = text[start..first].trim().is_empty();
    // The last table goes with the empty lines above it.
    if matches!(item, Item::Table(_)) && range.end == text.len() {
        let kept = text[..start].trim_end().len();
        return alone.then(|| Splice::remove(if kept == 0 { range } else { next_line(text, kept)..text.len() }));
    }
    alone.then(|| Splice::remove(range))
}

/// The comments above an item that goes, which are not part of it. They may stand above its first part instead.
fn comments_above(item: &Item) -> Option<String> {
    let below = |table: &Table| table.iter().find_map(|(_, item)| comments_above(item));
    let decor = match item {
        Item::Table(table) => match table.decor().prefix().and_then(|prefix| prefix.as_str()) {
            Some(prefix) if prefix.contains('#') => table.decor(),
            _ => return below(table),
        },
        Item::ArrayOfTables(tables) => tables.iter().next()?.decor(),
        Item::Value(_) | Item::None => return None,
    };
    let above = decor.prefix()?.as_str()?;
    above.contains('#').then(|| format!("\n{}\n", above.trim()))
}

/// Something that can be changed.
enum Place<'d> {
    Table(&'d mut Table),
    Item(&'d mut Item),
    Value(&'d mut toml_edit::Value),
}

impl<'d> Place<'d> {
    fn field(self, name: &str) -> Option<Place<'d>> {
        match self {
            Place::Table(table) | Place::Item(Item::Table(table)) => Some(Place::Item(table.get_mut(name)?)),
            Place::Item(Item::Value(value)) | Place::Value(value) => {
                Some(Place::Value(value.as_inline_table_mut()?.get_mut(name)?))
            }
            Place::Item(Item::ArrayOfTables(_) | Item::None) => None,
        }
    }

    fn item(self, index: usize) -> Option<Place<'d>> {
        match self {
            Place::Item(Item::ArrayOfTables(tables)) => Some(Place::Table(tables.get_mut(index)?)),
            Place::Item(Item::Value(value)) | Place::Value(value) => {
                Some(Place::Value(value.as_array_mut()?.get_mut(index)?))
            }
            Place::Table(_) | Place::Item(Item::Table(_) | Item::None) => None,
        }
    }

    /// The comments that had stood above, if they stand nowhere now.
    fn replace(self, value: &Value) -> Result<Option<String>, Error> {
        match self {
            Place::Item(Item::Value(old)) | Place::Value(old) => {
                let decor = old.decor().clone();
                *old = inline(value)?;
                *old.decor_mut() = decor;
            }
            Place::Item(item) => {
                let lost = comments_above(item);
                *item = Item::Value(inline(value)?);
                return Ok(lost);
            }
            Place::Table(table) => {
                let Value::Map(fields) = value else { return Err(entangled("a table stands in its list of tables")) };
                let decor = table.decor().clone();
                *table = tables(fields)?;
                *table.decor_mut() = decor;
            }
        }
        Ok(None)
    }

    fn add_field(self, name: &str, value: &Value) -> Result<(), Error> {
        match self {
            Place::Table(table) | Place::Item(Item::Table(table)) => {
                let item = match value {
                    Value::Map(fields) if !fields.is_empty() && !table.is_dotted() => Item::Table(tables(fields)?),
                    other => Item::Value(inline(other)?),
                };
                table.insert(name, item);
            }
            Place::Item(Item::Value(old)) | Place::Value(old) => {
                let table = old.as_inline_table_mut().ok_or_else(|| entangled("it is no table"))?;
                table.insert(name, inline(value)?);
            }
            Place::Item(Item::ArrayOfTables(_) | Item::None) => return Err(entangled("it is no table")),
        }
        Ok(())
    }

    fn add_item(self, value: &Value) -> Result<(), Error> {
        match (self, value) {
            (Place::Item(Item::ArrayOfTables(all)), Value::Map(fields)) => all.push(tables(fields)?),
            (Place::Item(Item::Value(old)) | Place::Value(old), value) => {
                let array = old.as_array_mut().ok_or_else(|| entangled("it is no list"))?;
                let mut new = inline(value)?;
                // Below its neighbour, if that has a line of its own.
                let neighbour = array.iter().last().and_then(|last| last.decor().prefix()?.as_str());
                match neighbour.filter(|prefix| prefix.trim().is_empty() && array.len() > 1 || prefix.contains('\n')) {
                    Some(prefix) => {
                        let prefix = &prefix[prefix.rfind('\n').unwrap_or(0)..];
                        new.decor_mut().set_prefix(prefix);
                        array.push_formatted(new);
                    }
                    None => array.push(new),
                }
            }
            _ => return Err(entangled("a list of tables holds nothing but tables")),
        }
        Ok(())
    }

    /// The comments that had stood above. None: there is nothing to remove.
    fn remove(self, name: Option<&str>, index: usize) -> Option<String> {
        match (self, name) {
            (Place::Table(table) | Place::Item(Item::Table(table)), Some(name)) => {
                return Some(comments_above(&table.remove(name)?).unwrap_or_default());
            }
            (Place::Item(Item::ArrayOfTables(tables)), None) if index < tables.len() => drop(tables.remove(index)),
            (Place::Item(Item::Value(old)) | Place::Value(old), Some(name)) => {
                drop(old.as_inline_table_mut()?.remove(name)?);
            }
            (Place::Item(Item::Value(old)) | Place::Value(old), None) => {
                let array = old.as_array_mut().filter(|array| index < array.len())?;
                array.remove(index);
            }
            _ => return None,
        }
        Some(String::new())
    }
}

fn entangled(why: &'static str) -> Error {
    Error::Entangled { key: String::new(), why: Some(why) }
}

/// None: there is no way to the place.
fn changed(document: &mut DocumentMut, value: &Value, plan: &Plan) -> Result<Option<()>, Error> {
    let (path, last) = match plan {
        Plan::Replace { path, .. } | Plan::AddField { path, .. } | Plan::AddItem { path, .. } => {
            (path.as_slice(), None)
        }
        Plan::Remove { path } => match path.split_last() {
            Some((last, above)) => (above, Some(*last)),
            None => return Ok(None),
        },
    };
    let mut place = Place::Table(document.as_table_mut());
    let mut here = value;
    for position in path {
        let next = match here {
            Value::Map(fields) => place.field(&fields[*position].0),
            _ => place.item(*position),
        };
        let (Some(next), Some(below)) = (next, here.child(*position)) else { return Ok(None) };
        (place, here) = (next, below);
    }
    let lost = match plan {
        Plan::Replace { value, .. } => place.replace(value)?,
        Plan::AddField { name, value, .. } => place.add_field(name, value).map(|()| None)?,
        Plan::AddItem { value, .. } => place.add_item(value).map(|()| None)?,
        Plan::Remove { .. } => {
            let index = last.expect("something is removed");
            let name = if let Value::Map(fields) = here { Some(fields[index].0.as_str()) } else { None };
            let Some(lost) = place.remove(name, index) else { return Ok(None) };
            Some(lost).filter(|lost| !lost.is_empty())
        }
    };
    if let Some(lost) = lost {
        let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
        document.set_trailing(format!("{trailing}{lost}"));
    }
    Ok(Some(()))
}

fn table_value(table: &Table) -> Value {
    Value::Map(table.iter().map(|(name, item)| (name.to_owned(), item_value(item))).collect())
}

fn item_value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => read_value(value),
        Item::Table(table) => table_value(table),
        Item::ArrayOfTables(tables) => Value::List(tables.iter().map(table_value).collect()),
    }
}

fn read_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::Text(text.value().clone()),
        toml_edit::Value::Boolean(truth) => Value::Bool(*truth.value()),
        toml_edit::Value::Integer(number) => Value::Number(number.display_repr().into_owned()),
        toml_edit::Value::Float(number) => Value::Number(number.display_repr().into_owned()),
        toml_edit::Value::Datetime(time) => Value::Time(time.display_repr().into_owned()),
        toml_edit::Value::Array(items) => Value::List(items.iter().map(read_value).collect()),
        toml_edit::Value::InlineTable(fields) => {
            Value::Map(fields.iter().map(|(name, value)| (name.to_owned(), read_value(value))).collect())
        }
    }
}

/// A value as TOML writes it on one line.
fn inline(value: &Value) -> Result<toml_edit::Value, Error> {
    Ok(match value {
        Value::Null => return Err(Error::NoNull(Format::Toml)),
        Value::Bool(truth) => (*truth).into(),
        Value::Number(text) | Value::Time(text) => text.parse().unwrap_or_else(|_| text.as_str().into()),
        Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(inline).collect::<Result<Array, Error>>()?.into(),
        Value::Map(fields) => {
            let mut table = InlineTable::new();
            for (name, value) in fields {
                table.insert(name, inline(value)?);
            }
            table.into()
        }
        Value::Tagged(_, value) => inline(value)?,
    })
}

/// A map under a headline of its own, and those below it likewise.
fn tables(fields: &[(String, Value)]) -> Result<Table, Error> {
    let mut table = Table::new();
    let is_table = |value: &Value| matches!(value, Value::Map(fields) if !fields.is_empty());
    table.set_implicit(fields.iter().all(|(_, value)| is_table(value)));
    for (name, value) in fields {
        let all_maps = |items: &[Value]| !items.is_empty() && items.iter().all(|item| matches!(item, Value::Map(_)));
        let item = match value {
            Value::Map(fields) if !fields.is_empty() => Item::Table(tables(fields)?),
            Value::List(items) if all_maps(items) => {
                let mut all = ArrayOfTables::new();
                for item in items {
                    let Value::Map(fields) = item else { continue };
                    all.push(tables(fields)?);
                }
                Item::ArrayOfTables(all)
            }
            other => Item::Value(inline(other)?),
        };
        table.insert(name, item);
    }
    Ok(table)
}

/// A map as a document, another value on one line.
pub(crate) fn written(value: &Value) -> Result<String, Error> {
    match value {
        Value::Map(fields) => Ok(DocumentMut::from(tables(fields)?).to_string()),
        other => Ok(inline(other)?.to_string()),
    }
}

/// A value as it stands behind an equals sign.
pub(crate) fn typed(text: &str) -> Option<Value> {
    text.parse::<toml_edit::Value>().ok().map(|value| read_value(&value))
}
