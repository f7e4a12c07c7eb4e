//! Dotted keys: `lock.default_ttl`, `servers."db.internal".port`, `rules[0].name`, `hosts[]`. Knows no document.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::limits::{DEPTH_MAX, KEY_BYTES_MAX};

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A key of a map. In a list, a whole number such as `.0` is an index.
    Name(String),
    /// `[0]`: the item of a list.
    Item(usize),
    /// `[]`: a new item behind the last one.
    New,
}

/// The way from the top of a document to a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    steps: Vec<Step>,
}

impl Key {
    /// A key of these names, whatever characters they have.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Key, Error> {
        Key::new(names.into_iter().map(|name| Step::Name(name.to_owned())).collect())
    }

    pub fn new(steps: Vec<Step>) -> Result<Key, Error> {
        let key = Key { steps };
        let shown = key.to_string();
        if key.steps.len() > DEPTH_MAX || shown.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong);
        }
        if key.steps.is_empty() {
            return Err(Error::Key { key: shown, reason: "it names nothing" });
        }
        if key.steps.iter().rev().skip(1).any(|step| *step == Step::New) {
            return Err(Error::Key { key: shown, reason: "[] stands at its end" });
        }
        Ok(key)
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether one lies at or below the other.
    pub(crate) fn overlaps(&self, other: &Key) -> bool {
        self.steps.iter().zip(&other.steps).all(|(mine, theirs)| mine == theirs)
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Key, Error> {
        if text.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong);
        }
        let wrong = |reason| Error::Key { key: text.escape_debug().to_string(), reason };
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            rest = match rest.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    let (name, behind) = quoted(&rest[1..], quote).ok_or_else(|| wrong("a quote is not closed"))?;
                    steps.push(Step::Name(name));
                    behind
                }
                Some('[') if steps.is_empty() => rest,
                _ => {
                    let end = rest.find(['.', '[']).unwrap_or(rest.len());
                    if end == 0 {
                        return Err(wrong("a part of it is empty; write \"\" for an empty name"));
                    }
                    if rest[..end].contains(['"', '\'', ']']) || rest[..end].chars().any(char::is_control) {
                        return Err(wrong("quote names that have quotes, brackets or control characters"));
                    }
                    steps.push(Step::Name(rest[..end].to_owned()));
                    &rest[end..]
                }
            };
            while let Some(behind) = rest.strip_prefix('[') {
                let (index, behind) = behind.split_once(']').ok_or_else(|| wrong("a bracket is not closed"))?;
                steps.push(match index {
                    "" => Step::New,
                    digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                        Step::Item(digits.parse().map_err(|_| wrong("an index is too large"))?)
                    }
                    _ => return Err(wrong("between brackets stands the number of an item, counted from 0")),
                });
                rest = behind;
            }
            match rest.strip_prefix('.') {
                Some(behind) => rest = behind,
                None if rest.is_empty() => return Key::new(steps),
                None => return Err(wrong("a dot is missing between two parts")),
            }
        }
    }
}

/// What stands before the closing quote, and what stands behind it. `\` takes the next character as it is.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if quote == '"' => name.push(characters.next()?.1),
            _ if character == quote => return Some((name, &text[at + 1..])),
            _ => name.push(character),
        }
    }
    None
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Item(index) => write!(f, "[{index}]")?,
                Step::New => f.write_str("[]")?,
                Step::Name(name) => {
                    if at > 0 {
                        f.write_str(".")?;
                    }
                    let bare = |c: char| !c.is_control() && !".[]\"'".contains(c);
                    if !name.is_empty() && name.chars().all(bare) {
                        f.write_str(name)?;
                    } else {
                        write!(f, "\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Step {
        Step::Name(name.to_owned())
    }

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let table: [(&str, Vec<Step>); 7] = [
            ("a", vec![name("a")]),
            ("a.b-c.d_e", vec![name("a"), name("b-c"), name("d_e")]),
            ("a.\"b.c\".d", vec![name("a"), name("b.c"), name("d")]),
            ("list[0].x", vec![name("list"), Step::Item(0), name("x")]),
            ("list.0", vec![name("list"), name("0")]),
            ("list[]", vec![name("list"), Step::New]),
            (r#""a\"b"[1][2]"#, vec![name("a\"b"), Step::Item(1), Step::Item(2)]),
        ];
        for (text, steps) in table {
            let key: Key = text.parse().unwrap();
            assert_eq!(key.steps, steps, "{text}");
            assert_eq!(key.to_string(), text);
        }
        assert_eq!("'a.b'".parse::<Key>().unwrap().to_string(), "\"a.b\"");
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        for text in
            ["", ".", "a.", ".a", "a..b", "a[", "a[x]", "a[-1]", "a]b", "\"a", "\"a\"b", "a[].b", "a[0]b", "a\nb"]
        {
            assert!(matches!(text.parse::<Key>(), Err(Error::Key { .. })), "{text:?}");
        }
        assert!(matches!("a".repeat(2000).parse::<Key>(), Err(Error::KeyTooLong)));
        assert!(matches!(["a"; 65].join(".").parse::<Key>(), Err(Error::KeyTooLong)));
    }
}
