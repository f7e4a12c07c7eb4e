//! Whether locks are written in their one spelling, in the right list, and name contracts that exist.

use std::collections::HashMap;

use lockkeeper_core::key::{InvalidKey, Key, KeyKind};
use lockkeeper_core::span::Span;

use crate::draft::{Draft, DraftContracts, Entry};
use crate::glob::Glob;
use crate::limits::{CONTRACT_STEPS_MAX, LOCKS_MAX};
use crate::problem::{Check, Problems, shortened};

/// A lock of a package, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Held<'t> {
    pub key: Key,
    pub entry: Entry<'t>,
}

/// Tells what is wrong, and gives the locks of each package that can be read, in their one spelling.
pub(crate) fn check<'t>(draft: &Draft<'t>, problems: &mut Problems) -> Vec<Vec<Held<'t>>> {
    let mut contracts = draft.contracts.as_ref().map(Contracts::new);
    let mut reader = Reader { known: HashMap::new(), problems };
    let mut all = Vec::with_capacity(draft.packages.len());
    for package in &draft.packages {
        let count = package.files.len() + package.keys.len();
        // Each list alone has the same bound, and was judged before.
        if let Some(entry) = package.keys.first().filter(|_| count > LOCKS_MAX) {
            let message =
                format!("a package has at most {LOCKS_MAX} locks, files and keys together; these are {count}");
            reader.problems.add(Check::LockKey, entry.place, entry.path.to_string(), entry.text, message);
        }
        let mut held = Vec::with_capacity(count.min(LOCKS_MAX));
        held.extend(package.files.iter().filter_map(|entry| reader.read(*entry, KeyKind::Path)));
        held.extend(package.keys.iter().filter_map(|entry| reader.read(*entry, KeyKind::Logical)));
        if let Some(contracts) = &mut contracts {
            for lock in &held {
                contracts.check(lock, reader.problems);
            }
        }
        all.push(held);
    }
    all
}

struct Reader<'t, 'p> {
    /// Texts that are right, with their keys: aliases can say one text a million times.
    known: HashMap<(&'t str, KeyKind), Key>,
    problems: &'p mut Problems,
}

impl<'t> Reader<'t, '_> {
    fn read(&mut self, entry: Entry<'t>, wanted: KeyKind) -> Option<Held<'t>> {
        if let Some(key) = self.known.get(&(entry.text, wanted)) {
            return Some(Held { key: key.clone(), entry });
        }
        let key = match Key::parse(entry.text) {
            Ok(key) => key,
            Err(error) => {
                let hint = match &error {
                    InvalidKey::GitDirectory => Some("lock env:git-index, under keys".to_owned()),
                    InvalidKey::Path { .. } | InvalidKey::Logical { .. } | InvalidKey::UnknownPrefix(_) => None,
                };
                self.tell(entry, error.to_string(), hint);
                return None;
            }
        };
        let shown = shortened(entry.text);
        match (wanted, key.kind()) {
            (KeyKind::Path, KeyKind::Logical) => {
                self.tell(
                    entry,
                    format!("'{shown}' is a logical key, and stands under files"),
                    Some("move it to keys".into()),
                );
            }
            (KeyKind::Logical, KeyKind::Path) => {
                self.tell(
                    entry,
                    format!("'{shown}' is a path, and stands under keys"),
                    Some("move it to files".into()),
                );
            }
            (KeyKind::Path, KeyKind::Path) | (KeyKind::Logical, KeyKind::Logical) => {
                if let Some(file) = file_of_lines(entry.text).filter(|_| wanted == KeyKind::Path) {
                    let message = format!("'{shown}' names lines of a file; a package locks whole files");
                    self.tell(entry, message, Some(format!("write {file}")));
                } else if key.as_str() != entry.text {
                    let message = format!("'{shown}' is not how this lock is written");
                    self.tell(entry, message, Some(format!("write {key}")));
                } else {
                    self.known.insert((entry.text, wanted), key.clone());
                }
            }
        }
        Some(Held { key, entry })
    }

    fn tell(&mut self, entry: Entry<'t>, message: String, hint: Option<String>) {
        let told = self.problems.add(Check::LockKey, entry.place, entry.path.to_string(), entry.text, message);
        if let Some(hint) = hint {
            told.hint(hint);
        }
    }
}

/// The file, if the text looks like `src/a.rs:10-50`.
fn file_of_lines(text: &str) -> Option<&str> {
    let (file, lines) = text.rsplit_once(':')?;
    let digits = lines.starts_with(|c: char| c.is_ascii_digit());
    (digits && Span::parse(lines).is_ok()).then_some(file)
}

/// The paths that a `contract:` key may name.
struct Contracts {
    exact: Vec<String>,
    globs: Vec<Glob>,
    steps_left: u64,
}

impl Contracts {
    fn new(draft: &DraftContracts<'_>) -> Contracts {
        let spelled = |path: &&str| Key::parse(path).map_or_else(|_| (*path).to_owned(), |key| key.to_string());
        let mut exact: Vec<String> =
            draft.primary.iter().chain(&draft.files).chain(&draft.generated).map(spelled).collect();
        exact.sort_unstable();
        exact.dedup();
        let globs = draft.generated.iter().filter_map(|path| {
            let folder = path.ends_with('/').then(|| format!("{path}**"));
            Glob::parse(folder.as_deref().unwrap_or(path)).ok().filter(|glob| !glob.is_literal())
        });
        Contracts { globs: globs.collect(), exact, steps_left: CONTRACT_STEPS_MAX }
    }

    fn check(&mut self, lock: &Held<'_>, problems: &mut Problems) {
        let Some(path) = lock.key.as_str().strip_prefix("contract:") else { return };
        let known = self.exact.binary_search_by(|known| known.as_str().cmp(path)).is_ok();
        if known || self.steps_left == 0 {
            return;
        }
        let entry = lock.entry;
        self.steps_left = self.steps_left.saturating_sub((self.globs.len() * path.len()) as u64);
        if self.steps_left == 0 {
            let message = "contracts.generated has too many globs for so many contract: keys";
            problems
                .add(Check::Contract, entry.place, entry.path.to_string(), entry.text, message)
                .hint("name folders instead of single artifacts");
            return;
        }
        if self.globs.iter().any(|glob| glob.matches(path)) {
            return;
        }
        let message = format!("'{}' is no contract of this document", shortened(path));
        let told = problems.add(Check::Contract, entry.place, entry.path.to_string(), entry.text, message);
        let name = path.rsplit('/').next().unwrap_or_default();
        match self.exact.iter().find(|known| known.rsplit('/').next() == Some(name)) {
            Some(near) => told.hint(format!("write contract:{near}")),
            None => told.hint("name it under contracts.openapi.files or contracts.generated"),
        }
    }
}
