//! Laws for whatever comes: no text makes it panic, what is made right is right, globs agree with brute force.

use lockkeeper_packages::{Document, Glob, plan, validate};
use proptest::prelude::*;

use crate::{document, package};

/// Every path of up to six characters over two letters and the slash.
fn all_paths() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut found = Vec::new();
    for _ in 0..6 {
        all = all.iter().flat_map(|path| ['a', 'b', '/'].map(|c| format!("{path}{c}"))).collect();
        found.extend(all.iter().filter(|path| path.split('/').all(|part| !part.is_empty())).cloned());
    }
    found
}

/// What a glob means, part by part: another way to say it than the library's.
fn takes(glob: &[&str], path: &[&str]) -> bool {
    match (glob, path) {
        ([], []) => true,
        (["**"], path) => !path.is_empty(),
        (["**", rest @ ..], path) => (0..=path.len()).any(|skipped| takes(rest, &path[skipped..])),
        ([part, rest @ ..], [first, path @ ..]) => {
            let (part, first): (Vec<char>, Vec<char>) = (part.chars().collect(), first.chars().collect());
            takes_part(&part, &first) && takes(rest, path)
        }
        ([], _) | (_, []) => false,
    }
}

fn takes_part(part: &[char], text: &[char]) -> bool {
    match (part, text) {
        ([], []) => true,
        (['*', rest @ ..], text) => (0..=text.len()).any(|skipped| takes_part(rest, &text[skipped..])),
        (['?', rest @ ..], [_, text @ ..]) => takes_part(rest, text),
        ([c, rest @ ..], [d, text @ ..]) => c == d && takes_part(rest, text),
        ([], _) | (_, []) => false,
    }
}

fn split(text: &str) -> Vec<&str> {
    text.split('/').collect()
}

/// Globs whose shortest common path, if any, has at most six characters.
fn small_glob() -> impl Strategy<Value = String> {
    let part = prop_oneof![3 => "[ab]", 2 => "[ab*]{1,2}", 1 => "[ab?]{1,2}", 2 => Just("**".to_owned())]
        .prop_filter("two stars stand alone", |part| !part.contains("**") || part == "**");
    prop::collection::vec(part, 1..=3).prop_map(|parts| parts.join("/"))
}

fn identifier() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_-]{0,8}"
}

/// Packages with ids of their own and folders of their own, each depending on some earlier ones.
fn valid_document() -> impl Strategy<Value = String> {
    let one = (identifier(), prop::collection::vec(any::<prop::sample::Index>(), 0..3), 0..4_usize, 0..4_usize);
    prop::collection::vec(one, 1..12).prop_map(|packages| {
        let names: Vec<String> = packages.iter().enumerate().map(|(i, (id, ..))| format!("{id}{i}")).collect();
        let texts: Vec<String> = packages
            .iter()
            .enumerate()
            .map(|(i, (_, depends_on, files, keys))| {
                let mut earlier: Vec<&str> =
                    depends_on.iter().filter(|_| i > 0).map(|index| names[index.index(i.max(1))].as_str()).collect();
                earlier.sort_unstable();
                earlier.dedup();
                let files: Vec<String> = (0..*files).map(|k| format!("src/{i}/{k}.py")).collect();
                let keys: Vec<String> = (0..*keys).map(|k| format!("event:e{i}.k{k}")).collect();
                let write = format!("src/{i}/**, 'own/*.own{i}x'");
                package(&names[i], &earlier.join(", "), &files.join(", "), &keys.join(", "), &write)
            })
            .collect();
        document(&texts)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "(?s).{0,200}") {
        validate("x", &text);
    }

    #[test]
    fn no_text_that_looks_like_yaml_makes_it_panic(text in "([a-z_]{1,4}|[:,&*!|>'\"%@`#?\\[\\]{}~-]| |\n|\t|  - |: ){0,80}") {
        validate("x", &text);
    }

    #[test]
    fn no_damage_to_a_right_document_makes_it_panic(
        text in valid_document(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n\t\u{e9}]{0,6}", 0..20_usize), 1..4),
    ) {
        let mut letters: Vec<char> = text.chars().collect();
        for (at, new, gone) in cuts {
            let at = at.index(letters.len() + 1);
            let end = (at + gone).min(letters.len());
            letters.splice(at..end, new.chars());
        }
        let damaged: String = letters.iter().collect();
        let report = validate("x", &damaged);
        prop_assert_eq!(report.document.is_none(), report.problems.iter().any(|problem| !problem.check.is_overlap()));
        let lines = damaged.lines().count() as u32 + 1;
        for problem in &report.problems {
            prop_assert!(problem.line >= 1 && problem.line <= lines && problem.column >= 1, "{}", problem);
        }
    }

    #[test]
    fn what_is_made_right_is_right(text in valid_document()) {
        let report = validate("x", &text);
        prop_assert_eq!(&report.problems, &[]);
        let document = report.document.unwrap();
        let plan = plan(&document);
        prop_assert_eq!(plan.steps.len(), document.packages.len());
        let wave = |name: &str| plan.steps.iter().find(|step| step.package_id == name).unwrap().wave;
        for step in &plan.steps {
            for dependency in &step.depends_on {
                prop_assert!(wave(dependency) < step.wave);
            }
        }
        let json = serde_json::to_string(&document).unwrap();
        prop_assert_eq!(Document::parse("x", &json).unwrap(), document);
    }

    #[test]
    fn a_glob_agrees_with_its_meaning_part_by_part(text in small_glob()) {
        let glob = Glob::parse(&text).unwrap();
        for path in all_paths() {
            prop_assert_eq!(glob.matches(&path), takes(&split(&text), &split(&path)), "{} {}", text, path);
        }
    }

    #[test]
    fn globs_meet_when_brute_force_finds_a_path(one in small_glob(), other in small_glob()) {
        let (a, b) = (Glob::parse(&one).unwrap(), Glob::parse(&other).unwrap());
        let found = all_paths().into_iter().find(|path| a.matches(path) && b.matches(path));
        if found.is_some() {
            prop_assert!(a.overlaps(&b) && b.overlaps(&a), "{} {} {:?}", one, other, found);
        }
    }

    #[test]
    fn a_scope_overlap_is_told_exactly_when_brute_force_finds_a_path(
        one in small_glob(),
        other in small_glob(),
        deny in prop::option::of(small_glob()),
    ) {
        let denied = deny.as_ref().map_or(String::new(), |deny| format!("deny: ['{deny}'], "));
        let b = package("b", "", "", "", &format!("'{other}'")).replace("read_allow", &format!("{denied}read_allow"));
        let text = document(&[package("a", "", "", "", &format!("'{one}'")), b]);
        let report = validate("x", &text);
        let (a, b) = (Glob::parse(&one).unwrap(), Glob::parse(&other).unwrap());
        let deny = deny.map(|deny| Glob::parse(&deny).unwrap());
        let shared = |path: &str| {
            a.matches(path) && b.matches(path) && !deny.as_ref().is_some_and(|deny| deny.matches(path))
        };
        if let Some(path) = all_paths().into_iter().find(|path| shared(path)) {
            prop_assert!(!report.is_valid(), "{} {} {:?} {}", one, other, deny, path);
        }
        // What is told comes with a path as its proof.
        if let Some(problem) = report.problems.first() {
            let path = problem.message.split("both write ").nth(1).unwrap().split(", and no").next().unwrap();
            prop_assert!(shared(path), "{} {}", path, problem);
        }
    }
}
