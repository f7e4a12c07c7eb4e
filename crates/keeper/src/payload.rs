//! Events and snapshots as the bytes of a ledger: a version, then postcard.

use lockkeeper_core::event::Event;
use lockkeeper_core::state::State;

/// What the first byte of a payload says about the rest.
const VERSION: u8 = 1;

/// A payload that this program can't read. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("the ledger was written by a newer version of lockkeeper (payload version {0}, this one reads {VERSION})")]
    Newer(u8),
    #[error("the ledger holds a payload that can't be read: {0}")]
    Unreadable(postcard::Error),
    #[error("the ledger holds an empty payload")]
    Empty,
}

pub(crate) fn encode_events(events: &[Event]) -> Vec<u8> {
    postcard::to_extend(events, vec![VERSION]).expect("events have a form")
}

pub(crate) fn decode_events(payload: &[u8]) -> Result<Vec<Event>, PayloadError> {
    postcard::from_bytes(body(payload)?).map_err(PayloadError::Unreadable)
}

pub(crate) fn encode_snapshot(state: &State) -> Vec<u8> {
    postcard::to_extend(&state.snapshot(), vec![VERSION]).expect("a snapshot has a form")
}

pub(crate) fn decode_snapshot(payload: &[u8]) -> Result<State, PayloadError> {
    postcard::from_bytes(body(payload)?).map(State::from_snapshot).map_err(PayloadError::Unreadable)
}

fn body(payload: &[u8]) -> Result<&[u8], PayloadError> {
    match payload.split_first() {
        Some((&VERSION, body)) => Ok(body),
        Some((&version, _)) => Err(PayloadError::Newer(version)),
        None => Err(PayloadError::Empty),
    }
}
