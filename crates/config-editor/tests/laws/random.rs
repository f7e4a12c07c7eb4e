//! Random documents and random changes: what is read afterwards is what a model says, and no comment is lost.

use lockkeeper_config_editor::{Document, Format, Key, Step, Value};
use proptest::collection::vec;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![6 => "[a-e]", 2 => "[a-z][a-z0-9_-]{0,6}", 1 => "[ -~äß\u{2028}]{0,8}", 1 => Just("true".to_owned())]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        Just(Value::Null),
        "[a-z ]{0,10}".prop_map(Value::Text),
        any::<String>().prop_map(Value::Text),
        prop_oneof![Just("yes"), Just("- x"), Just("a: b"), Just("# c"), Just("1e3"), Just("|"), Just("x\ny\n")]
            .prop_map(Value::from),
    ]
}

fn map(fields: Vec<(String, Value)>) -> Value {
    let mut known = std::collections::HashSet::new();
    Value::Map(fields.into_iter().filter(|(name, _)| known.insert(name.clone())).collect())
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 5, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::List), vec((name(), inner), 0..4).prop_map(map)]
    })
}

/// How a document is laid out, which the model knows nothing of.
#[derive(Clone, Debug)]
struct Layout {
    block: Vec<bool>,
    comments: bool,
    crlf: bool,
    unit: usize,
}

fn layout() -> impl Strategy<Value = Layout> {
    (vec(any::<bool>(), 8), any::<bool>(), any::<bool>(), 1..5_usize).prop_map(|(block, comments, crlf, unit)| Layout {
        block,
        comments,
        crlf,
        unit,
    })
}

/// Writes a document by hand, with comments that have numbers.
struct Writer {
    layout: Layout,
    out: String,
    comments: usize,
    turn: usize,
}

impl Writer {
    fn push(&mut self, text: String) {
        self.out.push_str(&text);
    }

    fn comment(&mut self, mark: &str) -> String {
        if !self.layout.comments {
            return String::new();
        }
        self.comments += 1;
        format!(" {mark} comment-{}.", self.comments)
    }

    fn block(&mut self) -> bool {
        self.turn += 1;
        self.layout.block[self.turn % self.layout.block.len()]
    }

    fn yaml(&mut self, fields: &[(String, Value)], indent: usize) {
        for (name, value) in fields {
            let space = " ".repeat(indent);
            let name = Value::text(name.clone()).to_json();
            if self.block() {
                let comment = self.comment("#");
                self.push(format!("{space}{}\n", comment.trim_start()));
            }
            match value {
                Value::Map(inner) if !inner.is_empty() && self.block() => {
                    let comment = self.comment("#");
                    self.push(format!("{space}{name}:{comment}\n"));
                    self.yaml(inner, indent + self.layout.unit);
                }
                Value::List(items) if !items.is_empty() && self.block() => {
                    self.push(format!("{space}{name}:\n"));
                    for item in items {
                        let comment = self.comment("#");
                        self.push(format!("{space}- {}{comment}\n", item.to_json()));
                    }
                }
                other => {
                    let comment = self.comment("#");
                    self.push(format!("{space}{name}: {}{comment}\n", other.to_json()));
                }
            }
        }
    }

    fn json(&mut self, fields: &[(String, Value)], indent: usize) {
        if !self.block() {
            self.out.push_str(&Value::Map(fields.to_vec()).to_json());
            return;
        }
        let space = " ".repeat(indent);
        self.out.push_str("{\n");
        for (at, (name, value)) in fields.iter().enumerate() {
            self.push(format!("{space}  {} : ", Value::text(name.clone()).to_json()));
            match value {
                Value::Map(inner) => self.json(inner, indent + 2),
                other => self.out.push_str(&other.to_json()),
            }
            let comment = self.comment("//");
            self.push(format!("{}{comment}\n", if at + 1 < fields.len() { "," } else { "" }));
        }
        self.push(format!("{space}}}"));
    }
}

fn written(format: Format, fields: &[(String, Value)], layout: Layout) -> (String, usize) {
    let crlf = layout.crlf;
    let mut writer = Writer { layout, out: String::new(), comments: 0, turn: 0 };
    match format {
        Format::Yaml => writer.yaml(fields, 0),
        Format::Json => writer.json(fields, 0),
        Format::Toml => unreachable!("TOML is left to toml_edit"),
    }
    let text = if crlf { writer.out.replace('\n', "\r\n") } else { writer.out };
    (text, writer.comments)
}

/// The same change, on the model: written anew, without a thought of text.
fn model_set(value: &mut Value, path: &[String], new: &Value) -> bool {
    let Some((first, rest)) = path.split_first() else {
        *value = new.clone();
        return true;
    };
    if *value == Value::Null {
        *value = Value::Map(Vec::new());
    }
    let Value::Map(fields) = value else { return false };
    let at = fields.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
        fields.push((first.clone(), Value::Null));
        fields.len() - 1
    });
    model_set(&mut fields[at].1, rest, new)
}

fn model_unset(value: &mut Value, path: &[String]) {
    let Value::Map(fields) = value else { return };
    let Some(at) = fields.iter().position(|(name, _)| *name == path[0]) else { return };
    if path.len() == 1 {
        fields.remove(at);
    } else {
        model_unset(&mut fields[at].1, &path[1..]);
    }
}

type Step3 = (Vec<String>, Option<Value>);

fn steps() -> impl Strategy<Value = Vec<Step3>> {
    vec((vec(name(), 1..4), proptest::option::weighted(0.8, value())), 1..6)
}

fn comments(text: &str) -> Vec<String> {
    text.match_indices("comment-").filter_map(|(at, _)| Some(text[at..].split_once('.')?.0.to_owned())).collect()
}

fn check(format: Format, fields: Vec<(String, Value)>, layout: Layout, steps: Vec<Step3>) -> Result<(), TestCaseError> {
    let Value::Map(fields) = map(fields) else { unreachable!("a map") };
    let (text, count) = written(format, &fields, layout);
    let mut document =
        Document::parse(format, &text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
    let mut model = Value::Map(fields);
    prop_assert_eq!(document.value(), &model, "{}", text);
    prop_assert_eq!(comments(&text).len(), count);
    for (path, new) in steps {
        let Ok(key) = Key::new(path.iter().cloned().map(Step::Name).collect()) else { continue };
        let before = document.to_text();
        // A comment may go only with the value that it stands in.
        let whole = document.get(&key).is_none_or(|old| !matches!(old, Value::Map(_) | Value::List(_)));
        let mut expected = model.clone();
        let done = match &new {
            Some(value) => {
                let fits = path_fits(&model, &path);
                let done = document.set(&key, value);
                prop_assert_eq!(done.is_ok(), fits, "{:?} {:?}\n{}", done, key, before);
                if fits { model_set(&mut expected, &path, value) } else { false }
            }
            None => {
                let done = document.unset(&key);
                prop_assert!(done.is_ok(), "{:?} {:?}\n{}", done, key, before);
                model_unset(&mut expected, &path);
                true
            }
        };
        if done {
            model = expected;
        }
        prop_assert_eq!(document.value(), &model, "{}\n{}", before, document.to_text());
        let reread = Document::parse(format, &document.to_text());
        prop_assert_eq!(reread.as_ref().map(Document::value).ok(), Some(&model), "{}", document.to_text());
        if whole && new.is_some() {
            prop_assert_eq!(comments(&before), comments(&document.to_text()), "{}\n{}", before, document.to_text());
        }
        if before.contains("\r\n") {
            prop_assert!(!document.to_text().replace("\r\n", "").contains('\n'));
        }
    }
    Ok(())
}

/// Whether a path leads through maps and nulls alone. Names of digits lead into lists, which the model leaves out.
fn path_fits(value: &Value, path: &[String]) -> bool {
    let mut here = value;
    for name in path {
        match here {
            Value::Map(fields) => match fields.iter().find(|(known, _)| known == name) {
                Some((_, below)) => here = below,
                None => return true,
            },
            Value::Null => return true,
            _ => return false,
        }
    }
    true
}

/// TOML promises no order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::List(items) => Value::List(items.iter().map(sorted).collect()),
        Value::Map(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Map(fields)
        }
        other => other.clone(),
    }
}

fn rounds() -> ProptestConfig {
    let cases = if std::env::var_os("LOCKKEEPER_DEEP").is_some() { 20_000 } else { 400 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(rounds())]

    #[test]
    fn yaml_says_what_the_model_says(fields in vec((name(), value()), 0..6), layout in layout(), steps in steps()) {
        check(Format::Yaml, fields, layout, steps)?;
    }

    #[test]
    fn json_says_what_the_model_says(fields in vec((name(), value()), 0..6), layout in layout(), steps in steps()) {
        check(Format::Json, fields, layout, steps)?;
    }

    #[test]
    fn toml_says_what_the_model_says(steps in steps()) {
        let mut document = Document::parse(Format::Toml, "# comment-1.\n").unwrap();
        let mut changes = 0;
        for (path, new) in steps {
            let Ok(key) = Key::new(path.iter().cloned().map(Step::Name).collect()) else { continue };
            let done = match &new {
                Some(value) => document.set(&key, value).map(|_| document.get(&key).map(sorted) == Some(sorted(value))),
                None => document.unset(&key).map(|_| document.get(&key).is_none()),
            };
            // TOML has no null, and a value has nothing below it.
            prop_assert_ne!(done.as_ref().ok(), Some(&false), "{:?} {}", key, document.to_text());
            changes += usize::from(done.is_ok());
            prop_assert_eq!(Document::parse(Format::Toml, &document.to_text()).ok(), Some(document.clone()));
            prop_assert!(document.to_text().contains("comment-1."));
        }
        prop_assume!(changes > 0);
    }

    #[test]
    fn json_is_read_as_serde_reads_it(text in "[\\[\\]{}\",:0-9a-f\\\\u .eE+-]{0,24}|(\\{\"[ab]\":(1|\"x\"|null)(,\"c\":\\[\\])?\\})") {
        let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
        if let Ok(theirs) = theirs {
            match Document::parse(Format::Json, &text) {
                Ok(ours) => {
                    let ours: serde_json::Value = serde_json::from_str(&ours.value().to_json()).unwrap();
                    prop_assert!(ours == theirs || theirs.is_null(), "{} {}", ours, theirs);
                }
                Err(error) => prop_assert!(error.to_string().contains("second time"), "{} {}", text, error),
            }
        }
    }
}
