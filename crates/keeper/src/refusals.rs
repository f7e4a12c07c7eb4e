//! How often each session was told `busy` lately. Kept in memory: a refusal writes nothing.

use std::collections::{HashMap, VecDeque};

use lockkeeper_core::session::SessionId;
use lockkeeper_core::time::{Millis, Time};

/// Sessions that are remembered at most; beyond that, those without a recent refusal are dropped.
const SESSIONS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Refusals(HashMap<SessionId, VecDeque<Time>>);

impl Refusals {
    pub(crate) fn lately(&mut self, session: &SessionId, now: Time, window: Millis) -> &[Time] {
        if let Some(times) = self.0.get_mut(session) {
            while times.front().is_some_and(|at| *at <= now.minus(window)) {
                times.pop_front();
            }
            if times.is_empty() {
                self.0.remove(session);
            }
        }
        self.0.get_mut(session).map_or(&[], |times| times.make_contiguous())
    }

    /// Notes a refusal; `most` is as many as the quota can ask about.
    pub(crate) fn note(&mut self, session: &SessionId, now: Time, window: Millis, most: u32) {
        if self.0.len() >= SESSIONS_MAX && !self.0.contains_key(session) {
            self.0.retain(|_, times| times.back().is_some_and(|at| *at > now.minus(window)));
            if self.0.len() >= SESSIONS_MAX {
                return;
            }
        }
        let times = self.0.entry(session.clone()).or_default();
        times.push_back(now);
        while times.len() > most as usize {
            times.pop_front();
        }
    }

    pub(crate) fn forget(&mut self, session: &SessionId) {
        self.0.remove(session);
    }
}
