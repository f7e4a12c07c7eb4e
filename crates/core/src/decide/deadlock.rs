//! Finds the cycle that a new wait would close, and spells it out.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::command::{Acquire, Want};
use crate::key::Target;
use crate::lock::WaiterId;
use crate::mode::Mode;
use crate::outcome::{Blocker, CycleStep};
use crate::session::{AgentName, SessionId};
use crate::state::State;
use crate::time::Time;
use crate::waiter::Rank;

/// Somebody who waits, or would.
struct Waiting<'a> {
    session: &'a SessionId,
    agent: &'a AgentName,
    wants: &'a [Want],
    rank: Rank,
}

impl State {
    /// The cycle of sessions that would wait for each other if this acquisition joined the queue.
    pub(super) fn cycle(&self, acquire: &Acquire, id: WaiterId, now: Time) -> Option<Vec<CycleStep>> {
        let rank = Rank::new(now, acquire.priority, id);
        let newcomer =
            Waiting { session: &acquire.actor.session, agent: &acquire.actor.agent, wants: &acquire.wants, rank };
        if !self.is_waited_for(&newcomer) {
            return None;
        }
        let mut path = Vec::new();
        let mut seen = HashSet::new();
        self.leads_back(&newcomer, &newcomer, &mut seen, &mut path).then_some(path)
    }

    /// Whether anybody could be waiting for the newcomer: who has nothing and overtakes nobody closes no cycle.
    fn is_waited_for(&self, newcomer: &Waiting<'_>) -> bool {
        let has_something =
            self.entry(newcomer.session).is_some_and(|entry| !entry.locks.is_empty() || !entry.waiters.is_empty());
        has_something
            || newcomer.wants.iter().any(|want| {
                let overtaken = self.waiting_for(&want.target, want.mode, |waiter| {
                    if waiter.rank() > newcomer.rank { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                overtaken.is_break()
            })
    }

    /// Walks from a waiter over those it waits for, until it comes back to the newcomer's session.
    fn leads_back(
        &self,
        from: &Waiting<'_>,
        newcomer: &Waiting<'_>,
        seen: &mut HashSet<SessionId>,
        path: &mut Vec<CycleStep>,
    ) -> bool {
        for (blocker, wanted) in self.waits_for(from, newcomer) {
            path.push(CycleStep { session: from.session.clone(), agent: from.agent.clone(), wanted });
            if blocker == *newcomer.session {
                return true;
            }
            if seen.insert(blocker.clone()) {
                let waiters = self.entry(&blocker).into_iter().flat_map(|entry| entry.waiters.iter());
                for waiter in waiters.filter_map(|id| self.waiter(*id)) {
                    let next = Waiting {
                        session: &waiter.asked.session,
                        agent: &waiter.asked.agent,
                        wants: &waiter.asked.wants,
                        rank: waiter.rank(),
                    };
                    if self.leads_back(&next, newcomer, seen, path) {
                        return true;
                    }
                }
            }
            path.pop();
        }
        false
    }

    /// The sessions that somebody waits for, each with the target it is about.
    fn waits_for(&self, from: &Waiting<'_>, newcomer: &Waiting<'_>) -> Vec<(SessionId, Target)> {
        let mut found: Vec<(SessionId, Target)> = Vec::new();
        let mut add = |session: &SessionId, target: &Target| {
            if !found.iter().any(|(known, _)| known == session) {
                found.push((session.clone(), target.clone()));
            }
        };
        let new = self.parts(from.session, from.wants).new;
        for want in &new {
            let _ = self.blockers(from.session, want, from.rank, |blocker| {
                match &blocker {
                    Blocker::Held(_) | Blocker::Waiting { .. } => add(blocker.session(), &want.target),
                    // A person waits for nobody.
                    Blocker::Room(_) => {}
                }
                ControlFlow::Continue(())
            });
            // The newcomer is not in the queue yet, but would stand before those it overtakes.
            let overtakes = from.session != newcomer.session && newcomer.rank < from.rank;
            let meets =
                |theirs: &&Want| conflict(want, theirs) && !self.covered_by_own(from.session, &want.target, want.mode);
            if overtakes && newcomer.wants.iter().any(|theirs| meets(&theirs)) {
                add(newcomer.session, &want.target);
            }
        }
        found
    }
}

fn conflict(one: &Want, other: &Want) -> bool {
    Mode::conflicts(one.mode, other.mode) && one.target.overlaps(&other.target)
}
