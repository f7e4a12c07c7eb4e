//! Sessions and rooms.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use lockkeeper_core::command::{Acquire, Actor, Command, Which};
use lockkeeper_core::history::{Action, Entry};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::limits::WAITERS_PER_SESSION_MAX;
use lockkeeper_core::lock::{Lock, LockId};
use lockkeeper_core::outcome::{Answer, Refusal, Skip, Skipped};
use lockkeeper_core::state::{Loss, State};
use lockkeeper_core::time::Millis;
use lockkeeper_keeper::Keeper;
use lockkeeper_wire::answer::{RoomChanged, RoomList, SessionClosed, SessionList, SessionOpened, SkippedView};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{RestoreRequest, RoomRequest, SessionRequest, StatusRequest};
use lockkeeper_wire::word::Word;
use tokio::time::Instant;

use super::locks::pauses_of;
use super::{Acquired, Body, Caller, LIST_DEFAULT, Noted, Service, json, unexpected};
use crate::refusal::No;
use crate::view::{self, Viewer};
use crate::{door, refusal};

/// What a wait for something lost brought, or why it could not be had.
type Waited = Result<Vec<Arc<Lock>>, (Target, No)>;

impl Service {
    pub(super) async fn open_session(
        &self,
        operation: Operation,
        body: RestoreRequest,
        caller: &Caller,
        noted: &mut Noted<'_>,
        command: impl FnOnce(Actor) -> Command,
    ) -> Body {
        let (keeper, actor) = self.asked(operation, &body, caller, noted, None).await?;
        let wait = door::wait(body.wait_ms)?;
        if wait.0 > 0 {
            // Nobody makes room for an answer that may come in hours.
            noted.turn = None;
        }
        let answer = keeper.ask(command(actor.clone())).await?;
        let viewer = Viewer { now: keeper.now() };
        let Answer::Opened { session, restored, refreshed, skipped } = answer else {
            return Err(unexpected(answer, viewer));
        };
        let (mut back, mut left) = (Vec::new(), Vec::new());
        // What the policy has come to deny since is given back at once.
        for lock in restored {
            match self.permit(Operation::Acquire, caller, Some(&actor.agent), Some(&lock.target.key)) {
                Ok(()) => back.push(lock),
                Err(no) => {
                    keeper.give_back(actor.session.clone(), vec![lock.id]).await;
                    left.push((lock.target.clone(), no));
                }
            }
        }
        let again = if wait.0 > 0 { lost_of(&keeper, &actor).await? } else { Vec::new() };
        // What was counted at once counts for all that comes later.
        let mut counted = !back.is_empty();
        let waited = skipped.into_iter().map(|Skipped { target, why }| {
            let lost = again.iter().find(|(lost, _)| *lost == target).filter(|_| may_come_free(&why));
            let again = lost.map(|(target, loss)| Acquire { restores: counted, ..loss.again(&actor, target, wait) });
            counted |= again.is_some();
            let keeper = &keeper;
            async move {
                let waited = self.wait_for_lost(keeper, caller, &why, again).await;
                waited.map_err(|no| (target, no))
            }
        });
        // Side by side, each with its own time, as many at once as a session may have in the queue.
        let waited = stream::iter(waited).buffer_unordered(WAITERS_PER_SESSION_MAX);
        let shortest = back.iter().chain(&refreshed).map(|lock| lock.ttl).min();
        for waited in self.beating(&keeper, caller, &actor, shortest, waited).await {
            match waited {
                Ok(locks) => back.extend(locks),
                Err(skipped) => left.push(skipped),
            }
        }
        back.sort_unstable_by(|one, other| one.target.cmp(&other.target));
        // Some may have ended while others were waited for.
        let back = still_held(&keeper, back, &mut left).await?;
        let refreshed = still_held(&keeper, refreshed, &mut left).await?;
        left.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (target, no) in &left {
            let (space, why) = (keeper.space(), &no.body.message);
            tracing::warn!(%space, %session, key = %target, error = no.word.text(), why, "not given back");
        }
        let viewer = Viewer { now: keeper.now() };
        noted.ttl = back.iter().chain(&refreshed).map(|lock| lock.ttl).min();
        let ids = |locks: &[Arc<Lock>]| locks.iter().map(|lock| lock.id).collect();
        let (space, actor_of) = (keeper.space().clone(), actor.clone());
        noted.granted = Some(Acquired {
            space,
            actor: actor_of,
            locks: ids(&back),
            had: ids(&refreshed),
            named: false,
            ports: false,
        });
        // It is given back, whether that can be told or not.
        let paused = pauses_of(&keeper, &refreshed).await.unwrap_or_default();
        json(&SessionOpened {
            success: true,
            paused: viewer.locks(&paused),
            session_id: session.to_string(),
            owner: actor.agent.to_string(),
            restored: viewer.locks(&back),
            refreshed: viewer.locks(&refreshed),
            skipped: left.iter().map(|(target, no)| skipped_view(target, no)).collect(),
            heartbeat_interval_ms: self.settings.heartbeat_interval.0,
        })
    }

    /// Lets every wait end. Until then the session can't beat, since it does not know yet what it has: this does.
    async fn beating(
        &self,
        keeper: &Keeper,
        caller: &Caller,
        actor: &Actor,
        mut shortest: Option<Millis>,
        waits: impl Stream<Item = Waited>,
    ) -> Vec<Waited> {
        let mut waits = pin!(waits);
        let (mut ended, mut beaten) = (Vec::new(), Instant::now());
        loop {
            let interval = self.heartbeat(shortest.unwrap_or(self.settings.default_ttl));
            tokio::select! {
                waited = waits.next() => {
                    let Some(waited) = waited else { return ended };
                    shortest = waited.iter().flatten().map(|lock| lock.ttl).chain(shortest).min();
                    ended.push(waited);
                }
                () = tokio::time::sleep_until(beaten + Duration::from_millis(interval)) => {
                    beaten = Instant::now();
                    // The policy may have changed meanwhile.
                    if self.permit(Operation::Renew, caller, Some(&actor.agent), None).is_ok() {
                        let (actor, which) = (actor.clone(), Which::Everything);
                        // If it fails, the next may not; what is lost by it is told in the end.
                        let _ = keeper.ask(Command::Renew { actor, which, ttl: None, token: None }).await;
                    }
                }
            }
        }
    }

    /// Stands in the queue for something that was lost; why it could not be had, if it could not.
    async fn wait_for_lost(
        &self,
        keeper: &Keeper,
        caller: &Caller,
        why: &Skip,
        again: Option<Acquire>,
    ) -> Result<Vec<Arc<Lock>>, No> {
        let Some(again) = again else { return Err(refusal::skipped(why, Viewer { now: keeper.now() })) };
        let (agent, key) = (&again.actor.agent, again.wants.first().map(|want| &want.target.key));
        self.permit(Operation::Acquire, caller, Some(agent), key)?;
        let actor = again.actor.clone();
        match keeper.ask_bound(Command::Acquire(again)).await {
            Ok(Answer::Granted { locks, fresh }) => {
                self.permit_granted(Operation::Acquire, keeper, caller, &actor, &locks[..fresh]).await?;
                Ok(locks)
            }
            Ok(other) => Err(unexpected(other, Viewer { now: keeper.now() })),
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) async fn close_session(&self, body: SessionRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let (keeper, actor) = self.asked(Operation::CloseSession, &body, caller, noted, None).await?;
        let answer = keeper.ask(Command::CloseSession { actor }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::Closed { session, released } => json(&SessionClosed {
                success: true,
                session_id: session.to_string(),
                released: viewer.locks(&released),
            }),
            other => Err(unexpected(other, viewer)),
        }
    }

    pub(super) async fn sessions(&self, body: StatusRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        self.permit_look(Operation::Sessions, caller, &body, None)?;
        let list = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let mut sessions: Vec<_> = state.sessions().collect();
            let total = sessions.len();
            sessions.sort_unstable_by(|one, other| other.seen.cmp(&one.seen).then(one.id.cmp(&other.id)));
            let sessions =
                sessions.into_iter().take(LIST_DEFAULT).map(|session| viewer.session(state, session)).collect();
            SessionList { sessions, total }
        });
        json(&list.await?)
    }

    pub(super) async fn open_room(&self, body: RoomRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let (key, busy) = door::room(&body)?;
        self.room(Operation::OpenRoom, body, caller, noted, key.clone(), |actor| Command::OpenRoom { actor, key, busy })
            .await
    }

    pub(super) async fn close_room(&self, body: RoomRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let (key, _) = door::room(&body)?;
        self.room(Operation::CloseRoom, body, caller, noted, key.clone(), |actor| Command::CloseRoom { actor, key })
            .await
    }

    async fn room(
        &self,
        operation: Operation,
        body: RoomRequest,
        caller: &Caller,
        noted: &mut Noted<'_>,
        key: Key,
        command: impl FnOnce(Actor) -> Command,
    ) -> Body {
        noted.key.clone_from(&body.file_path);
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        self.permit(operation, caller, Some(&actor.agent), Some(&key))?;
        let answer = keeper.ask(command(actor)).await?;
        let viewer = Viewer { now: keeper.now() };
        let (action, key, room, present) = match answer {
            Answer::RoomOpened { room, present } => ("opened", room.key.clone(), Some(room), present),
            // Also for whoever opened it, when it was closed in the same moment.
            Answer::RoomClosed { key } => ("closed", key, None, Vec::new()),
            other => return Err(unexpected(other, viewer)),
        };
        json(&RoomChanged {
            success: true,
            action: action.to_owned(),
            file_path: key.to_string(),
            room: room.map(|room| viewer.room(&room)),
            present: viewer.locks(&present),
        })
    }

    pub(super) async fn rooms(&self, body: StatusRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        self.permit_look(Operation::Rooms, caller, &body, None)?;
        let list = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let rooms: Vec<_> = state.rooms().take(LIST_DEFAULT).map(|room| viewer.room(room)).collect();
            RoomList { rooms, total: state.rooms().count() }
        });
        json(&list.await?)
    }
}

fn skipped_view(target: &Target, no: &No) -> SkippedView {
    let (start_line, end_line) = view::lines(target.span);
    let (error, message) = (no.word.text().to_owned(), no.body.message.clone());
    SkippedView { file_path: target.key.to_string(), start_line, end_line, error, message }
}

/// Whether it is worth standing in the queue: somebody has it who will give it back.
fn may_come_free(why: &Skip) -> bool {
    match why {
        Skip::Taken { .. } => false,
        Skip::Refused(refusal) => match **refusal {
            Refusal::Busy(_) | Refusal::Paused { .. } => true,
            Refusal::Deadlock { .. }
            | Refusal::RequestMismatch
            | Refusal::LockLost { .. }
            | Refusal::NotOwner { .. }
            | Refusal::NotInRoom { .. }
            | Refusal::NotFound { .. }
            | Refusal::RateLimited { .. }
            | Refusal::ForeignSession { .. }
            | Refusal::LimitExceeded { .. }
            | Refusal::ForeignFeature { .. }
            | Refusal::NoPorts { .. } => false,
        },
    }
}

/// Those that the session still has, with their present ends. What became of the others is added to what is left.
async fn still_held(
    keeper: &Keeper,
    locks: Vec<Arc<Lock>>,
    left: &mut Vec<(Target, No)>,
) -> Result<Vec<Arc<Lock>>, No> {
    let looked = keeper.read(move |state, now| {
        let (mut held, mut gone) = (Vec::new(), Vec::new());
        for lock in locks {
            // Not by its id: a shared lock that became an exclusive one has another.
            match state.own_on(&lock.session, &lock.target) {
                Some(own) => held.push(own.clone()),
                None => gone.push(lock),
            }
        }
        (held, what_became_of(state, &gone, Viewer { now }))
    });
    let (held, gone) = looked.await?;
    left.extend(gone);
    Ok(held)
}

/// Why locks are not held any more that came back a moment ago.
fn what_became_of(state: &State, gone: &[Arc<Lock>], viewer: Viewer) -> Vec<(Target, No)> {
    if gone.is_empty() {
        return Vec::new();
    }
    let ends = state.history().newest().filter(|entry| entry.action.is_loss() || entry.action == Action::Released);
    let ends: HashMap<Option<LockId>, &Entry> = ends.map(|entry| (entry.lock, &**entry)).collect();
    let told = |lock: &Arc<Lock>| {
        let end = ends.get(&Some(lock.id));
        let what = match end.map(|end| end.action) {
            Some(Action::ForceReleased) => {
                let note = end.and_then(|end| end.note.clone());
                return (lock.target.clone(), refusal::skipped(&Skip::Taken { note }, viewer));
            }
            Some(Action::Released) => "It was given back",
            Some(Action::Expired) => "Its time ran out",
            // The others are no ends of locks.
            Some(
                Action::Lost
                | Action::Requested
                | Action::Acquired
                | Action::Withdrawn
                | Action::RoomOpened
                | Action::RoomClosed,
            )
            | None => "It was lost",
        };
        let message = format!("{what} while others were waited for; ask for it anew if you still need it.");
        (lock.target.clone(), No::new(Word::LockLost, message))
    };
    gone.iter().map(told).collect()
}

/// What a session lost, as it held it.
async fn lost_of(keeper: &Keeper, actor: &Actor) -> Result<Vec<(Target, Arc<Loss>)>, No> {
    let session = actor.session.clone();
    let lost = keeper.read(move |state, _| {
        state.lost_of(&session).map(|(target, loss)| (target.clone(), loss.clone())).collect::<Vec<_>>()
    });
    Ok(lost.await?)
}
