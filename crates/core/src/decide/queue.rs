//! The queue: who is next when something comes free.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Deciding;
use crate::command::Want;
use crate::event::{Event, Withdrawal};
use crate::key::Target;
use crate::limits::LOOKS_A_WAITER;
use crate::lock::WaiterId;
use crate::mode::Mode;
use crate::outcome::{Answer, Outcome};
use crate::planted::{self, Bug};
use crate::session::SessionId;
use crate::waiter::{Place, Rank, Waiter};

impl Deciding<'_> {
    /// Hands what came free to those whose turn it is. Whoever is gone, or has waited long enough, makes room for the
    /// next.
    pub(super) fn hand_over(&mut self, freed: Vec<Target>) {
        if self.state.waiter_count() == 0 {
            return;
        }
        let mut freed = freed;
        while !freed.is_empty() {
            let mut next_freed = Vec::new();
            for (_, id) in self.candidates_who_stay(freed) {
                let Some(waiter) = self.state.waiter(id).cloned() else { continue };
                let mut new = self.state.parts(&waiter.asked.session, &waiter.asked.wants).new;
                if planted::is(Bug::WaiterCheckedInPart) {
                    new.truncate(1);
                }
                if !self.state.is_passed_over(&waiter)
                    && !self.state.is_blocked(&waiter.asked.session, &new, waiter.rank())
                {
                    next_freed.extend(self.grant_waiter(&waiter.asked));
                }
            }
            freed = next_freed;
        }
    }

    /// Those who wait for any of this, or for what others make free who leave now: all of them, so that nobody is served before
    /// who came earlier.
    fn candidates_who_stay(&mut self, freed: Vec<Target>) -> BTreeSet<(Rank, WaiterId)> {
        let (mut freed, mut stay) = (freed, BTreeSet::new());
        while !freed.is_empty() {
            let mut left = Vec::new();
            for candidate in self.candidates(&freed) {
                let Some(waiter) = self.state.waiter(candidate.1).cloned() else { continue };
                match waiter.leaves(self.now()) {
                    Some(why) => {
                        self.record(Event::Withdrawn { waiter: candidate.1, why });
                        left.extend(targets(&waiter.asked.wants));
                    }
                    None => {
                        stay.insert(candidate);
                    }
                }
            }
            freed = left;
        }
        stay
    }

    /// Those who wait for any of this, in the order of the queue.
    fn candidates(&self, freed: &[Target]) -> BTreeSet<(Rank, WaiterId)> {
        let place = |waiter: &Arc<Waiter>| (waiter.rank(), waiter.id());
        let (mut found, mut looks) = (BTreeSet::new(), 0);
        let looks_max = LOOKS_A_WAITER * self.state.waiter_count();
        for target in freed {
            looks += 1;
            let _ = self.state.waiting_for(target, Mode::Exclusive, |waiter, _| {
                found.insert(place(waiter));
                looks += 1;
                if looks > looks_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if looks > looks_max {
                // Each is looked at once: whoever waits for none of this gets nothing by it.
                return self.state.waiters().map(place).collect();
            }
            let before = found.len();
            found.extend(self.state.waiters_of_paused(&target.key).map(place));
            looks += found.len() - before;
        }
        found
    }

    pub(super) fn withdraw(&mut self, places: &[Place]) -> Outcome {
        let is_there = |place: &&Place| self.state.waiter(place.waiter).is_some_and(|waiter| waiter.place() == **place);
        let leaving = places.iter().filter(is_there).map(|place| (place.waiter, Withdrawal::Disconnected));
        self.leave_queue(leaving.collect());
        Outcome::Told(Answer::Withdrawn)
    }

    /// All of them leave before anybody is looked for to take their place: thousands may go at one moment.
    pub(super) fn leave_queue(&mut self, leaving: Vec<(WaiterId, Withdrawal)>) {
        let mut freed = BTreeSet::new();
        for (id, why) in leaving {
            let Some(waiter) = self.state.waiter(id).cloned() else { continue };
            self.record(Event::Withdrawn { waiter: id, why });
            freed.extend(targets(&waiter.asked.wants));
        }
        self.hand_over(freed.into_iter().collect());
    }

    /// Before time does its work: whoever is alive keeps its place, however long nobody could write that down.
    pub(super) fn keep_places(&mut self, sessions: &[SessionId], waiters: &[WaiterId]) {
        let silent = self.state.silent_waiters(self.now());
        if silent.is_empty() {
            return;
        }
        let by_session = sessions.iter().flat_map(|session| self.state.waiters_of(session)).map(|waiter| waiter.id());
        let heard: HashSet<WaiterId> = waiters.iter().copied().chain(by_session).collect();
        let waiters: Vec<WaiterId> = silent.into_iter().filter(|id| heard.contains(id)).collect();
        if !waiters.is_empty() {
            self.record(Event::Beaten { sessions: Vec::new(), waiters });
        }
    }

    pub(super) fn beat(&mut self, sessions: &[SessionId], waiters: &[WaiterId]) -> Outcome {
        let known = |session: &&SessionId| self.state.session(session).is_some();
        let sessions: Vec<SessionId> = sessions.iter().filter(known).cloned().collect();
        let waiting = |id: &&WaiterId| self.state.waiter(**id).is_some();
        let waiters: Vec<WaiterId> = waiters.iter().filter(waiting).copied().collect();
        if !sessions.is_empty() || !waiters.is_empty() {
            self.record(Event::Beaten { sessions, waiters });
        }
        Outcome::Told(Answer::Beaten)
    }
}

pub(super) fn targets(wants: &[Want]) -> impl Iterator<Item = Target> {
    wants.iter().map(|want| want.target.clone())
}
