//! `lockkeeper lock ...`

mod acquire;
mod check;
mod force_release;
mod history;
mod list;
mod release;
mod renew;

use clap::Subcommand;
use lockkeeper_core::span::Span;
use lockkeeper_wire::answer::LockView;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::request::LockSpec;
use lockkeeper_wire::word::Word;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::note;
use crate::place::InvalidPath;
use crate::{again, lines, output};

pub(crate) use acquire::Wanting;

#[derive(Debug, Subcommand)]
pub(crate) enum Lock {
    /// Lock lines, files, trees or keys before you change them.
    Acquire(acquire::Acquire),
    /// Give locks back.
    Release(release::Release),
    /// Renew locks, or all that the session holds.
    Renew(renew::Renew),
    /// Show what is held.
    #[command(alias = "status")]
    List(list::List),
    /// Ask who stands in the way, or whether a fencing token still counts.
    Check(check::Check),
    /// Show what happened lately.
    History(history::History),
    /// Take all locks on a file, or one of them, away from their holders.
    ForceRelease(force_release::ForceRelease),
}

impl Lock {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Lock::Acquire(verb) => verb.run(context),
            Lock::Release(verb) => verb.run(context),
            Lock::Renew(verb) => verb.run(context),
            Lock::List(verb) => verb.run(context),
            Lock::Check(verb) => verb.run(context),
            Lock::History(verb) => verb.run(context),
            Lock::ForceRelease(verb) => verb.run(context),
        }
    }
}

/// What was typed, as the service knows it.
pub(crate) fn spec(context: &Context, typed: &str) -> Result<LockSpec, Failure> {
    let (file_path, lines) = key_and_lines(context, typed)?;
    if context.config()?.place.is_named_from_the_top(typed) && !context.global.json {
        note!(
            "{file_path} is not there: paths are read from this folder, and {typed} lies at the top of the repository."
        );
    }
    if !context.global.json
        && let Some(inner) = context.config()?.place.repository_inside(typed)
    {
        note!(
            "{} is a repository of its own: whoever works in there does not see what is locked from here.",
            inner.display()
        );
    }
    let Some(lines) = lines else { return Ok(LockSpec { file_path, ..LockSpec::default() }) };
    let span = Span::parse(&lines).map_err(|error| {
        let path = typed.rsplit_once(':').map_or(typed, |(path, _)| path);
        let meant = Some(lines::meant(path, &lines));
        let message = format!("{typed}: {error}.");
        not_meant(typed, InvalidPath { meant, ..InvalidPath::new(Word::InvalidRange, message) })
    })?;
    let start_line = Some(Whole::from(span.start()));
    Ok(LockSpec { file_path, start_line, end_line: span.last().map(Whole::from), mode: None })
}

fn key_and_lines(context: &Context, typed: &str) -> Result<(String, Option<String>), Failure> {
    if is_lock_id(typed) && !std::path::Path::new(typed).exists() {
        return Err(Failure::Question {
            word: Word::InvalidKey,
            message: format!("{typed} is the id of a lock; here a file or another key is meant."),
            hint: Some("lockkeeper lock list".to_owned()),
        });
    }
    context.config()?.place.key_and_lines(typed).map_err(|invalid| not_meant(typed, invalid))
}

/// A refusal with the same command once more, and in it what was probably meant.
fn not_meant(typed: &str, invalid: InvalidPath) -> Failure {
    // In another folder, other words of the command may mean another thing.
    let here = invalid.meant.as_deref().filter(|_| invalid.there.is_none());
    match here.and_then(|meant| again::instead(typed, meant)) {
        Some(command) => Failure::Question { word: invalid.word, message: invalid.message, hint: Some(command) },
        None => invalid.into(),
    }
}

/// What was typed as a key, where lines of a file make no sense.
pub(crate) fn whole_key(context: &Context, typed: &str) -> Result<String, Failure> {
    let (file_path, lines) = key_and_lines(context, typed)?;
    match lines {
        None => Ok(file_path),
        Some(_) => Err(Failure::Question {
            word: Word::InvalidRange,
            message: format!("'{typed}' names lines of a file; here only a whole file can be meant."),
            hint: Some(format!("write {}", typed.rsplit_once(':').map_or(typed, |(path, _)| path))),
        }),
    }
}

/// `lock-…` is an id, everything else a key.
pub(crate) fn is_lock_id(text: &str) -> bool {
    lockkeeper_core::lock::LockId::parse(text).is_some()
}

/// A lock in one line.
pub(crate) fn described(lock: &LockView) -> String {
    let target = output::target(&lock.file_path, lock.start_line, lock.end_line);
    format!("{} ({})", output::bold(&target), lock.lock_id)
}
