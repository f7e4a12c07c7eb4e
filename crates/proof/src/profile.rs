//! The two ways in which a ledger is written: as the protocol's document says, and as the program `af` does it.
//!
//! They agree on the lock file, on temporary files and on the order of numbers, and on nothing else. Which one a ledger
//! has is seen from the names of its files.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, shown};
use crate::limits::SEQUENCE_MAX;
use crate::name::Sequence;

/// How a ledger's events are named and what they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The document to the letter: `event-000001.json`, `lock_acquired`, an expired claim is free.
    Doc,
    /// What the program writes and accepts: `000001.json`, `nodes_claimed`, an expired claim is taken until it is reaped.
    Af,
}

/// Types of events that the program loads; any other makes the whole proof unloadable for it. It has dropped and added
/// some over time: `lock_reaped` is one that it does not load.
const AF_TYPES: [&str; 36] = [
    "approach_tried",
    "challenge_raised",
    "challenge_resolved",
    "challenge_superseded",
    "challenge_withdrawn",
    "claim_refreshed",
    "claim_tested",
    "def_added",
    "def_checked",
    "evidence_attached",
    "hint_added",
    "lemma_extracted",
    "node_admitted",
    "node_amended",
    "node_amended_reopened",
    "node_archived",
    "node_created",
    "node_deps_amended",
    "node_proof_authored",
    "node_refuted",
    "node_submitted",
    "node_unadmitted",
    "node_unvalidated",
    "node_validated",
    "node_vetoed",
    "nodes_claimed",
    "nodes_released",
    "outline_set",
    "outline_stage_linked",
    "pattern_added",
    "proof_initialized",
    "refinement_requested",
    "scope_closed",
    "scope_opened",
    "strategy_proposed",
    "taint_recomputed",
];

impl Profile {
    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Doc => "doc",
            Profile::Af => "af",
        }
    }

    /// The name of an event's file: six digits, and more past 999999.
    pub fn file_name(self, sequence: Sequence) -> String {
        match self {
            Profile::Doc => format!("event-{:06}.json", sequence.0),
            Profile::Af => format!("{:06}.json", sequence.0),
        }
    }

    /// Whether this profile's ledgers may have events of this type.
    pub fn knows(self, event_type: &str) -> bool {
        match self {
            Profile::Doc => true,
            Profile::Af => AF_TYPES.binary_search(&event_type).is_ok(),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Profile, Error> {
        match text {
            "doc" => Ok(Profile::Doc),
            "af" => Ok(Profile::Af),
            other => Err(Error::Invalid(format!("a profile is doc or af, not '{}'", shown(other)))),
        }
    }
}

/// Which profile's event a file name stands for, and its number; `None` for every other file.
pub(crate) fn event_name(name: &str) -> Option<(Profile, Sequence)> {
    let stem = name.strip_suffix(".json")?;
    let (profile, digits) = match stem.strip_prefix("event-") {
        Some(digits) => (Profile::Doc, digits),
        None => (Profile::Af, stem),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.trim_start_matches('0').parse().ok()?;
    (number <= SEQUENCE_MAX).then_some((profile, Sequence(number)))
}

/// Which profile's event a name that stands for none would be taken for by those who look at its form only.
pub(crate) fn almost_event(name: &str) -> Option<Profile> {
    let stem = name.strip_suffix(".json")?;
    let digits = !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
    match (event_name(name), stem.starts_with("event-"), digits) {
        (Some(_), ..) | (None, false, false) => None,
        (None, true, _) => Some(Profile::Doc),
        (None, false, true) => Some(Profile::Af),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_six_digits_and_more_past_the_last_of_them() {
        assert_eq!(Profile::Doc.file_name(Sequence(1)), "event-000001.json");
        assert_eq!(Profile::Af.file_name(Sequence(999_999)), "999999.json");
        assert_eq!(Profile::Af.file_name(Sequence(1_000_000)), "1000000.json");
        assert_eq!(event_name("event-1000000.json"), Some((Profile::Doc, Sequence(1_000_000))));
        assert_eq!(event_name("7.json"), Some((Profile::Af, Sequence(7))));
    }

    #[test]
    fn other_names_are_no_events() {
        for other in [
            "event-.json",
            ".json",
            "000000.json",
            "event-1.json.tmp",
            "meta.json",
            "1e3.json",
            "event-+1.json",
            "1.JSON",
        ] {
            assert_eq!(event_name(other), None, "{other}");
        }
        assert_eq!(event_name("9999999999999999999999.json"), None);
    }

    #[test]
    fn the_programs_types_can_be_searched() {
        assert!(AF_TYPES.is_sorted());
        assert!(Profile::Af.knows("nodes_claimed") && !Profile::Af.knows("lock_acquired"));
        assert!(!Profile::Af.knows("lock_reaped") && Profile::Doc.knows("custom_event"));
    }
}
