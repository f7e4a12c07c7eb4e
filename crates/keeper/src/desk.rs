//! The keeper without its loop: decides batches on a working state, and folds what the ledger says.
//!
//! No I/O, no clock, no tasks, so that it can be driven by a simulation as well as by the loop. Nothing is told from a
//! working state: answers come out of [`Desk::settle`] and [`Desk::fold`] only.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockkeeper_core::HashMap;
use lockkeeper_core::command::{Command, Want};
use lockkeeper_core::decide::Context;
use lockkeeper_core::event::{Event, Withdrawal};
use lockkeeper_core::lock::{FeatureId, Lock, Token, WaiterId};
use lockkeeper_core::outcome::{Answer, Outcome, Refusal};
use lockkeeper_core::planted::{self, Bug};
use lockkeeper_core::session::SessionId;
use lockkeeper_core::state::{Rules, State};
use lockkeeper_core::time::{Stamp, Time};
use lockkeeper_core::waiter::Place;
use lockkeeper_engine::{Appended, Base, Batch, BatchId, Delta, Position, Record};

use crate::outside;
use crate::payload::{self, PayloadError};
use crate::posting::{self, Before};
use crate::refusals::Refusals;
pub use crate::told::{Ticket, Told};

#[derive(Clone, Debug)]
pub struct Asked {
    /// `None`: nobody waits for an answer.
    pub ticket: Option<Ticket>,
    pub command: Command,
}

#[derive(Debug)]
pub struct Desk {
    state: State,
    salt: u64,
    position: Position,
    rules: Rules,
    /// What is held is shown to others, outside of the ledger.
    shows: bool,
    /// What is held is written down for people, beside the ledger.
    posts: bool,
    refusals: Refusals,
    pending: BTreeMap<WaiterId, Pending>,
    /// Which place in the queue each ticket waits for.
    places: HashMap<Ticket, WaiterId>,
    working: Option<Working>,
    /// Batches that may yet turn up in the ledger, right behind the present position and nowhere else.
    doubtful: Vec<Working>,
}

/// Somebody here waits for a place in the queue to come up.
#[derive(Debug)]
struct Pending {
    tickets: Vec<Ticket>,
    session: SessionId,
    wants: Vec<Want>,
    feature: Option<FeatureId>,
    priority: u8,
    queued: Time,
}

impl Pending {
    /// Everybody here is told that there will be nothing.
    fn told(self, answer: &Answer) -> Vec<Told> {
        let to = |ticket| Told { ticket, answer: answer.clone(), after: 0, alone: false };
        self.tickets.into_iter().map(to).collect()
    }
}

/// A batch that was decided and not yet recorded.
#[derive(Debug)]
struct Working {
    id: BatchId,
    now: Stamp,
    asked: Vec<Asked>,
    /// One for each question.
    decided: Vec<Decided>,
    events: Vec<Event>,
    granted: Granted,
}

/// What came of one question.
#[derive(Debug)]
struct Decided {
    /// `None`: nothing in the answer depends on the stamp.
    outcome: Option<Outcome>,
    /// What it is told, by the state right after it: what comes later in the batch is no part of it.
    answer: Option<Answer>,
    /// How many events of the batch there were when it was decided.
    events: usize,
}

/// What waiters were granted by a batch, by the state right after each grant.
type Granted = HashMap<WaiterId, Answer>;

impl Desk {
    /// A desk that knows nothing yet. The salt makes lock ids of different spaces differ.
    pub fn new(salt: u64, rules: Rules) -> Desk {
        Desk {
            state: State::new(salt),
            salt,
            position: Position::ORIGIN,
            rules,
            shows: false,
            posts: false,
            refusals: Refusals::default(),
            pending: BTreeMap::new(),
            places: HashMap::default(),
            working: None,
            doubtful: Vec::new(),
        }
    }

    /// Shows what is held outside of the ledger, too.
    pub fn show(&mut self) {
        self.shows = true;
    }

    /// Writes down what is held beside the ledger, too.
    pub fn post(&mut self) {
        self.posts = true;
    }

    /// What the ledger says, as far as it was read.
    pub fn state(&self) -> &State {
        assert!(self.working.is_none(), "nothing is told from a working state");
        &self.state
    }

    pub fn position(&self) -> Position {
        self.position
    }

    /// How many questions the batch that was decided answers.
    pub fn asked(&self) -> usize {
        self.working.as_ref().map_or(0, |working| working.asked.len())
    }

    /// The waiters that somebody here waits for.
    pub fn waiting(&self) -> impl Iterator<Item = WaiterId> {
        self.pending.keys().copied()
    }

    /// Those who wait here longer than they wanted.
    pub fn overdue(&self, now: Time) -> Vec<Ticket> {
        let over = |id: &WaiterId| self.state.waiter(*id).is_some_and(|waiter| waiter.deadline() <= now);
        let pending = self.pending.iter().filter(|(id, _)| over(id));
        pending.flat_map(|(_, pending)| pending.tickets.iter().copied()).collect()
    }

    /// The place in the queue behind a ticket, if nobody else waits for it: the ticket is not there any more.
    pub fn leave(&mut self, ticket: Ticket) -> Option<Place> {
        let waiter = self.places.remove(&ticket)?;
        let pending = self.pending.get_mut(&waiter)?;
        pending.tickets.retain(|kept| *kept != ticket);
        if !pending.tickets.is_empty() {
            return None;
        }
        let queued = pending.queued;
        self.pending.remove(&waiter);
        Some(Place { waiter, queued })
    }

    /// Decides a batch. `None`: nothing has to be recorded, and [`Desk::settle_unrecorded`] tells the answers.
    pub fn decide(&mut self, id: BatchId, now: Stamp, asked: Vec<Asked>) -> Option<Batch> {
        assert!(self.working.is_none(), "one batch at a time");
        // Never behind what is already folded: another keeper's clock may be ahead.
        let now = Stamp { time: now.time.max(self.state.stamp().time), wall: now.wall };
        self.state.begin();
        let before = Before { noted: self.state.history().made(), last_token: self.state.last_token() };
        let (mut events, mut granted) = (Vec::new(), Granted::default());
        let mut decided = Vec::with_capacity(asked.len());
        for Asked { ticket: _, command } in &asked {
            let refused_lately = match command {
                Command::Acquire(acquire) if self.rules.quota_limit > 0 => {
                    self.refusals.lately(&acquire.actor.session, now.time, self.rules.quota_window)
                }
                _ => &[],
            };
            let cx = Context { rules: &self.rules, now, refused_lately };
            let prepared = events.len();
            self.state.prepare(&cx, command, &mut events);
            note_granted(&self.state, &events[prepared..], &mut granted);
            let swept = events.len();
            let outcome = self.state.judge(&cx, command, &mut events);
            note_granted(&self.state, &events[swept..], &mut granted);
            let (outcome, answer) = match outcome {
                Outcome::Told(answer) => (None, Some(answer)),
                other => {
                    let answer = self.state.answer(&other);
                    (Some(other), answer)
                }
            };
            decided.push(Decided { outcome, answer, events: events.len() });
        }
        let frees = events.iter().all(frees);
        let awaited = events.iter().any(is_awaited);
        let payload = (!events.is_empty()).then(|| payload::encode_events(&events));
        let shown =
            if self.shows { outside::changes(&self.state, before.noted, &events, now.time) } else { Vec::new() };
        let posted = if self.posts { posting::changes(&self.state, before, &events, now.time) } else { Vec::new() };
        self.working = Some(Working { id, now, asked, decided, events, granted });
        payload.map(|payload| Batch { id, payload, frees, awaited, shown, posted })
    }

    /// The batch wrote nothing, and the ledger has not moved meanwhile.
    pub fn settle_unrecorded(&mut self) -> Vec<Told> {
        let working = self.working.take().expect("a decided batch");
        assert!(working.events.is_empty(), "what wrote something is settled with its position");
        self.state.keep();
        let now = working.now.time;
        self.tell(working, now)
    }

    /// The batch was recorded.
    pub fn settle(&mut self, appended: Appended) -> Vec<Told> {
        let mut working = self.working.take().expect("a decided batch");
        if appended.stamp == working.now {
            self.state.keep();
        } else {
            self.state.roll_back();
            self.replay(&mut working, appended.stamp);
        }
        self.position = appended.position;
        self.doubtful.clear();
        self.forget_closed(&working.events);
        let (events, granted) = (std::mem::take(&mut working.events), std::mem::take(&mut working.granted));
        // Those whom the batch queued are known before anybody is served; told first is who has waited.
        let answers = self.tell(working, appended.stamp.time);
        let mut told: Vec<Told> = events.iter().flat_map(|event| self.tell_waiters(event, &granted)).collect();
        told.extend(answers);
        self.state.trim(self.rules.history_kept);
        told
    }

    /// Applies a batch as the ledger has it, with the stamp that it got there.
    fn replay(&mut self, working: &mut Working, stamp: Stamp) {
        working.granted.clear();
        let mut applied = 0;
        for decided in &mut working.decided {
            for event in &working.events[applied..decided.events] {
                self.state.apply(stamp, event);
                note_granted(&self.state, std::slice::from_ref(event), &mut working.granted);
            }
            applied = decided.events;
            if let Some(outcome) = &decided.outcome {
                decided.answer = self.state.answer(outcome);
            }
        }
    }

    /// The batch was not recorded: the working state is dropped, and its questions are given back.
    pub fn give_up(&mut self) -> Vec<Asked> {
        let Some(working) = self.working.take() else { return Vec::new() };
        self.state.roll_back();
        working.asked
    }

    /// Nobody knows whether the batch was recorded. It is looked for in whatever is folded next; its questions are
    /// given back, to be asked again if it is not there.
    pub fn doubt(&mut self) -> Vec<Asked> {
        let Some(working) = self.working.take() else { return Vec::new() };
        self.state.roll_back();
        let asked = working.asked.clone();
        self.doubtful.push(working);
        asked
    }

    /// Whoever asked was told that nobody knows: if such a batch turns up after all, it is nobody's here.
    pub fn forget_doubtful(&mut self, batches: &[BatchId]) {
        self.doubtful.retain(|doubtful| !batches.contains(&doubtful.id));
    }

    /// Folds what the ledger has beyond what was known.
    pub fn fold(&mut self, delta: Delta) -> Result<Folded, PayloadError> {
        assert!(self.working.is_none(), "given up or doubted before");
        let mut folded = Folded::default();
        match delta.base {
            Base::Asked => {}
            Base::Snapshot { position, snapshot } => {
                self.state = payload::decode_snapshot(&snapshot)?;
                self.position = position;
                self.lose_sight(&mut folded);
            }
            Base::Rewritten { snapshot, position } => {
                let anew = match &snapshot {
                    Some((_, snapshot)) => payload::decode_snapshot(snapshot)?,
                    None => State::new(self.salt),
                };
                folded.rewritten = Some(Rewritten {
                    last_token: self.state.last_token(),
                    known: self.state.locks().cloned().collect(),
                });
                self.state = anew;
                self.position = snapshot.map_or(position, |(position, _)| position);
                self.lose_sight(&mut folded);
            }
        }
        for record in delta.records {
            let Record { position, batch, stamp, payload } = record;
            let ours = self.doubtful.iter().position(|doubtful| doubtful.id == batch);
            self.position = position;
            if let Some(mut doubtful) = ours.map(|place| self.doubtful.swap_remove(place)) {
                self.replay(&mut doubtful, stamp);
                folded.found.push(batch);
                let (events, granted) = (std::mem::take(&mut doubtful.events), std::mem::take(&mut doubtful.granted));
                self.forget_closed(&events);
                folded.told.extend(self.tell(doubtful, stamp.time));
                for event in &events {
                    folded.told.extend(self.tell_waiters(event, &granted));
                }
            } else {
                let events = payload::decode_events(&payload)?;
                self.forget_closed(&events);
                for event in &events {
                    self.state.apply(stamp, event);
                    let mut granted = Granted::default();
                    note_granted(&self.state, std::slice::from_ref(event), &mut granted);
                    folded.told.extend(self.tell_waiters(event, &granted));
                }
            }
            // Whatever was to come at this place has come.
            self.doubtful.clear();
        }
        if let Some(rewritten) = &mut folded.rewritten {
            rewritten.known.retain(|lock| self.state.lock(lock.id).is_none_or(|kept| kept.token != lock.token));
            rewritten.known.sort_unstable_by_key(|lock| lock.token);
        }
        self.state.trim(self.rules.history_kept);
        Ok(folded)
    }

    /// The events between what was known and this state were not seen, and with them what became of those who wait
    /// here and are no longer in the queue.
    fn lose_sight(&mut self, folded: &mut Folded) {
        folded.unseen.extend(self.doubtful.drain(..).map(|doubtful| doubtful.id));
        let stays = |place: Place| self.state.waiter(place.waiter).is_some_and(|waiter| waiter.place() == place);
        let gone = self.pending.iter().filter_map(|(waiter, pending)| {
            let place = Place { waiter: *waiter, queued: pending.queued };
            (!stays(place)).then_some(*waiter)
        });
        for waiter in gone.collect::<Vec<_>>() {
            folded.unplaced.extend(self.take_pending(waiter).into_iter().flat_map(|pending| pending.tickets));
        }
    }

    /// Turns outcomes into answers; whoever is queued becomes pending.
    fn tell(&mut self, settled: Working, now: Time) -> Vec<Told> {
        let mut told = Vec::with_capacity(settled.decided.len());
        for (decided, Asked { ticket, command }) in settled.decided.into_iter().zip(settled.asked) {
            let Decided { outcome, answer, .. } = decided;
            if let (Some(Outcome::Queued(waiter)), Some(ticket), Command::Acquire(acquire)) =
                (&outcome, ticket, &command)
            {
                // As it stands in the queue, which may not be as it wanted.
                let place = self.state.waiter(*waiter);
                let queued = place.map_or(now, |waiter| waiter.queued);
                let priority = place.map_or(acquire.priority, |waiter| waiter.asked.priority);
                let pending = self.pending.entry(*waiter).or_insert_with(|| Pending {
                    tickets: Vec::new(),
                    session: acquire.actor.session.clone(),
                    wants: acquire.wants.clone(),
                    feature: acquire.feature.clone(),
                    priority,
                    queued,
                });
                pending.tickets.push(ticket);
                self.places.insert(ticket, *waiter);
                continue;
            }
            if let (Some(Answer::Refused(Refusal::Busy(_))), Command::Acquire(acquire)) = (&answer, &command)
                && self.rules.quota_limit > 0
            {
                let Rules { quota_limit, quota_window, .. } = self.rules;
                self.refusals.note(&acquire.actor.session, now, quota_window, quota_limit);
            }
            if let (Some(ticket), Some(answer)) = (ticket, answer) {
                let alone = matches!(outcome, Some(Outcome::Granted { .. }));
                told.push(Told { ticket, after: self.after(&answer), answer, alone });
            }
        }
        told
    }

    /// Whoever here waited for what this event brought, or for what it ended.
    fn tell_waiters(&mut self, event: &Event, granted: &Granted) -> Vec<Told> {
        match event {
            Event::Granted(grant) => {
                let Some((waiter, pending)) = grant.waiter.and_then(|id| Some((id, self.take_pending(id)?))) else {
                    return Vec::new();
                };
                let answer = granted.get(&waiter).expect("noted with the event");
                let after = self.after(answer);
                let alone = pending.tickets.len() == 1;
                let to = |ticket| Told { ticket, answer: answer.clone(), after, alone };
                pending.tickets.into_iter().map(to).collect()
            }
            Event::Withdrawn { waiter, why } => self.tell_pending(*waiter, *why),
            Event::Deadlocked { waiter, cycle } => {
                let Some(pending) = self.take_pending(*waiter) else { return Vec::new() };
                pending.told(&Answer::Refused(Refusal::Deadlock { cycle: cycle.clone() }))
            }
            Event::SessionClosed { session } => {
                let theirs =
                    |(waiter, pending): (&WaiterId, &Pending)| (pending.session == *session).then_some(*waiter);
                let gone: Vec<WaiterId> = self.pending.iter().filter_map(theirs).collect();
                gone.into_iter().flat_map(|waiter| self.tell_pending(waiter, Withdrawal::SessionGone)).collect()
            }
            Event::Renewed { .. }
            | Event::Released { .. }
            | Event::Expired { .. }
            | Event::Forced { .. }
            | Event::Queued(_)
            | Event::Beaten { .. }
            | Event::SessionOpened { .. }
            | Event::SessionsForgotten { .. }
            | Event::LossAccepted { .. }
            | Event::LossTold { .. }
            | Event::RoomOpened { .. }
            | Event::RoomClosed { .. }
            | Event::Vanished { .. }
            | Event::GivenBack { .. }
            | Event::FeatureRegistered(_)
            | Event::FeatureEnded { .. }
            | Event::PortsAllocated { .. }
            | Event::PortsFreed { .. }
            | Event::ServerSeen { .. } => Vec::new(),
        }
    }

    fn take_pending(&mut self, waiter: WaiterId) -> Option<Pending> {
        let pending = self.pending.remove(&waiter)?;
        for ticket in &pending.tickets {
            self.places.remove(ticket);
        }
        Some(pending)
    }

    /// Tells those who wait for a place in the queue that they will get nothing.
    fn tell_pending(&mut self, waiter: WaiterId, why: Withdrawal) -> Vec<Told> {
        let Some(pending) = self.take_pending(waiter) else { return Vec::new() };
        let answer = match why {
            Withdrawal::TimedOut | Withdrawal::SessionGone => {
                let Pending { session, wants, feature, priority, queued, .. } = &pending;
                Answer::Refused(match self.state.pause_of(feature.as_ref(), session) {
                    Some(by) => Refusal::Paused { by },
                    None => Refusal::Busy(self.state.timed_out(session, wants, *priority, *queued)),
                })
            }
            Withdrawal::Disconnected => Answer::Withdrawn,
        };
        pending.told(&answer)
    }

    /// What must be durable before an answer is told. A release only frees, and rides on the next sync.
    fn after(&self, answer: &Answer) -> u64 {
        match answer {
            _ if planted::is(Bug::ForgottenSync) => 0,
            Answer::Granted { .. }
            | Answer::Renewed { .. }
            | Answer::Beaten
            | Answer::Opened { .. }
            | Answer::FeatureRegistered { .. }
            | Answer::PortsAllocated { .. } => self.position.revision,
            Answer::Released { .. }
            | Answer::ForceReleased { .. }
            | Answer::Closed { .. }
            | Answer::RoomOpened { .. }
            | Answer::RoomClosed { .. }
            | Answer::FeatureEnded { .. }
            | Answer::PortsReleased { .. }
            | Answer::Withdrawn
            | Answer::Refused(_) => 0,
        }
    }

    /// A closed session's quota is cleared, also the part that is kept here.
    fn forget_closed(&mut self, events: &[Event]) {
        for event in events {
            if let Event::SessionClosed { session } = event {
                self.refusals.forget(session);
            }
        }
    }
}

/// What came of folding a delta.
#[derive(Debug, Default)]
pub struct Folded {
    pub told: Vec<Told>,
    /// Batches of unknown outcome that are recorded after all; their answers are among those told.
    pub found: Vec<BatchId>,
    /// Batches of unknown outcome that may be part of a snapshot: nobody will ever know.
    pub unseen: Vec<BatchId>,
    /// They waited, and are no longer in the queue; nobody saw why.
    pub unplaced: Vec<Ticket>,
    /// The past that was known is void.
    pub rewritten: Option<Rewritten>,
}

/// What a ledger that was rewritten does not know any more.
#[derive(Debug)]
pub struct Rewritten {
    pub last_token: Token,
    /// Locks that were known and are not there now, oldest first.
    pub known: Vec<Arc<Lock>>,
}

/// Notes what waiters were granted by the last events.
fn note_granted(state: &State, events: &[Event], granted: &mut Granted) {
    for event in events {
        if let Event::Granted(grant) = event
            && let Some(waiter) = grant.waiter
        {
            let outcome = Outcome::Granted { locks: grant.locks().collect(), fresh: grant.new.len() };
            granted.extend(state.answer(&outcome).map(|answer| (waiter, answer)));
        }
    }
}

/// Whether an event may use the room that is kept back on a full disk.
fn frees(event: &Event) -> bool {
    match event {
        Event::Released { .. }
        | Event::Expired { .. }
        | Event::Forced { .. }
        | Event::Withdrawn { .. }
        | Event::Deadlocked { .. }
        | Event::SessionClosed { .. }
        | Event::SessionsForgotten { .. }
        | Event::LossAccepted { .. }
        | Event::LossTold { .. }
        | Event::RoomClosed { .. }
        | Event::Vanished { .. }
        | Event::GivenBack { .. }
        | Event::FeatureEnded { .. }
        | Event::PortsFreed { .. } => true,
        // What was freed is handed on in the same batch. What others hold outside is no grant of ours, but a fact.
        Event::Granted(grant) => grant.waiter.is_some() || grant.session.is_external(),
        Event::Renewed { session, .. } => session.is_external(),
        Event::Queued(_)
        | Event::Beaten { .. }
        | Event::SessionOpened { .. }
        | Event::RoomOpened { .. }
        | Event::FeatureRegistered(_)
        | Event::PortsAllocated { .. }
        | Event::ServerSeen { .. } => false,
    }
}

/// Whether somebody is told of an event only when it is durable.
fn is_awaited(event: &Event) -> bool {
    match event {
        Event::Granted(_)
        | Event::Renewed { .. }
        | Event::Beaten { .. }
        | Event::SessionOpened { .. }
        | Event::FeatureRegistered(_)
        | Event::PortsAllocated { .. } => true,
        Event::Released { .. }
        | Event::Expired { .. }
        | Event::Forced { .. }
        | Event::Queued(_)
        | Event::Withdrawn { .. }
        | Event::Deadlocked { .. }
        | Event::SessionClosed { .. }
        | Event::SessionsForgotten { .. }
        | Event::LossAccepted { .. }
        | Event::LossTold { .. }
        | Event::RoomOpened { .. }
        | Event::RoomClosed { .. }
        | Event::Vanished { .. }
        | Event::GivenBack { .. }
        | Event::FeatureEnded { .. }
        | Event::PortsFreed { .. }
        | Event::ServerSeen { .. } => false,
    }
}
