//! Takes back what was tried: the old values of whatever changed since [`State::begin`].

use std::collections::VecDeque;
use std::sync::Arc;

use crate::feature::Feature;
use crate::key::{Key, Target};
use crate::lock::{FeatureId, Lock, LockId, WaiterId};
use crate::outcome::Room;
use crate::planted::{self, Bug};
use crate::ports::Ports;
use crate::servers::Server;
use crate::session::SessionId;
use crate::state::{Counters, Loss, Remembered, Session, SessionEntry, State};
use crate::time::Time;
use crate::waiter::Waiter;

/// What was there before one change.
#[derive(Debug)]
pub(crate) enum Undo {
    Lock(LockId, Option<Arc<Lock>>),
    Waiter(WaiterId, Option<Arc<Waiter>>),
    Room(Key, Option<Room>),
    Session(SessionId, Option<Session>),
    Seen(SessionId, Time),
    Dropped(Box<SessionEntry>),
    Quota(SessionId, VecDeque<Time>),
    Loss(SessionId, Target, Option<Arc<Loss>>),
    Request(u64, Option<Arc<Remembered>>),
    Feature(FeatureId, Option<Arc<Feature>>),
    Ports(SessionId, Option<Arc<Ports>>),
    Server(String, Option<Server>),
}

/// The changes of a working state, while there is one.
#[derive(Debug, Default)]
pub(crate) struct Journal(Option<Working>);

#[derive(Debug)]
struct Working {
    counters: Counters,
    history_made: u64,
    changes: Vec<Undo>,
}

impl Journal {
    pub(crate) fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if let Some(working) = &mut self.0 {
            working.changes.push(undo());
        }
    }
}

impl State {
    /// From here on this is a working state, until [`State::keep`] or [`State::roll_back`].
    pub fn begin(&mut self) {
        assert!(self.journal.0.is_none(), "one working state at a time");
        let (counters, history_made) = (self.counters.clone(), self.history.made());
        self.journal.0 = Some(Working { counters, history_made, changes: Vec::new() });
    }

    /// Whether nothing that the ledger holds can have happened at this time: what did, is of the working state.
    pub(crate) fn is_ahead_of_ledger(&self, now: Time) -> bool {
        self.journal.0.as_ref().is_some_and(|working| now > working.counters.stamp.time)
    }

    /// The working state has become the state.
    pub fn keep(&mut self) {
        assert!(self.journal.0.take().is_some(), "a working state");
    }

    /// Takes back everything since [`State::begin`].
    pub fn roll_back(&mut self) {
        let working = self.journal.0.take().expect("a working state");
        for undo in working.changes.into_iter().rev() {
            match undo {
                Undo::Lock(..) if planted::is(Bug::RollbackForgetsLocks) => {}
                Undo::Lock(id, old) => self.put_lock(id, old),
                Undo::Waiter(id, old) => self.put_waiter(id, old),
                Undo::Room(key, old) => self.put_room(&key, old),
                Undo::Session(_, Some(old)) => self.put_session(old),
                Undo::Session(id, None) => self.forget_session(&id),
                Undo::Seen(id, old) => self.put_seen(&id, old),
                Undo::Dropped(entry) => self.restore_entry(*entry),
                Undo::Quota(session, old) => self.put_quota(&session, old),
                Undo::Loss(session, target, old) => self.put_loss(&session, &target, old),
                Undo::Request(number, old) => self.put_request(number, old),
                Undo::Feature(id, old) => self.put_feature(&id, old),
                Undo::Ports(session, old) => self.put_ports(&session, old),
                Undo::Server(name, old) => self.put_server(&name, old),
            }
        }
        self.counters = working.counters;
        self.history.rewind(working.history_made);
    }
}
