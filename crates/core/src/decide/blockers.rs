//! Who is in whose way: what keeps an acquisition from being granted now, and how that is told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::acquire::comes_before;
use super::deadlock::Patience;
use crate::command::Want;
use crate::index::{ConflictIndex, covering};
use crate::key::{Cover, Key, KeyKind, Target};
use crate::limits::{AHEAD_COUNTED_MAX, CONFLICTS_SHOWN_MAX, SET_LOOKS_MAX};
use crate::lock::WaiterId;
use crate::mode::Mode;
use crate::outcome::{Blocker, Busy, BusyReason, Conflict};
use crate::planted::{self, Bug};
use crate::session::SessionId;
use crate::span::Span;
use crate::state::State;
use crate::waiter::{Rank, Waiter};

impl State {
    /// Whether anything stands in the way.
    pub(super) fn is_blocked(&self, session: &SessionId, wants: &[Want], rank: Rank) -> bool {
        let wants = if planted::is(Bug::SetCheckedInPart) { &wants[..wants.len().min(1)] } else { wants };
        let stop = |_: Blocker| ControlFlow::Break(());
        match wants {
            [want] => self.blockers_within(&mut Patience::endless(), session, want, rank, stop).is_break(),
            wants => self.first_in_the_way(session, wants, rank).is_some(),
        }
    }

    /// Whatever is found first that stands in the way of any of many wants. What several of them overlap is looked at once: hundreds
    /// of them may overlap hundreds of thousands that others wait for.
    fn first_in_the_way(&self, session: &SessionId, wants: &[Want], rank: Rank) -> Option<Blocker> {
        let mut found = None;
        let mut stop = |blocker: Blocker| {
            found = Some(blocker);
            ControlFlow::Break(())
        };
        let taken = |want: &Want| self.taken(&mut Patience::endless(), session, want, &mut stop).is_break();
        if joined(wants).iter().any(taken) {
            return found;
        }
        if self.waiter_count() == 0 || planted::is(Bug::QueueJumped) {
            return None;
        }
        // Pauses and finishes have an order of their own.
        let (pauses, others): (Vec<&Want>, Vec<&Want>) =
            wants.iter().partition(|want| want.target.key.paused_feature().is_some());
        let waiting = |want: &&Want| {
            self.blockers_within(&mut Patience::endless(), session, want, rank, |blocker| {
                found = Some(blocker);
                ControlFlow::Break(())
            })
        };
        if pauses.iter().map(waiting).any(|waiting| waiting.is_break()) {
            return found;
        }
        self.first_earlier(session, &others, rank, SET_LOOKS_MAX)
    }

    /// Somebody else who waits for something of this and comes earlier. Looked for among those who wait for it, as long as these are
    /// few, and else among those who come earlier: each of them is looked at once, whatever it wants.
    fn first_earlier(&self, session: &SessionId, wants: &[&Want], rank: Rank, few: usize) -> Option<Blocker> {
        let mut covered: HashMap<usize, bool> = HashMap::new();
        let mut is_covered = |place: usize| {
            let is_own = || self.covered_by_own(session, &wants[place].target, wants[place].mode);
            *covered.entry(place).or_insert_with(is_own)
        };
        let mut passed_over: HashMap<WaiterId, bool> = HashMap::new();
        let mut is_earlier = |waiter: &Waiter| {
            let mut is_passed_over = || {
                let known = passed_over.entry(waiter.id()).or_insert_with(|| self.is_passed_over(waiter));
                *known && !planted::is(Bug::PausedInTheWay)
            };
            waiter.asked.session != *session && waiter.rank() < rank && !is_passed_over()
        };
        let (mut found, mut looks) = (None, 0);
        for (place, want) in wants.iter().enumerate() {
            let stopped = self.waiting_for(&want.target, want.mode, |waiter, _| {
                looks += 1;
                if is_earlier(waiter) && !is_covered(place) {
                    found = Some(waiting_at(waiter, &want.target));
                }
                let goes_on = found.is_none() && looks < few;
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if stopped.is_break() {
                break;
            }
        }
        if found.is_some() || looks < few {
            return found;
        }
        let mut own = ConflictIndex::default();
        wants.iter().zip(0..).for_each(|(want, place)| own.insert(&want.target, want.mode, place));
        self.waiters().filter(|waiter| is_earlier(waiter)).find_map(|waiter| {
            let is_in_the_way = |theirs: &&Want| {
                let open = |_, place| {
                    if is_covered(place as usize) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                own.conflicting(&theirs.target, theirs.mode, open).is_break()
            };
            let theirs = waiter.asked.wants.iter().find(is_in_the_way)?;
            Some(Blocker::Waiting { waiter: waiter.clone(), target: theirs.target.clone() })
        })
    }

    /// What stands in the way of one want, as far as patience reaches: locks of others, rooms of others, and others who come earlier.
    fn blockers_within(
        &self,
        patience: &mut Patience,
        session: &SessionId,
        want: &Want,
        rank: Rank,
        mut visit: impl FnMut(Blocker) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.taken(patience, session, want, &mut visit)?;
        let waiting = |waiter: &Arc<Waiter>, _| visit(waiting_at(waiter, &want.target));
        self.waiting_before(patience, session, want, rank, waiting)
    }

    /// Locks and rooms of others that stand in the way of one want, as far as patience reaches.
    pub(super) fn taken(
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

    /// Those others who wait for something of this and come earlier, with the lines that they want, as far as patience reaches.
    pub(super) fn waiting_before(
        &self,
        patience: &mut Patience,
        session: &SessionId,
        want: &Want,
        rank: Rank,
        mut visit: impl FnMut(&Arc<Waiter>, Span) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.waiter_count() == 0 || planted::is(Bug::QueueJumped) {
            return ControlFlow::Continue(());
        }
        let pauses = want.target.key.paused_feature().is_some();
        // Asked only when somebody waits for the same: it looks through the session's own locks.
        let mut covered = None;
        let stopped = self.waiting_for(&want.target, want.mode, |waiter, span| {
            patience.look()?;
            let before = if pauses {
                let theirs = waiter.asked.wants.iter().find(|theirs| theirs.target == want.target);
                theirs.map_or(waiter.rank() < rank, |theirs| comes_before(theirs, waiter.rank(), want, rank))
            } else {
                waiter.rank() < rank
            };
            let passed_over = || self.is_passed_over(waiter) && !planted::is(Bug::PausedInTheWay);
            if waiter.asked.session == *session || !before || passed_over() {
                return ControlFlow::Continue(());
            }
            if *covered.get_or_insert_with(|| self.covered_by_own(session, &want.target, want.mode)) {
                return ControlFlow::Break(());
            }
            visit(waiter, span)
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
                let _ = self.waiting_before(&mut counting, session, want, rank, |waiter, _| {
                    ahead.insert(waiter.id());
                    if ahead.len() < AHEAD_COUNTED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
            }
            if more {
                continue;
            }
            let _ = self.blockers_within(&mut showing, session, want, rank, |with| {
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
        // What else is in the way is told as far as it is found soon; that something is must be certain.
        if more && conflicts.is_empty() {
            let first = self.first_in_the_way(session, wants, rank);
            more = first.is_some();
            conflicts.extend(first.map(|with| Conflict { wanted: wanted(wants, &with), with }));
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

    /// Visits the lines of one file that others hold, or want and come earlier; all of them, if nothing of it can be had.
    fn taken_lines(
        &self,
        patience: &mut Patience,
        session: &SessionId,
        want: &Want,
        rank: Rank,
        mut visit: impl FnMut(Span),
    ) -> ControlFlow<()> {
        let mut add = |theirs: Span| {
            visit(theirs);
            if theirs.is_whole() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.taken(patience, session, want, |blocker| match &blocker {
            Blocker::Held(lock) if lock.target.key == want.target.key => add(lock.target.span),
            Blocker::Held(_) | Blocker::Room(_) | Blocker::Waiting { .. } => add(Span::WHOLE),
        })?;
        // What covers the file is whole.
        self.waiting_before(patience, session, want, rank, |_, span| add(span))
    }

    /// What would be granted now: the better part of the lines that were wanted, and as many lines after and before.
    fn free_lines(&self, session: &SessionId, want: &Want, rank: Rank) -> Vec<Span> {
        let span = want.target.span;
        let in_file = want.target.key.kind() == KeyKind::Path && want.target.key.cover() == Cover::One;
        let Some(last) = span.last().filter(|_| in_file) else { return Vec::new() };
        let length = last - span.start();
        let mut patience = Patience::for_free_lines();
        let mut part = LargestGap::of(span);
        let _ = self.taken_lines(&mut patience, session, want, rank, |theirs| part.add(theirs));
        // Nobody needs to be told of what is theirs.
        let own = self.own_on_key(session, &want.target.key).take_while(|_| patience.look().is_continue());
        own.for_each(|own| part.add(own.target.span));
        let mut taken = |candidate: Span| {
            let mut reach: Option<Span> = None;
            let target = Target { key: want.target.key.clone(), span: candidate };
            let _ = self.taken_lines(&mut patience, session, &Want { target, mode: want.mode }, rank, |theirs| {
                let (start, end) = reach.map_or((u32::MAX, 0), |reach| (reach.start(), reach.end()));
                reach = Some(Span::between(theirs.start().min(start), theirs.end().max(end)));
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
        let part = part.found().filter(|part| free.iter().all(|free| free.intersection(*part) != Some(*part)));
        free.splice(..0, part);
        // What was not looked at to its end may be taken.
        if patience.is_over() { Vec::new() } else { free }
    }
}

/// The most lines in a row that are left of a span when others are taken out of it.
struct LargestGap {
    span: Span,
    taken: Vec<Span>,
}

impl LargestGap {
    fn of(span: Span) -> LargestGap {
        LargestGap { span, taken: Vec::new() }
    }

    fn add(&mut self, taken: Span) {
        self.taken.extend(self.span.intersection(taken));
    }

    fn found(mut self) -> Option<Span> {
        self.taken.sort_unstable();
        let (mut start, end) = (self.span.start(), self.span.end());
        let mut gaps = Vec::new();
        for taken in self.taken {
            if taken.start() > start {
                gaps.push(Span::between(start, end.min(taken.start() - 1)));
            }
            start = start.max(taken.end().saturating_add(1));
        }
        if start <= end {
            gaps.push(Span::between(start, end));
        }
        let lines = |span: &Span| u64::from(span.end() - span.start()) + 1;
        // Of several that are as long, the first. A few lines of many are of no use.
        let longest = gaps.into_iter().rev().max_by_key(lines);
        longest.filter(|gap| 2 * lines(gap) >= lines(&self.span))
    }
}

/// Somebody who wants the target, or a part of it, and the first of their wants that is.
fn waiting_at(waiter: &Arc<Waiter>, target: &Target) -> Blocker {
    let theirs = waiter.asked.wants.iter().find(|theirs| theirs.target.overlaps(target));
    let target = theirs.map_or_else(|| target.clone(), |theirs| theirs.target.clone());
    Blocker::Waiting { waiter: waiter.clone(), target }
}

/// The first of these wants that something stands in the way of.
fn wanted(wants: &[Want], with: &Blocker) -> Target {
    let overlaps = |want: &&Want| match with {
        Blocker::Held(lock) => lock.target.overlaps(&want.target),
        Blocker::Waiting { target, .. } => target.overlaps(&want.target),
        Blocker::Room(room) => room.key.overlaps(&want.target.key),
    };
    let first = wants.iter().find(overlaps).or(wants.first()).expect("nothing is in the way of no want");
    first.target.clone()
}

/// The same files, lines and keys, none of them named twice in one mode.
fn joined(wants: &[Want]) -> Vec<Want> {
    let mut spans: BTreeMap<(Mode, &Key), Vec<Span>> = BTreeMap::new();
    for want in wants {
        spans.entry((want.mode, &want.target.key)).or_default().push(want.target.span);
    }
    let lies_in_another = |mode: Mode, key: &Key| {
        let around = covering(key).into_iter().map(|text| Key::from(Arc::from(text)));
        around.filter(|around| around != key && around.reaches(key)).any(|around| spans.contains_key(&(mode, &around)))
    };
    let kept = spans.iter().filter(|((mode, key), _)| !lies_in_another(*mode, key));
    let mut found = Vec::new();
    for ((mode, key), spans) in kept {
        let mut spans = spans.clone();
        spans.sort_unstable();
        let mut joined: Vec<Span> = Vec::new();
        for span in spans {
            match joined.last_mut().filter(|last| last.overlaps(span)) {
                Some(last) => *last = Span::between(last.start(), last.end().max(span.end())),
                None => joined.push(span),
            }
        }
        found.extend(joined.into_iter().map(|span| Want { target: Target { key: (*key).clone(), span }, mode: *mode }));
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::{Acquire, Actor, Command};
    use crate::decide::Context;
    use crate::session::{AgentName, Intention};
    use crate::state::Rules;
    use crate::time::{Millis, Stamp, Time};

    fn wants() -> impl Strategy<Value = Vec<Want>> {
        let key = "(a|b)/[xy]|a/\\*|a/\\*\\*|\\*\\*|f";
        let want = (key, 1..9u32, 0..4u32, any::<bool>()).prop_map(|(text, start, more, shared)| {
            let key = Key::parse(&text).expect("the pattern makes keys");
            let lines = Span::between(start, start + more);
            let target = Target::new(key.clone(), lines);
            let target = target.unwrap_or_else(|_| Target::new(key, Span::WHOLE).expect("whole"));
            Want { target, mode: if shared { Mode::Shared } else { Mode::Exclusive } }
        });
        prop::collection::vec(want, 1..5)
    }

    fn acquire(session: u8, wants: Vec<Want>, priority: u8) -> Acquire {
        let name = format!("s{session}");
        let (session, agent) = (SessionId::parse(&name).unwrap(), AgentName::parse(&name).unwrap());
        let actor = Actor { session, agent, agent_type: None, bound: false };
        let (intention, ttl, wait) = (Intention::default(), Millis(60_000), Millis(60_000));
        Acquire { actor, wants, intention, ttl, wait, priority, feature: None, request: None, restores: false }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_set_is_in_the_way_of_whom_each_of_its_wants_is(
            asked in prop::collection::vec((0..6u8, wants(), 0..3u8), 1..12), session in 0..6u8, wants in wants(), priority in 0..3u8
        ) {
            let rules = Rules { quota_limit: 0, ..Rules::default() };
            let mut state = State::new(7);
            let mut stamp = Stamp { time: Time(1_000_000_000), wall: 1_000_000_000 };
            for (session, wants, priority) in asked {
                stamp.time = stamp.time.plus(Millis(1));
                let cx = Context { rules: &rules, now: stamp, refused_lately: &[] };
                state.decide(&cx, &Command::Acquire(acquire(session, wants, priority)), &mut Vec::new());
            }
            let session = SessionId::parse(&format!("s{session}")).unwrap();
            let rank = Rank::new(stamp.time, priority, WaiterId(u64::MAX));
            let stop = |_: Blocker| ControlFlow::Break(());
            let alone = |want: &Want| state.blockers_within(&mut Patience::endless(), &session, want, rank, stop).is_break();
            prop_assert_eq!(wants.iter().any(alone), state.first_in_the_way(&session, &wants, rank).is_some());
            let earlier = |want: &Want| {
                let stop = |_: &Arc<Waiter>, _| ControlFlow::Break(());
                state.waiting_before(&mut Patience::endless(), &session, want, rank, stop).is_break()
            };
            let all: Vec<&Want> = wants.iter().collect();
            for few in [0, 1, 2, usize::MAX] {
                let found = state.first_earlier(&session, &all, rank, few).is_some();
                prop_assert_eq!(wants.iter().any(earlier), found, "{} are few", few);
            }
        }
    }
}
