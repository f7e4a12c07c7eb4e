//! Where a command is: the repository around it, the space that this makes, and paths as keys.
//!
//! Core normalises by letters. Here the file system is asked first: absolute paths, symlinks, other worktrees, and
//! capitals where they make no difference.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use lockkeeper_core::key::logical::PREFIXES;
use lockkeeper_core::key::{InvalidKey, Key, KeyKind};
use lockkeeper_core::span::Span;
use lockkeeper_wire::word::Word;

use crate::{foreign, lines};

/// The name of the file that settings of a repository are in.
pub(crate) const CONFIG_FILE: &str = "lockkeeper.toml";
/// Links that are followed before a path counts as a circle.
const LINKS_MAX: usize = 40;

/// The repository or folder around a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The top of the working tree: keys are relative to it.
    pub(crate) root: PathBuf,
    /// What all worktrees of the repository share: git's common directory, or the root itself.
    pub(crate) shared: PathBuf,
    /// Other worktrees are other spaces, and their files are outside.
    pub(crate) separate: bool,
    pub(crate) here: PathBuf,
}

impl Place {
    pub(crate) fn find() -> Result<Place> {
        let here = std::env::current_dir().context("there is no current folder")?;
        Place::around(&here)
    }

    /// Looks upwards for a repository, then for a lockkeeper.toml; else the folder stands for itself.
    pub(crate) fn around(folder: &Path) -> Result<Place> {
        let here = folder.canonicalize().with_context(|| format!("there is no folder {}", folder.display()))?;
        for root in here.ancestors() {
            let git = root.join(".git");
            if git.exists() {
                let shared = common_directory(&git).with_context(|| format!("{} can't be read", git.display()))?;
                return Ok(Place { root: root.to_owned(), shared, separate: false, here });
            }
        }
        let marked = here.ancestors().find(|folder| folder.join(CONFIG_FILE).is_file());
        let root = marked.unwrap_or(&here).to_owned();
        Ok(Place { shared: root.clone(), root, separate: false, here })
    }

    /// The name of the space: one for all worktrees, unless they are to be separate.
    pub(crate) fn space(&self) -> String {
        let place = if self.separate { &self.root } else { &self.shared };
        place.to_string_lossy().into_owned()
    }

    /// A key as it was typed, as the service knows it: paths become relative to the root.
    pub(crate) fn key(&self, typed: &str) -> Result<String, InvalidPath> {
        if Key::has_prefix(typed) {
            return Ok(typed.to_owned());
        }
        // What is no path by its letters is not looked for on the disk. A prefix that is known is one that `./` stands before.
        let relative = !Path::new(typed).is_absolute();
        if relative
            && let Err(InvalidKey::UnknownPrefix(prefix)) = Key::parse(typed)
            && !PREFIXES.contains(&prefix.as_str())
        {
            return Err(InvalidPath::new(Word::OperationNotPermitted, InvalidKey::UnknownPrefix(prefix).to_string()));
        }
        if typed.is_empty() || typed.chars().any(lockkeeper_core::text::is_unprintable) || typed.trim() != typed {
            return Ok(typed.to_owned()).and_then(|typed| checked(&typed).map(|()| typed));
        }
        if let Some(slip) = self.lines_of_a_page(typed) {
            return Err(slip);
        }
        let (stem, stars) = split_stars(typed);
        let resolved = resolve(&self.here.join(stem)).map_err(|error| invalid(typed, &error.to_string()))?;
        if let Some(top) = self.repository_below(&resolved) {
            return Err(self.elsewhere(typed, top));
        }
        let root = self.root_of(&resolved);
        let Some(inside) = root.as_ref().and_then(|root| resolved.strip_prefix(root).ok()) else {
            return Err(invalid(typed, &format!("it is outside of {}", self.root.display())));
        };
        let Some(text) = inside.to_str() else {
            return Err(invalid(typed, "its name is not UTF-8"));
        };
        let key = starred(text, stars);
        if Key::has_prefix(&key) {
            return Err(invalid(
                typed,
                &format!(
                    "its name is that of a logical key, and no lock is on a file by such a name; lock its folder, '{}'",
                    self.everything_as_typed()
                ),
            ));
        }
        let git = inside.components().next().is_some_and(|first| first.as_os_str().eq_ignore_ascii_case(".git"));
        if stars.is_empty() && !git && resolved.is_dir() {
            // As it would be typed here.
            let tree =
                if typed.trim_end_matches('/') == "." { "**" } else { &format!("{}/**", typed.trim_end_matches('/')) };
            return Err(invalid(typed, &format!("it is a folder; lock '{tree}' for everything in it")));
        }
        checked(&key)?;
        Ok(key)
    }

    /// Somebody in a folder of the repository who names a file from its top, by mistake: there is one, and none here.
    pub(crate) fn is_named_from_the_top(&self, typed: &str) -> bool {
        if Key::has_prefix(typed) {
            return false;
        }
        let path = typed.rsplit_once(':').filter(|(_, lines)| Span::is_meant_by(lines)).map_or(typed, |(path, _)| path);
        let stem = split_stars(path).0;
        let is_there = |folder: &Path| std::fs::symlink_metadata(folder.join(stem)).is_ok();
        let is_plain = Path::new(stem).components().all(|part| matches!(part, Component::Normal(_)));
        self.here != self.root && is_plain && !is_there(&self.here) && is_there(&self.root)
    }

    /// A key as a document of the repository names it: its paths are relative to the root, wherever the command is.
    pub(crate) fn of_repository(&self, key: &Key) -> Result<String, InvalidPath> {
        if key.kind() == KeyKind::Logical {
            return Ok(key.to_string());
        }
        Place { here: self.root.clone(), ..self.clone() }.key(key.as_str())
    }

    /// The worktree of this repository that a file is in: this one, or another.
    fn root_of(&self, file: &Path) -> Option<PathBuf> {
        let is_inside = file.starts_with(&self.root);
        // Worktrees may lie inside each other. What is no worktree of this repository, such as a submodule, is a part of one.
        let tops = file.ancestors().take_while(|folder| *folder != self.root).filter(|folder| is_worktree(folder));
        let mut tops = tops.filter_map(|top| Place::around(top).ok());
        match tops.find(|there| there.shared == self.shared) {
            Some(there) => Some(there.root).filter(|_| !self.separate),
            None => is_inside.then(|| self.root.clone()),
        }
    }

    /// The repository inside of this one that a path leads into, such as a submodule: a part of this one from here, and a space of its
    /// own for whoever works in there.
    pub(crate) fn repository_inside(&self, typed: &str) -> Option<PathBuf> {
        if Key::has_prefix(typed) {
            return None;
        }
        let path = Span::behind_colon(typed).map_or(typed, |(path, _)| path);
        let file = resolve(&self.here.join(split_stars(path).0)).ok()?;
        let root = self.root_of(&file)?;
        let below = file.ancestors().take_while(|folder| folder.starts_with(&root) && **folder != *root);
        below.into_iter().find(|folder| is_worktree(folder)).map(Path::to_owned)
    }

    /// Whether this folder stands for itself alone: no repository is around it, and no lockkeeper.toml marks one.
    pub(crate) fn is_alone(&self) -> bool {
        self.shared == self.root && !self.root.join(CONFIG_FILE).is_file()
    }

    /// The repository that a path leads into from a folder that stands for itself: whoever works there looks into its space, not
    /// into the one of this folder.
    fn repository_below<'f>(&self, file: &'f Path) -> Option<&'f Path> {
        let below = file.ancestors().take_while(|folder| folder.starts_with(&self.root) && *folder != self.root);
        below.into_iter().find(|folder| is_worktree(folder)).filter(|_| self.is_alone())
    }

    fn elsewhere(&self, typed: &str, top: &Path) -> InvalidPath {
        let why = format!("it is in the repository {}, where nobody would see that; do it from there", top.display());
        InvalidPath { meant: self.typed_at(top, typed), there: Some(top.to_owned()), ..invalid(typed, &why) }
    }

    /// A path with its lines as it is typed at the top of a repository below.
    fn typed_at(&self, top: &Path, typed: &str) -> Option<String> {
        let (path, lines) = Span::behind_colon(typed).map_or((typed, ""), |(path, _)| typed.split_at(path.len()));
        let (stem, stars) = split_stars(path);
        let file = resolve(&self.here.join(stem)).ok()?;
        let inside = file.strip_prefix(top).ok()?;
        let key = starred(inside.to_str()?, if stars.is_empty() && file.is_dir() { "**" } else { stars });
        // What is a name here is not to be an option or a logical key there.
        let begin = if key.starts_with('-') || Key::has_prefix(&key) { "./" } else { "" };
        Some(format!("{begin}{key}{lines}"))
    }

    /// The key of the whole working tree, as it is typed here.
    fn everything_as_typed(&self) -> String {
        let below = self.here.strip_prefix(&self.root).map_or(0, |below| below.components().count());
        "../".repeat(below) + "**"
    }

    /// Lines as a page of the web names them, `src/auth.rs#L10`, and no file that is called so.
    fn lines_of_a_page(&self, typed: &str) -> Option<InvalidPath> {
        let (path, fragment) = typed.rsplit_once('#')?;
        let lines = lines::of_a_page(fragment)?;
        let is_called_so = std::fs::symlink_metadata(self.here.join(typed)).is_ok();
        (!is_called_so && self.here.join(path).is_file()).then(|| InvalidPath {
            word: Word::InvalidRange,
            message: format!(
                "'{}' names lines as a page of the web does; here they stand behind a colon.",
                lockkeeper_core::text::one_line(typed)
            ),
            meant: Some(lines::meant(path, &lines)),
            there: None,
        })
    }

    /// A key with lines behind a colon: `src/auth.rs:10-50`.
    pub(crate) fn key_and_lines(&self, typed: &str) -> Result<(String, Option<String>), InvalidPath> {
        if Key::has_prefix(typed) {
            return Ok((typed.to_owned(), None));
        }
        match typed.rsplit_once(':') {
            // A file with a colon in its name, all of it: the service would take what stands behind the colon for lines.
            Some((_, end)) if self.here.join(typed).is_file() => {
                Ok((self.key(typed)?, Span::is_meant_by(end).then(|| "1-".to_owned())))
            }
            // `port:5432` is a key of no namespace, not a line of a file that is not there.
            Some((path, lines)) if Span::is_meant_by(lines) && is_word(path) && !self.here.join(path).exists() => {
                Err(match Key::parse(typed) {
                    Err(error) => InvalidPath::new(
                        Word::OperationNotPermitted,
                        format!("{error}; and there is no file '{path}' whose lines could be meant"),
                    ),
                    Ok(_) => invalid(typed, "there is no such file"),
                })
            }
            Some((path, column)) if Span::is_meant_by(column) && self.is_line_of_a_file(path) => {
                Err(with_column(path, column))
            }
            Some((path, lines)) if Span::is_meant_by(lines) && !path.is_empty() => {
                let key = self.key(path).map_err(|invalid| match &invalid.there {
                    Some(top) => self.elsewhere(typed, top),
                    None => invalid,
                });
                Ok((key?, Some(lines.to_owned())))
            }
            // `x.rs:a-b` is a slip of the pen, not a key of a namespace `x.rs`.
            Some((path, lines)) if path.contains(['.', '/']) && !lines.contains('/') => Err(InvalidPath {
                word: Word::InvalidRange,
                message: format!(
                    "'{}' is no range of lines; write 10-50, 10, or 10-.",
                    lockkeeper_core::text::one_line(lines)
                ),
                meant: Some(lines::meant(path, lines)),
                there: None,
            }),
            Some(_) | None => Ok((self.key(typed)?, None)),
        }
    }

    /// Whether this is `src/auth.rs:10`, and no file that is called so.
    fn is_line_of_a_file(&self, typed: &str) -> bool {
        let is_there = |path: &str| self.here.join(path).exists();
        typed.rsplit_once(':').is_some_and(|(path, line)| {
            Span::is_meant_by(line) && !path.is_empty() && !is_there(typed) && (!is_word(path) || is_there(path))
        })
    }
}

/// Whether a text could be the prefix of a namespace.
fn is_word(text: &str) -> bool {
    // One letter is a name, or a drive.
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b == b'_')
}

/// A path that can't be a key, before the service is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidPath {
    pub(crate) word: Word,
    pub(crate) message: String,
    /// What was probably meant, as it would be typed.
    pub(crate) meant: Option<String>,
    /// The folder in which it would be typed, if it is not this one.
    pub(crate) there: Option<PathBuf>,
}

impl InvalidPath {
    pub(crate) fn new(word: Word, message: impl Into<String>) -> InvalidPath {
        InvalidPath { word, message: message.into(), meant: None, there: None }
    }
}

/// A line and its column, as compilers print a place.
fn with_column(line: &str, column: &str) -> InvalidPath {
    let shown = lockkeeper_core::text::one_line(line);
    let meant = line.rsplit_once(':').map(|(path, line)| lines::meant(path, line));
    let message = format!("'{shown}:{column}' names a line and a column; lines can be locked, and columns can't.");
    InvalidPath { word: Word::InvalidRange, message, meant, there: None }
}

fn invalid(typed: &str, why: &str) -> InvalidPath {
    let typed: String = lockkeeper_core::text::one_line(typed).chars().take(80).collect();
    InvalidPath::new(Word::InvalidPath, format!("'{typed}' can't be locked: {why}."))
}

fn checked(key: &str) -> Result<(), InvalidPath> {
    let Err(error) = Key::parse(key) else { return Ok(()) };
    let word = match &error {
        InvalidKey::Path { .. } => Word::InvalidPath,
        InvalidKey::Logical { .. } => Word::InvalidKey,
        InvalidKey::UnknownPrefix(_) | InvalidKey::GitDirectory => Word::OperationNotPermitted,
    };
    Err(InvalidPath::new(word, error.to_string()))
}

fn split_stars(typed: &str) -> (&str, &str) {
    for stars in ["**", "*"] {
        if typed == stars {
            return ("", stars);
        }
        if let Some(stem) = typed.strip_suffix(stars).and_then(|stem| stem.strip_suffix('/')) {
            return (stem, stars);
        }
    }
    (typed, "")
}

/// A path and its stars as one key.
fn starred(path: &str, stars: &str) -> String {
    match (path, stars) {
        ("", stars) => stars.to_owned(),
        (path, "") => path.to_owned(),
        (path, stars) => format!("{path}/{stars}"),
    }
}

/// Whether git has a worktree here.
fn is_worktree(folder: &Path) -> bool {
    folder.join(".git").exists()
}

/// Git's common directory: itself for a plain repository, the one behind it for a worktree.
fn common_directory(git: &Path) -> Result<PathBuf> {
    let directory = if git.is_dir() {
        git.to_owned()
    } else {
        let pointer = foreign::text(git)?;
        let Some(target) = pointer.trim().strip_prefix("gitdir:") else { bail!("it says no gitdir") };
        git.parent().unwrap_or(git).join(target.trim())
    };
    let common = match foreign::text(&directory.join("commondir")) {
        Ok(common) => directory.join(common.trim()),
        Err(_) => directory,
    };
    Ok(common.canonicalize()?)
}

/// Follows a path through the file system as far as it exists; the rest is taken by its letters.
fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    let mut pending: Vec<PathBuf> = vec![path.to_owned()];
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    while let Some(next) = pending.pop() {
        let mut components = next.components();
        let Some(first) = components.next() else { continue };
        let rest = components.as_path();
        if !rest.as_os_str().is_empty() {
            pending.push(rest.to_owned());
        }
        match first {
            Component::RootDir => resolved = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => {
                let candidate = resolved.join(real_name(&resolved, name).as_deref().unwrap_or(name));
                match std::fs::read_link(&candidate) {
                    Ok(_) if links >= LINKS_MAX => return Err(std::io::Error::other("too many symbolic links")),
                    Ok(target) => {
                        links += 1;
                        pending.push(target);
                    }
                    Err(_) => resolved = candidate,
                }
            }
        }
    }
    Ok(resolved)
}

/// The spelling that a file has where capitals make no difference, if it is not the one that was typed.
///
/// Looks into the folder only when the name with the other case is the same file: elsewhere it costs two questions.
fn real_name(folder: &Path, typed: &OsStr) -> Option<OsString> {
    let text = typed.to_str()?;
    let other: String = text.chars().flat_map(other_case).collect();
    let file = |name: &str| std::fs::symlink_metadata(folder.join(name)).map(|found| (found.dev(), found.ino()));
    if other == text || file(text).ok()? != file(&other).ok()? {
        return None;
    }
    let names: Vec<OsString> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name()).collect();
    if names.iter().any(|name| name == typed) {
        return None;
    }
    let folded = text.to_lowercase();
    names.into_iter().find(|name| name.to_str().is_some_and(|name| name.to_lowercase() == folded))
}

fn other_case(c: char) -> impl Iterator<Item = char> {
    let (upper, lower) = (c.to_uppercase(), c.to_lowercase());
    let capital = c.is_uppercase();
    upper.filter(move |_| !capital).chain(lower.filter(move |_| capital))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [".git", "src/deep"] {
            std::fs::create_dir_all(folder.path().join(path)).expect("folders");
        }
        std::fs::write(folder.path().join("src/a.rs"), "x").expect("a file");
        folder
    }

    #[test]
    fn every_spelling_of_one_file_is_one_key() {
        let folder = repository();
        let root = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("src/a.rs", root.join("link.rs")).unwrap();
        std::os::unix::fs::symlink("src", root.join("sources")).unwrap();
        let place = Place::around(&root).unwrap();
        let absolute = root.join("src/a.rs").to_str().unwrap().to_owned();
        for typed in ["src/a.rs", "./src/a.rs", "src//a.rs", "src/x/../a.rs", "link.rs", "sources/a.rs", &absolute] {
            assert_eq!(place.key(typed).as_deref(), Ok("src/a.rs"), "{typed}");
        }
        let deep = Place::around(&root.join("src/deep")).unwrap();
        assert_eq!(deep.key("../a.rs").as_deref(), Ok("src/a.rs"));
        assert_eq!(deep.space(), place.space());
    }

    #[test]
    fn what_leads_out_is_refused() {
        let folder = repository();
        let root = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("out.rs")).unwrap();
        let place = Place::around(&root).unwrap();
        for typed in ["../x", "/etc/passwd", "out.rs", "src/../../x", "a\0b", "a\x1bb", "", "."] {
            let refused = place.key(typed).expect_err(typed);
            assert_eq!(refused.word, Word::InvalidPath, "{typed}: {refused:?}");
        }
        assert!(place.key("src").unwrap_err().message.contains("'src/**'"));
        let inside = Place::around(&root.join("src")).unwrap();
        assert!(inside.key(".").unwrap_err().message.contains("'**'"));
        assert!(inside.key("deep/").unwrap_err().message.contains("'deep/**'"));
        assert!(inside.is_named_from_the_top("src/a.rs:1-5") && inside.is_named_from_the_top("src/**"));
        assert!(!inside.is_named_from_the_top("a.rs") && !inside.is_named_from_the_top("new.rs"));
        assert!(!place.is_named_from_the_top("src/a.rs"));
        assert_eq!(place.key("src/**").as_deref(), Ok("src/**"));
        for typed in [".git/index", ".git", "./.git", ".git/**", "src/../.git/config", ".GIT/index"] {
            let refused = place.key(typed).expect_err(typed);
            assert_eq!(refused.word, Word::OperationNotPermitted, "{typed}: {refused:?}");
        }
    }

    #[test]
    fn worktrees_share_the_space() {
        let folder = repository();
        let root = folder.path().canonicalize().unwrap();
        let worktree = tempfile::tempdir().unwrap();
        let gitdir = root.join(".git/worktrees/w");
        std::fs::create_dir_all(&gitdir).unwrap();
        std::fs::write(gitdir.join("commondir"), "../..\n").unwrap();
        std::fs::write(worktree.path().join(".git"), format!("gitdir: {}\n", gitdir.display())).unwrap();
        let (one, other) = (Place::around(&root).unwrap(), Place::around(worktree.path()).unwrap());
        assert_eq!(one.space(), other.space());
        let separate = |place: &Place| Place { separate: true, ..place.clone() };
        assert_ne!(separate(&one).space(), separate(&other).space());
        let there = root.join("src/a.rs");
        let there = there.to_str().unwrap();
        assert_eq!(other.key(there).as_deref(), Ok("src/a.rs"));
        assert_eq!(separate(&other).key(there).unwrap_err().word, Word::InvalidPath);
        assert_eq!(other.key("src/a.rs").as_deref(), Ok("src/a.rs"));
    }

    #[test]
    fn lines_stand_behind_a_colon() {
        let folder = repository();
        let place = Place::around(folder.path()).unwrap();
        let split = |typed: &str| place.key_and_lines(typed).unwrap();
        assert_eq!(split("src/a.rs:10-50"), ("src/a.rs".into(), Some("10-50".into())));
        assert_eq!(split("src/a.rs:7"), ("src/a.rs".into(), Some("7".into())));
        assert_eq!(split("src/a.rs"), ("src/a.rs".into(), None));
        assert_eq!(split("api:GET /v1/users:1"), ("api:GET /v1/users:1".into(), None));
    }
}
