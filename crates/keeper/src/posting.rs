//! What is held, as documents that people find beside the ledger, where the engine keeps some.

use std::collections::BTreeSet;

use lockkeeper_core::event::Event;
use lockkeeper_core::lock::{Lock, LockId, Token};
use lockkeeper_core::state::State;
use lockkeeper_core::time::Time;
use lockkeeper_engine::{Posted, Posting};
use serde::Serialize;

/// What a document says, in the words of the interfaces. When it began, its end and its token depend on the stamp, and are
/// kept beside it.
#[derive(Serialize)]
struct Document<'a> {
    key: &'a str,
    start_line: Option<u32>,
    end_line: Option<u32>,
    mode: &'static str,
    owner: &'a str,
    session_id: &'a str,
    intention: &'a str,
}

/// How far a state had come before a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// How long the history was.
    pub(crate) noted: u64,
    pub(crate) last_token: Token,
}

/// What changes by these events, which are applied to the state already, as of `now`.
pub(crate) fn changes(state: &State, before: Before, events: &[Event], now: Time) -> Vec<Posted> {
    let noted = || state.history().after(before.noted).into_iter().flatten();
    let given: BTreeSet<Token> =
        noted().filter_map(|entry| entry.token).filter(|token| *token > before.last_token).collect();
    let written = |lock: &Lock| {
        let (document, left) = (document(lock), lock.expires.since(now));
        if lock.token <= before.last_token {
            return Posting::Lasts { document: Some(document), left };
        }
        let place = given.range(..lock.token).count() as u64;
        Posting::Granted { document, fencing_token: lock.token.0, place, left }
    };
    let changed: BTreeSet<LockId> = noted().filter_map(|entry| entry.lock).collect();
    let refreshed: BTreeSet<LockId> = events.iter().flat_map(refreshed).copied().collect();
    let lasts: BTreeSet<LockId> = renewed(state, events).into_iter().collect();
    // What ends whatever happens, such as a finish, is among those renewed, and does not last any longer.
    let lasts =
        lasts.difference(&changed).filter_map(|id| state.lock(*id)).filter(|lock| lock.expires == now.plus(lock.ttl));
    let lasts = lasts.map(|lock| {
        // A heartbeat changes no word, and is not to write all of them again.
        let document = refreshed.contains(&lock.id).then(|| document(lock));
        (lock.id, Posting::Lasts { document, left: lock.ttl })
    });
    let changed = changed.iter().map(|id| (*id, state.lock(*id).map_or(Posting::Gone, |lock| written(lock))));
    changed.chain(lasts).map(|(id, change)| Posted { id: id.to_string(), change }).collect()
}

/// The locks that somebody asked for who has them, perhaps for another reason.
fn refreshed(event: &Event) -> &[LockId] {
    match event {
        Event::Granted(grant) => &grant.refreshed,
        _ => &[],
    }
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
            | Event::LossTold { .. }
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
    };
    serde_json::to_string(&document).expect("names and numbers")
}
