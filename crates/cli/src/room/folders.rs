//! The folders of a working tree that are watched: all but those that git ignores, and its own.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, Match, WalkBuilder};
use notify::event::{CreateKind, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use crate::foreign;

const IGNORE_FILE: &str = ".gitignore";

/// What the system told, and when: it may be looked at later.
pub(super) type Told = (Instant, notify::Result<Event>);

/// Watches folders, and tells which of their files count.
pub(super) struct Folders {
    root: PathBuf,
    /// The repository's own folder, if it is one.
    git: PathBuf,
    watcher: RecommendedWatcher,
    /// The watched folders, with what the ignore file in each says.
    ignores: HashMap<PathBuf, Gitignore>,
    /// What the repository and the user ignore everywhere.
    everywhere: Vec<Gitignore>,
    /// What Lockkeeper writes itself, if it lies below.
    home: PathBuf,
}

impl Folders {
    /// Watches everything below `root`.
    pub(super) fn watch(root: &Path, git: &Path, home: &Path, told: Sender<Told>) -> Result<Folders> {
        let tell = move |event| drop(told.send((Instant::now(), event)));
        let watcher = notify::recommended_watcher(tell).context("changes of files can't be watched here")?;
        ensure!(is_sound(root), "{} says what to ignore, and is no plain file", root.join(IGNORE_FILE).display());
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        let (everywhere, ignores) = (ignored_everywhere(root, git), HashMap::new());
        let mut folders = Folders { root: root.to_owned(), git: git.to_owned(), watcher, ignores, everywhere, home };
        folders.add(root)?;
        Ok(folders)
    }

    /// When events were missed: watches what is new, forgets what is gone, and reads every ignore file.
    pub(super) fn look_again(&mut self) -> Result<()> {
        let root = self.root.clone();
        self.everywhere = ignored_everywhere(&root, &self.git);
        let there: HashSet<PathBuf> = self.walk(&root).filter(is_folder).map(DirEntry::into_path).collect();
        // First: a folder that was moved is known to the system as one, and would no longer be watched by its new name.
        for (gone, _) in self.ignores.extract_if(|folder, _| !there.contains(folder)) {
            // The system may have forgotten it already.
            let _ = self.watcher.unwatch(&gone);
        }
        self.add(&root)?;
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.ignores.len()
    }

    /// What is in a folder and below it, without what is ignored. A folder comes before it is looked into.
    fn walk(&self, folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
        let home = self.home.clone();
        let walk = WalkBuilder::new(folder)
            .hidden(false)
            .require_git(false)
            .follow_links(false)
            .filter_entry(move |entry| entry.file_name() != ".git" && entry.path() != home && is_sound(entry.path()))
            .build();
        is_sound(folder).then_some(walk).into_iter().flatten().flatten()
    }

    /// Watches a folder and those below it; the files that are in it.
    fn add(&mut self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in self.walk(folder) {
            if !is_folder(&entry) {
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
            let ignore = ignored_in(&folder);
            self.ignores.insert(folder, ignore);
        }
        Ok(files)
    }

    /// Whether the changes of a file count.
    pub(super) fn counts(&self, path: &Path) -> bool {
        path.parent().is_some_and(|folder| self.ignores.contains_key(folder)) && !self.is_ignored(path, false)
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
                self.ignores.insert(folder.to_owned(), ignored_in(folder));
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

/// Whether what says what to ignore in a folder comes to an end: the walk reads it before anybody else can look at it. A link is not
/// followed, as git does not: it may lead to something without an end that calls itself a file of no length.
fn is_sound(folder: &Path) -> bool {
    [IGNORE_FILE, ".ignore"].iter().all(|name| match folder.join(name).symlink_metadata() {
        Ok(found) => found.is_file() && found.len() <= foreign::BYTES_MAX,
        Err(_) => true,
    })
}

/// What a folder says is to be ignored in it. Its file may be anything that somebody committed.
fn ignored_in(folder: &Path) -> Gitignore {
    let mut ignore = GitignoreBuilder::new(folder);
    for line in foreign::text(&folder.join(IGNORE_FILE)).unwrap_or_default().lines() {
        // A line that is no pattern is passed over, as git does.
        let _ = ignore.add_line(None, line);
    }
    ignore.build().unwrap_or_else(|_| Gitignore::empty())
}

/// What the repository and the user ignore in every folder.
fn ignored_everywhere(root: &Path, git: &Path) -> Vec<Gitignore> {
    let mut own = GitignoreBuilder::new(root);
    own.add(git.join("info/exclude"));
    vec![own.build().unwrap_or_else(|_| Gitignore::empty()), Gitignore::global().0]
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    struct Tree {
        _folder: tempfile::TempDir,
        root: PathBuf,
        folders: Folders,
        told: Receiver<Told>,
    }

    impl Tree {
        fn watched(prepare: impl FnOnce(&Path)) -> Tree {
            let folder = tempfile::tempdir().expect("a folder");
            let root = folder.path().canonicalize().expect("a path").join("tree");
            fs::create_dir_all(root.join(".git/info")).expect("a folder");
            prepare(&root);
            let (tell, told) = channel();
            let folders = Folders::watch(&root, &root.join(".git"), &folder.path().join("home"), tell);
            Tree { _folder: folder, root, folders: folders.expect("watching"), told }
        }

        /// Changes something of which no event is handled, as when there are too many.
        fn unseen(&mut self, change: impl FnOnce(&Path)) {
            change(&self.root);
            while self.told.recv_timeout(Duration::from_millis(300)).is_ok() {}
            self.folders.look_again().expect("a look");
        }

        /// Which of some files are seen when they are written, in the order of their events.
        fn seen(&mut self, written: &[&str]) -> Vec<String> {
            for name in written {
                fs::write(self.root.join(name), "x").expect("written");
            }
            let mut seen: Vec<String> = Vec::new();
            while let Ok((_, event)) = self.told.recv_timeout(Duration::from_millis(500)) {
                for path in self.folders.changed(&event.expect("an event")).expect("a look") {
                    let name = path.strip_prefix(&self.root).expect("below").to_str().expect("a name").to_owned();
                    if !seen.contains(&name) {
                        seen.push(name);
                    }
                }
            }
            seen
        }
    }

    #[test]
    fn a_folder_that_ignores_by_what_never_ends_is_left_alone() {
        let endless =
            |folder: &Path| std::os::unix::fs::symlink("/dev/zero", folder.join(IGNORE_FILE)).expect("a link");
        let mut tree = Tree::watched(|root| {
            fs::create_dir(root.join("trap")).expect("a folder");
            endless(&root.join("trap"));
        });
        assert_eq!(tree.folders.count(), 1);
        assert_eq!(tree.seen(&["a.rs"]), ["a.rs"]);
        endless(&tree.root);
        let again = Folders::watch(&tree.root, &tree.root.join(".git"), Path::new("/nowhere"), channel().0);
        assert!(again.is_err_and(|error| error.to_string().contains("no plain file")));
    }

    #[test]
    fn folders_that_were_made_unseen_are_watched_after_another_look() {
        let mut tree = Tree::watched(|_| {});
        tree.unseen(|root| fs::create_dir_all(root.join("new/deep")).expect("a folder"));
        assert_eq!(tree.folders.count(), 3);
        assert_eq!(tree.seen(&["new/a.rs", "new/deep/b.rs"]), ["new/a.rs", "new/deep/b.rs"]);
    }

    #[test]
    fn ignore_files_that_were_changed_unseen_are_read_again() {
        let mut tree = Tree::watched(|root| {
            fs::write(root.join(IGNORE_FILE), "*.log\n").expect("written");
            fs::create_dir(root.join("built")).expect("a folder");
        });
        assert_eq!(tree.seen(&["a.log", "a.tmp", "built/a.rs"]), ["a.tmp", "built/a.rs"]);
        tree.unseen(|root| {
            fs::write(root.join(IGNORE_FILE), "*.tmp\nbuilt/\n").expect("written");
            fs::write(root.join(".git/info/exclude"), "*.bak\n").expect("written");
        });
        assert_eq!(tree.folders.count(), 1);
        assert_eq!(tree.seen(&["a.log", "a.tmp", "a.bak", "built/a.rs"]), ["a.log"]);
        let counts = |name: &str| tree.folders.counts(&tree.root.join(name));
        assert!(counts("a.log") && !counts("a.tmp") && !counts("built/a.rs"));
    }

    #[test]
    fn folders_that_went_unseen_are_forgotten_and_those_that_moved_are_found() {
        let mut tree = Tree::watched(|root| {
            for name in ["gone/deep", "moved"] {
                fs::create_dir_all(root.join(name)).expect("a folder");
            }
        });
        assert_eq!(tree.folders.count(), 4);
        tree.unseen(|root| {
            fs::remove_dir_all(root.join("gone")).expect("removed");
            fs::rename(root.join("moved"), root.join("there")).expect("moved");
        });
        assert_eq!(tree.folders.count(), 2);
        assert_eq!(tree.seen(&["there/a.rs"]), ["there/a.rs"]);
    }
}
