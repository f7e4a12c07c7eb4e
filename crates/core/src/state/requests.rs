//! What was answered before, by session and request id, so that the same question gets the same answer.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::State;
use crate::journal::Undo;
use crate::key::Target;
use crate::limits::{REQUEST_MEMORY, REQUESTS_LOCKS_MAX, REQUESTS_PER_SESSION_MAX};
use crate::lock::{Lock, LockId, WaiterId};
use crate::session::{RequestId, SessionId};
use crate::time::Time;
use crate::waiter::Waiter;

/// An answer that changed something, to be given again for the same request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) digest: u64,
    pub(crate) at: Time,
    pub(crate) answer: Kept,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kept {
    Granted { locks: Vec<Arc<Lock>>, fresh: usize },
    Released { locks: Vec<Arc<Lock>> },
    ForceReleased { locks: Vec<Arc<Lock>> },
    Lost { targets: Vec<Target> },
}

impl Remembered {
    /// How many locks it keeps in memory, at least one.
    fn weight(&self) -> usize {
        match &self.answer {
            Kept::Granted { locks, .. } | Kept::Released { locks } | Kept::ForceReleased { locks } => {
                locks.len().max(1)
            }
            Kept::Lost { targets } => targets.len().max(1),
        }
    }
}

impl State {
    pub(crate) fn numbered_requests(&self) -> impl Iterator<Item = (u64, &Arc<Remembered>)> {
        self.requests.iter().map(|(number, remembered)| (*number, remembered))
    }

    pub(crate) fn remembered(&self, session: &SessionId, request: &RequestId, now: Time) -> Option<&Arc<Remembered>> {
        let number = self.request_numbers.get(&(session.clone(), request.clone()))?;
        let remembered = &self.requests[number];
        (now < remembered.at.plus(REQUEST_MEMORY)).then_some(remembered)
    }

    /// The place in the queue of a request with this id.
    pub(crate) fn waiting_request(&self, session: &SessionId, request: &RequestId) -> Option<WaiterId> {
        let same = |waiter: &&Arc<Waiter>| waiter.asked.request.as_ref().is_some_and(|asked| asked.id == *request);
        self.waiters_of(session).find(same).map(|waiter| waiter.id())
    }

    /// Whether a request with this id was answered, or waits.
    pub fn is_known_request(&self, session: &SessionId, request: &RequestId, now: Time) -> bool {
        self.remembered(session, request, now).is_some() || self.waiting_request(session, request).is_some()
    }

    /// The remembered requests of a session that were answered with any of these locks.
    pub(crate) fn requests_for(&self, session: &SessionId, locks: &[LockId]) -> Vec<u64> {
        let numbers = self.sessions.get(session).into_iter().flat_map(|entry| entry.requests.iter().copied());
        let locks: HashSet<LockId> = locks.iter().copied().collect();
        let theirs = |number: &u64| match &self.requests[number].answer {
            Kept::Granted { locks: granted, .. } => granted.iter().any(|lock| locks.contains(&lock.id)),
            Kept::Released { .. } | Kept::ForceReleased { .. } | Kept::Lost { .. } => false,
        };
        numbers.filter(theirs).collect()
    }

    pub(crate) fn put_request(&mut self, number: u64, new: Option<Arc<Remembered>>) {
        let old = match &new {
            Some(remembered) => self.requests.insert(number, remembered.clone()),
            None => self.requests.remove(&number),
        };
        self.requests_weight += new.as_ref().map_or(0, |new| new.weight());
        if let Some(old) = &old {
            self.requests_weight -= old.weight();
            let name = (old.session.clone(), old.request.clone());
            if self.request_numbers.get(&name) == Some(&number) {
                self.request_numbers.remove(&name);
            }
            if let Some(entry) = self.sessions.get_mut(&old.session) {
                entry.requests.retain(|kept| *kept != number);
            }
        }
        if let Some(new) = &new {
            self.request_numbers.insert((new.session.clone(), new.request.clone()), number);
            if let Some(entry) = self.sessions.get_mut(&new.session) {
                let place = entry.requests.partition_point(|kept| *kept < number);
                entry.requests.insert(place, number);
            }
        }
        self.journal.note(|| Undo::Request(number, old));
    }

    /// Remembers an answer, and forgets those that are too old or too many.
    pub(crate) fn remember(&mut self, remembered: Remembered) {
        let (session, now) = (remembered.session.clone(), remembered.at);
        self.counters.requests_made += 1;
        self.put_request(self.counters.requests_made, Some(Arc::new(remembered)));
        while let Some((&number, oldest)) = self.requests.first_key_value() {
            if self.requests_weight <= REQUESTS_LOCKS_MAX && now < oldest.at.plus(REQUEST_MEMORY) {
                break;
            }
            self.put_request(number, None);
        }
        let entry = &self.sessions[&session];
        if entry.requests.len() > REQUESTS_PER_SESSION_MAX {
            self.put_request(entry.requests[0], None);
        }
    }
}
