//! Heartbeats, gathered: at most ten records of them a second, however many sessions beat.

use std::time::Duration;

use lockkeeper_core::lock::WaiterId;
use lockkeeper_core::session::SessionId;
use tokio::time::Instant;

use crate::desk::Ticket;

const INTERVAL: Duration = Duration::from_millis(100);
/// How often the waiters behind open connections are said to be alive.
const WAITERS_INTERVAL: Duration = Duration::from_secs(10);
/// How soon, if it could not be written down: other servers take them for dead after a while.
const WAITERS_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Beats {
    gathered: Vec<(SessionId, Ticket)>,
    not_before: Instant,
    waiters_at: Instant,
}

/// What is due to be recorded.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) beaten: Vec<(SessionId, Ticket)>,
    /// The waiters too.
    pub(crate) waiters: bool,
}

impl Beats {
    pub(crate) fn new(now: Instant) -> Beats {
        Beats { gathered: Vec::new(), not_before: now, waiters_at: now + WAITERS_INTERVAL }
    }

    pub(crate) fn gather(&mut self, session: SessionId, ticket: Ticket) {
        self.gathered.push((session, ticket));
    }

    /// When to look again, if anything is to be done.
    pub(crate) fn next(&self, anybody_waits: bool) -> Option<Instant> {
        let beats = (!self.gathered.is_empty()).then_some(self.not_before);
        let waiters = anybody_waits.then_some(self.waiters_at);
        beats.into_iter().chain(waiters).min()
    }

    /// What was due could not be recorded.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.waiters_at = self.waiters_at.min(now + WAITERS_AGAIN);
    }

    pub(crate) fn due(&mut self, now: Instant, waiting: &[WaiterId]) -> Option<Due> {
        let waiters = now >= self.waiters_at;
        if waiters {
            self.waiters_at = now + WAITERS_INTERVAL;
        }
        let beats = !self.gathered.is_empty() && now >= self.not_before;
        if !beats && (!waiters || waiting.is_empty()) {
            return None;
        }
        if beats {
            self.not_before = now + INTERVAL;
        }
        let beaten = if beats { std::mem::take(&mut self.gathered) } else { Vec::new() };
        Some(Due { beaten, waiters })
    }
}
