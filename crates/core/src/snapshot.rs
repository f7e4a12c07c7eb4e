//! The whole state as plain data, so that a ledger can forget what led to it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::{Entry, History};
use crate::key::Target;
use crate::lock::{Lock, Token};
use crate::outcome::Room;
use crate::planted::{self, Bug};
use crate::state::{Counters, Loss, Remembered, Session, State};
use crate::time::Time;
use crate::waiter::Waiter;

/// Everything that a state is made of, in a fixed order: equal states have equal snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    counters: Counters,
    sessions: Vec<SavedSession>,
    locks: Vec<Arc<Lock>>,
    waiters: Vec<Arc<Waiter>>,
    rooms: Vec<Room>,
    requests: Vec<(u64, Arc<Remembered>)>,
    history_made: u64,
    history: Vec<Arc<Entry>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedSession {
    record: Session,
    quota: VecDeque<Time>,
    lost: Vec<(Target, Arc<Loss>)>,
}

impl State {
    pub fn snapshot(&self) -> Snapshot {
        let mut sessions: Vec<SavedSession> = self
            .entries()
            .map(|entry| SavedSession {
                record: entry.record.clone(),
                quota: if planted::is(Bug::SnapshotWithoutQuota) { VecDeque::new() } else { entry.quota.clone() },
                lost: entry.lost.iter().map(|(target, loss)| (target.clone(), loss.clone())).collect(),
            })
            .collect();
        sessions.sort_unstable_by(|one, other| one.record.id.cmp(&other.record.id));
        let mut locks: Vec<_> = self.locks().cloned().collect();
        locks.sort_unstable_by_key(|lock| lock.id);
        let mut waiters: Vec<_> = self.waiters().cloned().collect();
        waiters.sort_unstable_by_key(|waiter| waiter.id());
        if planted::is(Bug::SnapshotWithoutQueue) {
            waiters.clear();
        }
        let mut counters = self.counters.clone();
        if planted::is(Bug::SnapshotWithoutTokens) {
            counters.last_token = Token::default();
        }
        Snapshot {
            counters,
            sessions,
            locks,
            waiters,
            rooms: self.rooms().cloned().collect(),
            requests: self
                .numbered_requests()
                .filter(|_| !planted::is(Bug::SnapshotWithoutRequests))
                .map(|(number, remembered)| (number, remembered.clone()))
                .collect(),
            history_made: self.history.made(),
            history: self.history.oldest_first().cloned().collect(),
        }
    }

    pub fn from_snapshot(snapshot: Snapshot) -> State {
        let mut state = State::new(snapshot.counters.salt);
        for saved in snapshot.sessions {
            let id = saved.record.id.clone();
            state.put_session(saved.record);
            state.put_quota(&id, saved.quota);
            for (target, loss) in saved.lost {
                state.put_loss(&id, &target, Some(loss));
            }
        }
        for lock in snapshot.locks {
            state.put_lock(lock.id, Some(lock));
        }
        for waiter in snapshot.waiters {
            state.put_waiter(waiter.id(), Some(waiter));
        }
        for room in snapshot.rooms {
            state.put_room(&room.key.clone(), Some(room));
        }
        for (number, remembered) in snapshot.requests {
            state.put_request(number, Some(remembered));
        }
        state.history = History::restored(snapshot.history, snapshot.history_made);
        state.counters = snapshot.counters;
        state
    }
}
