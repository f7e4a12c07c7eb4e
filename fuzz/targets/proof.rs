//! Files of a proof: whatever is in an event, a lock or a claim's file, it is read or said to be unreadable, and what may be
//! appended is read again as what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_proof::limits::EVENT_BYTES_MAX;
use lockkeeper_proof::{ClaimFile, Holder, NewEvent, Profile, Sequence, parse_event};

fuzz_target!(|content: &[u8]| {
    let _ = Holder::parse(content);
    let _ = ClaimFile::parse(content);
    for profile in [Profile::Doc, Profile::Af] {
        if let Err(error) = parse_event(Sequence(1), content, profile) {
            let said = error.to_string();
            assert!(!said.is_empty() && said.len() < 2_000 && !said.contains('\n'));
        }
        let Ok(text) = std::str::from_utf8(content) else { continue };
        let Ok(event) = NewEvent::parse(text, profile) else { continue };
        assert!(event.as_str().len() <= EVENT_BYTES_MAX);
        assert!(profile.knows(&parse_event(Sequence(1), event.as_str().as_bytes(), profile).expect("it was valid").event_type));
        assert_eq!(NewEvent::parse(event.as_str(), profile).expect("compact already"), event);
    }
});
