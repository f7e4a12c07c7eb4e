//! Circles of waits: a wait that would close one is refused, one that became one is ended, both with the circle spelled out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Deciding;
use super::acquire::comes_before;
use super::queue::targets;
use crate::command::{Acquire, Want};
use crate::event::{Enqueued, Event, Grant, On};
use crate::key::Target;
use crate::limits::{
    CIRCLE_LOOKS_MAX, CIRCLE_LOOKS_MIN, CIRCLE_STEPS_MAX, CONFLICT_LOOKS_MAX, FREE_LOOKS_MAX, OWN_LOCKS_ASKED_MAX,
};
use crate::lock::{FeatureId, LockId};
use crate::mode::Mode;
use crate::outcome::CycleStep;
use crate::planted::{self, Bug};
use crate::session::{AgentName, SessionId};
use crate::state::State;
use crate::waiter::{Rank, Waiter};

/// To look through so many of a session's own locks is one look.
const OWN_LOCKS_A_LOOK: usize = 100;

/// How many locks and waiters may be looked at yet.
#[derive(Clone)]
pub(super) struct Patience(usize);

impl Patience {
    pub(super) fn endless() -> Patience {
        Patience(usize::MAX)
    }

    /// That of one decision. A circle that is hidden behind more ends with a wait's own end.
    pub(super) fn for_circles() -> Patience {
        Patience(CIRCLE_LOOKS_MAX)
    }

    /// That of a refusal that says what else is in the way.
    pub(super) fn for_conflicts() -> Patience {
        Patience(CONFLICT_LOOKS_MAX)
    }

    /// That of a refusal that says what would be free.
    pub(super) fn for_free_lines() -> Patience {
        Patience(FREE_LOOKS_MAX)
    }

    /// A part for one of so many who may be in a circle: none of them uses up what finds another's.
    pub(super) fn share(&self, suspects: usize) -> Patience {
        Patience((self.0 / suspects.max(1)).max(CIRCLE_LOOKS_MIN))
    }

    pub(super) fn look(&mut self) -> ControlFlow<()> {
        self.look_at(1)
    }

    fn look_at(&mut self, many: usize) -> ControlFlow<()> {
        self.0 = self.0.saturating_sub(many);
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.0 == 0
    }
}

/// Who may wait for somebody new, or be waited for by somebody new: every circle that a decision closes goes through one of them.
#[derive(Default)]
pub(super) struct Entangled {
    /// They lost something, or are paused no longer.
    losers: BTreeSet<SessionId>,
    /// They wait for something, and got something else: perhaps past somebody who is paused, or wants to finish.
    winners: BTreeSet<SessionId>,
}

impl Deciding<'_> {
    pub(super) fn note_entangled(&mut self, event: &Event) {
        if self.state.waiter_count() == 0 {
            return;
        }
        match event {
            Event::Granted(grant) => {
                let served = usize::from(grant.waiter.is_some());
                if self.state.waiters_of(&grant.session).nth(served).is_some() && self.is_in_the_way(grant) {
                    self.entangled.winners.insert(grant.session.clone());
                }
            }
            Event::Released { locks, .. }
            | Event::Expired { locks }
            | Event::Forced { locks, .. }
            | Event::GivenBack { locks, .. } => self.note_losers(locks),
            Event::SessionClosed { session } => {
                let locks: Vec<LockId> = self.state.locks_of(session).collect();
                self.note_losers(&locks);
            }
            Event::Renewed { .. }
            | Event::Queued(_)
            | Event::Withdrawn { .. }
            | Event::Deadlocked { .. }
            | Event::Beaten { .. }
            | Event::SessionOpened { .. }
            | Event::SessionsForgotten { .. }
            | Event::LossAccepted { .. }
            | Event::LossTold { .. }
            | Event::RoomOpened { .. }
            | Event::RoomClosed { .. }
            | Event::Vanished { .. }
            | Event::FeatureRegistered(_)
            | Event::FeatureEnded { .. }
            | Event::PortsAllocated { .. }
            | Event::PortsFreed { .. }
            | Event::ServerSeen { .. } => {}
        }
    }

    /// Whether anybody else waits for what is granted: if not, nobody waits for its session more than before.
    fn is_in_the_way(&self, grant: &Grant) -> bool {
        let asked = grant.waiter.and_then(|waiter| self.state.waiter(waiter)).map(|waiter| &waiter.asked);
        grant.new.iter().any(|new| {
            let (target, mode) = match &new.on {
                On::Target(target, mode) => (target, *mode),
                On::Wanted(place) => match asked.and_then(|asked| asked.wants.get(*place as usize)) {
                    Some(want) => (&want.target, want.mode),
                    None => return false,
                },
            };
            let waits = self.state.waiting_for(target, mode, |waiter, _| {
                if waiter.asked.session == grant.session { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            target.key.paused_feature().is_some() || waits.is_break()
        })
    }

    fn note_losers(&mut self, locks: &[LockId]) {
        for lock in locks.iter().filter_map(|id| self.state.lock(*id)) {
            let losers = &mut self.entangled.losers;
            // What it had kept others out of its way only where it waits itself.
            let waits_there =
                |waiter: &Arc<Waiter>| waiter.asked.wants.iter().any(|want| want.target.key.overlaps(&lock.target.key));
            if !losers.contains(&lock.session) && self.state.waiters_of(&lock.session).any(waits_there) {
                losers.insert(lock.session.clone());
            }
            if lock.mode == Mode::Exclusive {
                let paused = self.state.waiters_of_paused(&lock.target.key);
                losers.extend(paused.map(|waiter| waiter.asked.session.clone()));
            }
        }
    }

    /// Ends the waits that became circles: of those who lost something, before those who got something; whoever came last goes.
    pub(super) fn end_circles(&mut self) {
        let mut patience = Patience::for_circles();
        loop {
            let Entangled { losers, winners } = &mut self.entangled;
            let sessions = std::mem::take(if losers.is_empty() { winners } else { losers });
            if sessions.is_empty() || patience.is_over() {
                return;
            }
            let waiters = sessions.iter().flat_map(|session| self.state.waiters_of(session));
            let suspects: BTreeSet<_> = waiters.map(|waiter| (waiter.rank(), waiter.id())).collect();
            let count = suspects.len();
            for (place, (_, id)) in suspects.into_iter().rev().enumerate() {
                let Some(waiter) = self.state.waiter(id).cloned() else { continue };
                let mut share = patience.share(count - place);
                let before = share.0;
                let cycle = self.state.cycle_of(&waiter, &mut share);
                let _ = patience.look_at(before - share.0);
                let Some(cycle) = cycle else { continue };
                if !planted::is(Bug::LateCycleOverlooked) {
                    self.record(Event::Deadlocked { waiter: id, cycle });
                    self.hand_over(targets(&waiter.asked.wants).collect());
                }
            }
        }
    }
}

/// Somebody who waits, or would.
struct Waiting<'a> {
    session: &'a SessionId,
    agent: &'a AgentName,
    wants: &'a [Want],
    feature: Option<&'a FeatureId>,
    rank: Rank,
}

impl<'a> From<&'a Waiter> for Waiting<'a> {
    fn from(waiter: &'a Waiter) -> Waiting<'a> {
        let Enqueued { session, agent, wants, feature, .. } = &waiter.asked;
        Waiting { session, agent, wants, feature: feature.as_ref(), rank: waiter.rank() }
    }
}

impl State {
    /// The cycle of sessions that would wait for each other if this acquisition joined the queue at this place. `is_waited_for`: what
    /// [`State::is_waited_for`] says of its session.
    pub(super) fn cycle(
        &self,
        acquire: &Acquire,
        rank: Rank,
        is_waited_for: bool,
        patience: &mut Patience,
    ) -> Option<Vec<CycleStep>> {
        let Acquire { actor, wants, feature, .. } = acquire;
        let (session, agent) = (&actor.session, &actor.agent);
        let newcomer = Waiting { session, agent, wants, feature: feature.as_ref(), rank };
        if !is_waited_for && !self.overtakes(&newcomer) {
            return None;
        }
        let mut search = Search::new(Some(&newcomer), patience);
        self.waits_for(&newcomer, None, &mut search);
        // It may stand in the way of somebody for whom its session waits already.
        for waiter in self.waiters_of(session) {
            self.waits_for(&Waiting::from(&**waiter), None, &mut search);
        }
        self.way_back(session, search)
    }

    /// The cycle of sessions that wait for each other with somebody who is in the queue. `patience`: how much may be looked at yet.
    fn cycle_of(&self, waiter: &Waiter, patience: &mut Patience) -> Option<Vec<CycleStep>> {
        let mut search = Search::new(None, patience);
        self.waits_for(&Waiting::from(waiter), None, &mut search);
        self.way_back(&waiter.asked.session, search)
    }

    /// Whether anybody could be waiting for this session: who waits for nothing and has nothing that others want closes no circle
    /// but by overtaking somebody.
    pub(super) fn is_waited_for(&self, session: &SessionId) -> bool {
        if self.waiters_of(session).next().is_some() {
            return true;
        }
        // Whoever can't be told in time may be.
        let mut patience = Patience(OWN_LOCKS_ASKED_MAX);
        self.locks_of(session).filter_map(|id| self.lock(id)).any(|lock| {
            let wanted = self.waiting_for(&lock.target, lock.mode, |waiter, _| {
                patience.look()?;
                if waiter.asked.session == *session { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            wanted.is_break() || patience.look().is_break() || self.waiters_of_paused(&lock.target.key).next().is_some()
        })
    }

    /// Whether somebody who waits already could have to wait for the newcomer.
    fn overtakes(&self, newcomer: &Waiting<'_>) -> bool {
        // Whoever can't be told in time could.
        let mut patience = Patience::for_circles();
        newcomer.wants.iter().any(|want| {
            let overtaken = self.waiting_for(&want.target, want.mode, |waiter, _| {
                patience.look()?;
                let pauses = want.target.key.paused_feature().is_some();
                if pauses || waiter.rank() > newcomer.rank { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            overtaken.is_break()
        })
    }

    /// Walks on over those who are waited for, nearest first, until it comes back to this session.
    fn way_back(&self, session: &SessionId, mut search: Search<'_>) -> Option<Vec<CycleStep>> {
        let mut next = 0;
        while let Some((step, _)) = search.steps.get(next)
            && !search.patience.is_over()
        {
            let blocker = step.blocker.clone();
            if blocker == *session {
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
        if let Some(pause) = self.pause_of(from.feature, from.session) {
            search.add(from, &pause.target, &pause.session, by);
        }
        let own = self.entry(from.session).map_or(0, |entry| entry.locks.len());
        for want in &self.parts(from.session, from.wants).new {
            if search.patience.look_at(1 + own / OWN_LOCKS_A_LOOK).is_break() {
                return;
            }
            let covered = self.covered_by_own(from.session, &want.target, want.mode);
            if by.is_some() && !covered && !search.goes_further_back(want, from.rank) {
                continue;
            }
            let mut found = Vec::new();
            let _ = self.held_against(from.session, &want.target, want.mode, |lock| {
                search.patience.look()?;
                // A finish ends by itself, and soon.
                if !lock.is_finish() {
                    found.push((None, lock.session.clone()));
                }
                ControlFlow::Continue(())
            });
            let _ = self.waiting_before(search.patience, from.session, want, from.rank, |waiter, _| {
                found.push((Some(waiter.rank()), waiter.asked.session.clone()));
                ControlFlow::Continue(())
            });
            // From the end of the queue: whoever stands further ahead waits for no more.
            found.sort_by(|(one, _), (other, _)| other.cmp(one));
            for (_, session) in &found {
                search.add(from, &want.target, session, by);
            }
            let Some(newcomer) = search.newcomer.filter(|newcomer| newcomer.session != from.session) else { continue };
            // It is not in the queue yet, but would stand before those it overtakes.
            let before = |theirs: &Want| conflict(want, theirs) && comes_before(theirs, newcomer.rank, want, from.rank);
            if newcomer.wants.iter().any(before) && !covered {
                search.add(from, &want.target, newcomer.session, by);
            }
        }
    }
}

/// Who was reached so far, and from where.
struct Search<'a> {
    newcomer: Option<&'a Waiting<'a>>,
    steps: Vec<(CycleStep, Option<usize>)>,
    seen: HashSet<SessionId>,
    /// From how far back in the queue it was looked who is in the way of this.
    looked_from: HashMap<Want, Rank>,
    patience: &'a mut Patience,
}

impl<'a> Search<'a> {
    fn new(newcomer: Option<&'a Waiting<'a>>, patience: &'a mut Patience) -> Search<'a> {
        Search { newcomer, steps: Vec::new(), seen: HashSet::new(), looked_from: HashMap::new(), patience }
    }

    /// Whether nobody further back has looked yet who is in the way of the same. Whoever stands ahead of somebody waits for nobody
    /// else, but perhaps for that one, who was reached before.
    fn goes_further_back(&mut self, want: &Want, rank: Rank) -> bool {
        if self.looked_from.get(want).is_some_and(|looked_from| *looked_from > rank) {
            return false;
        }
        self.looked_from.insert(want.clone(), rank);
        true
    }

    fn add(&mut self, from: &Waiting<'_>, wanted: &Target, blocker: &SessionId, by: Option<usize>) {
        if self.seen.insert(blocker.clone()) {
            let (session, agent) = (from.session.clone(), from.agent.clone());
            let (wanted, blocker) = (wanted.clone(), blocker.clone());
            self.steps.push((CycleStep { session, agent, wanted, blocker }, by));
        }
    }

    /// The steps that lead to one, the first first; of many, those at both ends.
    fn path(&self, last: usize) -> Vec<CycleStep> {
        let places: Vec<usize> = std::iter::successors(Some(last), |place| self.steps[*place].1).collect();
        let left_out = places.len().saturating_sub(CIRCLE_STEPS_MAX);
        let end = CIRCLE_STEPS_MAX / 2;
        let told = places.iter().enumerate().filter(|(n, _)| !(end..end + left_out).contains(n));
        told.rev().map(|(_, place)| self.steps[*place].0.clone()).collect()
    }
}

fn conflict(one: &Want, other: &Want) -> bool {
    Mode::conflicts(one.mode, other.mode) && one.target.overlaps(&other.target)
}
