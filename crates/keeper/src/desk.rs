//! The keeper without its loop: decides batches on a working state, and folds what the ledger says.
//!
//! No I/O, no clock, no tasks, so that it can be driven by a simulation as well as by the loop. Nothing is told from a
//! working state: answers come out of [`Desk::settle`] and [`Desk::fold`] only.

use std::collections::HashMap;

use lockkeeper_core::command::{Command, Want};
use lockkeeper_core::decide::Context;
use lockkeeper_core::event::{Event, Withdrawal};
use lockkeeper_core::lock::WaiterId;
use lockkeeper_core::outcome::{Answer, Outcome, Refusal};
use lockkeeper_core::session::SessionId;
use lockkeeper_core::state::{Rules, State};
use lockkeeper_core::time::{Stamp, Time};
use lockkeeper_engine::{Appended, Base, Batch, BatchId, Delta, Position, Record};

use crate::payload::{self, PayloadError};
use crate::refusals::Refusals;

/// The name of one question, for whoever waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

#[derive(Clone, Debug)]
pub struct Asked {
    /// `None`: nobody waits for an answer.
    pub ticket: Option<Ticket>,
    pub command: Command,
}

/// An answer, and how safe its cause must be before it may be told.
#[derive(Debug)]
pub struct Told {
    pub ticket: Ticket,
    pub answer: Answer,
    /// The revision that must be durable first; zero: none.
    pub after: u64,
}

#[derive(Debug)]
pub struct Desk {
    state: State,
    salt: u64,
    position: Position,
    rules: Rules,
    refusals: Refusals,
    pending: HashMap<WaiterId, Pending>,
    working: Option<Working>,
}

/// Somebody here waits for a place in the queue to come up.
#[derive(Debug)]
struct Pending {
    tickets: Vec<Ticket>,
    session: SessionId,
    wants: Vec<Want>,
    priority: u8,
    queued: Time,
}

/// A batch that was decided and not yet recorded.
#[derive(Debug)]
struct Working {
    id: BatchId,
    now: Stamp,
    outcomes: Vec<(Option<Ticket>, Outcome)>,
    events: Vec<Event>,
}

impl Desk {
    /// A desk that knows nothing yet. The salt makes lock ids of different spaces differ.
    pub fn new(salt: u64, rules: Rules) -> Desk {
        Desk {
            state: State::new(salt),
            salt,
            position: Position::ORIGIN,
            rules,
            refusals: Refusals::default(),
            pending: HashMap::new(),
            working: None,
        }
    }

    /// What the ledger says, as far as it was read.
    pub fn state(&self) -> &State {
        assert!(self.working.is_none(), "nothing is told from a working state");
        &self.state
    }

    pub fn position(&self) -> Position {
        self.position
    }

    /// The waiters that somebody here waits for.
    pub fn waiting(&self) -> impl Iterator<Item = WaiterId> {
        self.pending.keys().copied()
    }

    /// The place in the queue behind a ticket, if nobody else waits for it: the ticket is not there any more.
    pub fn leave(&mut self, ticket: Ticket) -> Option<WaiterId> {
        let (&waiter, pending) = self.pending.iter_mut().find(|(_, pending)| pending.tickets.contains(&ticket))?;
        pending.tickets.retain(|kept| *kept != ticket);
        if pending.tickets.is_empty() {
            self.pending.remove(&waiter);
            return Some(waiter);
        }
        None
    }

    /// Decides a batch. `None`: nothing has to be recorded, and [`Desk::settle_unrecorded`] tells the answers.
    pub fn decide(&mut self, id: BatchId, now: Stamp, asked: &[Asked]) -> Option<Batch> {
        assert!(self.working.is_none(), "one batch at a time");
        // Never behind what is already folded: another keeper's clock may be ahead.
        let now = Stamp { time: now.time.max(self.state.stamp().time), wall: now.wall };
        self.state.begin();
        let mut events = Vec::new();
        let mut outcomes = Vec::with_capacity(asked.len());
        for Asked { ticket, command } in asked {
            let refused_lately = match command {
                Command::Acquire(acquire) if self.rules.quota_limit > 0 => {
                    self.refusals.lately(&acquire.actor.session, now.time, self.rules.quota_window)
                }
                _ => 0,
            };
            let cx = Context { rules: &self.rules, now, refused_lately };
            outcomes.push((*ticket, self.state.decide(&cx, command, &mut events)));
        }
        let frees = events.iter().all(frees);
        let awaited = events.iter().any(is_awaited);
        let payload = (!events.is_empty()).then(|| payload::encode_events(&events));
        self.working = Some(Working { id, now, outcomes, events });
        payload.map(|payload| Batch { id, payload, frees, awaited })
    }

    /// The batch wrote nothing, and the ledger has not moved meanwhile.
    pub fn settle_unrecorded(&mut self, asked: &[Asked]) -> Vec<Told> {
        let working = self.working.take().expect("a decided batch");
        assert!(working.events.is_empty(), "what wrote something is settled with its position");
        self.state.keep();
        self.tell(working.outcomes, asked, working.now.time)
    }

    /// The batch was recorded.
    pub fn settle(&mut self, appended: Appended, asked: &[Asked]) -> Vec<Told> {
        let working = self.working.take().expect("a decided batch");
        if appended.stamp == working.now {
            self.state.keep();
        } else {
            self.state.roll_back();
            for event in &working.events {
                self.state.apply(appended.stamp, event);
            }
        }
        self.position = appended.position;
        self.forget_closed(&working.events);
        let mut told = self.tell(working.outcomes, asked, appended.stamp.time);
        told.extend(self.tell_waiters(&working.events));
        self.state.trim(self.rules.history_kept);
        told
    }

    /// The batch was not recorded, or nobody knows. The working state is dropped.
    pub fn give_up(&mut self) {
        if self.working.take().is_some() {
            self.state.roll_back();
        }
    }

    /// Folds what the ledger has beyond what was known. `asked`: what the last decided batch answers, if that batch may
    /// be among it; it is told if it is.
    pub fn fold(&mut self, delta: Delta, asked: Option<&[Asked]>) -> Result<Folded, PayloadError> {
        let working = self.working.take();
        if working.is_some() {
            self.state.roll_back();
        }
        let mut folded = Folded { told: Vec::new(), found: false, rewritten: false };
        match delta.base {
            Base::Asked => {}
            Base::Snapshot { position, snapshot } => {
                self.state = payload::decode_snapshot(&snapshot)?;
                self.position = position;
            }
            Base::Rewritten { snapshot, position } => {
                folded.rewritten = true;
                self.state = match &snapshot {
                    Some((_, snapshot)) => payload::decode_snapshot(snapshot)?,
                    None => State::new(self.salt),
                };
                self.position = snapshot.map_or(position, |(position, _)| position);
            }
        }
        let mut working = working;
        for record in delta.records {
            let Record { position, batch, stamp, payload } = record;
            let events = payload::decode_events(&payload)?;
            for event in &events {
                self.state.apply(stamp, event);
            }
            self.position = position;
            self.forget_closed(&events);
            if let Some(asked) = asked
                && let Some(working) = working.take_if(|working| working.id == batch)
            {
                folded.found = true;
                folded.told.extend(self.tell(working.outcomes, asked, stamp.time));
            }
            let told = self.tell_waiters(&events);
            folded.told.extend(told);
        }
        if folded.rewritten {
            // Places in a queue that is no more: whoever waits is told to ask again.
            let gone: Vec<WaiterId> =
                self.pending.keys().copied().filter(|waiter| self.state.waiter(*waiter).is_none()).collect();
            for waiter in gone {
                folded.told.extend(self.tell_pending(waiter, Withdrawal::SessionGone));
            }
        }
        self.state.trim(self.rules.history_kept);
        Ok(folded)
    }

    /// Turns outcomes into answers; whoever is queued becomes pending.
    fn tell(&mut self, outcomes: Vec<(Option<Ticket>, Outcome)>, asked: &[Asked], now: Time) -> Vec<Told> {
        assert_eq!(outcomes.len(), asked.len(), "an outcome for each question");
        let mut told = Vec::with_capacity(outcomes.len());
        for ((ticket, outcome), asked) in outcomes.into_iter().zip(asked) {
            if let (Outcome::Queued(waiter), Some(ticket), Command::Acquire(acquire)) =
                (&outcome, ticket, &asked.command)
            {
                let queued = self.state.waiter(*waiter).map_or(now, |waiter| waiter.queued);
                let pending = self.pending.entry(*waiter).or_insert_with(|| Pending {
                    tickets: Vec::new(),
                    session: acquire.actor.session.clone(),
                    wants: acquire.wants.clone(),
                    priority: acquire.priority,
                    queued,
                });
                pending.tickets.push(ticket);
                continue;
            }
            if let (Outcome::Told(Answer::Refused(Refusal::Busy(_))), Command::Acquire(acquire)) =
                (&outcome, &asked.command)
                && self.rules.quota_limit > 0
            {
                let Rules { quota_limit, quota_window, .. } = self.rules;
                self.refusals.note(&acquire.actor.session, now, quota_window, quota_limit);
            }
            if let (Some(ticket), Some(answer)) = (ticket, self.state.answer(outcome)) {
                told.push(Told { ticket, after: self.after(&answer), answer });
            }
        }
        told
    }

    /// Whoever here waited for what these events brought, or for what they ended.
    fn tell_waiters(&mut self, events: &[Event]) -> Vec<Told> {
        let mut told = Vec::new();
        for event in events {
            match event {
                Event::Granted(grant) => {
                    let Some(pending) = grant.waiter.and_then(|waiter| self.pending.remove(&waiter)) else { continue };
                    let (locks, fresh) = (grant.locks().collect(), grant.new.len());
                    let answer = self.state.answer(Outcome::Granted { locks, fresh }).expect("a grant has an answer");
                    let after = self.after(&answer);
                    let to = |ticket| Told { ticket, answer: answer.clone(), after };
                    told.extend(pending.tickets.into_iter().map(to));
                }
                Event::Withdrawn { waiter, why } => told.extend(self.tell_pending(*waiter, *why)),
                Event::SessionClosed { session } => {
                    let theirs =
                        |(waiter, pending): (&WaiterId, &Pending)| (pending.session == *session).then_some(*waiter);
                    let gone: Vec<WaiterId> = self.pending.iter().filter_map(theirs).collect();
                    for waiter in gone {
                        told.extend(self.tell_pending(waiter, Withdrawal::SessionGone));
                    }
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
                | Event::RoomOpened { .. }
                | Event::RoomClosed { .. } => {}
            }
        }
        told
    }

    /// Tells those who wait for a place in the queue that they will get nothing.
    fn tell_pending(&mut self, waiter: WaiterId, why: Withdrawal) -> Vec<Told> {
        let Some(pending) = self.pending.remove(&waiter) else { return Vec::new() };
        let answer = match why {
            Withdrawal::TimedOut | Withdrawal::SessionGone => {
                let busy = self.state.timed_out(&pending.session, &pending.wants, pending.priority, pending.queued);
                Answer::Refused(Refusal::Busy(busy))
            }
            Withdrawal::Disconnected => Answer::Withdrawn,
        };
        pending.tickets.into_iter().map(|ticket| Told { ticket, answer: answer.clone(), after: 0 }).collect()
    }

    /// What must be durable before an answer is told. A release only frees, and rides on the next sync.
    fn after(&self, answer: &Answer) -> u64 {
        match answer {
            Answer::Granted { .. } | Answer::Renewed { .. } | Answer::Beaten | Answer::Opened { .. } => {
                self.position.revision
            }
            Answer::Released { .. }
            | Answer::ForceReleased { .. }
            | Answer::Closed { .. }
            | Answer::RoomOpened { .. }
            | Answer::RoomClosed { .. }
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
#[derive(Debug)]
pub struct Folded {
    pub told: Vec<Told>,
    /// The batch that was looked for is recorded, and its answers are among those told.
    pub found: bool,
    /// The past that was known is void.
    pub rewritten: bool,
}

/// Whether an event may use the room that is kept back on a full disk.
fn frees(event: &Event) -> bool {
    match event {
        Event::Released { .. }
        | Event::Expired { .. }
        | Event::Forced { .. }
        | Event::Withdrawn { .. }
        | Event::SessionClosed { .. }
        | Event::SessionsForgotten { .. }
        | Event::LossAccepted { .. }
        | Event::RoomClosed { .. } => true,
        // What was freed is handed on in the same batch.
        Event::Granted(grant) => grant.waiter.is_some(),
        Event::Renewed { .. }
        | Event::Queued(_)
        | Event::Beaten { .. }
        | Event::SessionOpened { .. }
        | Event::RoomOpened { .. } => false,
    }
}

/// Whether somebody is told of an event only when it is durable.
fn is_awaited(event: &Event) -> bool {
    match event {
        Event::Granted(_) | Event::Renewed { .. } | Event::Beaten { .. } | Event::SessionOpened { .. } => true,
        Event::Released { .. }
        | Event::Expired { .. }
        | Event::Forced { .. }
        | Event::Queued(_)
        | Event::Withdrawn { .. }
        | Event::SessionClosed { .. }
        | Event::SessionsForgotten { .. }
        | Event::LossAccepted { .. }
        | Event::RoomOpened { .. }
        | Event::RoomClosed { .. } => false,
    }
}
