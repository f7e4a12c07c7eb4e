//! Somebody in the queue.

use serde::{Deserialize, Serialize};

use crate::event::{Enqueued, Withdrawal};
use crate::limits::{PRIORITY_MAX, PRIORITY_STEP, SESSION_ALIVE};
use crate::lock::WaiterId;
use crate::planted::{self, Bug};
use crate::state::State;
use crate::time::{Millis, Time};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    pub asked: Enqueued,
    pub queued: Time,
    /// When it or its session was last heard.
    pub seen: Time,
}

/// A place in the queue. Where a past was rewritten, its number may be another's by now, but not with the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub waiter: WaiterId,
    pub queued: Time,
}

/// The order of the queue: the smaller comes first.
///
/// Priority is a head start in time. Everybody ages at the same pace, so the order of two waiters never changes, and
/// nobody starves: whoever comes later than the head start is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(Time, u64);

impl Rank {
    pub fn new(queued: Time, priority: u8, id: WaiterId) -> Rank {
        let queued = if planted::is(Bug::LastComeFirst) { Time(u64::MAX / 2 - queued.0) } else { queued };
        let handicap = u64::from(PRIORITY_MAX.saturating_sub(priority)) * PRIORITY_STEP.0;
        Rank(queued.plus(Millis(handicap)), id.0)
    }

    /// The place of a newcomer that comes to stand right behind this one.
    pub(crate) fn just_behind(self, newcomer: WaiterId) -> Rank {
        Rank(self.0, newcomer.0)
    }
}

impl Waiter {
    pub fn id(&self) -> WaiterId {
        self.asked.waiter
    }

    pub fn place(&self) -> Place {
        Place { waiter: self.id(), queued: self.queued }
    }

    pub fn rank(&self) -> Rank {
        Rank::new(self.queued, self.asked.priority, self.asked.waiter)
    }

    pub fn deadline(&self) -> Time {
        self.queued.plus(self.asked.wait)
    }

    /// Why it stays no longer, if so: its wait is over, or its session was not heard for too long.
    pub(crate) fn leaves(&self, now: Time) -> Option<Withdrawal> {
        if now >= self.deadline() && !planted::is(Bug::OverdueGranted) {
            Some(Withdrawal::TimedOut)
        } else if now >= self.seen.plus(SESSION_ALIVE) && !planted::is(Bug::DeadGranted) {
            Some(Withdrawal::SessionGone)
        } else {
            None
        }
    }

    /// When somebody should look at it: its wait is over, or nobody was heard for too long.
    pub(crate) fn check_at(&self) -> Time {
        self.deadline().min(self.seen.plus(SESSION_ALIVE))
    }
}

impl State {
    /// Those who would leave because nobody was heard of them for too long.
    pub fn silent_waiters(&self, now: Time) -> Vec<WaiterId> {
        let mut silent = self.overdue_waiters(now);
        let is_silent = |waiter: &Waiter| waiter.leaves(now) == Some(Withdrawal::SessionGone);
        silent.retain(|id| self.waiter(*id).is_some_and(|waiter| is_silent(waiter)));
        silent
    }
}
