//! Keys: whatever is a key is one in its own spelling, and overlaps itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::key::Key;

fuzz_target!(|text: &str| {
    let (one, other) = text.split_once('\n').unwrap_or((text, text));
    let Ok(key) = Key::parse(one) else { return };
    let shown = key.to_string();
    assert_eq!(Key::parse(&shown).as_ref(), Ok(&key), "{shown:?} is its own spelling");
    assert_eq!(Key::from(std::sync::Arc::<str>::from(shown.as_str())), key, "and is read back from a ledger");
    assert!(key.overlaps(&key));
    assert!(!shown.split('/').any(|part| part == ".." || part == ".") || shown.contains(':'), "{shown:?}");
    if let Ok(other) = Key::parse(other) {
        assert_eq!(key.overlaps(&other), other.overlaps(&key), "{key} {other}");
    }
});
