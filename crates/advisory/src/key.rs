//! What a lock is named by: two integers, the second of which may come from a text.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::limits::ID_BYTES_MAX;

/// The first integer: what kind of thing is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockNamespace(i32);

impl LockNamespace {
    /// Agents, by their id.
    pub const AGENT: LockNamespace = LockNamespace(1);

    /// A namespace of your own. Numbers from 1 to 99 are this crate's to name.
    pub const fn new(number: i32) -> LockNamespace {
        LockNamespace(number)
    }

    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for LockNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == LockNamespace::AGENT { f.write_str("AGENT") } else { self.0.fmt(f) }
    }
}

/// The second integer: which one is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId(i32);

/// A text that may mean a number and is none that fits. Nothing was locked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidId(String);

impl LockId {
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The id of a text, whatever it looks like: the first four bytes of its SHA-256, big-endian.
    pub fn hashed(text: &str) -> LockId {
        let digest = Sha256::digest(text.as_bytes());
        LockId(i32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }

    /// Reads what a person wrote: a whole number is itself, any other text is hashed.
    ///
    /// What looks like a number and is not exactly one of 32 bits (`007`, `+1`, `5000000000`) is refused: to hash it would
    /// lock something that nobody expects.
    pub fn parse(text: &str) -> Result<LockId, InvalidId> {
        if text.is_empty() {
            return Err(InvalidId("an id is a whole number or a text, and not empty".to_owned()));
        }
        if text.len() > ID_BYTES_MAX {
            return Err(InvalidId(format!("an id has at most {ID_BYTES_MAX} bytes")));
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(LockId::hashed(text));
        }
        match text.parse::<i32>() {
            Ok(number) if number.to_string() == text => Ok(LockId(number)),
            Ok(number) => Err(InvalidId(format!("'{text}' is no id; write {number}, or a text with a letter in it"))),
            Err(_) => Err(InvalidId(format!(
                "'{text}' is no id: a number is from {} to {}; put a letter before it and it is hashed as a text",
                i32::MIN,
                i32::MAX
            ))),
        }
    }
}

impl From<i32> for LockId {
    fn from(number: i32) -> LockId {
        LockId(number)
    }
}

/// Always hashed, also a text of digits: `"42"` is not 42. The command line takes what a person wrote for a number if it is one:
/// for the same lock as `lockkeeper advisory run AGENT 42` say `42`, or [`LockId::parse`].
impl From<&str> for LockId {
    fn from(text: &str) -> LockId {
        LockId::hashed(text)
    }
}

impl From<&String> for LockId {
    fn from(text: &String) -> LockId {
        LockId::hashed(text)
    }
}

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey {
    pub namespace: LockNamespace,
    pub id: LockId,
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.namespace, self.id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_an_id_as_documented() {
        // sha256("nightly report") begins with these bytes; the same by SQL is tried against a server.
        let digest = Sha256::digest(b"nightly report");
        assert_eq!(LockId::from("nightly report").number().to_be_bytes(), digest[..4]);
        assert_eq!(LockId::from("").number(), i32::from_be_bytes([0xe3, 0xb0, 0xc4, 0x42]));
    }

    #[test]
    fn a_number_is_itself_and_nothing_that_looks_like_one_is_hashed() {
        assert_eq!(LockId::parse("42"), Ok(LockId(42)));
        assert_eq!(LockId::parse("-2147483648"), Ok(LockId(i32::MIN)));
        for odd in ["007", "+1", "5000000000", "-0", ""] {
            assert!(LockId::parse(odd).is_err(), "{odd}");
        }
        assert_eq!(LockId::parse("a1"), Ok(LockId::hashed("a1")));
        assert_eq!(LockId::parse("-"), Ok(LockId::hashed("-")));
        assert!(LockId::parse(&"x".repeat(ID_BYTES_MAX + 1)).is_err());
    }
}
