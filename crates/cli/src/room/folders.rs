//! The folders of a working tree that are watched: all but those that git ignores, and its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::{Context, Result};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{Match, WalkBuilder};
use notify::event::{CreateKind, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

const IGNORE_FILE: &str = ".gitignore";

/// What the system told, and when: it may be looked at later.
pub(super) type Told = (Instant, notify::Result<Event>);

/// Watches folders, and tells which of their files count.
pub(super) struct Folders {
    root: PathBuf,
    watcher: RecommendedWatcher,
    /// The watched folders, with what the ignore file in each says.
    ignores: HashMap<PathBuf, Gitignore>,
    /// What the repository and the user ignore everywhere.
    everywhere: Vec<Gitignore>,
    /// What Lockkeeper writes itself, if it lies below.
    home: PathBuf,
}

impl Folders {
    /// `git`: the repository's own folder, if it is one.
    pub(super) fn watch(root: &Path, git: &Path, home: &Path, told: Sender<Told>) -> Result<Folders> {
        let tell = move |event| drop(told.send((Instant::now(), event)));
        let watcher = notify::recommended_watcher(tell).context("changes of files can't be watched here")?;
        let mut own = GitignoreBuilder::new(root);
        own.add(git.join("info/exclude"));
        let everywhere = vec![own.build().unwrap_or_else(|_| Gitignore::empty()), Gitignore::global().0];
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        let mut folders = Folders { root: root.to_owned(), watcher, ignores: HashMap::new(), everywhere, home };
        folders.add(root)?;
        Ok(folders)
    }

    pub(super) fn count(&self) -> usize {
        self.ignores.len()
    }

    /// Watches a folder and those below it; the files that are in it.
    fn add(&mut self, folder: &Path) -> Result<Vec<PathBuf>> {
        let home = self.home.clone();
        let walk = WalkBuilder::new(folder)
            .hidden(false)
            .require_git(false)
            .follow_links(false)
            .filter_entry(move |entry| entry.file_name() != ".git" && entry.path() != home)
            .build();
        let mut files = Vec::new();
        for entry in walk.flatten() {
            if !entry.file_type().is_some_and(|kind| kind.is_dir()) {
                files.push(entry.into_path());
                continue;
            }
            let folder = entry.into_path();
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {}
                // It was there a moment ago.
                Err(_) if !folder.is_dir() => continue,
                Err(error) => {
                    return Err(error).with_context(|| {
                        let more = "more folders can be watched after: sysctl fs.inotify.max_user_watches=524288";
                        format!("{} can't be watched ({more})", folder.display())
                    });
                }
            }
            let (ignore, _) = Gitignore::new(folder.join(IGNORE_FILE));
            self.ignores.insert(folder, ignore);
        }
        Ok(files)
    }

    /// The files that changed by this, without those that are ignored.
    pub(super) fn changed(&mut self, event: &Event) -> Result<Vec<PathBuf>> {
        let counts = match event.kind {
            EventKind::Create(CreateKind::Folder | CreateKind::File | CreateKind::Any) => true,
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Name(_) | ModifyKind::Any) => true,
            EventKind::Create(CreateKind::Other)
            | EventKind::Modify(ModifyKind::Metadata(_) | ModifyKind::Other)
            | EventKind::Remove(_)
            | EventKind::Access(_)
            | EventKind::Any
            | EventKind::Other => false,
        };
        let mut files = Vec::new();
        for path in event.paths.iter().filter(|_| counts) {
            let Ok(found) = path.symlink_metadata() else { continue };
            if found.is_dir() {
                let own = path.file_name().is_none_or(|name| name == ".git") || *path == self.home;
                if !own && !self.is_ignored(path, true) {
                    // What was written before it was watched.
                    files.extend(self.add(path)?);
                }
                continue;
            }
            if path.file_name().is_some_and(|name| name == IGNORE_FILE)
                && let Some(folder) = path.parent()
            {
                self.ignores.insert(folder.to_owned(), Gitignore::new(path).0);
            }
            if found.is_file() {
                files.push(path.clone());
            }
        }
        files.retain(|path| !self.is_ignored(path, false));
        Ok(files)
    }

    /// The ignore file that is closest has the first word.
    fn is_ignored(&self, path: &Path, folder: bool) -> bool {
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(&self.root));
        let near = above.filter_map(|above| self.ignores.get(above));
        let said = near.chain(&self.everywhere).map(|ignore| ignore.matched(path, folder));
        said.into_iter().find(|said| !said.is_none()).is_some_and(|said| matches!(said, Match::Ignore(_)))
    }
}
