//! What is held, as documents that people find beside the ledger, where the engine keeps some.

use std::collections::BTreeSet;

use lockkeeper_core::event::Event;
use lockkeeper_core::lock::{Lock, LockId};
use lockkeeper_core::state::State;
use lockkeeper_engine::{Posted, Posting};
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
    let changed: BTreeSet<LockId> = noted.filter_map(|entry| entry.lock).collect();
    let lasts = renewed(state, events).into_iter().collect::<BTreeSet<_>>();
    let written = |id: LockId| match state.lock(id) {
        Some(lock) => Posting::Written { document: document(lock), expires: lock.expires },
        None => Posting::Gone,
    };
    let lasts = lasts.difference(&changed).filter_map(|id| state.lock(*id));
    let lasts = lasts.map(|lock| (lock.id, Posting::Lasts { expires: lock.expires }));
    let changed = changed.iter().map(|id| (*id, written(*id)));
    changed.chain(lasts).map(|(id, change)| Posted { id: id.to_string(), change }).collect()
}

/// The locks that last longer by these events. What else happens to a lock is in the history.
pub(crate) fn renewed(state: &State, events: &[Event]) -> Vec<LockId> {
    let mut renewed: Vec<LockId> = Vec::new();
    for event in events {
        match event {
            Event::Granted(grant) => renewed.extend(&grant.refreshed),
            Event::Renewed { locks, .. } => renewed.extend(locks),
            Event::Beaten { sessions, .. } => {
                renewed.extend(sessions.iter().flat_map(|session| state.locks_of(session)));
            }
            Event::Released { .. }
            | Event::Expired { .. }
            | Event::Forced { .. }
            | Event::Queued(_)
            | Event::Withdrawn { .. }
            | Event::Deadlocked { .. }
            | Event::SessionOpened { .. }
            | Event::SessionClosed { .. }
            | Event::SessionsForgotten { .. }
            | Event::LossAccepted { .. }
            | Event::RoomOpened { .. }
            | Event::RoomClosed { .. }
            | Event::Vanished { .. }
            | Event::GivenBack { .. }
            | Event::FeatureRegistered(_)
            | Event::FeatureEnded { .. }
            | Event::PortsAllocated { .. }
            | Event::PortsFreed { .. }
            | Event::ServerSeen { .. } => {}
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
