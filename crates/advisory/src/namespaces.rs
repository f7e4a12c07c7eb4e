//! Names of namespaces, for people: `AGENT` and the user's own.

use std::collections::BTreeMap;

use crate::key::LockNamespace;
use crate::limits::{NAME_BYTES_MAX, NAMES_MAX};

/// Which number has which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces {
    names: BTreeMap<i32, String>,
}

/// A name that can't be used. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(String);

impl Default for Namespaces {
    fn default() -> Namespaces {
        Namespaces { names: BTreeMap::from([(LockNamespace::AGENT.number(), "AGENT".to_owned())]) }
    }
}

impl Namespaces {
    /// Gives a number a name. One name has one number, and one number one name.
    pub fn name(&mut self, name: &str, namespace: LockNamespace) -> Result<(), InvalidName> {
        let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if !begins || !plain || name.len() > NAME_BYTES_MAX {
            return Err(InvalidName(format!(
                "'{}' is no name of a namespace: a letter, then letters, digits, '_', '-' and '.', {NAME_BYTES_MAX} at most",
                name.escape_default()
            )));
        }
        let number = namespace.number();
        if let Some(other) = self.number(name).filter(|other| *other != namespace) {
            return Err(InvalidName(format!("the namespace '{name}' is {} already", other.number())));
        }
        if let Some(other) = self.names.get(&number).filter(|other| *other != name) {
            return Err(InvalidName(format!("the namespace {number} is called '{other}' already")));
        }
        if self.names.len() >= NAMES_MAX {
            return Err(InvalidName(format!("at most {NAMES_MAX} namespaces have names")));
        }
        self.names.insert(number, name.to_owned());
        Ok(())
    }

    fn number(&self, name: &str) -> Option<LockNamespace> {
        let found = self.names.iter().find(|(_, named)| *named == name);
        found.map(|(number, _)| LockNamespace::new(*number))
    }

    /// Reads what a person wrote: a name that is known, or a number.
    pub fn parse(&self, text: &str) -> Result<LockNamespace, InvalidName> {
        if let Some(namespace) = self.number(text) {
            return Ok(namespace);
        }
        let number = text.parse::<i32>().ok().filter(|number| number.to_string() == text);
        number.map(LockNamespace::new).ok_or_else(|| {
            let known: Vec<&str> = self.names.values().map(String::as_str).collect();
            InvalidName(format!(
                "'{}' is no namespace; write a number, or one of: {}",
                text.escape_default(),
                known.join(", ")
            ))
        })
    }

    /// What a namespace is shown as: its name, else its number.
    pub fn shown(&self, namespace: LockNamespace) -> String {
        self.names.get(&namespace.number()).cloned().unwrap_or_else(|| namespace.number().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_number_and_one_number_one_name() {
        let mut names = Namespaces::default();
        names.name("REPORT", LockNamespace::new(100)).expect("a new name");
        assert_eq!(names.parse("REPORT"), Ok(LockNamespace::new(100)));
        assert_eq!(names.parse("AGENT"), Ok(LockNamespace::AGENT));
        assert_eq!(names.parse("-7"), Ok(LockNamespace::new(-7)));
        assert_eq!(names.shown(LockNamespace::new(100)), "REPORT");
        assert_eq!(names.shown(LockNamespace::new(8)), "8");
        for (name, number) in [("AGENT", 2), ("OTHER", 100), ("7", 7), ("", 7), ("a b", 7), ("a\n", 7)] {
            assert!(names.name(name, LockNamespace::new(number)).is_err(), "{name}");
        }
        for unknown in ["report", "07", "", "2147483648"] {
            assert!(names.parse(unknown).is_err(), "{unknown}");
        }
    }
}
