//! Events and snapshots as a ledger holds them: whatever is there, it is refused or folded, what is read is written as the same,
//! and nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::event::Event;
use lockkeeper_core::state::{Rules, State};
use lockkeeper_core::time::{Stamp, Time};
use lockkeeper_engine::{Base, BatchId, Delta, Position, Record};
use lockkeeper_keeper::desk::Desk;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(events) = postcard::from_bytes::<Vec<Event>>(bytes) {
        let written = postcard::to_stdvec(&events).expect("events have a form");
        assert_eq!(postcard::from_bytes::<Vec<Event>>(&written).as_ref(), Ok(&events));
        // With the version in front, as a ledger has it.
        fold(Base::Asked, &[&[1], written.as_slice()].concat());
    }
    if let Ok(state) = postcard::from_bytes(bytes).map(State::from_snapshot) {
        let written = postcard::to_stdvec(&state.snapshot()).expect("a snapshot has a form");
        let again = postcard::from_bytes(&written).map(State::from_snapshot).expect("its own form");
        assert_eq!(postcard::to_stdvec(&again.snapshot()).expect("a form"), written);
    }
    fold(Base::Asked, bytes);
    fold(Base::Snapshot { position: place(1), snapshot: bytes.to_vec() }, &[1, 0]);
});

fn place(revision: u64) -> Position {
    Position { epoch: 1, revision, digest: revision }
}

/// Folding takes any event in any order.
fn fold(base: Base, payload: &[u8]) {
    let mut desk = Desk::new(7, Rules::default());
    let stamp = Stamp { time: Time(1_000_000), wall: 1_000_000 };
    let record = Record { position: place(2), batch: BatchId(1), stamp, payload: payload.to_vec() };
    let _ = desk.fold(Delta { base, records: vec![record] });
}
