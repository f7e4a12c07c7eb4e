//! What may be named: sequence numbers, nodes and owners. Knows no file.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use serde::Serialize;

use crate::error::{Error, Result, shown};
use crate::limits::{NODE_BYTES_MAX, NODE_DEPTH_MAX, OWNER_BYTES_MAX, SEQUENCE_MAX};
use crate::profile::Profile;

/// The place of an event in its ledger: 1, 2, 3 and so on; 0 is the empty ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The number behind this one.
    pub fn next(self) -> Result<Sequence> {
        if self.0 >= SEQUENCE_MAX {
            return Err(Error::TooMany { what: "events", most: SEQUENCE_MAX });
        }
        Ok(Sequence(self.0 + 1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node of a proof: numbers joined by dots, such as `1.2.3`. Ordered by number, so that 1.10 comes behind 1.2.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct NodeId(Box<str>);

impl NodeId {
    /// Reads a node; the real program knows only nodes below the root `1`.
    pub fn parse(text: &str, profile: Profile) -> Result<NodeId> {
        let refused = |why: &'static str| Error::InvalidNode { node: shown(text), why };
        if text.is_empty() || text.len() > NODE_BYTES_MAX {
            return Err(refused("it has 1 to 128 bytes"));
        }
        let part = |part: &str| {
            !part.is_empty() && part.len() <= 9 && !part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit())
        };
        if !text.split('.').all(part) {
            return Err(refused("write numbers from 1 on, joined by dots: 1.2.3"));
        }
        if text.split('.').count() > NODE_DEPTH_MAX {
            return Err(refused("it lies at most 32 levels deep"));
        }
        match profile {
            Profile::Af if text != "1" && !text.starts_with("1.") => Err(refused("nodes lie below the root 1")),
            Profile::Af | Profile::Doc => Ok(NodeId(text.into())),
        }
    }

    /// A node as somebody else wrote it, whatever it is.
    pub(crate) fn as_written(text: &str) -> NodeId {
        NodeId(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.split('.').map(|part| part.parse().unwrap_or(0))
    }
}

impl Ord for NodeId {
    fn cmp(&self, other: &NodeId) -> Ordering {
        // What others wrote need not be numbers.
        self.numbers().cmp(other.numbers()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for NodeId {
    fn partial_cmp(&self, other: &NodeId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

/// Who holds a claim, as they call themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Owner(Box<str>);

impl Owner {
    pub fn parse(text: &str) -> Result<Owner> {
        let refused = |why: &'static str| Error::InvalidOwner { owner: shown(text), why };
        if text.trim().is_empty() || text.len() > OWNER_BYTES_MAX {
            return Err(refused("it has 1 to 256 bytes and is not blank"));
        }
        if text.chars().any(is_unseen) {
            return Err(refused("it has no control characters, and none that turn or hide letters"));
        }
        Ok(Owner(text.into()))
    }

    /// An owner as somebody else wrote it, whatever it is.
    pub(crate) fn as_written(text: &str) -> Owner {
        Owner(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

/// Control characters, and those that change how others are seen.
fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// On one line and within bounds, whoever wrote it; as it is, if we would have written it.
fn show(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for letter in text.chars().take(OWNER_BYTES_MAX) {
        match letter {
            '"' | '\'' | '\\' => f.write_char(letter)?,
            _ => write!(f, "{}", letter.escape_debug())?,
        }
    }
    if text.chars().nth(OWNER_BYTES_MAX).is_some() { f.write_str("...") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbers_from_one_on_and_the_program_has_one_root() {
        for good in ["1", "1.2.3", "1.10"] {
            NodeId::parse(good, Profile::Af).unwrap();
        }
        NodeId::parse("2", Profile::Doc).unwrap();
        let long = "1.".repeat(70) + "1";
        for bad in ["", "1.0", "1..2", ".1", "1.", "01", "1.a", "1 ", "-1", "1/2", "1.9999999999", &long, "../1"] {
            NodeId::parse(bad, Profile::Doc).unwrap_err();
        }
        NodeId::parse("2", Profile::Af).unwrap_err();
        NodeId::parse("10.1", Profile::Af).unwrap_err();
    }

    #[test]
    fn nodes_are_ordered_by_their_numbers() {
        let node = |text| NodeId::parse(text, Profile::Doc).unwrap();
        assert!(node("1.2") < node("1.10") && node("1") < node("1.1") && node("1.9.9") < node("2"));
    }

    #[test]
    fn owners_are_not_blank_and_fit_on_a_line() {
        Owner::parse("agent-uuid-1234").unwrap();
        for bad in ["", "  ", "a\nb", "a\0b", &"x".repeat(257)] {
            Owner::parse(bad).unwrap_err();
        }
    }
}
