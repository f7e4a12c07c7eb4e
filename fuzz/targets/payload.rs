//! Events and snapshots as a ledger holds them: what is read is written as the same, and nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::event::Event;
use lockkeeper_core::state::State;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(events) = postcard::from_bytes::<Vec<Event>>(bytes) {
        let written = postcard::to_stdvec(&events).expect("events have a form");
        assert_eq!(postcard::from_bytes::<Vec<Event>>(&written).as_ref(), Ok(&events));
    }
    if let Ok(state) = postcard::from_bytes(bytes).map(State::from_snapshot) {
        let written = postcard::to_stdvec(&state.snapshot()).expect("a snapshot has a form");
        let again = postcard::from_bytes(&written).map(State::from_snapshot).expect("its own form");
        assert_eq!(postcard::to_stdvec(&again.snapshot()).expect("a form"), written);
    }
});
