//! What is wrong with a document, and where. Knows no check.

use std::fmt;
use std::sync::Arc;

use lockkeeper_core::text::one_line;
use serde::Serialize;

use crate::document::Document;
use crate::limits::{PROBLEMS_MAX, SHOWN_CHARS_MAX};

/// Which check found a problem; in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The text is no YAML, or is beyond a bound.
    Yaml,
    Schema,
    DependsOn,
    Cycle,
    DuplicateId,
    LockKey,
    Contract,
    /// An entry of a scope can't be read.
    Scope,
    ScopeOverlap,
    LockOverlap,
}

impl Check {
    /// Whether the document can be used all the same: its locks see to it that only one of two packages works.
    pub fn is_overlap(self) -> bool {
        match self {
            Check::ScopeOverlap | Check::LockOverlap => true,
            Check::Yaml
            | Check::Schema
            | Check::DependsOn
            | Check::Cycle
            | Check::DuplicateId
            | Check::LockKey
            | Check::Contract
            | Check::Scope => false,
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub check: Check,
    pub file: Arc<str>,
    /// Where it is in the document: `packages[2].locks.keys[0]`; empty for the document itself.
    pub path: String,
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// The offending text, on one line and shortened.
    pub text: String,
    pub message: String,
    /// The next step, if there is one to suggest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

impl std::error::Error for Problem {}

/// All that was found in one document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// There unless something other than overlaps is wrong.
    #[serde(skip)]
    pub document: Option<Document>,
    /// In the order of the checks, then of the lines.
    pub problems: Vec<Problem>,
    /// How many problems were found beyond those that are told.
    pub left_out: usize,
}

impl Report {
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A place in the text, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    pub(crate) const START: Place = Place { line: 1, column: 1 };
}

/// Gathers problems up to a bound, so that a hostile document can't fill the memory with them.
#[derive(Debug)]
pub(crate) struct Problems {
    file: Arc<str>,
    found: Vec<Problem>,
    left_out: usize,
}

impl Problems {
    pub(crate) fn new(file: &str) -> Problems {
        Problems { file: one_line(file).into(), found: Vec::new(), left_out: 0 }
    }

    pub(crate) fn add(
        &mut self,
        check: Check,
        place: Place,
        path: impl Into<String>,
        text: &str,
        message: impl Into<String>,
    ) -> Told<'_> {
        if self.found.len() >= PROBLEMS_MAX {
            self.left_out += 1;
            return Told(None);
        }
        self.found.push(Problem {
            check,
            file: self.file.clone(),
            path: path.into(),
            line: place.line,
            column: place.column,
            text: shortened(text),
            message: message.into(),
            hint: None,
        });
        Told(self.found.last_mut())
    }

    pub(crate) fn leave_out(&mut self, count: usize) {
        self.left_out += count;
    }

    /// How many more would be told.
    pub(crate) fn room(&self) -> usize {
        PROBLEMS_MAX - self.found.len()
    }

    pub(crate) fn any(&self, wanted: impl Fn(Check) -> bool) -> bool {
        self.found.iter().any(|problem| wanted(problem.check))
    }

    pub(crate) fn into_report(mut self, document: Option<Document>) -> Report {
        self.found.sort_by_key(|problem| (problem.check, problem.line, problem.column));
        Report { document, problems: self.found, left_out: self.left_out }
    }
}

/// A problem that was just told, and may get a hint.
#[derive(Debug)]
pub(crate) struct Told<'a>(Option<&'a mut Problem>);

impl Told<'_> {
    pub(crate) fn hint(self, hint: impl Into<String>) {
        if let Some(problem) = self.0 {
            problem.hint = Some(hint.into());
        }
    }
}

/// A text of strangers as a problem may repeat it.
pub(crate) fn shortened(text: &str) -> String {
    // What is shown has few characters: the rest of a long text need not be looked at.
    let end = text.char_indices().nth(4 * SHOWN_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    let line = one_line(&text[..end]);
    let mut shown: String = line.chars().take(SHOWN_CHARS_MAX).collect();
    if end < text.len() || shown.len() < line.len() {
        shown.push('…');
    }
    shown
}
