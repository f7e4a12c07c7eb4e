//! Decides: from a state, the time and a command to an outcome and events. One file a family of rules.
//!
//! A decision applies its events as it makes them, so that the next rule sees them. The state it leaves behind is
//! therefore a working state: whoever decides brackets it with [`State::begin`] and [`State::keep`] or
//! [`State::roll_back`].

mod acquire;
mod blockers;
mod deadlock;
mod external;
mod feature;
mod ports;
mod queue;
mod quota;
mod release;
mod renew;
mod room;
mod session;
mod sweep;

use self::deadlock::Entangled;
use crate::command::{Actor, Command, Request};
use crate::event::Event;
use crate::lock::LockId;
use crate::outcome::{Answer, Outcome, Refusal};
use crate::planted::{self, Bug};
use crate::session::SessionId;
use crate::state::{Kept, Rules, State};
use crate::time::{Stamp, Time};

/// What a decision needs to know besides the state.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    pub rules: &'a Rules,
    /// A lower bound of the engine's time.
    pub now: Stamp,
    /// When this server told the session `busy` within the quota's window.
    pub refused_lately: &'a [Time],
}

/// A decision being made: the state, and what was recorded so far.
struct Deciding<'a> {
    state: &'a mut State,
    cx: &'a Context<'a>,
    events: &'a mut Vec<Event>,
    entangled: Entangled,
}

/// A refusal on the way out of a rule. Boxed: refusals are large, and most answers are none.
type Refused = Box<Refusal>;

impl State {
    /// Decides one command, and appends what happened to `events`.
    pub fn decide(&mut self, cx: &Context<'_>, command: &Command, events: &mut Vec<Event>) -> Outcome {
        self.prepare(cx, command, events);
        self.judge(cx, command, events)
    }

    /// Decides a command for which everything is [prepared](State::prepare), and appends what happened to `events`.
    pub fn judge(&mut self, cx: &Context<'_>, command: &Command, events: &mut Vec<Event>) -> Outcome {
        let mut deciding = Deciding::new(self, cx, events);
        let decided = match command {
            Command::Acquire(acquire) => deciding.acquire(acquire),
            Command::Release { actor, which, token, request } => {
                deciding.release(actor, which, *token, request.as_ref())
            }
            Command::Renew { actor, which, ttl, token } => deciding.renew(actor, which, *ttl, *token),
            Command::ForceRelease { by, reason, which, request } => {
                deciding.force_release(by, reason, which, request.as_ref())
            }
            Command::OpenSession { actor } => deciding.open_session(actor),
            Command::RestoreSession { actor } => deciding.restore_session(actor),
            Command::CloseSession { actor } => deciding.close_session(actor),
            Command::OpenRoom { actor, key, busy } => deciding.open_room(actor, key, *busy),
            Command::CloseRoom { actor, key } => deciding.close_room(actor, key),
            Command::RegisterFeature { actor, feature } => deciding.register_feature(actor, feature),
            Command::EndFeature { actor, feature, end } => deciding.end_feature(actor, feature, *end),
            Command::AllocatePorts { actor, taken } => deciding.allocate_ports(actor, taken),
            Command::ReleasePorts { actor } => deciding.release_ports(actor),
            Command::Beat { sessions, waiters } => Ok(deciding.beat(sessions, waiters)),
            Command::GiveBack { session, locks, even_if_heard } => {
                Ok(deciding.give_back(session, locks, *even_if_heard))
            }
            Command::Withdraw { places } => Ok(deciding.withdraw(places)),
            Command::Mourn { locks, last_token } => Ok(deciding.mourn(locks, *last_token)),
            Command::SeeExternal { .. } => Ok(Outcome::Nothing),
            Command::Announce { server, settings } => {
                let (server, settings) = (server.clone(), settings.clone());
                deciding.record(Event::ServerSeen { server, settings });
                Ok(Outcome::Nothing)
            }
            Command::Sweep => Ok(Outcome::Nothing),
        };
        deciding.end_circles();
        decided.unwrap_or_else(|refusal| Outcome::Told(Answer::Refused(*refusal)))
    }

    /// Does what comes before a command is decided, and appends what happened to `events`.
    pub fn prepare(&mut self, cx: &Context<'_>, command: &Command, events: &mut Vec<Event>) {
        let mut deciding = Deciding::new(self, cx, events);
        // What others are seen to have is handed to nobody, however late it is.
        if let Command::SeeExternal { seen } = command {
            deciding.see_external(seen);
        }
        // Nor is anybody taken for dead who is just said to be alive.
        if let Command::Beat { sessions, waiters } = command {
            deciding.keep_places(sessions, waiters);
        }
        // Judged here, not by a timer: a late sweep must not lengthen a lease.
        deciding.sweep();
        deciding.end_circles();
    }

    /// The answer that an outcome becomes once its events are applied with their true stamp.
    ///
    /// A grant that did not survive that (its ledger was rewritten meanwhile) is told as lost.
    pub fn answer(&self, outcome: &Outcome) -> Option<Answer> {
        let held = |ids: &[LockId]| ids.iter().filter_map(|id| self.lock(*id).cloned()).collect::<Vec<_>>();
        let lost = || Answer::Refused(Refusal::LockLost { targets: Vec::new() });
        match outcome {
            Outcome::Told(answer) => Some(answer.clone()),
            Outcome::Granted { locks, fresh } => {
                let wanted = locks.len();
                let locks = held(locks);
                Some(if locks.len() == wanted { Answer::Granted { locks, fresh: *fresh } } else { lost() })
            }
            Outcome::Replayed(session, request) => {
                let remembered = self.remembered(session, request, self.stamp().time);
                Some(remembered.map_or_else(lost, |remembered| match remembered.answer.clone() {
                    Kept::Granted { locks, fresh } => Answer::Granted { locks, fresh },
                    Kept::Released { locks } => Answer::Released { locks },
                    Kept::ForceReleased { locks } => Answer::ForceReleased { locks },
                    Kept::Lost { targets } => Answer::Refused(Refusal::LockLost { targets }),
                }))
            }
            Outcome::Renewed { session, locks, everything } => {
                let locks = held(locks);
                // Whoever renews all they have is told what they have no longer.
                let lost = self.lost_of(session).filter(|_| *everything).map(|(target, _)| target.clone()).collect();
                Some(Answer::Renewed { paused: self.pauses_of(&locks), locks, lost })
            }
            // Applied to another past than it was decided on, they may be gone.
            Outcome::PortsAllocated(session) => Some(match self.ports_of(session) {
                Some(ports) => Answer::PortsAllocated { ports: ports.clone() },
                None => Answer::PortsReleased { ports: None },
            }),
            Outcome::Opened { session, restored, refreshed, skipped } => {
                let (session, skipped) = (session.clone(), skipped.clone());
                Some(Answer::Opened { session, restored: held(restored), refreshed: held(refreshed), skipped })
            }
            // Applied to another past than it was decided on, there may be no room.
            Outcome::RoomOpened { key, present } => Some(match self.room(key).cloned() {
                Some(room) => Answer::RoomOpened { room, present: present.clone() },
                None => Answer::RoomClosed { key: key.clone() },
            }),
            Outcome::Queued(_) | Outcome::Nothing => None,
        }
    }
}

impl<'a> Deciding<'a> {
    fn new(state: &'a mut State, cx: &'a Context<'a>, events: &'a mut Vec<Event>) -> Deciding<'a> {
        Deciding { state, cx, events, entangled: Entangled::default() }
    }

    /// Records an event and applies it to the working state.
    fn record(&mut self, event: Event) {
        self.note_entangled(&event);
        self.state.apply(self.cx.now, &event);
        self.events.push(event);
    }

    fn now(&self) -> Time {
        self.cx.now.time
    }

    /// Whether the same request was answered before.
    fn answered_before(&self, session: &SessionId, request: Option<&Request>) -> Result<Option<Outcome>, Refused> {
        let Some(request) = request else { return Ok(None) };
        let Some(remembered) = self.state.remembered(session, &request.id, self.now()) else {
            // It may not be answered yet: then it is the name of what waits.
            let waits = self.state.waiters_of(session).filter_map(|waiter| waiter.asked.request.as_ref());
            let other = |waiting: &Request| waiting.id == request.id && waiting.digest != request.digest;
            return if waits.into_iter().any(other) { Err(Box::new(Refusal::RequestMismatch)) } else { Ok(None) };
        };
        if remembered.digest != request.digest && !planted::is(Bug::RequestBodyIgnored) {
            return Err(Box::new(Refusal::RequestMismatch));
        }
        Ok(Some(Outcome::Replayed(session.clone(), request.id.clone())))
    }

    /// A credential that is bound to an agent may not use the session of another.
    fn own_session(&self, actor: &Actor) -> Result<(), Refused> {
        self.state.own_session(actor).map_err(Box::new)
    }
}
