//! What a list shows, against what was told before and what the rules promise.

use std::sync::Arc;

use lockkeeper_core::command::Want;
use lockkeeper_core::key::Target;
use lockkeeper_core::lock::{FeatureId, Lock};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::session::SessionId;
use lockkeeper_core::time::Time;

use super::{Auditor, Seen, pauses};
use crate::air::BEGIN;

/// Somebody in the queue, as a list shows it.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub session: SessionId,
    pub wants: Vec<Want>,
    pub priority: u8,
    pub feature: Option<FeatureId>,
    /// When it came to stand there.
    pub queued: Time,
}

impl Waiting {
    /// The lock by which somebody else pauses the feature that it waits for.
    fn paused_by<'a>(&self, look: &'a Look) -> Option<&'a Arc<Lock>> {
        let theirs = |lock: &&Arc<Lock>| lock.session != self.session && pauses(lock, self.feature.as_ref());
        look.locks.iter().find(theirs)
    }

    /// Whether it stands before a want of somebody else in the queue: it came earlier, or pauses what the other wants to finish.
    fn stands_before(&self, came_earlier: bool, want: &Want) -> bool {
        self.wants.iter().any(|theirs| {
            let meets = theirs.mode.conflicts(want.mode) && theirs.target.overlaps(&want.target);
            let first = match (theirs.mode, want.mode) {
                _ if want.target.key.paused_feature().is_none() => came_earlier,
                (Mode::Exclusive, Mode::Exclusive) => came_earlier,
                (Mode::Exclusive, Mode::Shared) => true,
                (Mode::Shared, _) => false,
            };
            meets && first
        })
    }
}

/// What somebody who lists everything is told.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub locks: Vec<Arc<Lock>>,
    /// In the order of the queue.
    pub waiting: Vec<Waiting>,
    pub rooms: Vec<(SessionId, Target)>,
}

impl Auditor {
    /// Somebody listed everything.
    pub(crate) fn looked(&mut self, sent: u64, now: u64, look: &Look) {
        self.check_conflicts(look);
        self.check_cycle(look);
        self.check_progress(look);
        for lock in &look.locks {
            self.check_explained(sent, now, lock);
        }
        self.check_missing(sent, now, look);
        for waiting in &look.waiting {
            self.seen_waiting.push(Seen { waiting: waiting.clone(), at: now });
        }
    }

    /// Nobody has what another has, and a finish has not grown longer.
    fn check_conflicts(&mut self, look: &Look) {
        if let Some(finish) =
            look.locks.iter().find(|lock| lock.is_finish() && lock.expires > lock.acquired.plus(lock.ttl))
        {
            self.breaks("pause", || format!("a finish lives on: {finish:?}"));
        }
        for (place, one) in look.locks.iter().enumerate() {
            let conflict = look.locks[..place].iter().find(|other| {
                one.session != other.session && one.mode.conflicts(other.mode) && one.target.overlaps(&other.target)
            });
            if let Some(other) = conflict {
                self.breaks("P1", || format!("listed together: {one:?} and {other:?}"));
            }
        }
    }

    /// Nobody waits whose turn it is.
    fn check_progress(&mut self, look: &Look) {
        for (place, waiting) in look.waiting.iter().enumerate() {
            let is_other = |session: &SessionId| *session != waiting.session;
            let blocked = waiting.wants.iter().any(|want| {
                let meets = |mode: Mode, target: &Target| mode.conflicts(want.mode) && target.overlaps(&want.target);
                let held = |lock: &Arc<Lock>| is_other(&lock.session) && meets(lock.mode, &lock.target);
                let before = |(at, other): (usize, &Waiting)| {
                    is_other(&other.session) && other.paused_by(look).is_none() && other.stands_before(at < place, want)
                };
                let busy = |(session, room): &(SessionId, Target)| is_other(session) && meets(Mode::Exclusive, room);
                look.locks.iter().any(held)
                    || look.waiting.iter().enumerate().any(before)
                    || look.rooms.iter().any(busy)
            });
            if !blocked && waiting.paused_by(look).is_none() {
                self.breaks("progress", || format!("{waiting:?} waits for nothing: {look:?}"));
            }
        }
    }

    /// Nobody waits in a circle: for what is held, for who stands before in the queue, for who pauses. A finish ends by itself.
    fn check_cycle(&mut self, look: &Look) {
        let meets = |want: &Want, lock: &Lock| {
            lock.mode.conflicts(want.mode) && lock.target.overlaps(&want.target) && !lock.is_finish()
        };
        let covers = |lock: &Lock, want: &Want| {
            let all = lock.target.span.intersection(want.target.span) == Some(want.target.span);
            all && lock.target.key.reaches(&want.target.key)
                && (lock.mode == Mode::Exclusive || want.mode == Mode::Shared)
        };
        let blocked_by = |session: &SessionId| -> Vec<SessionId> {
            let mut found = Vec::new();
            let own: Vec<&Arc<Lock>> = look.locks.iter().filter(|lock| lock.session == *session).collect();
            for (place, waiting) in look.waiting.iter().enumerate().filter(|(_, it)| it.session == *session) {
                found.extend(waiting.paused_by(look).map(|lock| &lock.session));
                let has = |want: &Want| {
                    own.iter().any(|lock| {
                        lock.target == want.target && (lock.mode == Mode::Exclusive || want.mode == lock.mode)
                    })
                };
                for want in waiting.wants.iter().filter(|want| !has(want)) {
                    found.extend(look.locks.iter().filter(|lock| meets(want, lock)).map(|lock| &lock.session));
                    if !own.iter().any(|lock| covers(lock, want)) {
                        let ahead = |(at, it): &(usize, &Waiting)| {
                            it.paused_by(look).is_none() && it.stands_before(*at < place, want)
                        };
                        let ahead = look.waiting.iter().enumerate().filter(ahead);
                        found.extend(ahead.map(|(_, it)| &it.session));
                    }
                }
            }
            found.into_iter().filter(|other| *other != session).cloned().collect()
        };
        for waiting in &look.waiting {
            let (mut next, mut reached) = (blocked_by(&waiting.session), Vec::new());
            while let Some(session) = next.pop() {
                if session == waiting.session {
                    self.breaks("deadlock", || format!("{session} waits for itself: {look:?}"));
                    return;
                }
                if !reached.contains(&session) {
                    next.extend(blocked_by(&session));
                    reached.push(session);
                }
            }
        }
    }

    /// Every lock that is listed was asked for, and not given back before.
    fn check_explained(&mut self, sent: u64, now: u64, lock: &Arc<Lock>) {
        if let Some(known) = self.known.get(&lock.token) {
            let gone = known.end_told.filter(|told| *told < sent);
            let came_back =
                self.power_lost.iter().any(|lost| gone.is_some_and(|gone| lost.abs_diff(gone) <= self.unsynced));
            if let Some(gone) = gone.filter(|_| self.keeps_everything() && !came_back) {
                self.breaks("P6", || format!("{lock:?} was released at {gone} and listed at {sent}"));
            }
            return;
        }
        let asked = self.asks.iter().any(|ask| {
            ask.session == lock.session
                && ask.sent <= now
                && ask.refused.is_none_or(|refused| refused >= sent)
                && ask.wants.iter().any(|want| want.target == lock.target)
        });
        // A waiter that was told to have gone may come back with an older past.
        if !asked && self.keeps_everything() {
            self.breaks("P9", || format!("nobody asked for {lock:?}, or was told that it is not theirs"));
        }
    }

    /// What was told as held and cannot have ended is listed.
    fn check_missing(&mut self, sent: u64, now: u64, look: &Look) {
        if !self.keeps_everything() {
            return;
        }
        let missing = self.known.values().find(|known| {
            known.told < sent
                && known.end_asked.is_none()
                && BEGIN + now < known.lock.expires.0
                && !look.locks.iter().any(|lock| lock.token == known.lock.token)
        });
        if let Some(missing) = missing {
            let how = format!("{:?} was told as held, and not listed at {now}", missing.lock);
            self.breaks("P6", || how);
        }
    }
}
