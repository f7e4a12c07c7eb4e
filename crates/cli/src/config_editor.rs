//! `lockkeeper config ...`: which file is meant, and how its editor's errors are told.

mod edit;
mod get;
mod known;
mod set;
mod unset;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper_config_editor::{Changed, Editor, Error, Key, Step};
use lockkeeper_wire::word::Word;
use serde_json::json;

use crate::config::{self, Config};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::place::{CONFIG_FILE, Place};

#[derive(Debug, Subcommand)]
pub(crate) enum Edits {
    /// Print a value; without a key, all settings in force and where each comes from.
    Get(get::Get),
    /// Put a value at a key; comments, layout and unknown keys stay.
    Set(set::Set),
    /// Take a key away.
    Unset(unset::Unset),
    /// Open a file in your editor; it is checked before it is saved.
    Edit(edit::Edit),
}

const EXAMPLES: &str = "\
Examples:
  lockkeeper config get                                          what is in force, and what says so
  lockkeeper config get lock.default_ttl
  lockkeeper config set lock.default_ttl 2m                      in the repository's lockkeeper.toml
  lockkeeper config set quota.limit 120                          in your own settings: a repository may not say it
  lockkeeper config set engine - < url.txt                       from standard input: others see command lines
  lockkeeper config set --file app.yaml 'servers.\"db.internal\".port' 5432
  lockkeeper config set --file package.json 'keywords[]' locks   one more item
  lockkeeper config unset --file app.toml 'hosts[0]'
  lockkeeper config edit

Several commands may change one file at the same time: they wait for each other, and none undoes the other's change.";

/// Which file is meant.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Which {
    /// Any .toml, .yaml, .yml, .json or .jsonc file [default: the settings file in which the key counts]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "repository"])]
    file: Option<PathBuf>,
    /// Your own settings file.
    #[arg(long, conflicts_with = "repository")]
    user: bool,
    /// The lockkeeper.toml of this repository.
    #[arg(long)]
    repository: bool,
    /// How long to wait for others that are writing.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    wait: String,
}

/// Whose rules a file obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    User,
    Repository,
    /// Of another program.
    Other,
}

/// The file that was chosen.
#[derive(Debug)]
struct Chosen {
    path: PathBuf,
    whose: Whose,
}

impl Edits {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Edits::Get(verb) => verb.run(context),
            Edits::Set(verb) => verb.run(context),
            Edits::Unset(verb) => verb.run(context),
            Edits::Edit(verb) => verb.run(context),
        }
    }
}

impl Which {
    fn is_open(&self) -> bool {
        self.file.is_none() && !self.user && !self.repository
    }

    fn wait(&self) -> Result<Duration, Failure> {
        let wait = config::length(&self.wait).map_err(|error| Failure::usage(error.to_string()))?;
        Ok(Duration::from_millis(wait.0))
    }

    /// What was asked for, else the settings file in which the key counts and comes first.
    fn choose(&self, key: Option<&Key>) -> Result<Chosen, Failure> {
        let place = Place::find()?;
        if let Some(path) = &self.file {
            let same = |own: Option<Chosen>| own.filter(|own| is_same(&own.path, path)).map(|own| own.whose);
            let whose = same(user_file().ok()).or_else(|| same(Some(repository_file(&place)))).unwrap_or(Whose::Other);
            return Ok(Chosen { path: path.clone(), whose });
        }
        // Outside of a repository the folder is none that somebody meant.
        let settled = place.root.join(".git").exists() || place.root.join(CONFIG_FILE).exists();
        let counts = key.is_some_and(known::of_repository);
        if self.repository || (!self.user && settled && counts) { Ok(repository_file(&place)) } else { user_file() }
    }
}

fn is_same(own: &Path, path: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    real(own).is_some() && real(own) == real(path)
}

fn repository_file(place: &Place) -> Chosen {
    Chosen { path: place.root.join(CONFIG_FILE), whose: Whose::Repository }
}

fn user_file() -> Result<Chosen, Failure> {
    let folder = config::user_folder().ok_or_else(|| Failure::usage("there is no home directory for settings"))?;
    Ok(Chosen { path: folder.join(CONFIG_FILE), whose: Whose::User })
}

impl Chosen {
    /// Its editor; own settings files are judged before they are written.
    fn editor(&self, wait: Duration) -> Result<Editor<'static>, Failure> {
        let editor = Editor::new(&self.path).map_err(told)?.wait(wait);
        let of_repository = match self.whose {
            Whose::Other => return Ok(editor),
            Whose::User => false,
            Whose::Repository => true,
        };
        Ok(editor.validator(move |document| {
            config::judge(&document.to_text(), of_repository).map_err(|error| known::explained(&format!("{error:#}")))
        }))
    }

    /// The user's settings may be the first that lies in their folder.
    fn make_folder(&self) -> Result<(), Failure> {
        let folder = self.path.parent().filter(|folder| self.whose == Whose::User && !folder.exists());
        Ok(folder.map_or(Ok(()), |folder| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder))?)
    }
}

fn parsed(key: &str) -> Result<Key, Failure> {
    key.parse().map_err(told)
}

/// Says what a change has done, and what keeps it from counting.
fn report<T>(context: &Context, verb: &str, key: &Key, changed: &Changed<T>) {
    let action = if changed.written { verb } else { "unchanged" };
    if context.global.json {
        let file = changed.file.display().to_string();
        output::json(&json!({ "success": true, "action": action, "key": key.to_string(), "file": file }));
        return;
    }
    match (changed.written, verb) {
        (true, "unset") => say!("Unset {key} in {}", changed.file.display()),
        (true, _) => say!("Set {key} in {}", changed.file.display()),
        (false, _) => say!("{key} is so already in {}; nothing was written", changed.file.display()),
    }
}

/// A service that runs has read its settings already.
fn warn_of_service(context: &Context, key: &Key) {
    // The service that is configured elsewhere reads other settings.
    let here = context.config().ok().filter(|config| config.url().is_none() && context.global.url.is_none());
    if !here.is_some_and(|config| lockkeeper_client::listens(&config.socket())) {
        return;
    }
    match known::reader(key) {
        Some(known::Reader::Service) => {
            note!("The service that runs keeps the value before until it is started anew: lockkeeper stop");
        }
        Some(known::Reader::Reload) => {
            note!("The service that runs keeps the policy before until it is told: lockkeeper policy reload");
        }
        Some(known::Reader::Command) | None => {}
    }
}

/// The space that commands are in from here, as far as the settings can be read.
fn space() -> Option<String> {
    Config::load().ok()?.space().ok()
}

/// Whoever moves to another space sees nothing of what is locked in the one before.
fn warn_of_locks(before: Option<&str>) {
    if before.is_none_or(|before| space().as_deref() == Some(before)) {
        return;
    }
    note!("Locks that are held stay in the space that was before, and are not seen from here.");
    // Each worktree has the file as it was checked out there.
    if Place::find().is_ok_and(|place| place.shared != place.root) {
        note!(
            "Other worktrees keep theirs until they have this setting, too: it is in the repository, and counts for them when it is committed and merged."
        );
    }
}

/// A variable that comes before the files is worth a word.
fn warn<T>(context: &Context, chosen: &Chosen, key: &Key, changed: &Changed<T>, before: Option<&str>) {
    let variable = known::find(key).and_then(known::Known::variable);
    if let Some(variable) = variable.filter(|_| chosen.whose != Whose::Other && !context.global.json) {
        note!("{variable} is set in the environment and comes first");
    }
    if changed.written && chosen.whose == Whose::Repository && !context.global.json {
        warn_of_locks(before);
    }
    if changed.written && chosen.whose == Whose::User && !context.global.json {
        warn_of_service(context, key);
    }
}

/// An error of the editor, as commands end with it.
fn told(error: Error) -> Failure {
    let (word, hint) = match &error {
        Error::Key { .. } | Error::KeyTooLong => (Word::InvalidKey, Some("a.b, a.\"b.c\", list[0] or list[]")),
        Error::NotFound(_) => (Word::NotFound, None),
        Error::TooDeep | Error::TooMany => (Word::LimitExceeded, None),
        Error::TooLarge => (Word::TooLarge, None),
        Error::Conflict(_) => (Word::RequestMismatch, None),
        Error::TimedOut { .. } => {
            (Word::Busy, Some("wait longer with --wait 2m, or see who has the lock open: lslocks"))
        }
        Error::ChangedMeanwhile(_) => (Word::Busy, Some("try again")),
        Error::Unsynced { .. } => (Word::OutcomeUnknown, None),
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            (Word::OperationNotPermitted, None)
        }
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => (Word::InvalidPath, None),
        Error::Io { .. } => return Failure::Other(error.into()),
        Error::Refused(reason) if reason.contains(" is a text, not ") => {
            (Word::InvalidRequest, Some("--string takes the value as a text"))
        }
        _ => (Word::InvalidRequest, None),
    };
    let nothing = if matches!(error, Error::Unsynced { .. }) { "" } else { "; nothing was changed" };
    Failure::Question { word, message: format!("{error}{nothing}"), hint: hint.map(str::to_owned) }
}

/// The same for a change of one key: the file was not written, so that nobody can look at its lines.
fn told_of_key(error: Error) -> Failure {
    match error {
        Error::Refused(reason) => {
            let behind = reason.strip_prefix("line ").and_then(|reason| reason.split_once(": "));
            let plain = behind.filter(|(line, _)| line.bytes().all(|byte| byte.is_ascii_digit()));
            told(Error::Refused(plain.map_or(reason.as_str(), |(_, reason)| reason).to_owned()))
        }
        other => told(other),
    }
}

/// The names of a key without items, as settings are known by.
fn dotted(key: &Key) -> Option<String> {
    let names: Option<Vec<&str>> = key
        .steps()
        .iter()
        .map(|step| match step {
            Step::Name(name) => Some(name.as_str()),
            Step::Item(_) | Step::New => None,
        })
        .collect();
    names.map(|names| names.join("."))
}
