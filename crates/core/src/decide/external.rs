//! Files that others take without asking here, seen from outside: whole-file locks of a session that nobody can be.

use std::ops::ControlFlow;

use super::Deciding;
use crate::command::External;
use crate::event::{Event, Grant, NewLock, On};
use crate::key::{Key, Target};
use crate::lock::{Lock, LockId};
use crate::mode::Mode;
use crate::outcome::Outcome;
use crate::session::{AgentName, Intention, SessionId};
use crate::span::Span;
use crate::state::State;
use crate::time::{Millis, Time};

/// How far an end that was seen may lie from the one that is written down.
const ROUGHLY: Millis = Millis(1000);

impl Deciding<'_> {
    /// Nobody is asked: they have it. Whoever waits, waits for them too.
    pub(super) fn see_external(&mut self, seen: &[External]) -> Outcome {
        let external = SessionId::external();
        for External { key, left } in seen {
            let known = self.state.own_on_key(&external, key).next().map(|lock| (lock.id, lock.expires));
            match (known, left) {
                (Some((id, _)), None) => {
                    self.record(Event::Released { session: external.clone(), locks: vec![id], request: None });
                    self.hand_over(vec![Target { key: key.clone(), span: Span::WHOLE }]);
                }
                (Some((id, expires)), Some(left)) => {
                    let seen = self.now().plus(*left);
                    if seen.since(expires) > ROUGHLY || expires.since(seen) > ROUGHLY {
                        self.record(Event::Renewed { session: external.clone(), locks: vec![id], ttl: Some(*left) });
                    }
                }
                (None, Some(left)) => self.grant_external(key, *left),
                (None, None) => {}
            }
        }
        Outcome::Nothing
    }

    fn grant_external(&mut self, key: &Key, left: Millis) {
        let target = Target { key: key.clone(), span: Span::WHOLE };
        let stop = |_: &_| ControlFlow::Break(());
        if self.state.held_against(&SessionId::external(), &target, Mode::Exclusive, stop).is_break() {
            // What is held here was taken first.
            return;
        }
        let (made, salt) = self.state.numbering(self.now());
        let on = On::Target(target, Mode::Exclusive);
        self.record(Event::Granted(Grant {
            session: SessionId::external(),
            agent: AgentName::external(),
            agent_type: None,
            waiter: None,
            new: vec![NewLock { id: LockId::of(made + 1, salt), on }],
            replaced: Vec::new(),
            refreshed: Vec::new(),
            intention: Intention::default(),
            ttl: left,
            feature: None,
            request: None,
            quota_kept: 0,
        }));
    }
}

impl State {
    /// Until when a file is held, wholly or in part, by whoever asks here; and whether all of these locks are `new`.
    pub fn shown(&self, file: &Key, new: impl Fn(&Lock) -> bool) -> (Option<Time>, bool) {
        let (mut latest, mut only_new, external) = (None, true, SessionId::external());
        self.all_overlapping(&Target { key: file.clone(), span: Span::WHOLE }, |lock| {
            if lock.target.key == *file && lock.session != external {
                latest = latest.max(Some(lock.expires));
                only_new &= new(lock);
            }
            ControlFlow::Continue(())
        });
        (latest, only_new)
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
