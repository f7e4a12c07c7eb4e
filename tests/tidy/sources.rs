//! Reads Rust: tells code from comments, strings and tests, and finds functions. Knows no rule.

use crate::files::{collect, read, relative, root};

/// A Rust file, its name relative to the root.
pub(crate) struct Source {
    pub name: String,
    pub text: String,
    pub lines: Vec<Line>,
}

pub(crate) struct Line {
    pub raw: String,
    /// What is left without comments and without what strings and characters hold.
    pub code: String,
    /// Inside a module that is compiled for tests only.
    pub in_tests: bool,
}

impl Source {
    pub(crate) fn is_src(&self) -> bool {
        self.name.contains("/src/")
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        (1..).zip(&self.lines)
    }
}

/// The lines that become part of the product.
pub(crate) fn shipped(sources: &[Source]) -> impl Iterator<Item = (&Source, usize, &Line)> {
    let files = sources.iter().filter(|file| file.is_src());
    let lines = files.flat_map(|file| file.numbered().map(move |(number, line)| (file, number, line)));
    lines.filter(|(_, _, line)| !line.in_tests)
}

/// Every Rust file of the crates and of the tests beside them.
pub(crate) fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in ["crates", "tests"] {
        collect(&root().join(folder), "rs", &mut paths);
    }
    let sources: Vec<Source> = paths
        .iter()
        .map(|path| {
            let text = read(path);
            Source { name: relative(path), lines: split(&text), text }
        })
        .collect();
    assert!(sources.iter().filter(|file| file.is_src()).count() > 20, "the sources were found");
    sources
}

/// Whether the word is there, and not as a part of a longer one.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let (opens, ends) = (word.starts_with(inside), word.ends_with(inside));
    text.match_indices(word).any(|(at, _)| {
        let before = opens && text[..at].ends_with(inside);
        let behind = ends && text[at + word.len()..].starts_with(inside);
        !before && !behind
    })
}

/// Splits a file into lines, and tells code from comments, strings and tests.
fn split(text: &str) -> Vec<Line> {
    let code = blank(text);
    let pairs = text.lines().zip(code.lines());
    let mut lines: Vec<Line> =
        pairs.map(|(raw, code)| Line { raw: raw.to_owned(), code: code.to_owned(), in_tests: false }).collect();
    assert_eq!(lines.len(), text.lines().count(), "no line is lost");
    let starts: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].code.trim() == "#[cfg(test)]").collect();
    for start in starts {
        let item = (start + 1..lines.len()).find(|at| !lines[*at].code.trim().starts_with("#["));
        let Some(item) = item.filter(|at| has_word(&lines[*at].code, "mod")) else { continue };
        let end = block_end(&lines, item, 0).unwrap_or(item);
        for line in &mut lines[start..=end] {
            line.in_tests = true;
        }
    }
    lines
}

pub(crate) struct Function {
    pub name: String,
    pub line: usize,
    pub count: usize,
}

/// Every function with a body.
pub(crate) fn functions(lines: &[Line]) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        for (column, _) in line.code.match_indices("fn ") {
            let name: String =
                line.code[column + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let word = !line.code[..column].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if word
                && !name.is_empty()
                && let Some(end) = block_end(lines, at, column)
            {
                found.push(Function { name, line: at + 1, count: end - at + 1 });
            }
        }
    }
    found
}

/// The line on which the block ends that begins behind this place; none if a semicolon comes first.
fn block_end(lines: &[Line], from: usize, column: usize) -> Option<usize> {
    let mut brackets = 0_i32;
    let mut braces = 0_i32;
    for (at, line) in lines.iter().enumerate().skip(from) {
        let code = if at == from { &line.code[column..] } else { &line.code };
        for c in code.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces == 0 {
                        return Some(at);
                    }
                }
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// The text with spaces in place of comments and of what strings and characters hold; lines stay where they are.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' => raw_string_end(&chars, at).unwrap_or(at),
            '\'' => character_end(&chars, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        let edge = if chars[at] == '/' { ' ' } else { '"' };
        for (place, c) in (at..).zip(&chars[at..end]) {
            out.push(match c {
                '\n' => '\n',
                _ if place == at || place + 1 == end => edge,
                _ => ' ',
            });
        }
        at = end;
    }
    out
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| at + length)
}

/// Behind a block comment, with those inside it.
fn comment_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// Behind a string such as `r#"..."#`, if one begins here.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|before| chars[before]);
    let longer = before.is_some_and(|c| c.is_alphanumeric() || c == '_') && !matches!(before, Some('b' | 'c'));
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if longer || chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = at + 2 + hashes;
    let length = chars[body..].windows(closing.len()).position(|window| *window == closing);
    Some(length.map_or(chars.len(), |length| body + length + closing.len()))
}

/// Behind a character such as `'x'` or `'\n'`; none if it is a lifetime.
fn character_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        let closing = chars[at + 3..].iter().position(|c| *c == '\'')?;
        return Some(at + 4 + closing);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

// The reader itself, which must not be fooled.

#[test]
fn braces_in_strings_comments_and_characters_are_no_braces() {
    let text = r##"
fn one() { // }
    let a = "}\"}"; let b = '}'; let c = '\''; let d = r#"}"}"#; /* } /* } */ } */
    let e: &'static str = b"}"; let f = '\u{7d}';
}
fn two<'a>(x: [&'a u8; 2]) -> fn(u8);
fn three() where u8: Copy {}
"##;
    let found: Vec<(String, usize)> =
        functions(&split(text)).into_iter().map(|function| (function.name, function.count)).collect();
    assert_eq!(found, [("one".to_owned(), 4), ("three".to_owned(), 1)]);
}

#[test]
fn a_module_for_tests_is_told_from_the_code_around_it() {
    let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
    let in_tests: Vec<bool> = split(text).iter().map(|line| line.in_tests).collect();
    assert_eq!(in_tests, [false, true, true, true, true, true, false]);
    let text = "#[cfg(test)]\nmod tests;\nfn a() {}\n#[cfg(test)]\nfn b() {}\n";
    let in_tests: Vec<bool> = split(text).iter().map(|line| line.in_tests).collect();
    assert_eq!(in_tests, [true, true, false, false, false]);
}

#[test]
fn a_word_is_not_found_in_a_longer_one() {
    assert!(has_word("unsafe { }", "unsafe") && has_word("(println!()", "println!"));
    assert!(!has_word("#![deny(unsafe_code)]", "unsafe") && !has_word("eprintln!()", "println!"));
}
