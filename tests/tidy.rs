//! The house rules, as tests: what a reader may rely on in every file without having read it.
//!
//! Looks at text only, and knows nothing of what the code does. A rule that is broken names the file and the line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of one file under `src`, its tests left out.
const FILE_LINES_MAX: usize = 600;
/// Lines of one function under `src`, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 100;
/// How far above an `unsafe` its reason may stand.
const SAFETY_LINES_MAX: usize = 3;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "helper", "helpers", "common", "misc", "manager"];
/// Marks of work that is not done. Written in two parts, so that this file does not break its own rule.
const UNFINISHED: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
const UNFINISHED_CODE: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "#[ignore"];
const PRINTING: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];
/// Places of one machine, which mean nothing on another.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];
/// Crates that bring a runtime, and with it a clock, tasks and input and output.
const RUNTIMES: [&str; 6] = ["tokio", "tokio-util", "async-std", "smol", "futures", "mio"];

const PROMISES: u32 = 16;
/// Promises of parts that are not built yet. The list only gets shorter.
const PROMISES_NOT_BUILT: [&str; 2] = ["P13", "P15"];
const NOT_BUILT: &str = "not built yet";
const TESTS_MISSING: &str = concat!("TESTS-", "TO-COME");

// The laws.

#[test]
fn every_source_file_opens_with_its_job() {
    let mut broken = Broken::new("open the file with `//!`: its job, and what it must not know");
    for file in sources().iter().filter(|file| file.is_src()) {
        if !file.text.starts_with("//!") {
            broken.at(file, 1, "no `//!`");
        }
    }
    broken.check();
}

#[test]
fn no_file_is_too_long_to_be_read() {
    let mut broken = Broken::new("split the file: one noun a file");
    for file in sources().iter().filter(|file| file.is_src()) {
        let count = file.lines.iter().filter(|line| !line.in_tests).count();
        if count > FILE_LINES_MAX {
            broken.at(file, count, &format!("{count} lines outside its tests, {FILE_LINES_MAX} are the limit"));
        }
    }
    broken.check();
}

#[test]
fn no_function_is_too_long_to_be_read() {
    let mut broken = Broken::new("split the function: branches up, work down");
    for file in sources().iter().filter(|file| file.is_src()) {
        for Function { name, line, count } in functions(&file.lines) {
            if count > FUNCTION_LINES_MAX {
                broken.at(file, line, &format!("`{name}` has {count} lines, {FUNCTION_LINES_MAX} are the limit"));
            }
        }
    }
    broken.check();
}

#[test]
fn nothing_is_left_unfinished_or_switched_off() {
    let mut broken = Broken::new("finish it, or take it out");
    for file in sources() {
        for (number, line) in file.numbered() {
            let text = UNFINISHED.iter().filter(|mark| has_word(&line.raw, mark));
            let code = UNFINISHED_CODE.iter().filter(|mark| has_word(&line.code, mark));
            for mark in text.chain(code) {
                broken.at(&file, number, &format!("`{mark}`"));
            }
        }
    }
    broken.check();
}

#[test]
fn file_names_say_what_is_inside() {
    let mut broken = Broken::new("name the file after its one noun");
    for file in sources() {
        let place = Path::new(&file.name).with_extension("");
        for part in place.iter().filter_map(|part| part.to_str()) {
            if EMPTY_NAMES.contains(&part) {
                broken.at(&file, 1, &format!("`{part}` says nothing"));
            }
        }
    }
    broken.check();
}

#[test]
fn no_source_unwraps() {
    let mut broken = Broken::new("say why it can't fail, with `.expect(\"why\")`, or return the error");
    for (file, number, line) in shipped(&sources()) {
        if line.code.contains(".unwrap()") || line.code.contains(".expect(\"\")") {
            broken.at(file, number, "unwraps without a reason");
        }
    }
    broken.check();
}

#[test]
fn every_unsafe_says_why_it_is_safe() {
    let mut broken = Broken::new("write `// SAFETY:` and the reason right above");
    for file in sources() {
        for (number, line) in file.numbered() {
            let above = number.saturating_sub(1 + SAFETY_LINES_MAX)..number;
            if has_word(&line.code, "unsafe") && !file.lines[above].iter().any(|line| line.raw.contains("// SAFETY:")) {
                broken.at(&file, number, "`unsafe` without a reason");
            }
        }
    }
    broken.check();
}

#[test]
fn only_the_command_line_prints() {
    let mut broken = Broken::new("return it, or trace it");
    for (file, number, line) in shipped(&sources()) {
        // Two programs speak to people: the product, and the simulation's own.
        let speaks = ["crates/cli/src/", "crates/sim/src/main.rs", "crates/sim/src/planted.rs"];
        if speaks.iter().any(|place| file.name.starts_with(place)) {
            continue;
        }
        for word in PRINTING.iter().filter(|word| has_word(&line.code, word)) {
            broken.at(file, number, &format!("`{word}`"));
        }
    }
    broken.check();
}

#[test]
fn core_reads_no_clock() {
    let mut broken = Broken::new("time comes in as an argument");
    for file in sources().iter().filter(|file| file.name.starts_with("crates/core/src/")) {
        for (number, line) in file.numbered() {
            for word in ["Instant", "SystemTime"].iter().filter(|word| has_word(&line.code, word)) {
                broken.at(file, number, &format!("`{word}`"));
            }
        }
    }
    broken.check();
}

#[test]
fn core_depends_on_no_runtime() {
    let mut broken = Broken::new("core is pure rules: no input, no output, no async");
    let manifest = read(&root().join("crates/core/Cargo.toml"));
    let mut table = "";
    for (number, line) in (1..).zip(manifest.lines()) {
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']', ' ']);
        }
        let name = match table.rsplit_once("dependencies.") {
            Some((_, name)) => name,
            None if table.ends_with("dependencies") => line.split(['=', '.']).next().unwrap_or_default().trim(),
            None => "",
        };
        if RUNTIMES.contains(&name) {
            broken.line("crates/core/Cargo.toml", number, &format!("depends on `{name}`"));
        }
    }
    assert!(manifest.contains("dependencies]"), "crates/core/Cargo.toml was read");
    broken.check();
}

#[test]
fn every_promise_names_tests_that_exist() {
    let mut broken = Broken::new("name the test functions that hold the promise, in backticks, in the last column");
    let name = "docs/guarantees.md";
    let text = read(&root().join(name));
    let functions: BTreeSet<String> =
        sources().iter().flat_map(|file| functions(&file.lines)).map(|function| function.name).collect();
    for promise in (1..=PROMISES).map(|number| format!("P{number}")) {
        let row = (1..).zip(text.lines()).find(|(_, line)| line.starts_with(&format!("| {promise} |")));
        let Some((number, row)) = row else {
            broken.line(name, 1, &format!("no row begins with `| {promise} |`"));
            continue;
        };
        let cell = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        if PROMISES_NOT_BUILT.contains(&promise.as_str()) && cell.contains(NOT_BUILT) {
            continue;
        }
        if cell.contains(TESTS_MISSING) {
            broken.line(name, number, &format!("{promise} still says {TESTS_MISSING}"));
        }
        let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            broken.line(name, number, &format!("{promise} names no test"));
        }
        for test in tests.into_iter().filter(|test| !functions.contains(*test)) {
            broken.line(name, number, &format!("{promise}: there is no `fn {test}`"));
        }
    }
    broken.check();
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    let mut broken = Broken::new("use a path that means the same on every machine");
    for path in tracked() {
        // Not text, or deleted and not yet committed so: nothing to read in it.
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            for place in MACHINE_PATHS.iter().filter(|place| names_place(line, place)) {
                broken.line(&path, number, &format!("`{place}`"));
            }
        }
    }
    broken.check();
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let mut broken = Broken::new("mend the link, or take it out");
    for path in documents() {
        let folder = path.parent().expect("a file is in a folder");
        for (number, target) in links(&read(&path)) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !folder.join(file).exists() {
                broken.line(&relative(&path), number, &format!("there is no `{file}`"));
            }
        }
    }
    broken.check();
}

#[test]
fn the_changelog_has_a_place_for_what_comes_next() {
    let text = read(&root().join("CHANGELOG.md"));
    assert!(text.contains("\n## [Unreleased]\n"), "CHANGELOG.md: no `## [Unreleased]`");
}

// What the laws look at.

/// What was found against one law; all of it is told at once.
struct Broken {
    remedy: &'static str,
    found: Vec<String>,
}

impl Broken {
    fn new(remedy: &'static str) -> Broken {
        Broken { remedy, found: Vec::new() }
    }

    fn at(&mut self, file: &Source, number: usize, what: &str) {
        self.line(&file.name, number, what);
    }

    fn line(&mut self, name: &str, number: usize, what: &str) {
        self.found.push(format!("{name}:{number}: {what}"));
    }

    fn check(self) {
        assert!(self.found.is_empty(), "\n{}\nHint: {}.\n", self.found.join("\n"), self.remedy);
    }
}

/// A Rust file, its name relative to the root.
struct Source {
    name: String,
    text: String,
    lines: Vec<Line>,
}

struct Line {
    raw: String,
    /// What is left without comments and without what strings and characters hold.
    code: String,
    /// Inside a module that is compiled for tests only.
    in_tests: bool,
}

impl Source {
    fn is_src(&self) -> bool {
        self.name.contains("/src/")
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        (1..).zip(&self.lines)
    }
}

/// The lines that become part of the product.
fn shipped(sources: &[Source]) -> impl Iterator<Item = (&Source, usize, &Line)> {
    let files = sources.iter().filter(|file| file.is_src());
    let lines = files.flat_map(|file| file.numbered().map(move |(number, line)| (file, number, line)));
    lines.filter(|(_, _, line)| !line.in_tests)
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is where it was compiled")
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("inside the workspace").display().to_string()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust file of the crates and of the tests beside them.
fn sources() -> Vec<Source> {
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

fn documents() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    collect(&root().join("docs"), "md", &mut paths);
    let top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name));
    paths.extend(top.into_iter().filter(|path| path.exists()));
    paths
}

/// Files below a folder whose names end so, in order; what is built is left out.
fn collect(folder: &Path, extension: &str, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, extension, paths);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
}

/// What git keeps, and what it would keep if it were added now.
fn tracked() -> Vec<String> {
    let mut git = Command::new("git");
    // The owner of the files does not matter to somebody who only reads their names.
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.current_dir(root()).output().expect("git is installed");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names are text");
    let names: Vec<String> = names.split_terminator('\0').map(str::to_owned).collect();
    assert!(names.iter().any(|name| name == "Cargo.toml"), "git knows this workspace");
    names
}

/// Whether the word is there, and not as a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let (opens, ends) = (word.starts_with(inside), word.ends_with(inside));
    text.match_indices(word).any(|(at, _)| {
        let before = opens && text[..at].ends_with(inside);
        let behind = ends && text[at + word.len()..].starts_with(inside);
        !before && !behind
    })
}

/// Whether the place stands there as the beginning of a path.
fn names_place(line: &str, place: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "_-./*})".contains(c);
    line.match_indices(place).any(|(at, _)| !line[..at].ends_with(part))
}

/// Relative targets of Markdown links, with their line numbers; none from code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for behind in prose.split("](").skip(1) {
            let target = behind.split([')', ' ']).next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
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

struct Function {
    name: String,
    line: usize,
    count: usize,
}

/// Every function with a body.
fn functions(lines: &[Line]) -> Vec<Function> {
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

#[test]
fn a_place_of_a_machine_is_told_from_a_folder_of_the_same_name() {
    let place = MACHINE_PATHS[2];
    assert!(names_place(&format!("see {place}main"), place) && names_place(&format!("\"{place}x\""), place));
    assert!(!names_place(&format!("src{place}main"), place) && !names_place(&format!("{{dir}}{place}x"), place));
}

#[test]
fn links_are_found_in_prose_and_not_in_code() {
    let text = "[a](b.md#c), `[x](y)` [w](https://w)\n```\n[x](y)\n```\n[d](../e.md)\n";
    assert_eq!(links(text), [(1, "b.md#c".to_owned()), (5, "../e.md".to_owned())]);
}
