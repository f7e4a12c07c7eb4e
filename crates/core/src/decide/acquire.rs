//! Acquiring: a set of keys, whole or not at all.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use super::deadlock::Patience;
use super::{Deciding, Refused};
use crate::command::{Acquire, Want};
use crate::event::{Enqueued, Event, Grant, NewLock, On};
use crate::key::{Key, Target};
use crate::limits::{
    AWAITED_MAX, AWAITED_PER_SESSION_MAX, CIRCLE_PLACES_MAX, FINALIZE_TTL, LOCKS_MAX, LOCKS_PER_SESSION_MAX,
    LOOKS_A_WAITER, SET_MAX, STAMP_DELAY_MAX, WAITERS_MAX, WAITERS_PER_SESSION_MAX,
};
use crate::lock::{LockId, WaiterId};
use crate::mode::Mode;
use crate::outcome::{BusyReason, CycleStep, Limit, Outcome, Refusal};
use crate::planted::{self, Bug};
use crate::session::{Intention, SessionId};
use crate::state::State;
use crate::waiter::Rank;

/// What an acquisition comes down to for a session that may hold some of it already.
pub(super) struct Parts {
    pub(super) new: Vec<Want>,
    pub(super) replaced: Vec<LockId>,
    pub(super) refreshed: Vec<LockId>,
}

impl Deciding<'_> {
    pub(super) fn acquire(&mut self, acquire: &Acquire) -> Result<Outcome, Refused> {
        let session = &acquire.actor.session;
        if acquire.wants.len() > SET_MAX {
            return Err(exceeded(Limit::Set));
        }
        self.own_session(&acquire.actor)?;
        if let Some(replayed) = self.answered_before(session, acquire.request.as_ref())? {
            return Ok(replayed);
        }
        if let Some(waiter) = self.same_request_in_queue(acquire) {
            return Ok(Outcome::Queued(waiter));
        }
        self.room_for_session(session)?;
        let parts = self.state.parts(session, &acquire.wants);
        if parts.new.is_empty() {
            return Ok(self.grant_and_hand_over(acquire, parts));
        }
        self.not_paused(acquire)?;
        let finish = |want: &Want| want.mode == Mode::Shared && want.target.key.paused_feature().is_some();
        if acquire.ttl > FINALIZE_TTL && parts.new.iter().any(finish) {
            return Err(exceeded(Limit::FinishSeconds));
        }
        let held = self.state.entry(session).map_or(0, |entry| entry.locks.len());
        if held + parts.new.len() > LOCKS_PER_SESSION_MAX {
            return Err(exceeded(Limit::LocksPerSession));
        }
        if self.state.lock_count() + parts.new.len() > LOCKS_MAX {
            return Err(exceeded(Limit::Locks));
        }
        if !acquire.restores {
            self.within_quota(session)?;
        }
        let next = WaiterId(self.state.counters.waiters_made + 1);
        // Whoever waits already overtakes nobody: what it would take may be what it waits for.
        let waits = self.state.entry(session).is_some_and(|entry| !entry.waiters.is_empty());
        let priority = match waits {
            true if planted::is(Bug::SecondWaitDemoted) => 0,
            true => self.priority_behind(acquire, &parts.new, next),
            false => acquire.priority,
        };
        let rank = Rank::new(self.now(), priority, next);
        let refused = planted::is(Bug::RefusesFree) && self.state.counters.locks_made % 9 == 8;
        if !refused && !self.state.is_blocked(session, &parts.new, rank) {
            return Ok(self.grant_and_hand_over(acquire, parts));
        }
        if acquire.wait.0 == 0 {
            return Err(Box::new(Refusal::Busy(self.state.busy(session, &parts.new, rank, BusyReason::Contended))));
        }
        self.enqueue(acquire, next, priority)
    }

    /// The highest priority up to the one asked for with which nobody is overtaken who waits for any of this now.
    fn priority_behind(&self, acquire: &Acquire, wants: &[Want], next: WaiterId) -> u8 {
        // Its place is that of the stamp, which may be later, and then it overtakes even fewer.
        let place = |priority: u8| Some(Rank::new(self.now(), priority, next));
        let (mut last, mut looks) = (None, 0);
        let looks_max = LOOKS_A_WAITER * self.state.waiter_count();
        for want in wants.iter().filter(|_| acquire.priority > 0) {
            let _ = self.state.waiting_for(&want.target, want.mode, |waiter, _| {
                last = last.max(Some(waiter.rank()));
                looks += 1;
                if looks > looks_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        if looks > looks_max {
            // Each is looked at once, whatever it waits for: whoever overtakes nobody at all is behind these, too.
            last = self.state.waiters().map(|waiter| waiter.rank()).max();
        }
        let overtakes = |priority: u8| place(priority) < last;
        (1..=acquire.priority).rev().find(|priority| !overtakes(*priority)).unwrap_or(0)
    }

    /// The same request again, from a client that came back to its place in the queue.
    fn same_request_in_queue(&self, acquire: &Acquire) -> Option<WaiterId> {
        self.state.waiting_request(&acquire.actor.session, &acquire.request.as_ref()?.id)
    }

    /// Builds the event; whether it may be was decided above. If it pauses a feature, those who wait for that make room: what
    /// others may have now.
    fn grant(&mut self, acquire: &Acquire, asked: Option<&Enqueued>, parts: Parts) -> (Outcome, Vec<Target>) {
        let (made, salt) = self.state.numbering(self.now());
        let on = |want: Want| match asked.and_then(|asked| asked.wants.iter().position(|theirs| *theirs == want)) {
            Some(place) => On::Wanted(place as u32),
            None => On::Target(want.target, want.mode),
        };
        let pauses = |want: &&Want| want.mode == Mode::Exclusive && want.target.key.paused_feature().is_some();
        let pauses: Vec<Key> = parts.new.iter().filter(pauses).map(|want| want.target.key.clone()).collect();
        let numbered = (made + 1..).zip(parts.new);
        let mut new: Vec<NewLock> =
            numbered.map(|(count, want)| NewLock { id: LockId::of(count, salt), on: on(want) }).collect();
        if planted::is(Bug::HalfASet) && new.len() > 1 {
            new.pop();
        }
        let fresh = new.len();
        let locks = new.iter().map(|new| new.id).chain(parts.refreshed.iter().copied()).collect();
        let grant = Grant {
            session: acquire.actor.session.clone(),
            agent: acquire.actor.agent.clone(),
            agent_type: acquire.actor.agent_type.clone(),
            waiter: None,
            new,
            replaced: parts.replaced,
            refreshed: parts.refreshed,
            intention: acquire.intention.clone(),
            ttl: acquire.ttl,
            feature: acquire.feature.clone(),
            request: acquire.request.clone(),
            quota_kept: self.counted(acquire),
        };
        self.record(Event::Granted(match asked {
            None => grant,
            // A release may serve thousands of them at once, in one record.
            Some(asked) => Grant {
                waiter: Some(asked.waiter),
                agent_type: None,
                intention: Intention::default(),
                feature: None,
                request: None,
                ..grant
            },
        }));
        let freed = pauses.iter().flat_map(|key| self.state.freed_by_pause(key)).collect();
        (Outcome::Granted { locks, fresh }, freed)
    }

    /// Grants, and hands on what that frees.
    fn grant_and_hand_over(&mut self, acquire: &Acquire, parts: Parts) -> Outcome {
        let (outcome, freed) = self.grant(acquire, None, parts);
        self.hand_over(freed);
        outcome
    }

    /// Grants to somebody in the queue whose turn it is; what others may have now.
    pub(super) fn grant_waiter(&mut self, asked: &Enqueued) -> Vec<Target> {
        let acquire = Acquire {
            actor: crate::command::Actor {
                session: asked.session.clone(),
                agent: asked.agent.clone(),
                agent_type: asked.agent_type.clone(),
                bound: false,
            },
            wants: asked.wants.clone(),
            intention: asked.intention.clone(),
            ttl: asked.ttl,
            wait: asked.wait,
            priority: asked.priority,
            feature: asked.feature.clone(),
            request: asked.request.clone(),
            restores: asked.quota_kept == 0,
        };
        let parts = self.state.parts(&asked.session, &asked.wants);
        self.grant(&acquire, Some(asked), parts).1
    }

    fn enqueue(&mut self, acquire: &Acquire, waiter: WaiterId, priority: u8) -> Result<Outcome, Refused> {
        if self.state.waiter_count() >= WAITERS_MAX {
            return Err(exceeded(Limit::Waiters));
        }
        if self.state.awaited_count() + acquire.wants.len() > AWAITED_MAX {
            return Err(exceeded(Limit::Awaited));
        }
        let session = &acquire.actor.session;
        if self.state.entry(session).is_some_and(|entry| entry.waiters.len() >= WAITERS_PER_SESSION_MAX) {
            return Err(exceeded(Limit::WaitersPerSession));
        }
        let awaited: usize = self.state.waiters_of(session).map(|waiter| waiter.asked.wants.len()).sum();
        if awaited + acquire.wants.len() > AWAITED_PER_SESSION_MAX {
            return Err(exceeded(Limit::AwaitedPerSession));
        }
        let cycle = self.cycle_at_any_place(acquire, waiter, priority);
        if let Some(cycle) = cycle.filter(|_| !planted::is(Bug::CycleOverlooked)) {
            return Err(Box::new(Refusal::Deadlock { cycle }));
        }
        self.record(Event::Queued(Enqueued {
            waiter,
            session: session.clone(),
            agent: acquire.actor.agent.clone(),
            agent_type: acquire.actor.agent_type.clone(),
            wants: each_once(&acquire.wants),
            intention: acquire.intention.clone(),
            ttl: acquire.ttl,
            wait: acquire.wait,
            priority,
            feature: acquire.feature.clone(),
            request: acquire.request.clone(),
            quota_kept: self.counted(acquire),
        }));
        Ok(Outcome::Queued(waiter))
    }

    /// The circle that it would close in the queue. Its place is that of the stamp, which may be later than now: it may come to
    /// stand behind any of those it would overtake now, and before the others.
    fn cycle_at_any_place(&self, acquire: &Acquire, id: WaiterId, priority: u8) -> Option<Vec<CycleStep>> {
        let first = Rank::new(self.now(), priority, id);
        let last = Rank::new(self.now().plus(STAMP_DELAY_MAX), priority, id);
        let (mut places, mut patience) = (BTreeSet::new(), Patience::for_circles());
        for want in &acquire.wants {
            let _ = self.state.waiting_for(&want.target, want.mode, |waiter, _| {
                patience.look()?;
                let rank = waiter.rank();
                if first < rank && rank < last {
                    places.insert(rank.just_behind(id));
                }
                if places.len() < CIRCLE_PLACES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        }
        let state = &self.state;
        let is_waited_for = state.is_waited_for(&acquire.actor.session);
        let cycle = state.cycle(acquire, first, is_waited_for, &mut Patience::for_circles());
        cycle.or_else(|| {
            let share = Patience::for_circles().share(places.len());
            places.iter().find_map(|place| state.cycle(acquire, *place, is_waited_for, &mut share.clone()))
        })
    }
}

/// Whether what somebody else wants from their place in the queue has to be served before this. Pauses come before finishes,
/// whoever was first: a pause has to come through.
pub(super) fn comes_before(theirs: &Want, their_rank: Rank, want: &Want, rank: Rank) -> bool {
    let pauses = want.target.key.paused_feature().is_some() && theirs.target == want.target;
    match (theirs.mode, want.mode) {
        (Mode::Exclusive, Mode::Shared) if pauses => true,
        (Mode::Shared, Mode::Exclusive) if pauses => false,
        (Mode::Exclusive | Mode::Shared, _) => their_rank < rank,
    }
}

/// Named twice in one set, a target is wanted once, in the stronger mode. The order stays.
fn each_once(wants: &[Want]) -> Vec<Want> {
    let mut once: Vec<Want> = Vec::with_capacity(wants.len());
    let mut places: HashMap<&Target, usize> = HashMap::new();
    for want in wants {
        let place = *places.entry(&want.target).or_insert(once.len());
        match once.get_mut(place) {
            Some(same) => same.mode = same.mode.min(want.mode),
            None => once.push(want.clone()),
        }
    }
    once
}

pub(super) fn exceeded(what: Limit) -> Refused {
    Box::new(Refusal::LimitExceeded { what })
}

impl State {
    /// Sorts what is wanted into what is new, what takes the place of an own lock, and what is held already.
    pub(super) fn parts(&self, session: &SessionId, wants: &[Want]) -> Parts {
        let mut parts = Parts { new: Vec::with_capacity(wants.len()), replaced: Vec::new(), refreshed: Vec::new() };
        let once = if wants.len() == 1 { Cow::Borrowed(wants) } else { Cow::Owned(each_once(wants)) };
        for want in once.iter() {
            match self.own_on(session, &want.target) {
                None => parts.new.push(want.clone()),
                Some(own) if own.mode.is_as_good_as(want.mode) => parts.refreshed.push(own.id),
                Some(own) if planted::is(Bug::UpgradeUnchecked) => parts.replaced.push(own.id),
                Some(own) => {
                    parts.replaced.push(own.id);
                    parts.new.push(want.clone());
                }
            }
        }
        parts
    }
}
