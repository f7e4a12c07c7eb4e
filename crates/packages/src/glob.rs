//! The globs of a scope: what they mean, and which paths they take. Whether two of them meet is [`crate::meet`]'s.

use std::fmt;

use unicode_normalization::UnicodeNormalization;

use crate::limits::GLOB_BYTES_MAX;
use crate::meet::{Steps, common_path};
use crate::problem::shortened;

/// A set of paths.
///
/// `*` stands for any letters within one part of a path, `?` for one letter, `**` as a whole part for any number of
/// parts: `src/**` is everything below `src`, `**/*.md` every such file at any depth, `a/**/b` also takes `a/b`.
/// Everything else stands for itself, square brackets too (`app/[id]/page.tsx`). Capitals matter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glob {
    text: String,
    tokens: Vec<Token>,
    /// How much of the text every path in the set begins with: whole folders, or all of it.
    anchor: usize,
    /// Where the text begins with which every path in the set ends: within the last part.
    tail: usize,
    /// With what the last part of every path in the set begins, as a range of the text.
    name: (usize, usize),
}

/// A step through a path, letter by letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token {
    Char(char),
    /// One letter within a part.
    One,
    /// Any letters within a part.
    Star,
    /// One letter or slash.
    Any,
    /// Any letters and slashes.
    AnyMany,
    /// Nothing, or some parts and the slash behind them; followed by `InFolders`.
    Folders,
    /// The same, begun.
    InFolders,
}

/// Why a text is no glob of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidGlob {
    pub text: String,
    pub why: &'static str,
    pub hint: Option<String>,
}

impl fmt::Display for InvalidGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: '{}'", self.why, self.text)
    }
}

impl std::error::Error for InvalidGlob {}

impl Glob {
    pub fn parse(text: &str) -> Result<Glob, InvalidGlob> {
        if let Some((why, hint)) = fault(text) {
            return Err(InvalidGlob { text: shortened(text), why, hint });
        }
        let text: String = text.nfc().collect();
        let mut tokens = Vec::with_capacity(text.len() + 1);
        let parts: Vec<&str> = text.split('/').collect();
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            match *part {
                // Two in a row mean the same as one.
                "**" if parts.get(index + 1) == Some(&"**") => {}
                "**" if last => tokens.extend([Token::Any, Token::AnyMany]),
                "**" => tokens.extend([Token::Folders, Token::InFolders]),
                _ => {
                    tokens.extend(part.chars().map(|c| match c {
                        '*' => Token::Star,
                        '?' => Token::One,
                        c => Token::Char(c),
                    }));
                    if !last {
                        tokens.push(Token::Char('/'));
                    }
                }
            }
        }
        let anchor = match text.find(['*', '?']) {
            Some(wild) => text[..wild].rfind('/').map_or(0, |slash| slash + 1),
            None => text.len(),
        };
        let tail = text.rfind(['*', '?', '/']).map_or(0, |at| at + 1);
        let last = text.rfind('/').map_or(0, |slash| slash + 1);
        let name = (last, text[last..].find(['*', '?']).map_or(text.len(), |wild| last + wild));
        Ok(Glob { text, tokens, anchor, tail, name })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names one path.
    pub fn is_literal(&self) -> bool {
        self.anchor == self.text.len()
    }

    pub(crate) fn anchor(&self) -> &str {
        &self.text[..self.anchor]
    }

    /// Whether it is plain at sight that no path is in both sets.
    pub(crate) fn is_apart(&self, other: &Glob) -> bool {
        let (anchor, other_anchor) = (self.anchor(), other.anchor());
        let (tail, other_tail) = (&self.text[self.tail..], &other.text[other.tail..]);
        let (name, other_name) = (&self.text[self.name.0..self.name.1], &other.text[other.name.0..other.name.1]);
        (!name.starts_with(other_name) && !other_name.starts_with(name))
            || (!anchor.starts_with(other_anchor) && !other_anchor.starts_with(anchor))
            || (!tail.ends_with(other_tail) && !other_tail.ends_with(tail))
    }

    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Whether the path is in the set. A path has no empty parts.
    pub fn matches(&self, path: &str) -> bool {
        if !path.starts_with(self.anchor()) || path.split('/').any(str::is_empty) {
            return false;
        }
        let mut now = vec![0];
        let mut next = Vec::new();
        self.close(&mut now);
        for c in path.chars() {
            for position in now.drain(..) {
                next.extend(self.step(position, c).into_iter().flatten());
            }
            self.close(&mut next);
            std::mem::swap(&mut now, &mut next);
        }
        now.contains(&self.tokens.len())
    }

    /// Whether some path is in both sets.
    pub fn overlaps(&self, other: &Glob) -> bool {
        matches!(common_path(self, other, &[], &mut Steps::unbounded()), Ok(Some(_)))
    }

    /// Where a step can go without a letter.
    pub(crate) fn skip(&self, position: usize) -> Option<usize> {
        match self.tokens.get(position)? {
            Token::Star | Token::AnyMany => Some(position + 1),
            Token::Folders => Some(position + 2),
            Token::Char(_) | Token::One | Token::Any | Token::InFolders => None,
        }
    }

    /// Where a step can go with this letter.
    pub(crate) fn step(&self, position: usize, c: char) -> [Option<usize>; 2] {
        let Some(token) = self.tokens.get(position) else { return [None, None] };
        let slash = c == '/';
        match token {
            Token::Char(own) => [(c == *own).then_some(position + 1), None],
            Token::One => [(!slash).then_some(position + 1), None],
            Token::Star => [(!slash).then_some(position), None],
            Token::Any => [Some(position + 1), None],
            Token::AnyMany => [Some(position), None],
            Token::Folders => [(!slash).then_some(position + 1), None],
            Token::InFolders => [Some(position), slash.then_some(position + 1)],
        }
    }

    /// Adds what can be reached without a letter; each position once, in order.
    pub(crate) fn close(&self, positions: &mut Vec<usize>) {
        let mut index = 0;
        while let Some(position) = positions.get(index).copied() {
            positions.extend(self.skip(position));
            index += 1;
        }
        positions.sort_unstable();
        positions.dedup();
    }
}

fn fault(text: &str) -> Option<(&'static str, Option<String>)> {
    let parts = || text.split('/');
    let trimmed = || parts().filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/");
    if text.is_empty() || text.len() > GLOB_BYTES_MAX {
        Some(("a glob has 1 to 1024 bytes", None))
    } else if text.trim() != text || text.contains(lockkeeper_core::text::is_unprintable) {
        Some(("a glob has no white space at its ends, and no control or invisible characters", None))
    } else if text.starts_with('!') {
        Some(("a glob takes in and does not leave out", Some("put what is left out under deny".to_owned())))
    } else if text.starts_with(['/', '~']) || text.as_bytes().get(1) == Some(&b':') {
        Some(("a glob is relative to the root of the repository", Some(format!("write {}", trimmed()))))
    } else if text.contains('\\') {
        Some(("the parts of a glob are divided by slashes", Some(format!("write {}", text.replace('\\', "/")))))
    } else if text.contains(['{', '}']) {
        Some(("braces mean nothing in a glob", Some("write one entry for each alternative".to_owned())))
    } else if parts().any(|part| part == "..") {
        Some(("a glob does not lead upwards", None))
    } else if text.ends_with('/') {
        Some(("a glob names files", Some(format!("write {}", trimmed() + "/**"))))
    } else if parts().any(|part| matches!(part, "" | ".")) {
        Some(("a glob has no empty parts", Some(format!("write {}", trimmed()))))
    } else if parts().any(|part| part.contains("**") && part != "**") {
        Some(("two stars stand alone between slashes", Some("write * within a part, ** for whole parts".to_owned())))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        Glob::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_glob_takes_the_paths_that_it_says() {
        let table = [
            ("src/a.py", "src/a.py", true),
            ("src/a.py", "src/b.py", false),
            ("src/*.py", "src/a.py", true),
            ("src/*.py", "src/.py", true),
            ("src/*.py", "src/x/a.py", false),
            ("src/**", "src/x/a.py", true),
            ("src/**", "src", false),
            ("src/**", "srcs/a", false),
            ("**", "a", true),
            ("**", "a/b/c", true),
            ("**/*.md", "README.md", true),
            ("**/*.md", "docs/x/README.md", true),
            ("**/*.md", "docs/x/README.rs", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "a/xb", false),
            ("a/**/**/b", "a/b", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("app/[id]/page.tsx", "app/[id]/page.tsx", true),
            ("app/[id]/page.tsx", "app/i/page.tsx", false),
            ("caf\u{e9}/*", "caf\u{e9}/x", true),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(glob(pattern).matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn what_is_no_glob_is_refused_with_the_right_spelling() {
        let table = [
            ("", None),
            (" a", None),
            ("/src/**", Some("write src/**")),
            ("src/", Some("write src/**")),
            ("./src/**", Some("write src/**")),
            ("src//a", Some("write src/a")),
            ("src\\a", Some("write src/a")),
            ("../a", None),
            ("!src/a", Some("put what is left out under deny")),
            ("src/{a,b}", Some("write one entry for each alternative")),
            ("src/a**", Some("write * within a part, ** for whole parts")),
        ];
        for (text, hint) in table {
            assert_eq!(Glob::parse(text).unwrap_err().hint.as_deref(), hint, "{text:?}");
        }
        assert!(Glob::parse(&"a".repeat(1025)).is_err());
    }
}
