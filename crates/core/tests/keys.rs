//! Keys: the page that documents them is the table of this test; and what the grammar promises of every text.

use lockkeeper_core::key::{InvalidKey, Key, Target};
use lockkeeper_core::span::Span;
use proptest::prelude::*;

const PAGE: &str = include_str!("../../../docs/keys.md");

/// The rows of the table under a heading, cell by cell, without the marks around them.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the page has the section");
    let section = section.split("\n## ").next().expect("a section");
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cell = |cell: &str| {
        // One space stands between a bar and the mark of its cell; what is inside the marks is kept as it is.
        let cell = cell.strip_prefix(' ').unwrap_or(cell);
        let cell = cell.strip_suffix(' ').unwrap_or(cell);
        cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).unwrap_or(cell).to_owned()
    };
    lines.map(|line| line.trim_matches('|').split('|').map(cell).collect()).collect()
}

#[test]
fn every_row_of_the_page_about_keys_holds() {
    let right = rows("Right");
    assert!(right.len() > 25);
    for row in right {
        let [written, expected] = row.as_slice() else { panic!("{row:?}") };
        let key = Key::parse(written).unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(key.as_str(), expected, "{written}");
    }
    let wrong = rows("Wrong");
    assert!(wrong.len() > 40);
    for row in wrong {
        let [written, word, because] = row.as_slice() else { panic!("{row:?}") };
        let error = Key::parse(written).expect_err(written);
        let told = match &error {
            InvalidKey::Path { .. } => "invalid_path",
            InvalidKey::Logical { right, .. } => {
                Key::parse(right).expect("the example is right");
                "invalid_key"
            }
            InvalidKey::UnknownPrefix(_) | InvalidKey::GitDirectory => "operation_not_permitted",
        };
        assert_eq!(told, word, "{written}: {error}");
        assert!(error.to_string().contains(because.as_str()), "{written}: {error}");
    }
}

/// Texts that come close to keys.
fn text() -> impl Strategy<Value = String> {
    let prefix = prop_oneof![
        Just(""),
        Just("api:"),
        Just("api:GET "),
        Just("db:"),
        Just("db:schema:"),
        Just("event:"),
        Just("flag:"),
        Just("env:"),
        Just("contract:"),
        Just("feature:"),
        Just("foo:"),
    ];
    let rest = prop_oneof![
        "[a-z0-9_./*:% -]{0,16}",
        "(/?[a-z.]{1,3}(%[0-9a-fA-F]{2})?){0,5}/?",
        "[A-Z]{1,3}-[0-9]{1,3}:(pause|merge|plan|x)",
        "\\PC{0,12}",
        ".{0,8}",
    ];
    (prefix, rest).prop_map(|(prefix, rest)| format!("{prefix}{rest}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn what_is_printed_parses_to_the_same_key(text in text()) {
        if let Ok(key) = Key::parse(&text) {
            let printed = key.to_string();
            prop_assert_eq!(Key::parse(&printed), Ok(key.clone()), "{:?} became {:?}", text, printed);
            let again = Target { key: Key::parse(&printed).expect("parsed"), span: Span::WHOLE };
            let meets = Target::new(key, Span::WHOLE).expect("whole").overlaps(&again);
            prop_assert!(meets, "{:?} became {:?}", text, printed);
        }
    }

    #[test]
    fn spellings_that_the_grammar_calls_equal_are_one_key(
        method in prop::sample::select(vec!["GET", "POST", "DELETE"]),
        segments in prop::collection::vec("[a-z]{1,3}(%[0-9a-f]{2})?", 0..4), noise in prop::collection::vec(0..4usize, 5)
    ) {
        let spelt = |noise: &[usize]| {
            let mut path = String::from("/");
            for (segment, noise) in segments.iter().zip(noise) {
                path.push_str(["", "/", "./", "x/../"][*noise]);
                path.push_str(segment);
                path.push('/');
            }
            format!("api:{method} {path}")
        };
        let one = Key::parse(&spelt(&[0; 5])).expect("a route");
        let other = Key::parse(&spelt(&noise).replace("%a", "%A")).expect("the same route");
        prop_assert!(one.overlaps(&other), "{} {}", one, other);
        prop_assert_eq!(one, other);
    }
}
