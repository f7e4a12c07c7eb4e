//! Files that are held, shown to clients that know nothing of ledgers; and what such clients hold.
//!
//! A file is shown under the name by which existing services take it, with the latest end of its locks. Trees and
//! logical keys are not shown: no such client asks for one.

use std::collections::BTreeSet;

use lockkeeper_core::command::External;
use lockkeeper_core::event::Event;
use lockkeeper_core::key::{Cover, Key, KeyKind};
use lockkeeper_core::state::State;
use lockkeeper_core::time::{Millis, Time};
use lockkeeper_engine::{Outside, Shown};

use crate::posting;

const PREFIX: &str = "lock:file:";
/// How long a file counts as taken that was taken for ever: it is looked at again long before.
const FOR_EVER: Millis = Millis::from_secs(60);

pub(crate) fn name(key: &Key) -> String {
    format!("{PREFIX}{key}")
}

/// What was seen of someone's name, in the words of the rules.
pub(crate) fn external(outside: &Outside) -> Option<External> {
    let key = Key::parse(outside.name.strip_prefix(PREFIX)?).ok()?;
    Some(External { key, left: Some(outside.left.unwrap_or(FOR_EVER)), endless: outside.left.is_none() })
}

/// What changes in the window by these events, which are applied to the state already. `noted`: how long the history was
/// before.
pub(crate) fn changes(state: &State, noted: u64, events: &[Event], now: Time) -> Vec<Shown> {
    let mut keys: BTreeSet<&Key> = BTreeSet::new();
    keys.extend(state.history().after(noted).into_iter().flatten().map(|entry| &entry.target.key));
    keys.extend(
        posting::renewed(state, events).into_iter().filter_map(|id| state.lock(id)).map(|lock| &lock.target.key),
    );
    let file = |key: &&Key| key.kind() == KeyKind::Path && key.cover() == Cover::One;
    keys.into_iter()
        .filter(|key| file(key) && !state.is_external(key))
        .map(|key| Shown { name: name(key), left: state.held_until(key).map(|until| until.since(now)) })
        .collect()
}
