//! Acquiring: a set of keys, whole or not at all.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::deadlock::Patience;
use super::queue::LOOKS_A_WAITER;
use super::{Deciding, Refused};
use crate::command::{Acquire, Want};
use crate::event::{Enqueued, Event, Grant, NewLock, On};
use crate::key::{Cover, Key, KeyKind, Target};
use crate::limits::{
    AHEAD_COUNTED_MAX, AWAITED_MAX, AWAITED_PER_SESSION_MAX, CIRCLE_PLACES_MAX, CONFLICTS_SHOWN_MAX, FINALIZE_TTL,
    LOCKS_MAX, LOCKS_PER_SESSION_MAX, SET_MAX, STAMP_DELAY_MAX, WAITERS_MAX, WAITERS_PER_SESSION_MAX,
};
use crate::lock::{LockId, WaiterId};
use crate::mode::Mode;
use crate::outcome::{Blocker, Busy, BusyReason, Conflict, CycleStep, Limit, Outcome, Refusal};
use crate::planted::{self, Bug};
use crate::session::{Intention, SessionId};
use crate::span::Span;
use crate::state::State;
use crate::waiter::{Rank, Waiter};

/// From so many wants on, it pays to look at the whole queue first.
const MANY_WANTS: usize = 8;

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
            let _ = self.state.waiting_for(&want.target, want.mode, |waiter| {
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
        let request = acquire.request.as_ref()?;
        let same =
            |waiter: &&Arc<Waiter>| waiter.asked.request.as_ref().is_some_and(|waiting| waiting.id == request.id);
        self.state.waiters_of(&acquire.actor.session).find(same).map(|waiter| waiter.id())
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
            let _ = self.state.waiting_for(&want.target, want.mode, |waiter| {
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

    /// Whether anything stands in the way.
    pub(super) fn is_blocked(&self, session: &SessionId, wants: &[Want], rank: Rank) -> bool {
        let checked = if planted::is(Bug::SetCheckedInPart) { 1 } else { wants.len() };
        // Of hundreds of wants, each would look at all who wait for the same, and find that none of them comes before.
        let is_first = wants.len() >= MANY_WANTS && self.is_first(session, wants, rank);
        wants.iter().take(checked).any(|want| {
            let stop = |_: Blocker| ControlFlow::Break(());
            if is_first {
                self.taken(&mut Patience::endless(), session, want, stop).is_break()
            } else {
                self.blockers(session, want, rank, stop).is_break()
            }
        })
    }

    /// Whether nobody else in the whole queue can come before.
    fn is_first(&self, session: &SessionId, wants: &[Want], rank: Rank) -> bool {
        // Pauses and finishes have an order of their own.
        wants.iter().all(|want| want.target.key.paused_feature().is_none())
            && !self.waiters().any(|waiter| waiter.rank() < rank && waiter.asked.session != *session)
    }

    /// What stands in the way of one want: locks of others, rooms of others, and others who come earlier.
    pub(super) fn blockers(
        &self,
        session: &SessionId,
        want: &Want,
        rank: Rank,
        visit: impl FnMut(Blocker) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.blockers_within(&mut Patience::endless(), session, want, rank, visit)
    }

    /// The same, as far as patience reaches.
    pub(super) fn blockers_within(
        &self,
        patience: &mut Patience,
        session: &SessionId,
        want: &Want,
        rank: Rank,
        mut visit: impl FnMut(Blocker) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.taken(patience, session, want, &mut visit)?;
        self.waiting_before(patience, session, want, rank, |waiter| {
            let theirs = waiter.asked.wants.iter().find(|theirs| theirs.target.overlaps(&want.target));
            let target = theirs.map_or_else(|| want.target.clone(), |theirs| theirs.target.clone());
            visit(Blocker::Waiting { waiter: waiter.clone(), target })
        })
    }

    /// Locks and rooms of others that stand in the way of one want, as far as patience reaches.
    fn taken(
        &self,
        patience: &mut Patience,
        session: &SessionId,
        want: &Want,
        mut visit: impl FnMut(Blocker) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.held_against(session, &want.target, want.mode, |lock| {
            patience.look()?;
            visit(Blocker::Held(lock.clone()))
        })?;
        self.rooms_against(session, &want.target, |room| visit(Blocker::Room(room.clone())))
    }

    /// Those others who wait for something of this and come earlier, as far as patience reaches.
    fn waiting_before(
        &self,
        patience: &mut Patience,
        session: &SessionId,
        want: &Want,
        rank: Rank,
        mut visit: impl FnMut(&Arc<Waiter>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.waiter_count() == 0 || planted::is(Bug::QueueJumped) {
            return ControlFlow::Continue(());
        }
        let pauses = want.target.key.paused_feature().is_some();
        // Asked only when somebody waits for the same: it looks through the session's own locks.
        let mut covered = None;
        let stopped = self.waiting_for(&want.target, want.mode, |waiter| {
            patience.look()?;
            let theirs = waiter.asked.wants.iter().find(|theirs| theirs.target == want.target).filter(|_| pauses);
            let before = theirs.map_or(waiter.rank() < rank, |theirs| comes_before(theirs, waiter.rank(), want, rank));
            let passed_over = || self.is_passed_over(waiter) && !planted::is(Bug::PausedInTheWay);
            if waiter.asked.session == *session || !before || passed_over() {
                return ControlFlow::Continue(());
            }
            if *covered.get_or_insert_with(|| self.covered_by_own(session, &want.target, want.mode)) {
                return ControlFlow::Break(());
            }
            visit(waiter)
        });
        if covered == Some(true) { ControlFlow::Continue(()) } else { stopped }
    }

    /// Describes why something can't be had now, and what could be had instead.
    pub(super) fn busy(&self, session: &SessionId, wants: &[Want], rank: Rank, reason: BusyReason) -> Busy {
        let free = match wants {
            [want] => self.free_lines(session, want, rank),
            _ => Vec::new(),
        };
        Busy { free, ..self.in_the_way(session, wants, rank, reason) }
    }

    fn in_the_way(&self, session: &SessionId, wants: &[Want], rank: Rank, reason: BusyReason) -> Busy {
        let mut conflicts: Vec<Conflict> = Vec::new();
        let mut more = false;
        let mut ahead: HashSet<WaiterId> = HashSet::new();
        let (mut counting, mut showing) = (Patience::for_conflicts(), Patience::for_conflicts());
        for want in wants {
            if ahead.len() < AHEAD_COUNTED_MAX {
                let _ = self.waiting_before(&mut counting, session, want, rank, |waiter| {
                    ahead.insert(waiter.id());
                    if ahead.len() < AHEAD_COUNTED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
            }
            if more {
                continue;
            }
            // That something is in the way is certain; what else is, is told as far as it is found soon.
            let mut endless = Patience::endless();
            let patience = if conflicts.is_empty() { &mut endless } else { &mut showing };
            let _ = self.blockers_within(patience, session, want, rank, |with| {
                if conflicts.len() < CONFLICTS_SHOWN_MAX {
                    conflicts.push(Conflict { wanted: want.target.clone(), with });
                    ControlFlow::Continue(())
                } else {
                    more = true;
                    ControlFlow::Break(())
                }
            });
            more |= showing.is_over();
        }
        let only_rooms = !conflicts.is_empty() && conflicts.iter().all(|c| matches!(c.with, Blocker::Room(_)));
        let reason = if only_rooms && reason == BusyReason::Contended { BusyReason::RoomBusy } else { reason };
        Busy { reason, conflicts, more, free: Vec::new(), ahead: ahead.len() }
    }

    /// What stands in the way of these wants at this moment, for somebody who would come last.
    pub fn conflicts(&self, session: &SessionId, wants: &[Want]) -> Busy {
        let last = Rank::new(self.stamp().time, 0, WaiterId(u64::MAX));
        self.in_the_way(session, wants, last, BusyReason::Contended)
    }

    /// What a waiter whose wait is over is told.
    pub fn timed_out(&self, session: &SessionId, wants: &[Want], priority: u8, queued: crate::time::Time) -> Busy {
        let rank = Rank::new(queued, priority, WaiterId(u64::MAX));
        self.busy(session, wants, rank, BusyReason::TimedOut)
    }

    /// As many lines of the same file as were wanted, after and before, that would be granted now.
    fn free_lines(&self, session: &SessionId, want: &Want, rank: Rank) -> Vec<Span> {
        let span = want.target.span;
        let in_file = want.target.key.kind() == KeyKind::Path && want.target.key.cover() == Cover::One;
        let Some(last) = span.last().filter(|_| in_file) else { return Vec::new() };
        let length = last - span.start();
        let mut patience = Patience::for_free_lines();
        let mut taken = |candidate: Span| {
            let mut reach: Option<Span> = None;
            let target = Target { key: want.target.key.clone(), span: candidate };
            let of = |theirs: &Target| if theirs.key == want.target.key { theirs.span } else { Span::WHOLE };
            let wanted = Want { target, mode: want.mode };
            let _ = self.blockers_within(&mut patience, session, &wanted, rank, |blocker| {
                let theirs = match &blocker {
                    Blocker::Held(lock) => of(&lock.target),
                    Blocker::Waiting { target, .. } => of(target),
                    Blocker::Room(_) => Span::WHOLE,
                };
                let (start, end) = reach.map_or((u32::MAX, 0), |reach| (reach.start(), reach.end()));
                reach = Some(Span::between(theirs.start().min(start), theirs.end().max(end)));
                if theirs.is_whole() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            reach
        };
        let mut free = Vec::new();
        let mut after = Some(span);
        let mut before = Some(span);
        for _ in 0..CONFLICTS_SHOWN_MAX {
            after = match after.and_then(|candidate| taken(candidate).map(|reach| (candidate, reach))) {
                None => break,
                Some((_, reach)) => reach.last().and_then(|end| {
                    let start = end.checked_add(1)?;
                    let end = start.checked_add(length).filter(|end| *end < u32::MAX)?;
                    Some(Span::between(start, end))
                }),
            };
        }
        for _ in 0..CONFLICTS_SHOWN_MAX {
            before = match before.and_then(|candidate| taken(candidate).map(|reach| (candidate, reach))) {
                None => break,
                Some((_, reach)) => {
                    let end = reach.start() - 1;
                    end.checked_sub(length).filter(|start| *start >= 1).map(|start| Span::between(start, end))
                }
            };
        }
        for candidate in [after, before].into_iter().flatten() {
            if candidate != span && taken(candidate).is_none() {
                free.push(candidate);
            }
        }
        // What was not looked at to its end may be taken.
        if patience.is_over() { Vec::new() } else { free }
    }
}
