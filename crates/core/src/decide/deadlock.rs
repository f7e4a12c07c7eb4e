//! Finds the cycle that a wait closes, and spells it out.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::acquire::comes_before;
use crate::command::{Acquire, Want};
use crate::event::Enqueued;
use crate::key::Target;
use crate::lock::FeatureId;
use crate::mode::Mode;
use crate::outcome::{Blocker, CycleStep};
use crate::session::{AgentName, SessionId};
use crate::state::State;
use crate::waiter::{Rank, Waiter};

/// How many blockers one decision looks at. A circle that is hidden behind more than that ends with a wait's own end.
pub(super) const LOOKED_AT_MAX: usize = 20_000;

/// Somebody who waits, or would.
struct Waiting<'a> {
    session: &'a SessionId,
    agent: &'a AgentName,
    wants: &'a [Want],
    feature: Option<&'a FeatureId>,
    rank: Rank,
    in_queue: bool,
}

impl<'a> From<&'a Waiter> for Waiting<'a> {
    fn from(waiter: &'a Waiter) -> Waiting<'a> {
        let Enqueued { session, agent, wants, feature, .. } = &waiter.asked;
        Waiting { session, agent, wants, feature: feature.as_ref(), rank: waiter.rank(), in_queue: true }
    }
}

impl State {
    /// The cycle of sessions that would wait for each other if this acquisition joined the queue.
    pub(super) fn cycle(&self, acquire: &Acquire, rank: Rank) -> Option<Vec<CycleStep>> {
        let Acquire { actor, wants, feature, .. } = acquire;
        let (session, agent) = (&actor.session, &actor.agent);
        let newcomer = Waiting { session, agent, wants, feature: feature.as_ref(), rank, in_queue: false };
        if !self.is_waited_for(&newcomer) {
            return None;
        }
        let mut patience = LOOKED_AT_MAX;
        self.way_back(&newcomer, &mut patience)
    }

    /// The cycle of sessions that wait for each other with somebody who is in the queue. `patience`: how many blockers may be
    /// looked at yet.
    pub(super) fn cycle_of(&self, waiter: &Waiter, patience: &mut usize) -> Option<Vec<CycleStep>> {
        self.way_back(&Waiting::from(waiter), patience)
    }

    /// Whether anybody could be waiting for the newcomer: who has nothing and overtakes nobody closes no cycle.
    fn is_waited_for(&self, newcomer: &Waiting<'_>) -> bool {
        let has_something =
            self.entry(newcomer.session).is_some_and(|entry| !entry.locks.is_empty() || !entry.waiters.is_empty());
        has_something
            || newcomer.wants.iter().any(|want| {
                let overtaken = self.waiting_for(&want.target, want.mode, |waiter| {
                    let pauses = want.target.key.paused_feature().is_some();
                    if pauses || waiter.rank() > newcomer.rank {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                overtaken.is_break()
            })
    }

    /// Walks from the newcomer over those it waits for, nearest first, until it comes back to the newcomer's session.
    fn way_back(&self, newcomer: &Waiting<'_>, patience: &mut usize) -> Option<Vec<CycleStep>> {
        let mut search = Search { newcomer, steps: Vec::new(), seen: HashSet::new(), patience };
        self.waits_for(newcomer, None, &mut search);
        let mut next = 0;
        while let Some((step, _)) = search.steps.get(next) {
            let blocker = step.blocker.clone();
            if blocker == *newcomer.session {
                return Some(search.path(next));
            }
            for waiter in self.waiters_of(&blocker) {
                self.waits_for(&Waiting::from(&**waiter), Some(next), &mut search);
            }
            next += 1;
        }
        None
    }

    /// Adds a step for each session that somebody waits for and that was not reached yet.
    fn waits_for(&self, from: &Waiting<'_>, by: Option<usize>, search: &mut Search<'_>) {
        let newcomer = search.newcomer;
        if let Some(pause) = self.pause_of(from.feature, from.session) {
            search.add(from, &pause.target, &pause.session, by);
        }
        let new = self.parts(from.session, from.wants).new;
        for want in &new {
            let _ = self.blockers(from.session, want, from.rank, |blocker| {
                match &blocker {
                    Blocker::Held(_) | Blocker::Waiting { .. } => {
                        search.add(from, &want.target, blocker.session(), by);
                    }
                    // A person waits for nobody.
                    Blocker::Room(_) => {}
                }
                *search.patience = search.patience.saturating_sub(1);
                if *search.patience > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if newcomer.in_queue {
                continue;
            }
            // It is not in the queue yet, but would stand before those it overtakes.
            let before = |theirs: &Want| conflict(want, theirs) && comes_before(theirs, newcomer.rank, want, from.rank);
            let covered = || self.covered_by_own(from.session, &want.target, want.mode);
            if from.session != newcomer.session && newcomer.wants.iter().any(before) && !covered() {
                search.add(from, &want.target, newcomer.session, by);
            }
        }
    }
}

/// Who was reached so far, and from where.
struct Search<'a> {
    newcomer: &'a Waiting<'a>,
    steps: Vec<(CycleStep, Option<usize>)>,
    seen: HashSet<SessionId>,
    patience: &'a mut usize,
}

impl Search<'_> {
    fn add(&mut self, from: &Waiting<'_>, wanted: &Target, blocker: &SessionId, by: Option<usize>) {
        if self.seen.insert(blocker.clone()) {
            let (session, agent) = (from.session.clone(), from.agent.clone());
            let (wanted, blocker) = (wanted.clone(), blocker.clone());
            self.steps.push((CycleStep { session, agent, wanted, blocker }, by));
        }
    }

    /// The steps that lead to one, the first first.
    fn path(&self, last: usize) -> Vec<CycleStep> {
        let mut path = Vec::new();
        let mut at = Some(last);
        while let Some(place) = at {
            path.push(self.steps[place].0.clone());
            at = self.steps[place].1;
        }
        path.reverse();
        path
    }
}

fn conflict(one: &Want, other: &Want) -> bool {
    Mode::conflicts(one.mode, other.mode) && one.target.overlaps(&other.target)
}
