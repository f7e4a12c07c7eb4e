//! What can go wrong. Whatever it is, the file is as it was, unless an error says otherwise.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::format::Format;
use crate::limits::{DEPTH_MAX, FILE_BYTES_MAX, KEY_BYTES_MAX, NODES_MAX};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key can't be read.
    #[error("'{key}' is no key: {reason}")]
    Key { key: String, reason: &'static str },
    #[error("a key has at most {KEY_BYTES_MAX} bytes and {DEPTH_MAX} parts")]
    KeyTooLong,
    /// The name says nothing about the format.
    #[error("{} is neither .toml nor .yaml, .yml, .json or .jsonc", .0.display())]
    UnknownFormat(PathBuf),
    /// The text is not what its format asks for. No part of it is repeated: it may hold a secret.
    #[error("line {line}, column {column}: this is no {format}: {reason}")]
    Syntax { format: Format, line: usize, column: usize, reason: String },
    #[error("the file is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("the file has more than {NODES_MAX} values")]
    TooMany,
    #[error("the file has more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the file is no UTF-8")]
    NotText,
    #[error("there is no '{0}'")]
    NotFound(String),
    /// The way to the key leads through something that has no such parts.
    #[error("'{at}' is {noun}, and '{key}' lies below it")]
    NotBelow { key: String, at: String, noun: &'static str },
    #[error("'{at}' has {count} items; '{at}[]' adds one")]
    NoSuchItem { at: String, count: usize },
    #[error("{0} has no word for null; unset the key instead")]
    NoNull(Format),
    /// The change would have touched something else as well.
    #[error("'{key}' can't be changed without touching something else{}", .why.map(|why| format!(": {why}")).unwrap_or_default())]
    Entangled { key: String, why: Option<&'static str> },
    /// The validator said no.
    #[error("{0}")]
    Refused(String),
    /// What was changed elsewhere meanwhile can't be joined with this.
    #[error("{0}")]
    Conflict(String),
    /// Somebody else is writing, or died in a way that left the lock to a child process.
    #[error("another writer has held {} for {:.1} s", .lock.display(), .waited.as_secs_f64())]
    TimedOut { lock: PathBuf, waited: Duration },
    /// Written by a program that takes no lock, between our reading and our writing.
    #[error("{} was changed meanwhile by a program that takes no lock; try again", .0.display())]
    ChangedMeanwhile(PathBuf),
    #[error("{} is {what}, not a file that can be changed", .path.display())]
    NoFile { path: PathBuf, what: &'static str },
    #[error("{what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    /// The new content is in place and whole. Whether it outlives a power loss is not known.
    #[error("{} was changed, but its folder could not be synced: {source}", .path.display())]
    Unsynced { path: PathBuf, source: std::io::Error },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { what, path, source }
    }

    /// A place in a text, counted from 1.
    pub(crate) fn syntax(format: Format, text: &str, at: usize, reason: impl Into<String>) -> Error {
        let before = text.get(..at.min(text.len())).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Error::Syntax {
            format,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            reason: reason.into(),
        }
    }
}
