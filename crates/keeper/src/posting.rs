//! What is held, as documents that people find beside the ledger, where the engine keeps some.

use std::collections::BTreeSet;

use lockkeeper_core::event::Event;
use lockkeeper_core::lock::{Lock, LockId};
use lockkeeper_core::state::State;
use lockkeeper_core::time::Time;
use lockkeeper_engine::Posted;
use serde::Serialize;

/// What a document says, in the words of the interfaces. Times are the ledger's, in microseconds.
#[derive(Serialize)]
struct Document<'a> {
    key: &'a str,
    start_line: Option<u32>,
    end_line: Option<u32>,
    mode: &'static str,
    owner: &'a str,
    session_id: &'a str,
    intention: &'a str,
    fencing_token: u64,
    created: u64,
}

/// What changes by these events, which are applied to the state already. `noted`: how long the history was before.
pub(crate) fn changes(state: &State, noted: u64, events: &[Event]) -> Vec<Posted> {
    let noted = state.history().after(noted).into_iter().flatten();
    let mut ids: BTreeSet<LockId> = noted.filter_map(|entry| entry.lock).collect();
    ids.extend(renewed(state, events));
    ids.into_iter()
        .map(|id| match state.lock(id) {
            Some(lock) => Posted { id: id.to_string(), expires: lock.expires, document: Some(document(lock)) },
            None => Posted { id: id.to_string(), expires: Time(0), document: None },
        })
        .collect()
}

/// The locks that last longer by these events, and are in no history for that.
pub(crate) fn renewed(state: &State, events: &[Event]) -> Vec<LockId> {
    let mut renewed: Vec<LockId> = Vec::new();
    for event in events {
        match event {
            Event::Granted(grant) => renewed.extend(&grant.refreshed),
            Event::Renewed { locks, .. } => renewed.extend(locks),
            Event::Beaten { sessions, .. } => {
                renewed.extend(sessions.iter().flat_map(|session| state.locks_of(session)));
            }
            // The history has them, with their keys.
            _ => {}
        }
    }
    renewed
}

fn document(lock: &Lock) -> String {
    let span = lock.target.span;
    let start_line = (!span.is_whole()).then(|| span.start());
    let document = Document {
        key: lock.target.key.as_str(),
        start_line,
        end_line: span.last(),
        mode: lock.mode.word(),
        owner: lock.agent.as_str(),
        session_id: lock.session.as_str(),
        intention: lock.intention.as_str(),
        fencing_token: lock.token.0,
        created: lock.acquired.0,
    };
    serde_json::to_string(&document).expect("names and numbers")
}
