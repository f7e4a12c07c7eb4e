//! What can go wrong, in the protocol's own words. Each says what was changed: unless it says otherwise, nothing.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::claims::Claim;
use crate::limits::{CLAIM_TIMEOUT_MAX, CLAIM_TIMEOUT_MIN, SHOWN_CHARS_MAX};
use crate::name::{NodeId, Owner, Sequence};
use crate::profile::Profile;

pub type Result<T> = std::result::Result<T, Error>;

/// Nothing was recorded, unless the variant says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else appended first. Nothing was recorded; read again and decide again.
    #[error("ErrSequenceMismatch: expected sequence {expected}, the ledger is at {actual}")]
    SequenceMismatch { expected: Sequence, actual: Sequence },
    /// `ledger.lock` did not become free in time. Nothing was recorded.
    #[error("timeout waiting for lock: {:.1} s, {holder}", waited.as_secs_f64())]
    LockTimeout { waited: Duration, holder: String },
    /// The node has a claim. Nothing was recorded.
    #[error("node already locked: {} is held by {} until {}{}", .0.node, .0.owner, .0.expires_at,
        if *.1 { ", which is over; it stays taken until it is reaped" } else { "" })]
    NodeLocked(Box<Claim>, bool),
    /// An optimistic append lost every time. Nothing was recorded.
    #[error("max retries exceeded: {tries} tries, the ledger moved each time")]
    RetriesExceeded { tries: u32 },

    /// The node's claim belongs to somebody else. Nothing was recorded.
    #[error("not the owner: {node} is held by {owner}, not by {asked}")]
    NotOwner { node: NodeId, owner: Owner, asked: Owner },
    /// The node has no claim. Nothing was recorded.
    #[error("not claimed: nobody holds {0}")]
    NotClaimed(NodeId),
    /// The claim was over. Nothing was recorded; it may be claimed again.
    #[error("claim expired: {node} was held by {owner} until {at}")]
    ClaimExpired { node: NodeId, owner: Owner, at: Timestamp },
    /// The proof has nodes, and not this one. Nothing was recorded: the program could not load the proof any more.
    #[error("unknown node: the proof has no node {0}")]
    UnknownNode(NodeId),

    #[error("'{node}' is no node: {why}")]
    InvalidNode { node: String, why: &'static str },
    #[error("'{owner}' is no owner: {why}")]
    InvalidOwner { owner: String, why: &'static str },
    #[error("a claim lasts {} s to {} s, not {} s", CLAIM_TIMEOUT_MIN.as_secs(), CLAIM_TIMEOUT_MAX.as_secs(), .0.as_secs_f64())]
    InvalidTimeout(Duration),
    #[error("this is no event for this ledger: {0}")]
    InvalidEvent(String),
    #[error("{0}")]
    Invalid(String),
    #[error("there are more than {most} {what}")]
    TooMany { what: &'static str, most: u64 },

    #[error("{} is no proof: there is no folder 'ledger' in it", .0.display())]
    NotAProof(PathBuf),
    #[error("{} is empty: nothing in it says whether its profile is doc or af", .0.display())]
    ProfileUnknown(PathBuf),
    #[error("{} is a ledger of the profile {found}, not {asked}", path.display())]
    ProfileMismatch { path: PathBuf, found: Profile, asked: Profile },
    #[error("{} has events of both profiles", .0.display())]
    ProfileMixed(PathBuf),
    /// What is there cannot be understood. Nothing was changed.
    #[error("{file}: {what}")]
    Damaged { file: String, what: String },

    /// Somebody called us dead and removed our `ledger.lock` while we held it. Nothing was recorded.
    #[error("lock lost: somebody removed our ledger.lock while we held it; nothing was written")]
    LockLost,
    /// The event was published, but somebody had removed our `ledger.lock` by then. Whoever writes without looking may
    /// have taken its number since: look whether it is there.
    #[error("event {sequence} was written, but somebody removed our ledger.lock meanwhile: it may have been replaced")]
    Overtaken { sequence: Sequence },

    /// The system refused. Nothing was recorded.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// The event is there and everybody sees it, but nobody knows whether it would outlive a power loss.
    #[error("event {sequence} was written, but may be lost if the power fails: {source}")]
    Unsynced { sequence: Sequence, source: io::Error },
    /// The event is there and durable and counts, but the file in `locks/` does not say the same.
    #[error("event {sequence} was written, but its file in locks/ could not be changed: {source}")]
    ClaimFile { sequence: Sequence, source: Box<Error> },
    /// The event is there and durable, but our `ledger.lock` could not be removed.
    #[error("event {sequence} was written, but ledger.lock could not be removed: {source}")]
    Unreleased { sequence: Sequence, source: io::Error },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    pub(crate) fn damaged(file: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Damaged { file: file.into(), what: what.into() }
    }

    /// The event that was written all the same, where one was: whoever does it again does it twice.
    pub fn sequence(&self) -> Option<Sequence> {
        match self {
            Error::Overtaken { sequence }
            | Error::Unsynced { sequence, .. }
            | Error::ClaimFile { sequence, .. }
            | Error::Unreleased { sequence, .. } => Some(*sequence),
            _ => None,
        }
    }

    /// What to do next, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::SequenceMismatch { .. } => Some("read the ledger again, decide again, and append again"),
            Error::RetriesExceeded { .. } => Some("try again later: many write at the same time"),
            Error::LockTimeout { .. } => Some("try again, or see who holds it: lockkeeper proof status DIR"),
            Error::NodeLocked(_, false) => {
                Some("if it is yours, refresh it; else wait for its expiry, or work on a different node")
            }
            Error::NodeLocked(_, true) => Some("lockkeeper proof reap DIR frees what is expired"),
            Error::ClaimExpired { .. } => Some("claim it again, and work on only if you get it"),
            Error::ProfileUnknown(_) => Some("say which: --profile doc or --profile af"),
            Error::ProfileMixed(_) => Some("the program af ignores event-*.json: --profile af reads as it does"),
            Error::NotAProof(_) => Some("lockkeeper proof init DIR --profile doc|af makes one"),
            Error::Damaged { .. } => Some("lockkeeper proof verify DIR says what it means"),
            Error::LockLost => Some("try again: what it depends on may have changed"),
            Error::Overtaken { .. } => Some("lockkeeper proof log DIR shows what that number has now"),
            Error::Unreleased { .. } => Some("lockkeeper proof recover DIR removes the lock of an ended process"),
            _ => None,
        }
    }
}

/// The beginning of a text from outside, on one line.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        short.push_str("...");
    }
    short
}
