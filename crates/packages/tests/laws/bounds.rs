//! What a document may cost, whoever wrote it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use lockkeeper_packages::{Check, Document, Problem, Report, limits, plan, validate};

use crate::{HEAD, document, package, report};

/// Generous: this is a build without optimisation, on a machine that may be busy.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Of all tests of this program together, which run side by side. A bomb that went off would need gigabytes.
const MEMORY_KB_MAX: u64 = 768 << 10;

fn in_time<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    assert!(start.elapsed() < TIME_MAX, "took {:?}", start.elapsed());
    assert!(peak_kb() < MEMORY_KB_MAX, "the peak is {} kB", peak_kb());
    result
}

/// The most memory that this process had at once.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

fn refused(text: &str, words: &str) -> Problem {
    let report = in_time(|| report(text));
    assert!(report.document.is_none());
    let problem = &report.problems[0];
    assert!(problem.message.contains(words), "{problem}");
    problem.clone()
}

#[test]
fn a_document_of_five_megabytes_is_refused_unread() {
    let text = format!("{HEAD}{}", "  - a\n".repeat(5_000_000 / 6));
    let problem = refused(&text, "at most 4194304 (4 MiB) are read");
    assert_eq!(problem.check, Check::Yaml);
}

#[test]
fn anchors_that_expand_to_billions_are_refused_where_the_bound_is_met() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    let problem = refused(&text, "more than 1000000 nodes, with its aliases expanded");
    assert_eq!((problem.check, problem.line), (Check::Yaml, 7));
}

#[test]
fn long_texts_that_are_repeated_by_aliases_are_refused() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1_000_000), "*a, ".repeat(100_000));
    refused(&text, "more than 16777216 bytes, with its aliases expanded");
}

#[test]
fn deep_nesting_is_refused() {
    for text in ["[".repeat(1_000_000), "{a: ".repeat(500_000), "- ".repeat(1_000_000), "? ".repeat(1_000_000)] {
        refused(&text, "nested deeper than 64 levels");
    }
    let mut block = String::new();
    for depth in 0..200 {
        writeln!(block, "{}a:", " ".repeat(depth)).unwrap();
    }
    refused(&block, "nested deeper than 64 levels");
    // Deep by aliases: each level is harmless alone.
    let mut text = String::from("a0: &a0 [x]\n");
    for level in 1..80 {
        writeln!(text, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
    }
    refused(&text, "nested deeper than 64 levels");
}

#[test]
fn a_million_of_anything_ends_in_time() {
    let pieces = [
        "- a\n", "a,", "a: b\n", "? a\n", "&a ", "*a ", "!t ", "\t", "\"", "'", "|", "# c\n", "%Y\n", "---\n", "...\n",
        "[a, ", "{}", "[],", "\u{feff}", ": ", "- - ", "<<: ", "\\", "\r", "&a a\n", "- !x\n", "a:\n  ",
    ];
    for piece in pieces {
        for head in ["", "a: [", "a: \"", "a: |\n  ", "- "] {
            let text = format!("{head}{}", piece.repeat(1_000_000 / piece.len() / 4));
            let report = in_time(|| report(&text));
            assert!(!report.is_valid(), "{head}{piece}");
        }
    }
}

#[test]
fn problems_are_told_up_to_a_bound_and_counted_beyond() {
    let text = format!("{HEAD}{}", "  - 1\n".repeat(9_000));
    let report = in_time(|| report(&text));
    assert_eq!(report.problems.len(), limits::PROBLEMS_MAX);
    assert_eq!(report.left_out, 8_000);
}

#[test]
fn too_many_packages_and_too_many_locks_are_refused_with_the_bound() {
    let text = format!("{HEAD}{}", "  - a\n".repeat(10_001));
    refused(&text, "has 10001 entries; at most 10000");
    let locks = |count: usize| (0..count).map(|i| format!("f{i}")).collect::<Vec<_>>().join(", ");
    let keys = |count: usize| (0..count).map(|i| format!("event:e{i}")).collect::<Vec<_>>().join(", ");
    assert!(report(&document(&[package("a", "", &locks(256), "", "")])).is_valid());
    assert!(report(&document(&[package("a", "", &locks(128), &keys(128), "")])).is_valid());
    refused(&document(&[package("a", "", &locks(257), "", "")]), "has 257 entries; at most 256");
    refused(&document(&[package("a", "", &locks(128), &keys(129), "")]), "at most 256 locks, files and keys together");
}

#[test]
fn long_circles_are_told_shortly() {
    let packages: Vec<String> =
        (0..3_000).map(|i| package(&format!("p{i}"), &format!("p{}", (i + 1) % 3_000), "", "", "")).collect();
    let problem = refused(&document(&packages), "3000 packages wait for each other in a circle: p0 -> p1 -> ");
    assert!(problem.message.ends_with(" -> … -> p0") && problem.message.len() < 200, "{problem}");
    let pairs: Vec<String> =
        (0..3_000).map(|i| package(&format!("p{i}"), &format!("p{}", i ^ 1), "", "", "")).collect();
    let report = in_time(|| report(&document(&pairs)));
    assert_eq!(report.problems.len() + report.left_out, 1_500);
}

/// A thousand packages with twenty locks each and scopes of their own; every tenth depends on the one before.
fn thousand() -> String {
    let packages: Vec<String> = (0..1_000)
        .map(|i| {
            let files: Vec<String> = (0..15).map(|k| format!("src/mod{i}/file{k}.py")).collect();
            let keys: Vec<String> = (0..5).map(|k| format!("'api:GET /v{k}/things{i}'")).collect();
            let depends_on = if i % 10 == 9 { format!("p{}", i - 1) } else { String::new() };
            let write = format!("src/mod{i}/**, tests/mod{i}/*.py, docs/mod{i}.md");
            package(&format!("p{i}"), &depends_on, &files.join(", "), &keys.join(", "), &write)
        })
        .collect();
    document(&packages)
}

fn timed(text: &str) -> (Report, Duration) {
    let start = Instant::now();
    let report = in_time(|| validate("x", text));
    (report, start.elapsed())
}

#[test]
fn a_thousand_packages_with_twenty_locks_each_are_checked_in_time() {
    let text = thousand();
    let (report, took) = timed(&text);
    assert_eq!(report.problems, []);
    println!("1,000 packages with 20 locks: {took:?} for {} bytes", text.len());
    let document = report.document.unwrap();
    let plan = in_time(|| plan(&document));
    assert_eq!(plan.waves.len(), 2);
}

#[test]
fn overlaps_among_a_thousand_packages_are_found_in_time() {
    let text = thousand()
        .replace("src/mod777/file3.py", "src/mod5/**")
        .replace("docs/mod900.md", "'docs/*1*.md'")
        .replace("src/mod500/**", "src/mod501/x/**");
    let (report, _) = timed(&text);
    let of = |check| report.problems.iter().filter(|problem| problem.check == check).count();
    assert_eq!(of(Check::LockOverlap), 1);
    // 271 of the numbers below a thousand have a one in them.
    assert_eq!(of(Check::ScopeOverlap), 271 + 1);
}

#[test]
fn a_crowd_on_one_lock_is_counted_in_time() {
    let crowd = |count: usize, depends_on: fn(usize) -> String| {
        let packages: Vec<String> =
            (0..count).map(|i| package(&format!("p{i}"), &depends_on(i), "x", "db:migration-slot", "x/**")).collect();
        document(&packages)
    };
    let text = crowd(3_000, |_| String::new());
    let (report, _) = timed(&text);
    assert_eq!(report.problems.len() + report.left_out, 2 * 3_000 * 2_999 / 2);
    let document = report.document.unwrap();
    let plan = in_time(|| plan(&document));
    assert_eq!(plan.waves.len(), 3_000);
    assert_eq!(plan.collisions.len() + plan.collisions_left_out, 3_000 * 2_999 / 2);
    let text = crowd(3_000, |i| if i == 0 { String::new() } else { format!("p{}", i - 1) });
    let (report, _) = timed(&text);
    assert_eq!(report.problems, [], "a chain orders them all");
}

#[test]
fn locks_that_many_packages_share_by_alias_are_compared_in_time() {
    let keys: Vec<String> = (1..80).map(|depth| format!("{}**", "a/".repeat(depth))).collect();
    let mut packages = vec![package("p0", "", &keys.join(", "), "", "")];
    packages[0] = packages[0].replace("locks: {files: [", "locks: &locks {files: [");
    for i in 1..2_000 {
        let next = package(&format!("p{i}"), &format!("p{}", i - 1), "", "", "");
        packages.push(next.replace("{files: [], keys: []}", "*locks"));
    }
    let (report, _) = timed(&document(&packages));
    assert_eq!(report.problems, []);
}

#[test]
fn scopes_that_cannot_be_compared_in_time_are_refused() {
    let packages: Vec<String> = (0..3_000)
        .map(|i| package(&format!("p{i}"), "", "", "", &format!("'**/*a*a*a*{i}/**/*b*b*{i}', '**/{i}'")))
        .collect();
    let report = in_time(|| report(&document(&packages)));
    assert!(report.problems.iter().any(|problem| problem.message.contains("too many stars")), "{report:?}");
    assert!(Document::parse("x", &document(&packages)).is_ok());
}

#[test]
fn a_thousand_packages_with_tests_of_their_own_are_compared() {
    let packages: Vec<String> = (0..1_000)
        .map(|i| {
            let scope = format!("'src/p{i}/**', 'tests/**/test_p{i}_*.py'");
            package(&format!("p{i}"), "", &format!("src/p{i}/main.py"), "", &scope)
        })
        .collect();
    let report = in_time(|| report(&document(&packages)));
    assert!(report.is_valid(), "{:?}", report.problems.first());
}
