//! Configuration files: whatever the text, the key and the value, a change does just what it says or nothing, and what it
//! left can be read.
//!
//! The first line names the format and the key, the second is the value, the rest is the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_config_editor::{Document, Format, Key, Step, Value};

fuzz_target!(|input: &str| {
    let mut parts = input.splitn(3, '\n');
    let (Some(head), Some(typed), Some(text)) = (parts.next(), parts.next(), parts.next()) else { return };
    let format = match head.chars().next() {
        Some('y') => Format::Yaml,
        Some('j') => Format::Json,
        Some('t') => Format::Toml,
        _ => return,
    };
    let Ok(key) = head[1..].parse::<Key>() else { return };
    let Ok(before) = Document::parse(format, text) else { return };
    assert_eq!(before.to_text(), text, "reading changes nothing");
    let value = Value::typed(format, typed);
    let adds = key.steps().last() == Some(&Step::New);
    let mut set = before.clone();
    match set.set(&key, &value) {
        Ok(changed) => {
            assert_eq!(changed, set != before);
            // TOML promises no order.
            if !adds && format != Format::Toml {
                assert_eq!(set.get(&key), Some(&value));
            }
            let again = Document::parse(format, &set.to_text()).expect("what was written can be read");
            assert_eq!(again, set);
        }
        Err(_) => assert_eq!(set, before),
    }
    let mut unset = before.clone();
    match unset.unset(&key) {
        Ok(there) => {
            assert_eq!(there, before.get(&key).is_some());
            let items = key.steps().iter().any(|step| matches!(step, Step::Item(_)));
            let digits = head.bytes().any(|byte| byte.is_ascii_digit());
            // Behind an item that goes stands the next one, under its number.
            assert!(items || digits || unset.get(&key).is_none());
            assert_eq!(Document::parse(format, &unset.to_text()).expect("what was written can be read"), unset);
        }
        Err(_) => assert_eq!(unset, before),
    }
});
