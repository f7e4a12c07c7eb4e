//! What is locked: a path in the repository, or a logical key with a prefix. Normalised by letters alone.

pub mod logical;
mod path;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::logical::{Fault, Logical, PREFIXES};
use crate::limits::KEY_BYTES_MAX;
use crate::span::{InvalidRange, Span};
use crate::text::is_unprintable;

/// The one namespace of logical keys that form a tree.
const TREE_PREFIX: &str = "flag:";

/// A key in its one spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub struct Key {
    kind: KeyKind,
    cover: Cover,
    text: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    Path,
    Logical,
}

/// How far a key reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cover {
    /// Itself.
    One,
    /// What lies one level below: `src/*`.
    Children,
    /// Everything below: `src/**`, `flag:billing/*`.
    Tree,
}

/// Why a text is no key. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("{why}: {}", shown(.text))]
    Path { text: String, why: &'static str },
    #[error("{why}: {}; a right one is {right}", shown(.text))]
    Logical { text: String, why: &'static str, right: &'static str },
    #[error("{} is no known prefix; known are {}; and a colon can't stand in the first part of a path", shown(.0), PREFIXES.map(|p| format!("{p}:")).join(" "))]
    UnknownPrefix(String),
    #[error("git's own directory can't be locked; the key for git's index is env:git-index")]
    GitDirectory,
}

/// A text of strangers as an error may repeat it.
fn shown(text: &str) -> String {
    // Blanks stay: they may be what is wrong.
    let harmless = |c: char| if is_unprintable(c) || (c.is_whitespace() && c != ' ') { '\u{fffd}' } else { c };
    let more = if text.chars().nth(80).is_some() { "…" } else { "" };
    format!("'{}{more}'", text.chars().take(80).map(harmless).collect::<String>())
}

impl Key {
    pub fn parse(text: &str) -> Result<Key, InvalidKey> {
        if path::is_plain(text) {
            return Ok(Key { kind: KeyKind::Path, cover: Cover::One, text: text.into() });
        }
        let prefix = prefix_of(text);
        if let Some(prefix) = prefix.filter(|prefix| PREFIXES.contains(prefix)) {
            return parse_logical(text, prefix);
        }
        match prefix {
            // One letter before a colon is a drive, not a prefix.
            Some(prefix) if prefix.len() > 1 => Err(InvalidKey::UnknownPrefix(prefix.to_owned())),
            Some(_) | None => parse_path(text),
        }
    }

    /// Whether a logical key is meant, right or wrong: what stands behind its last colon is no lines.
    pub fn has_prefix(text: &str) -> bool {
        prefix_of(text).is_some_and(|prefix| PREFIXES.contains(&prefix))
    }

    /// From a text that [`Key::parse`] made earlier.
    fn from_canonical(text: Arc<str>) -> Key {
        let logical = Key::has_prefix(&text);
        let kind = if logical { KeyKind::Logical } else { KeyKind::Path };
        let cover = match kind {
            KeyKind::Logical if text.starts_with(TREE_PREFIX) && ends_with_segment(&text, "*") => Cover::Tree,
            KeyKind::Logical => Cover::One,
            KeyKind::Path if ends_with_segment(&text, "**") => Cover::Tree,
            KeyKind::Path if ends_with_segment(&text, "*") => Cover::Children,
            KeyKind::Path => Cover::One,
        };
        Key { kind, cover, text }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn shared_text(&self) -> Arc<str> {
        self.text.clone()
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    pub fn cover(&self) -> Cover {
        self.cover
    }

    /// What every key below this one starts with; meaningful for keys that cover others.
    pub(crate) fn stem(&self) -> &str {
        self.text.trim_end_matches('*')
    }

    /// The feature that whoever holds this key exclusively pauses.
    pub fn paused_feature(&self) -> Option<&str> {
        let rest = self.text.strip_prefix("feature:").filter(|_| self.kind == KeyKind::Logical)?;
        rest.strip_suffix(":pause")
    }

    /// Whether its namespace has keys that cover others.
    pub(crate) fn has_tree(&self) -> bool {
        self.kind == KeyKind::Path || self.text.starts_with(TREE_PREFIX)
    }

    /// Whether a lock on one may conflict with a lock on the other. The one statement of this rule: the index is
    /// only a fast way to the same answer.
    pub fn overlaps(&self, other: &Key) -> bool {
        self.kind == other.kind
            && match (self.cover, other.cover) {
                (Cover::One, Cover::One) | (Cover::Children, Cover::Children) => self.text == other.text,
                (Cover::One, Cover::Children | Cover::Tree) => other.covers(&self.text),
                (Cover::Children | Cover::Tree, Cover::One) => self.covers(&other.text),
                (Cover::Tree, Cover::Tree) => {
                    self.stem().starts_with(other.stem()) || other.stem().starts_with(self.stem())
                }
                (Cover::Tree, Cover::Children) => other.stem().starts_with(self.stem()),
                (Cover::Children, Cover::Tree) => self.stem().starts_with(other.stem()),
            }
    }

    /// Whether whoever has this one has all of the other.
    pub fn reaches(&self, other: &Key) -> bool {
        self.kind == other.kind
            && match (self.cover, other.cover) {
                (_, Cover::One) if self.cover != Cover::One => self.covers(&other.text),
                (Cover::Tree, Cover::Children | Cover::Tree) => other.stem().starts_with(self.stem()),
                _ => self.text == other.text,
            }
    }

    fn covers(&self, text: &str) -> bool {
        match text.strip_prefix(self.stem()) {
            None | Some("") => false,
            Some(rest) => self.cover == Cover::Tree || !rest.contains('/'),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Arc<str>> for Key {
    fn from(text: Arc<str>) -> Key {
        Key::from_canonical(text)
    }
}

impl From<Key> for Arc<str> {
    fn from(key: Key) -> Arc<str> {
        key.text
    }
}

/// A key and the part of it that is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    pub key: Key,
    pub span: Span,
}

impl Target {
    pub fn new(key: Key, span: Span) -> Result<Target, InvalidRange> {
        let has_lines = key.kind() == KeyKind::Path && key.cover() == Cover::One;
        if has_lines || span.is_whole() {
            Ok(Target { key, span })
        } else {
            Err(InvalidRange::NotAFile(key.to_string()))
        }
    }

    pub fn overlaps(&self, other: &Target) -> bool {
        self.span.overlaps(other.span) && self.key.overlaps(&other.key)
    }
}

impl fmt::Display for Target {
    /// As a command line takes it: `src/auth.rs:10-50`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.span.is_whole() {
            true => self.key.fmt(f),
            // A file that is called like a prefix is told apart by its folder.
            false if PREFIXES.contains(&self.key.as_str()) => write!(f, "./{}:{}", self.key, self.span),
            false => write!(f, "{}:{}", self.key, self.span),
        }
    }
}

/// What stands before the first colon, if it looks like a prefix: letters, digits, dashes.
fn prefix_of(text: &str) -> Option<&str> {
    let (prefix, _) = text.split_once(':')?;
    let plain = prefix.starts_with(|c: char| c.is_ascii_alphabetic())
        && prefix.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'+' | b'.'));
    plain.then_some(prefix)
}

fn ends_with_segment(text: &str, segment: &str) -> bool {
    text.strip_suffix(segment).is_some_and(|stem| stem.is_empty() || stem.ends_with(['/', ':']))
}

fn parse_logical(text: &str, prefix: &str) -> Result<Key, InvalidKey> {
    let invalid = |fault: Fault| InvalidKey::Logical { text: text.to_owned(), why: fault.why, right: fault.right };
    let rest = &text[prefix.len() + 1..];
    if let Some(why) = logical_fault(text, rest) {
        return Err(invalid(Fault { why, right: logical::example(prefix) }));
    }
    let key = Logical::parse(prefix, rest).map_err(invalid)?.to_string();
    if key.len() > KEY_BYTES_MAX {
        return Err(invalid(Fault { why: TOO_LONG, right: logical::example(prefix) }));
    }
    Ok(Key::from_canonical(key.into()))
}

const TOO_LONG: &str = "a key has at most 1024 bytes";

/// Why no namespace has such a key.
fn logical_fault(text: &str, rest: &str) -> Option<&'static str> {
    if text.len() > KEY_BYTES_MAX {
        Some(TOO_LONG)
    } else if rest.is_empty() {
        Some("a key needs something after its prefix")
    } else if path::has_unprintable(text) {
        Some("a key has no control or invisible characters")
    } else if rest.trim() != rest {
        Some("a key has no white space at its ends")
    } else {
        None
    }
}

fn parse_path(text: &str) -> Result<Key, InvalidKey> {
    let invalid = |why| InvalidKey::Path { text: text.to_owned(), why };
    let ordered = path::parse(text).map_err(invalid)?;
    let (folders, last) = ordered.rsplit_once('/').unwrap_or(("", &ordered));
    if folders.contains('*') || (last.contains('*') && !matches!(last, "*" | "**")) {
        return Err(invalid("a star stands alone at the end: src/* for one level, src/** for everything below"));
    }
    if ordered.split('/').next().is_some_and(|first| first.eq_ignore_ascii_case(".git")) {
        return Err(InvalidKey::GitDirectory);
    }
    // A colon may only now have come to stand before the first slash (`x/../foo:bar`).
    if let Some(prefix) = prefix_of(&ordered) {
        return Err(InvalidKey::UnknownPrefix(prefix.to_owned()));
    }
    Ok(Key::from_canonical(ordered.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn spellings_of_one_path_are_one_key() {
        for text in ["src/a.rs", "./src/a.rs", "src//a.rs", "src/x/../a.rs", "src\\a.rs", "src/./a.rs", "src/a.rs/"] {
            assert_eq!(key(text).as_str(), "src/a.rs", "{text}");
        }
        assert_eq!(key("caf\u{65}\u{301}.rs"), key("caf\u{e9}.rs"));
    }

    #[test]
    fn what_is_no_path_in_the_repository_is_refused() {
        let bad = [
            "",
            ".",
            "..",
            "/",
            "../x",
            "a/../../x",
            "/etc/passwd",
            "C:\\x",
            "c:/x",
            "\\\\host\\x",
            "~/x",
            "a\0b",
            "a\nb",
            "a\rb",
            "a\u{202e}b",
            "a\u{200b}b",
            "a.rs ",
            " a.rs",
            "src/*.rs",
            "*/a.rs",
            "a/**/b",
        ];
        for text in bad {
            assert!(matches!(Key::parse(text), Err(InvalidKey::Path { .. })), "{text:?} {:?}", Key::parse(text));
        }
        assert!(matches!(Key::parse(&"a/".repeat(600)), Err(InvalidKey::Path { .. })));
    }

    #[test]
    fn what_a_path_becomes_is_judged_too() {
        // Three bytes that become six.
        let grows = "\u{958}".repeat(341);
        for text in ["a /x/..", "x/../ a", "x/../~/y", "x/../c:/y", &grows] {
            assert!(matches!(Key::parse(text), Err(InvalidKey::Path { .. })), "{text:?} {:?}", Key::parse(text));
        }
        assert!(matches!(Key::parse(&format!("api:{grows}")), Err(InvalidKey::Logical { .. })));
        assert_eq!(key("a /x").as_str(), "a /x");
    }

    #[test]
    fn gits_own_directory_is_refused_in_any_spelling() {
        for text in [".git", ".git/index", "./.git/config", "x/../.git/HEAD", ".GIT/index", ".git/**"] {
            assert_eq!(Key::parse(text), Err(InvalidKey::GitDirectory), "{text}");
        }
        key(".gitignore");
        key("env:git-index");
    }

    #[test]
    fn an_unknown_prefix_is_refused_and_a_known_one_is_kept() {
        assert_eq!(Key::parse("foo:bar"), Err(InvalidKey::UnknownPrefix("foo".into())));
        assert_eq!(Key::parse("x/../foo:bar"), Err(InvalidKey::UnknownPrefix("foo".into())));
        assert_eq!(key("api:GET /v1/users").kind(), KeyKind::Logical);
        assert_eq!(key("db:migration-slot").as_str(), "db:migration-slot");
        assert_eq!(key("src/a:b.rs").kind(), KeyKind::Path);
        assert!(matches!(Key::parse("api:"), Err(InvalidKey::Logical { .. })));
        assert!(matches!(Key::parse("api: x"), Err(InvalidKey::Logical { .. })));
    }

    #[test]
    fn keys_overlap_when_one_reaches_the_other() {
        let table = [
            ("src/a.rs", "src/a.rs", true),
            ("src/a.rs", "src/b.rs", false),
            ("src/**", "src/a.rs", true),
            ("src/**", "src/x/y/a.rs", true),
            ("src/**", "src", false),
            ("src/**", "srcs/a.rs", false),
            ("src/*", "src/a.rs", true),
            ("src/*", "src/x/a.rs", false),
            ("src/*", "src/*", true),
            ("src/*", "src/**", true),
            ("src/*", "src/x/**", false),
            ("src/**", "src/x/*", true),
            ("src/**", "src/x/**", true),
            ("**", "src/x/**", true),
            ("**", "a", true),
            ("**", "api:GET /", false),
            ("*", "a", true),
            ("*", "a/b", false),
            ("flag:billing/*", "flag:billing/new/checkout", true),
            ("flag:billing/*", "flag:billing", false),
            ("flag:billing/*", "flag:billings/x", false),
            ("event:a", "event:a", true),
        ];
        for (one, other, expected) in table {
            assert_eq!(key(one).overlaps(&key(other)), expected, "{one} {other}");
            assert_eq!(key(other).overlaps(&key(one)), expected, "{other} {one}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(20_000))]
        /// The quick way says of a text what the long way says.
        #[test]
        fn a_plain_path_is_its_own_spelling(text in "(a|Z|[.]|[.][.]|[.]git|git|[/]|:|[*]|_|-| |~|\\\\|é|api){0,6}") {
            if path::is_plain(&text) {
                proptest::prop_assert!(prefix_of(&text).is_none());
                proptest::prop_assert_eq!(parse_path(&text), Key::parse(&text));
                proptest::prop_assert_eq!(Key::from_canonical(text.as_str().into()), Key::parse(&text).unwrap());
            }
        }
    }

    #[test]
    fn a_plain_path_has_its_bound_too() {
        assert!(Key::parse(&"a".repeat(KEY_BYTES_MAX)).is_ok());
        assert!(matches!(Key::parse(&"a".repeat(KEY_BYTES_MAX + 1)), Err(InvalidKey::Path { .. })));
    }

    #[test]
    fn only_a_file_has_lines() {
        let lines = Span::parse("1-2").unwrap();
        assert!(Target::new(key("a.rs"), lines).is_ok());
        assert!(Target::new(key("src/**"), lines).is_err());
        assert!(Target::new(key("api:GET /"), lines).is_err());
        for text in ["api:GET /a:5", "api:GET /a:5/", "contract:a/b:1-2"] {
            assert!(Key::parse(text).is_err(), "{text}");
        }
    }
}
