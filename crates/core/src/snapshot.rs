//! The whole state as plain data, so that a ledger can forget what led to it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::feature::Feature;
use crate::history::{Entry, History};
use crate::key::Target;
use crate::lock::{FeatureId, Lock, Token};
use crate::outcome::Room;
use crate::planted::{self, Bug};
use crate::ports::Ports;
use crate::session::SessionId;
use crate::state::{Counters, Loss, Remembered, Session, State};
use crate::time::Time;
use crate::waiter::Waiter;

/// Everything that a state is made of. In order, equal states have equal snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub base: SnapshotBase,
    pub more: SnapshotMore,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotBase {
    counters: Counters,
    sessions: Vec<SavedSession>,
    locks: Vec<Arc<Lock>>,
    waiters: Vec<Arc<Waiter>>,
    rooms: Vec<Room>,
    requests: Vec<(u64, Arc<Remembered>)>,
    history_made: u64,
    history: Vec<Arc<Entry>>,
}

/// What snapshots did not have from the beginning: stored behind them, so that older ones can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMore {
    features: Vec<Arc<Feature>>,
    ports: Vec<Arc<Ports>>,
    /// The features of what was lost.
    lost_for: Vec<(SessionId, Target, FeatureId)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedSession {
    record: Session,
    quota: VecDeque<Time>,
    lost: Vec<(Target, Arc<Loss>)>,
}

impl Snapshot {
    /// Puts everything into its fixed order.
    #[must_use]
    pub fn in_order(mut self) -> Snapshot {
        self.base.sessions.sort_unstable_by(|one, other| one.record.id.cmp(&other.record.id));
        self.base.locks.sort_unstable_by_key(|lock| lock.id);
        self.base.waiters.sort_unstable_by_key(|waiter| waiter.id());
        self.more.lost_for.sort_unstable();
        self
    }
}

impl State {
    pub fn snapshot(&self) -> Snapshot {
        self.gather().in_order()
    }

    /// A snapshot that is not in order yet: shares what it can, so that it is made in a moment.
    pub fn gather(&self) -> Snapshot {
        let sessions: Vec<SavedSession> = self
            .entries()
            .map(|entry| SavedSession {
                record: entry.record.clone(),
                quota: if planted::is(Bug::SnapshotWithoutQuota) { VecDeque::new() } else { entry.quota.clone() },
                lost: entry.lost.iter().map(|(target, loss)| (target.clone(), loss.clone())).collect(),
            })
            .collect();
        let mut locks: Vec<_> = self.locks().cloned().collect();
        if planted::is(Bug::SnapshotShort) {
            let newest = locks.iter().map(|lock| lock.token).max();
            locks.retain(|lock| Some(lock.token) != newest);
        }
        let mut waiters: Vec<_> = self.waiters().cloned().collect();
        if planted::is(Bug::SnapshotWithoutQueue) {
            waiters.clear();
        }
        let mut counters = self.counters.clone();
        if planted::is(Bug::SnapshotWithoutTokens) {
            counters.last_token = Token::default();
        }
        let base = SnapshotBase {
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
        };
        let (features, ports) = (self.features().cloned().collect(), self.ports().cloned().collect());
        let lost_for = self.entries().flat_map(|entry| {
            let of = |(target, loss): (&Target, &Arc<Loss>)| {
                Some((entry.record.id.clone(), target.clone(), loss.feature.clone()?))
            };
            entry.lost.iter().filter_map(of).collect::<Vec<_>>()
        });
        let lost_for = lost_for.collect();
        Snapshot { base, more: SnapshotMore { features, ports, lost_for } }
    }

    pub fn from_snapshot(snapshot: Snapshot) -> State {
        let Snapshot { base: snapshot, more } = snapshot;
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
        for (session, target, feature) in more.lost_for {
            let known = state.entry(&session).and_then(|entry| entry.lost.get(&target)).cloned();
            if let Some(loss) = known {
                let loss = Loss { feature: Some(feature), ..Loss::clone(&loss) };
                state.put_loss(&session, &target, Some(Arc::new(loss)));
            }
        }
        for feature in more.features {
            state.put_feature(&feature.id.clone(), Some(feature));
        }
        for ports in more.ports {
            state.put_ports(&ports.session.clone(), Some(ports));
        }
        state.history = History::restored(snapshot.history, snapshot.history_made);
        state.counters = snapshot.counters;
        state
    }
}
