//! What a change does to a text, and what it leaves alone.

use lockkeeper_config_editor::Format::{Json, Toml, Yaml};
use lockkeeper_config_editor::{Document, Error, Format, Key, Value, limits, merge};

fn key(text: &str) -> Key {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn after(format: Format, text: &str, name: &str, typed: &str) -> Result<String, Error> {
    let mut document = Document::parse(format, text)?;
    document.set(&key(name), &Value::typed(format, typed))?;
    Ok(document.to_text())
}

fn without(format: Format, text: &str, name: &str) -> Result<String, Error> {
    let mut document = Document::parse(format, text)?;
    document.unset(&key(name))?;
    Ok(document.to_text())
}

#[test]
fn a_set_changes_its_value_and_no_other_byte() {
    let table = [
        (Yaml, "a: 1 # one\nb: 2\n", "a", "5", "a: 5 # one\nb: 2\n"),
        (Yaml, "a: 'x'  # q\n", "a", "it's", "a: 'it''s'  # q\n"),
        (Yaml, "a: \"x\"\n", "a", "y", "a: \"y\"\n"),
        (Yaml, "a: x\n", "a", "yes", "a: \"yes\"\n"),
        (Yaml, "a: x\n", "a", "true", "a: true\n"),
        (
            Yaml,
            "a:\n  b:\n    c: 1\n  # end\nd: 2\n",
            "a.b.e",
            "x y",
            "a:\n  b:\n    c: 1\n    e: x y\n  # end\nd: 2\n",
        ),
        (Yaml, "a: 1", "b", "2", "a: 1\nb: 2"),
        (Yaml, "", "a.b.c", "1", "a:\n  b:\n    c: 1\n"),
        (Yaml, "# only\n", "a", "1", "# only\na: 1\n"),
        (Yaml, "--- # m\n", "a", "1", "--- # m\na: 1\n"),
        (Yaml, "---\na: 1\n...\n", "b", "2", "---\na: 1\nb: 2\n...\n"),
        (Yaml, "a:\nb: 1\n", "a.c", "2", "a:\n  c: 2\nb: 1\n"),
        (Yaml, "a: # why\nb: 1\n", "a", "2", "a: 2 # why\nb: 1\n"),
        (Yaml, "a: # why\n  x: 1\nb: 1\n", "a", "2", "a: 2 # why\nb: 1\n"),
        (Yaml, "a:\n- 1\n- 2\nb: 1\n", "a", "3", "a: 3\nb: 1\n"),
        (Yaml, "a:\n- 1\n- 2 # two\nb: 1\n", "a[]", "3", "a:\n- 1\n- 2 # two\n- 3\nb: 1\n"),
        (Yaml, "a:\n  - x: 1\n    y: 2\n", "a[0].z", "3", "a:\n  - x: 1\n    y: 2\n    z: 3\n"),
        (Yaml, "a:\n  - x: 1\n", "a.0.x", "3", "a:\n  - x: 3\n"),
        (Yaml, "a: {b: 1, c: [x]}  # f\n", "a.d", "[1, {e: f}]", "a: {b: 1, c: [x], d: [1, {e: f}]}  # f\n"),
        (Yaml, "a: { b: 1 }\n", "a.c", "2", "a: { b: 1, c: 2 }\n"),
        (Yaml, "a: {\n  b: 1, # one\n}\n", "a.c", "2", "a: {\n  b: 1, # one\n  c: 2,\n}\n"),
        (Yaml, "a: |  # text\n  x\n  y\n\nb: 1\n", "a", "z", "a: z # text\n\nb: 1\n"),
        (Yaml, "a: 1\nb: |\n  x\n\n", "c", "1", "a: 1\nb: |\n  x\nc: 1\n\n"),
        (Yaml, "b: |+\n  x\n\n", "c", "1", "b: |+\n  x\n\nc: 1\n"),
        (Yaml, "a: 1\r\nb: 2\r\n", "c", "3", "a: 1\r\nb: 2\r\nc: 3\r\n"),
        (Yaml, "\u{feff}a: 1\n", "a", "2", "\u{feff}a: 2\n"),
        (Yaml, "a: &x 1\nb: 2\n", "a", "3", "a: &x 3\nb: 2\n"),
        (Yaml, "a: &x 1\nb: *x\n", "b", "3", "a: &x 1\nb: 3\n"),
        (Yaml, "? a\n: 1\n", "a", "2", "? a\n: 2\n"),
        (Yaml, "ä: ö # ü\n", "ä", "ß", "ä: \"ß\" # ü\n"),
        (Yaml, "a: multi\n  line # c\nb: 1\n", "a", "x", "a: x # c\nb: 1\n"),
        (Json, "", "a.b", "1", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n"),
        (Json, "{}\n", "a", "x", "{\n  \"a\": \"x\"\n}\n"),
        (Json, "{\"a\":1,\"b\":[ 1,2 ]}", "b[]", "3", "{\"a\":1,\"b\":[ 1,2, 3 ]}"),
        (
            Json,
            "{\n\t\"a\": 1e400,\n\t\"b\": 2\n}",
            "c.d",
            "3",
            "{\n\t\"a\": 1e400,\n\t\"b\": 2,\n\t\"c\": {\n\t\t\"d\": 3\n\t}\n}",
        ),
        (Json, "{\n  // one\n  \"a\": 1 // uno\n}\n", "b", "2", "{\n  // one\n  \"a\": 1, // uno\n  \"b\": 2\n}\n"),
        (Json, "{\n  \"a\": 1,\n}\n", "b", "2", "{\n  \"a\": 1,\n  \"b\": 2,\n}\n"),
        (Json, "{\"a\": {}}", "a.b", "null", "{\"a\": {\"b\": null}}"),
        (Json, "{\"a\": null}", "a.b", "1", "{\"a\": {\"b\": 1}}"),
        (Json, "[{\"a\": 1}]", "[0].a", "2", "[{\"a\": 2}]"),
        (Json, "{\"a\\u0062\": \"\\ud83d\\ude00\"}", "ab", "\"x\"", "{\"a\\u0062\": \"x\"}"),
        (Toml, "# top\na = 1 # one\n\n[b]\nc = 0xff\n", "a", "2", "# top\na = 2 # one\n\n[b]\nc = 0xff\n"),
        (Toml, "a = 1\n\n[b]\nc = 1\n", "b.d", "5m", "a = 1\n\n[b]\nc = 1\nd = \"5m\"\n"),
        (Toml, "a = 1\n", "b.c.d", "true", "a = 1\n\n[b.c]\nd = true\n"),
        (Toml, "# only\n", "a", "1", "# only\na = 1\n"),
        (Toml, "a.b = 1\n", "a.c", "2", "a.b = 1\na.c = 2\n"),
        (Toml, "a = {b = 1}\n", "a.c", "2", "a = {b = 1, c = 2 }\n"),
        (Toml, "a = [\n  1, # one\n  2,\n]\n", "a[]", "3", "a = [\n  1, # one\n  2,\n  3,\n]\n"),
        (Toml, "[[r]]\nn = 1\n\n[[r]]\nn = 2\n", "r[1].n", "3", "[[r]]\nn = 1\n\n[[r]]\nn = 3\n"),
        (Toml, "a = 1\r\n\r\n[b]\r\nc = 1\r\n", "b.c", "2", "a = 1\r\n\r\n[b]\r\nc = 2\r\n"),
        (Toml, "a = 1\n", "b", "0x1F", "a = 1\nb = 0x1F\n"),
        (Toml, "a = 1\n", "a", "{x = 1}", "a = { x = 1 }\n"),
    ];
    for (format, before, name, typed, expected) in table {
        let got = after(format, before, name, typed).unwrap_or_else(|error| panic!("{before:?} {name}: {error}"));
        assert_eq!(got, expected, "{before:?} {name}={typed}");
    }
}

#[test]
fn an_unset_takes_its_own_lines_and_leaves_comments() {
    let table = [
        (Yaml, "a: 1\n# two\nb: 2 # b\nc: 3\n", "b", "a: 1\n# two\nc: 3\n"),
        (Yaml, "a: 1\n", "a", ""),
        (Yaml, "a:\n  b: 1\nc: 2\n", "a.b", "a: {}\nc: 2\n"),
        (Yaml, "a:\n  - x: 1\n    y: 2\n", "a[0].x", "a:\n  - y: 2\n"),
        (Yaml, "a:\n- 1\n- 2\n- 3\n", "a[1]", "a:\n- 1\n- 3\n"),
        (Yaml, "a: {b: 1, c: 2, d: 3}\n", "a.c", "a: {b: 1, d: 3}\n"),
        (Yaml, "a: [1, 2]\n", "a[1]", "a: [1]\n"),
        (Yaml, "a: |+\n  x\n\nb: 1\n", "a", "\nb: 1\n"),
        (Json, "{\n  // a\n  \"a\": 1, // one\n  \"b\": 2 // two\n}", "b", "{\n  // a\n  \"a\": 1 // one\n}"),
        (Json, "{\n  \"a\": 1,\n  // b\n  \"b\": 2\n}", "a", "{\n  // b\n  \"b\": 2\n}"),
        (Json, "{\"a\": 1}", "a", "{}"),
        (Json, "[1, 2, 3]", "[0]", "[2, 3]"),
        (Toml, "# top\na = 1\n# b\nb = 2 # x\n\n[t]\nc = 1\n", "b", "# top\na = 1\n# b\n\n[t]\nc = 1\n"),
        (Toml, "# top\n\na = 1\n", "a", "# top\n\n"),
        (Toml, "a = 1\n\n[t]\nc = 1\n", "t", "a = 1\n"),
        (Toml, "# top\n\n# t\n[t]\nc = 1\n\n[u]\nd = 1\n", "t", "# top\n\n# t\n\n[u]\nd = 1\n"),
        (Toml, "# t\n[t]\n[t.u]\nc = 1\n[v]\n", "t", "[v]\n\n# t\n"),
        (Toml, "a = [1, 2]\n", "a[0]", "a = [ 2]\n"),
    ];
    for (format, before, name, expected) in table {
        let got = without(format, before, name).unwrap_or_else(|error| panic!("{before:?} {name}: {error}"));
        assert_eq!(got, expected, "{before:?} {name}");
    }
    assert_eq!(without(Yaml, "a: 1\n", "b.c").unwrap(), "a: 1\n");
}

#[test]
fn what_would_touch_something_else_is_refused() {
    let entangled = [
        ("a: &x 1\nb: *x\n", "a"),
        ("a: &x {b: 1}\nc: *x\n", "c.b"),
        ("a: &x\n  b: 1\nc: *x\n", "a.b"),
        ("a: !!str 5\n", "a"),
        ("a: !mine {b: 1}\n", "a"),
    ];
    for (text, name) in entangled {
        let refused = after(Yaml, text, name, "7");
        assert!(matches!(refused, Err(Error::Entangled { .. } | Error::NotBelow { .. })), "{text:?}: {refused:?}");
    }
    assert!(matches!(after(Yaml, "a: 1\n", "a.b", "1"), Err(Error::NotBelow { .. })));
    assert!(matches!(after(Yaml, "a: [1]\n", "a[3]", "1"), Err(Error::NoSuchItem { count: 1, .. })));
    assert!(matches!(after(Toml, "a = [1]\n", "a.b", "1"), Err(Error::NotBelow { .. })));
    assert!(matches!(after(Toml, "", "a[0]", "1"), Err(Error::NoSuchItem { .. })));
    let mut toml = Document::parse(Toml, "").unwrap();
    assert!(matches!(toml.set(&key("a"), &Value::Null), Err(Error::NoNull(Toml))));
    assert!(matches!(after(Toml, "a = 1\r\nb = 2\n", "a", "2"), Err(Error::Syntax { .. })));
}

#[test]
fn what_is_no_document_is_refused_with_its_place_and_none_of_its_text() {
    let secret = "hunter2";
    let table = [
        (Yaml, "a: 1\nb: [hunter2\n"),
        (Yaml, "a: 1\n---\nb: hunter2\n"),
        (Yaml, "a: 1\na: hunter2\n"),
        (Yaml, "a: 1\n\tb: hunter2\n"),
        (Yaml, "? [hunter2]\n: 1\n"),
        (Json, "{\"a\": 1, \"a\": \"hunter2\"}"),
        (Json, "{\"a\": \"hunter2}"),
        (Json, "{\"a\": 01}"),
        (Json, "{\"a\": 1} x"),
        (Json, "{\"a\" 1}"),
        (Json, "{\"a\": hunter2}"),
        (Json, "{/* hunter2 }"),
        (Json, "{,}"),
        (Json, "[1,,2]"),
        (Json, "{\"a\": \"\\ud800\"}"),
        (Toml, "a = hunter2\n"),
        (Toml, "password = \"hunter2\n"),
        (Toml, "a = 1\na = \"hunter2\"\n"),
    ];
    for (format, text) in table {
        match Document::parse(format, text) {
            Err(error @ Error::Syntax { .. }) => assert!(!error.to_string().contains(secret), "{text:?}: {error}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn bombs_and_giants_are_refused() {
    let level = |level: usize, innermost: &str| {
        let below = if level == 0 { innermost.to_owned() } else { format!("*a{}", level - 1) };
        format!("a{level}: &a{level} [{}]\n", [below.as_str(); 10].join(", "))
    };
    // Of many letters, and of many lists without any.
    for innermost in ["x", "[]"] {
        let laughs: String = (0..12).map(|number| level(number, innermost)).collect();
        assert!(matches!(Document::parse(Yaml, &laughs), Err(Error::TooMany)), "{innermost}");
    }
    assert!(matches!(Document::parse(Yaml, &"[".repeat(100_000)), Err(Error::TooDeep)));
    assert!(matches!(Document::parse(Json, &"[".repeat(100_000)), Err(Error::TooDeep)));
    assert!(Document::parse(Toml, &format!("a = {}", "[".repeat(100_000))).is_err());
    for format in [Toml, Yaml, Json] {
        assert!(matches!(Document::parse(format, &" ".repeat(limits::FILE_BYTES_MAX + 1)), Err(Error::TooLarge)));
        let mut document = Document::parse(format, "").unwrap();
        let giant = Value::text("x".repeat(limits::FILE_BYTES_MAX));
        assert!(matches!(document.set(&key("a"), &giant), Err(Error::TooLarge)), "{format}");
        let deep = (0..limits::DEPTH_MAX).fold(Value::Bool(true), |value, _| Value::List(vec![value]));
        assert!(matches!(document.set(&key("a.b"), &deep), Err(Error::TooDeep)), "{format}");
        assert_eq!(document, Document::parse(format, "").unwrap());
    }
}

#[test]
fn a_copy_is_joined_with_what_programs_changed_meanwhile_or_refused() {
    let base = "# top\na: 1\nb: 2\n";
    let ours = "# top, mine\na: 5\nb: 2\n";
    assert_eq!(merge(Yaml, base, ours, base).unwrap().to_text(), ours);
    let joined = merge(Yaml, base, ours, "# top\na: 1\nb: 3\nc: 4\n").unwrap();
    assert_eq!(joined.to_text(), "# top, mine\na: 5\nb: 3\nc: 4\n");
    let same = merge(Yaml, base, ours, "# top\na: 5\nb: 2\n").unwrap();
    assert_eq!(same.to_text(), ours);
    for theirs in ["# top\na: 6\nb: 2\n", "# new\na: 1\nb: 2\n", "# top\na: {x: 1}\nb: 2\n", "# top\nb: 2\n"] {
        assert!(matches!(merge(Yaml, base, ours, theirs), Err(Error::Conflict(_))), "{theirs:?}");
    }
}

#[test]
fn a_value_is_typed_as_its_format_would_read_it() {
    let text = |text: &str| Value::text(text);
    let number = |text: &str| Value::Number(text.to_owned());
    for (format, typed, expected) in [
        (Toml, "true", Value::Bool(true)),
        (Toml, "inf", number("inf")),
        (Toml, "2020-01-01", Value::Time("2020-01-01".to_owned())),
        (Toml, "null", text("null")),
        (Toml, "[1, \"x\"]", Value::List(vec![1.into(), "x".into()])),
        (Toml, "{\"a\": 1}", Value::Map(vec![("a".to_owned(), 1.into())])),
        (Toml, "#5", text("#5")),
        (Toml, "5 # five", text("5 # five")),
        (Toml, " 5", text(" 5")),
        (Yaml, "0o17", number("0o17")),
        (Yaml, "a: b", text("a: b")),
        (Yaml, "", text("")),
        (Yaml, "~", Value::Null),
        (Yaml, "'5'", text("5")),
        (Yaml, "[draft] title", text("[draft] title")),
        (Json, "1.50", number("1.50")),
        (Json, "redis://host", text("redis://host")),
        (Json, "//", text("//")),
    ] {
        assert_eq!(Value::typed(format, typed), expected, "{format} {typed:?}");
    }
}
