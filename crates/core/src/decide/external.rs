//! Files that others take without asking here, seen from outside: whole-file locks of a session that nobody can be.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Deciding;
use crate::command::External;
use crate::event::{Event, Grant, NewLock, On};
use crate::key::{Key, Target};
use crate::limits::LOCKS_MAX;
use crate::lock::{Lock, LockId};
use crate::mode::Mode;
use crate::session::{AgentName, Intention, SessionId};
use crate::span::Span;
use crate::state::State;
use crate::time::{Millis, Time};

/// How far an end that was seen may lie from the one that is written down.
const ROUGHLY: Millis = Millis(1000);

impl Deciding<'_> {
    /// Nobody is asked: they have it. Whoever waits, waits for them too. Before time does its work: what is seen goes on, and
    /// nothing that they have is handed to anybody.
    pub(super) fn see_external(&mut self, seen: &[External]) {
        let (external, mut freed) = (SessionId::external(), Vec::new());
        for External { key, left, endless } in seen {
            let known = self.state.own_on_key(&external, key).next().map(|lock| (lock.id, lock.expires));
            match (known, left) {
                (Some((id, _)), None) => {
                    self.record(Event::Released { session: external.clone(), locks: vec![id], request: None });
                    freed.push(Target { key: key.clone(), span: Span::WHOLE });
                }
                (Some((id, expires)), Some(left)) => {
                    let seen = self.now().plus(*left);
                    let rough = seen.since(expires) > ROUGHLY || expires.since(seen) > ROUGHLY;
                    if rough || expires <= self.now() {
                        self.record(Event::Renewed { session: external.clone(), locks: vec![id], ttl: Some(*left) });
                    }
                }
                (None, Some(left)) => self.grant_external(key, *left, *endless),
                (None, None) => {}
            }
        }
        self.hand_over(freed);
    }

    fn grant_external(&mut self, key: &Key, left: Millis, endless: bool) {
        if self.state.lock_count() >= LOCKS_MAX {
            return;
        }
        // What was held of the file here is theirs now, as far as it is not over anyway.
        let held = self.state.held_on(key);
        let (over, lost): (Vec<_>, Vec<_>) = held.into_iter().partition(|lock| lock.expires <= self.now());
        let ids = |locks: &[Arc<Lock>]| locks.iter().map(|lock| lock.id).collect::<Vec<_>>();
        if !over.is_empty() {
            self.record(Event::Expired { locks: ids(&over) });
        }
        if !lost.is_empty() {
            let reason = Intention::parse("taken by a client outside of Lockkeeper").unwrap_or_default();
            self.record(Event::Forced { locks: ids(&lost), by: AgentName::external(), reason, request: None });
        }
        let who =
            if endless { "taken outside of Lockkeeper, without an expiry" } else { "taken outside of Lockkeeper" };
        let intention = Intention::parse(who).unwrap_or_default();
        let (made, salt) = self.state.numbering(self.now());
        let on = On::Target(Target { key: key.clone(), span: Span::WHOLE }, Mode::Exclusive);
        self.record(Event::Granted(Grant {
            session: SessionId::external(),
            agent: AgentName::external(),
            agent_type: None,
            waiter: None,
            new: vec![NewLock { id: LockId::of(made + 1, salt), on }],
            replaced: Vec::new(),
            refreshed: Vec::new(),
            intention,
            ttl: left,
            feature: None,
            request: None,
            quota_kept: 0,
        }));
    }
}

impl State {
    /// Who of those who ask here holds a file, wholly or in part. Trees that it lies in do not count.
    fn held_on(&self, file: &Key) -> Vec<Arc<Lock>> {
        let (mut held, external) = (Vec::new(), SessionId::external());
        self.all_overlapping(&Target { key: file.clone(), span: Span::WHOLE }, |lock| {
            if lock.target.key == *file && lock.session != external {
                held.push(lock.clone());
            }
            ControlFlow::Continue(())
        });
        held
    }

    /// Until when a file is held, wholly or in part, by whoever asks here.
    pub fn held_until(&self, file: &Key) -> Option<Time> {
        self.held_on(file).iter().map(|lock| lock.expires).max()
    }

    /// Whether somebody was seen to have taken this file without asking here.
    pub fn is_external(&self, file: &Key) -> bool {
        self.own_on_key(&SessionId::external(), file).next().is_some()
    }

    pub fn has_external(&self) -> bool {
        self.locks_of(&SessionId::external()).next().is_some()
    }

    /// The files that somebody has taken without asking here, as far as that was seen.
    pub fn external(&self) -> Vec<Key> {
        let external = SessionId::external();
        let locks = self.locks_of(&external).filter_map(|id| self.lock(id));
        locks.map(|lock| lock.target.key.clone()).collect()
    }
}
