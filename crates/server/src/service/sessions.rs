//! Sessions and rooms.

use lockkeeper_core::command::{Actor, Command};
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::Answer;
use lockkeeper_wire::answer::{RoomChanged, RoomList, SessionClosed, SessionList, SessionOpened, SkippedView};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{RoomRequest, SessionRequest, StatusRequest};

use super::policy::give_back;
use super::{Body, Caller, LIST_DEFAULT, Noted, Service, json, unexpected};
use crate::view::{self, Viewer};
use crate::{door, refusal};

impl Service {
    pub(super) async fn session(
        &self,
        operation: Operation,
        body: SessionRequest,
        caller: &Caller,
        noted: &mut Noted,
        command: impl FnOnce(Actor) -> Command,
    ) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        self.permit(operation, caller, Some(&actor.agent), None)?;
        let owner = actor.agent.to_string();
        let answer = keeper.ask(command(actor.clone())).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::Opened { session, restored, refreshed, skipped } => {
                // What the policy has come to deny since is given back at once.
                let mut denied = Vec::new();
                for lock in &restored {
                    let key = Some(&lock.target.key);
                    if let Err(no) = self.permit(Operation::Acquire, caller, Some(&actor.agent), key) {
                        give_back(&keeper, &actor, std::slice::from_ref(lock)).await?;
                        denied.push((lock.clone(), no));
                    }
                }
                let restored: Vec<_> =
                    restored.into_iter().filter(|lock| denied.iter().all(|(other, _)| other.id != lock.id)).collect();
                let denied = denied.iter().map(|(lock, no)| {
                    let (start_line, end_line) = view::lines(lock.target.span);
                    let (file_path, message) = (lock.target.key.to_string(), no.body.message.clone());
                    SkippedView { file_path, start_line, end_line, message }
                });
                let skipped = skipped.iter().map(|skipped| {
                    let (start_line, end_line) = view::lines(skipped.target.span);
                    let message = skipped.conflicts.first().map_or_else(
                        || "It can't be had now.".to_owned(),
                        |conflict| refusal::conflict_sentence(conflict, viewer),
                    );
                    SkippedView { file_path: skipped.target.key.to_string(), start_line, end_line, message }
                });
                json(&SessionOpened {
                    success: true,
                    session_id: session.to_string(),
                    owner,
                    restored: viewer.locks(&restored),
                    refreshed: viewer.locks(&refreshed),
                    skipped: skipped.chain(denied).collect(),
                    heartbeat_interval_ms: self.settings.heartbeat_interval.0,
                })
            }
            Answer::Closed { session, released } => json(&SessionClosed {
                success: true,
                session_id: session.to_string(),
                released: viewer.locks(&released),
            }),
            other => Err(unexpected(other, viewer)),
        }
    }

    pub(super) async fn sessions(&self, body: StatusRequest, caller: &Caller, noted: &mut Noted) -> Body {
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

    pub(super) async fn open_room(&self, body: RoomRequest, caller: &Caller, noted: &mut Noted) -> Body {
        let (key, busy) = door::room(&body)?;
        self.room(Operation::OpenRoom, body, caller, noted, key.clone(), |actor| Command::OpenRoom { actor, key, busy })
            .await
    }

    pub(super) async fn close_room(&self, body: RoomRequest, caller: &Caller, noted: &mut Noted) -> Body {
        let (key, _) = door::room(&body)?;
        self.room(Operation::CloseRoom, body, caller, noted, key.clone(), |actor| Command::CloseRoom { actor, key })
            .await
    }

    async fn room(
        &self,
        operation: Operation,
        body: RoomRequest,
        caller: &Caller,
        noted: &mut Noted,
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

    pub(super) async fn rooms(&self, body: StatusRequest, caller: &Caller, noted: &mut Noted) -> Body {
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
