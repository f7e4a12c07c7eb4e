//! Sessions: opened, restored, closed, and forgotten when there are too many.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::acquire::exceeded;
use super::{Deciding, Refused};
use crate::command::{Acquire, Actor, Want};
use crate::event::Event;
use crate::history::Action;
use crate::key::{Key, Target};
use crate::limits::{PRIORITY_DEFAULT, SESSIONS_MAX};
use crate::lock::{Lock, LockId, Token};
use crate::outcome::{Answer, Limit, NotFound, Outcome, Refusal, Skip, Skipped};
use crate::session::SessionId;
use crate::state::Loss;
use crate::time::Millis;

/// How long an idle session is kept at least, however many there are.
const IDLE_KEPT: Millis = Millis::from_minutes(1);

impl Deciding<'_> {
    pub(super) fn open_session(&mut self, actor: &Actor) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        self.room_for_session(&actor.session)?;
        let (session, agent) = (actor.session.clone(), actor.agent.clone());
        self.record(Event::SessionOpened { session, agent, agent_type: actor.agent_type.clone() });
        Ok(self.restore(actor))
    }

    pub(super) fn restore_session(&mut self, actor: &Actor) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        if self.state.session(&actor.session).is_none() {
            return Err(Box::new(Refusal::NotFound { what: NotFound::Session(actor.session.clone()) }));
        }
        Ok(self.restore(actor))
    }

    /// Refreshes what the session still holds, and acquires again what it lost, each as a new grant of its own.
    fn restore(&mut self, actor: &Actor) -> Outcome {
        let session = &actor.session;
        let refreshed: Vec<LockId> = self.state.locks_of(session).collect();
        if !refreshed.is_empty() {
            self.record(Event::Renewed { session: session.clone(), locks: refreshed.clone(), ttl: None });
        }
        let since = self.now().minus(self.cx.rules.history_kept);
        let lost = self.state.lost_of(session).filter(|(_, loss)| loss.at > since);
        let lost: Vec<(Target, Arc<Loss>)> = lost.map(|(target, loss)| (target.clone(), loss.clone())).collect();
        let (taken, wanted): (Vec<_>, Vec<_>) = lost.into_iter().partition(|(_, loss)| loss.forced);
        let (mut restored, mut skipped, mut counted) = (Vec::new(), self.taken(taken), false);
        for (target, loss) in wanted {
            // One restore is one acquisition for the quota, however many locks it brings back.
            let acquire = Acquire { restores: counted, ..loss.again(actor, &target, Millis(0)) };
            match self.acquire(&acquire) {
                Ok(Outcome::Granted { locks, fresh }) => {
                    restored.extend(locks);
                    counted |= fresh > 0;
                }
                Ok(other) => unreachable!("asked without a wait and without a request id: {other:?}"),
                Err(refusal) => skipped.push(Skipped { target, why: Skip::Refused(refusal) }),
            }
        }
        Outcome::Opened { session: session.clone(), restored, refreshed, skipped }
    }

    /// What was taken away, each with what was noted then, as far as that is still known.
    fn taken(&self, lost: Vec<(Target, Arc<Loss>)>) -> Vec<Skipped> {
        if lost.is_empty() {
            return Vec::new();
        }
        let forced = self.state.history().newest().filter(|entry| entry.action == Action::ForceReleased);
        let notes: HashMap<_, _> = forced.map(|entry| (entry.lock, entry.note.clone())).collect();
        let skipped = |(target, loss): (Target, Arc<Loss>)| {
            let note = notes.get(&Some(loss.lock)).cloned().flatten();
            Skipped { target, why: Skip::Taken { note } }
        };
        lost.into_iter().map(skipped).collect()
    }

    pub(super) fn close_session(&mut self, actor: &Actor) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        let session = &actor.session;
        let theirs = self.state.rooms().filter(|room| room.session == *session);
        let mut rooms: Vec<Key> = theirs.map(|room| room.key.clone()).collect();
        rooms.sort();
        self.leave_rooms(&rooms, Some(actor));
        let released: Vec<_> = self.state.locks_of(session).filter_map(|id| self.state.lock(id).cloned()).collect();
        let Some(entry) = self.state.entry(session) else {
            // Closing what is closed already is no mistake.
            return Ok(Outcome::Told(Answer::Closed { session: session.clone(), released }));
        };
        let wanted = entry.waiters.iter().filter_map(|id| self.state.waiter(*id));
        let mut freed: Vec<Target> = wanted.flat_map(|waiter| super::queue::targets(&waiter.asked.wants)).collect();
        freed.extend(released.iter().map(|lock| lock.target.clone()));
        self.record(Event::SessionClosed { session: session.clone() });
        self.hand_over(freed);
        Ok(Outcome::Told(Answer::Closed { session: session.clone(), released }))
    }

    /// Writes down what went with a lost past, once, however many saw it go.
    pub(super) fn mourn(&mut self, locks: &[Arc<Lock>], last_token: Token) -> Outcome {
        // What became of it is known: it was given back meanwhile, or another server has written down that it was lost.
        let mut unknown: HashSet<(LockId, Token)> = locks.iter().map(|lock| (lock.id, lock.token)).collect();
        let mut tokens: HashMap<LockId, Token> = locks
            .iter()
            .filter_map(|lock| self.state.loss_of(lock))
            .map(|loss| (loss.lock, Token::default()))
            .collect();
        for (id, token) in self.state.history().newest().filter_map(|entry| entry.lock.zip(entry.token)) {
            unknown.remove(&(id, token));
            if let Some(newest) = tokens.get_mut(&id) {
                *newest = token.max(*newest);
            }
        }
        let unknown = |lock: &&Arc<Lock>| {
            let held = self.state.lock(lock.id).is_some_and(|kept| kept.token == lock.token);
            // Told already, or lost again meanwhile: the newest loss is the one to tell of.
            let newer = |loss: &Loss| tokens.get(&loss.lock).is_some_and(|token| *token > lock.token);
            let settled = self.state.loss_of(lock).is_some_and(|loss| loss.lock == lock.id || newer(loss));
            !held && !settled && unknown.contains(&(lock.id, lock.token))
        };
        let locks: Vec<Lock> = locks.iter().filter(unknown).map(|lock| Lock::clone(lock)).collect();
        if !locks.is_empty() || last_token > self.state.last_token() {
            self.record(Event::Vanished { locks, last_token });
        }
        Outcome::Nothing
    }

    /// Makes sure that one more session can be known, forgetting idle ones if it must.
    pub(super) fn room_for_session(&mut self, session: &SessionId) -> Result<(), Refused> {
        if self.state.session_count() < SESSIONS_MAX || self.state.session(session).is_some() {
            return Ok(());
        }
        let now = self.now();
        let idle = self.state.entries().filter(|entry| {
            entry.locks.is_empty()
                && entry.waiters.is_empty()
                && entry.record.seen.plus(IDLE_KEPT) < now
                && self.state.ports_of(&entry.record.id).is_none()
        });
        let mut sessions: Vec<SessionId> = idle.map(|entry| entry.record.id.clone()).collect();
        // The table has no order, and the ledger must not depend on one.
        sessions.sort();
        if sessions.is_empty() {
            return Err(exceeded(Limit::Sessions));
        }
        self.record(Event::SessionsForgotten { sessions });
        Ok(())
    }
}

impl Loss {
    /// Asks for what was lost, as it was held.
    pub fn again(&self, actor: &Actor, target: &Target, wait: Millis) -> Acquire {
        Acquire {
            actor: actor.clone(),
            wants: vec![Want { target: target.clone(), mode: self.mode }],
            intention: self.intention.clone(),
            ttl: self.ttl,
            wait,
            priority: PRIORITY_DEFAULT,
            feature: self.feature.clone(),
            request: None,
            restores: false,
        }
    }
}
