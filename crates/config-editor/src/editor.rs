//! Lock, read, change, judge, write beside, rename: the one way in which a file is changed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::document::Document;
use crate::error::Error;
use crate::file::{self, Content};
use crate::format::Format;
use crate::key::Key;
use crate::limits::WAIT_DEFAULT;
use crate::lock::Lock;
use crate::merge::merge;
use crate::value::Value;

type Validator<'v> = Box<dyn Fn(&Document) -> Result<(), String> + 'v>;

/// A file, and how it is changed.
pub struct Editor<'v> {
    path: PathBuf,
    format: Format,
    wait: Duration,
    validator: Option<Validator<'v>>,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<T> {
    /// What the caller's function said.
    pub answer: T,
    /// The file that links lead to.
    pub file: PathBuf,
    /// Whether anything is different now. A file that would stay the same is not written.
    pub written: bool,
}

impl<'v> Editor<'v> {
    /// By the extension of the file; it need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Result<Editor<'v>, Error> {
        let path = path.into();
        Ok(Editor { format: Format::of(&path)?, path, wait: WAIT_DEFAULT, validator: None })
    }

    /// For a file whose name says nothing about its format.
    pub fn with_format(path: impl Into<PathBuf>, format: Format) -> Editor<'v> {
        Editor { path: path.into(), format, wait: WAIT_DEFAULT, validator: None }
    }

    /// How long to wait for other writers.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Editor<'v> {
        self.wait = wait;
        self
    }

    /// Judges every new document before it is written; the reason of a refusal becomes the error.
    #[must_use]
    pub fn validator(mut self, judge: impl Fn(&Document) -> Result<(), String> + 'v) -> Editor<'v> {
        self.validator = Some(Box::new(judge));
        self
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// The file as it is now. No lock is needed: files are replaced whole.
    pub fn read(&self) -> Result<Document, Error> {
        Document::parse(self.format, &Content::read(&file::target(&self.path)?)?.text)
    }

    pub fn get(&self, key: &Key) -> Result<Option<Value>, Error> {
        Ok(self.read()?.get(key).cloned())
    }

    pub fn set(&self, key: &Key, value: &Value) -> Result<Changed<bool>, Error> {
        self.change(|document| document.set(key, value))
    }

    /// The answer is whether the key was there.
    pub fn unset(&self, key: &Key) -> Result<Changed<bool>, Error> {
        self.change(|document| document.unset(key))
    }

    /// Changes the file under its lock. The function sees what every writer before has left; after an error of it or of
    /// the validator, the file is as it was.
    pub fn change<T>(&self, change: impl FnOnce(&mut Document) -> Result<T, Error>) -> Result<Changed<T>, Error> {
        self.locked(|text| {
            let mut document = Document::parse(self.format, text)?;
            let answer = change(&mut document)?;
            Ok((answer, document))
        })
    }

    /// The text as it stands in the file, also if it is broken; empty if there is no file.
    pub fn text(&self) -> Result<String, Error> {
        Ok(Content::read(&file::target(&self.path)?)?.text)
    }

    /// Saves a text that somebody has made from `base` without holding the lock. Keys that were changed in the file
    /// meanwhile are kept; what can't be joined is a conflict, and the file is as it was. See [`merge`].
    pub fn save(&self, base: &str, text: &str) -> Result<Changed<()>, Error> {
        self.locked(|now| {
            let document =
                if now == base { Document::parse(self.format, text) } else { merge(self.format, base, text, now) };
            Ok(((), document?))
        })
    }

    fn locked<T>(&self, change: impl FnOnce(&str) -> Result<(T, Document), Error>) -> Result<Changed<T>, Error> {
        let target = file::target(&self.path)?;
        let _lock = Lock::take(&target, file::lock_mode(&target), self.wait)?;
        file::remove_unfinished(&target);
        let content = Content::read(&target)?;
        let (answer, document) = change(&content.text)?;
        let text = document.to_text();
        let written = text != content.text;
        if written {
            if let Some(judge) = &self.validator {
                judge(&document).map_err(Error::Refused)?;
            }
            content.replace(&target, &text)?;
        }
        Ok(Changed { answer, file: target, written })
    }
}

impl fmt::Debug for Editor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Editor { path, format, wait, validator } = self;
        let mut shown = f.debug_struct("Editor");
        shown.field("path", path).field("format", format).field("wait", wait);
        shown.field("validator", &validator.is_some()).finish()
    }
}
