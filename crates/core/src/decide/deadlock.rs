//! Finds the cycle that a new wait would close, and spells it out.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::acquire::comes_before;
use crate::command::{Acquire, Want};
use crate::mode::Mode;
use crate::outcome::{Blocker, CycleStep};
use crate::session::{AgentName, SessionId};
use crate::state::State;
use crate::waiter::Rank;

/// How many blockers one search looks at. A circle that is hidden behind more than that ends with a wait's own end.
const LOOKED_AT_MAX: usize = 20_000;

/// Somebody who waits, or would.
struct Waiting<'a> {
    session: &'a SessionId,
    agent: &'a AgentName,
    wants: &'a [Want],
    rank: Rank,
}

impl State {
    /// The cycle of sessions that would wait for each other if this acquisition joined the queue.
    pub(super) fn cycle(&self, acquire: &Acquire, rank: Rank) -> Option<Vec<CycleStep>> {
        let newcomer =
            Waiting { session: &acquire.actor.session, agent: &acquire.actor.agent, wants: &acquire.wants, rank };
        if !self.is_waited_for(&newcomer) {
            return None;
        }
        self.way_back(&newcomer)
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
    fn way_back(&self, newcomer: &Waiting<'_>) -> Option<Vec<CycleStep>> {
        let mut search = Search { newcomer, steps: Vec::new(), seen: HashSet::new(), looked_at: 0 };
        self.waits_for(newcomer, None, &mut search);
        let mut next = 0;
        while let Some((step, _)) = search.steps.get(next) {
            let blocker = step.blocker.clone();
            if blocker == *newcomer.session {
                return Some(search.path(next));
            }
            let waiters = self.entry(&blocker).into_iter().flat_map(|entry| entry.waiters.iter());
            for waiter in waiters.filter_map(|id| self.waiter(*id)) {
                let from = Waiting {
                    session: &waiter.asked.session,
                    agent: &waiter.asked.agent,
                    wants: &waiter.asked.wants,
                    rank: waiter.rank(),
                };
                self.waits_for(&from, Some(next), &mut search);
            }
            next += 1;
        }
        None
    }

    /// Adds a step for each session that somebody waits for and that was not reached yet.
    fn waits_for(&self, from: &Waiting<'_>, by: Option<usize>, search: &mut Search<'_>) {
        let newcomer = search.newcomer;
        let new = self.parts(from.session, from.wants).new;
        for want in &new {
            let _ = self.blockers(from.session, want, from.rank, |blocker| {
                match &blocker {
                    Blocker::Held(_) | Blocker::Waiting { .. } => search.add(from, want, blocker.session(), by),
                    // A person waits for nobody.
                    Blocker::Room(_) => {}
                }
                search.looked_at += 1;
                if search.looked_at < LOOKED_AT_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            // The newcomer is not in the queue yet, but would stand before those it overtakes.
            let before = |theirs: &Want| conflict(want, theirs) && comes_before(theirs, newcomer.rank, want, from.rank);
            let covered = || self.covered_by_own(from.session, &want.target, want.mode);
            if from.session != newcomer.session && newcomer.wants.iter().any(before) && !covered() {
                search.add(from, want, newcomer.session, by);
            }
        }
    }
}

/// Who was reached so far, and from where.
struct Search<'a> {
    newcomer: &'a Waiting<'a>,
    steps: Vec<(CycleStep, Option<usize>)>,
    seen: HashSet<SessionId>,
    looked_at: usize,
}

impl Search<'_> {
    fn add(&mut self, from: &Waiting<'_>, want: &Want, blocker: &SessionId, by: Option<usize>) {
        if self.seen.insert(blocker.clone()) {
            let (session, agent) = (from.session.clone(), from.agent.clone());
            let (wanted, blocker) = (want.target.clone(), blocker.clone());
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
