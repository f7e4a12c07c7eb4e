//! The house rules, as tests: what a reader may rely on in every file without having read it.
//!
//! Looks at text only, and knows nothing of what the code does. A rule that is broken names the file and the line.

mod documents;
mod files;
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use documents::{documents, links};
use files::{MACHINE_PATHS, names_place, read, relative, root, tracked};
use sources::{Function, Source, functions, has_word, shipped, sources};

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
/// Crates that bring a runtime, and with it a clock, tasks and input and output.
const RUNTIMES: [&str; 6] = ["tokio", "tokio-util", "async-std", "smol", "futures", "mio"];

const PROMISES: u32 = 16;
/// Promises of parts that are not built yet. The list only gets shorter.
const PROMISES_NOT_BUILT: [&str; 1] = ["P13"];
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

/// `./test --deep` fuzzes what has a corpus: a target without one would be passed over.
#[test]
fn every_fuzz_target_is_named_and_has_a_corpus() {
    let folder = root().join("fuzz");
    let names = |of: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(folder.join(of)).expect("a folder").map(|entry| entry.expect("readable").path());
        entries.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
    };
    let manifest: toml::Table = read(&folder.join("Cargo.toml")).parse().expect("a manifest");
    let bins = manifest["bin"].as_array().expect("a list");
    let named: BTreeSet<String> = bins.iter().map(|bin| bin["name"].as_str().expect("a name").to_owned()).collect();
    for bin in bins {
        let path = format!("targets/{}.rs", bin["name"].as_str().expect("a name"));
        assert_eq!(bin["path"].as_str(), Some(path.as_str()));
    }
    let mut targets = names("targets");
    assert!(targets.remove("desk"), "what targets share");
    assert_eq!((&named, &named), (&targets, &names("corpus")), "of fuzz/Cargo.toml, fuzz/targets and fuzz/corpus");
}

#[test]
fn every_seed_that_found_a_bug_is_kept() {
    let (told, kept) = (read(&root().join("docs/bugs-found.md")), read(&root().join("crates/sim/tests/seeds.rs")));
    let mut seeds = Vec::new();
    for place in told.match_indices("seed").map(|(at, _)| &told[at..]) {
        let words = place.split(['|', ';', ')']).next().unwrap_or_default();
        seeds.extend(words.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()));
    }
    assert!(seeds.len() > 8, "some are told: {seeds:?}");
    let missing: Vec<_> = seeds.into_iter().filter(|seed| !kept.contains(&format!("({seed}, "))).collect();
    assert!(missing.is_empty(), "put them into FOUND of crates/sim/tests/seeds.rs: {missing:?}");
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
fn every_planted_bug_is_named_with_the_promise_that_it_breaks() {
    let mut broken = Broken::new("name the planted bug in docs/guarantees.md, beside the promise that it breaks");
    let (source, document) = ("crates/core/src/planted.rs", "docs/guarantees.md");
    let (text, told) = (read(&root().join(source)), read(&root().join(document)));
    let seen = told.split_once("## Seen failing").map_or("", |(_, seen)| seen);
    let named: BTreeSet<&str> = seen.split('`').skip(1).step_by(2).collect();
    let listed = (1..).zip(text.lines()).skip_while(|(_, line)| *line != "bugs! {").skip(1);
    let listed = listed.take_while(|(_, line)| *line != "}");
    let bugs: Vec<(usize, &str)> =
        listed.filter_map(|(number, line)| Some((number, line.trim().split_once(" \"")?.0))).collect();
    assert!(bugs.len() >= 30, "{source} was read");
    for (number, bug) in bugs.iter().filter(|(_, bug)| !named.contains(bug)) {
        broken.line(source, *number, &format!("`{bug}` is not named"));
    }
    let is_bug = |name: &&&str| name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric);
    for name in named.iter().filter(is_bug).filter(|name| !bugs.iter().any(|(_, bug)| bug == *name)) {
        broken.line(document, 1, &format!("there is no planted bug `{name}`"));
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
