//! What a service does, whichever door a request came through: parse, ask the keeper, answer, write the audit line.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use axum::http::Uri;
use lockkeeper_core::command::{Actor, Command, Want, Which};
use lockkeeper_core::history::Entry;
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::lock::{Lock, LockId, Token};
use lockkeeper_core::outcome::{Answer, GrantAction, Refusal};
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::space::Space;
use lockkeeper_core::span::Span;
use lockkeeper_core::state::State;
use lockkeeper_core::time::Millis;
use lockkeeper_engine::Engine;
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::audit::{Audit, Line};
use lockkeeper_keeper::metrics::Metrics;
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::trace::TraceParent;
use lockkeeper_wire::answer::{
    AuditList, Changed, Checked, Done, Granted, HistoryList, HolderView, KeyStatus, Listed, LockList, RoomChanged,
    RoomList, ServiceStatus, SessionClosed, SessionList, SessionOpened, SettingsView, SkippedView,
};
use lockkeeper_wire::operation::{Access, Operation};
use lockkeeper_wire::request::{
    AcquireRequest, Asker, AuditRequest, CheckRequest, ForceReleaseRequest, HistoryRequest, ListRequest,
    ReleaseRequest, RenewRequest, RoomRequest, SessionRequest, StatusRequest,
};
use lockkeeper_wire::word::Word;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::door;
use crate::refusal::{self, No};
use crate::spaces::{NoKeeper, SPACES_MAX, Spaces};
use crate::view::{self, Viewer};

const LIST_DEFAULT: usize = 1000;
const LIST_MAX: usize = 100_000;
const HISTORY_DEFAULT: usize = 10;

/// Who is at the door, by their credential.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Came over the private socket, or showed a credential.
    pub known: bool,
    /// Came over the private socket.
    pub local: bool,
    pub operator: bool,
    /// The only agent that the credential speaks for.
    pub agent: Option<AgentName>,
    pub trace: Option<TraceParent>,
}

impl Caller {
    /// The local user, over the private socket.
    pub fn local() -> Caller {
        Caller { known: true, local: true, operator: true, agent: None, trace: None }
    }
}

/// A body as it came.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    Json(&'a [u8]),
    Query(&'a Uri),
}

/// An answer on its way out.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    /// In seconds, for those who asked too often.
    pub retry_after: Option<u64>,
    /// What the request got that it did not have before.
    pub(crate) granted: Option<Acquired>,
}

/// Locks that a session got with one request.
#[derive(Clone, Debug)]
pub(crate) struct Acquired {
    pub(crate) space: Space,
    pub(crate) actor: Actor,
    pub(crate) locks: Vec<LockId>,
}

/// What `status` says about how the service runs.
#[derive(Clone, Debug)]
pub struct About {
    pub background: bool,
    pub durability: String,
    pub socket: Option<String>,
    pub listen: Option<String>,
}

/// The service behind every door.
#[derive(Debug)]
pub struct Service {
    spaces: Spaces,
    engine: Arc<dyn Engine>,
    default_space: Space,
    pub(crate) settings: Settings,
    pub(crate) audit: Audit,
    pub(crate) metrics: Arc<Metrics>,
    about: About,
    started: Instant,
    started_at: jiff::Timestamp,
    pub(crate) stopping: CancellationToken,
}

/// Fields of the audit line that a handler learns on its way.
#[derive(Default)]
struct Noted {
    space: Option<Space>,
    key: Option<String>,
    intention: Option<String>,
    session: Option<SessionId>,
    agent: Option<AgentName>,
    request: Option<String>,
    granted: Option<Acquired>,
}

impl Noted {
    fn actor(&mut self, actor: &Actor) {
        self.session = Some(actor.session.clone());
        self.agent = Some(actor.agent.clone());
    }
}

type Body = Result<Vec<u8>, No>;

impl Service {
    pub fn new(
        engine: Arc<dyn Engine>,
        default_space: Space,
        settings: Settings,
        audit: Audit,
        metrics: Arc<Metrics>,
        about: About,
    ) -> Service {
        Service {
            spaces: Spaces::new(engine.clone(), settings.clone(), metrics.clone()),
            engine,
            default_space,
            settings,
            audit,
            metrics,
            about,
            started: Instant::now(),
            started_at: jiff::Timestamp::now(),
            stopping: CancellationToken::new(),
        }
    }

    /// Cancelled when the service is asked to stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Lets every ledger finish what it has begun.
    pub async fn close(&self) {
        self.spaces.close().await;
    }

    /// Answers one request that is no stream.
    pub async fn call(&self, operation: Operation, input: Input<'_>, caller: &Caller) -> Reply {
        let started = Instant::now();
        let mut noted = Noted::default();
        let body = match permitted(operation, caller) {
            Ok(()) => self.dispatch(operation, input, caller, &mut noted).await,
            Err(no) => Err(no),
        };
        let name = operation.row().name;
        let outcome = match &body {
            Ok(_) => "ok",
            Err(no) => no.word.text(),
        };
        self.metrics.request(name, outcome, started.elapsed());
        if let Err(no) = &body
            && no.word == Word::Busy
        {
            self.metrics.contended(match no.body.reason.as_deref() {
                Some("lock_timeout") => "lock_timeout",
                Some("room_busy") => "room_busy",
                Some(_) | None => "lock_contended",
            });
        }
        if is_audited(operation) || body.is_err() {
            self.write_audit(name, outcome, &body, &noted, caller);
        }
        reply(body, noted.granted)
    }

    async fn dispatch(&self, operation: Operation, input: Input<'_>, caller: &Caller, noted: &mut Noted) -> Body {
        match operation {
            Operation::Acquire => self.acquire(parse(input)?, caller, noted).await,
            Operation::Release => self.release(parse(input)?, caller, noted).await,
            Operation::Renew => self.renew(parse(input)?, caller, noted).await,
            Operation::ForceRelease => self.force_release(parse(input)?, caller, noted).await,
            Operation::Check => self.check(parse(input)?, caller, noted).await,
            Operation::Active => self.active(parse(input)?, noted).await,
            Operation::KeyStatus => self.key_status(parse(input)?, noted).await,
            Operation::History => self.history(parse(input)?, noted).await,
            Operation::OpenSession => self.session(parse(input)?, caller, noted, |actor| Command::OpenSession { actor }).await,
            Operation::CloseSession => self.session(parse(input)?, caller, noted, |actor| Command::CloseSession { actor }).await,
            Operation::RestoreSession => {
                self.session(parse(input)?, caller, noted, |actor| Command::RestoreSession { actor }).await
            }
            Operation::Sessions => self.sessions(parse(input)?, noted).await,
            Operation::OpenRoom => self.open_room(parse(input)?, caller, noted).await,
            Operation::CloseRoom => self.close_room(parse(input)?, caller, noted).await,
            Operation::Rooms => self.rooms(parse(input)?, noted).await,
            Operation::Audit => self.read_audit(parse(input)?, noted).await,
            Operation::Status => self.status(parse(input)?, noted).await,
            Operation::Stop => {
                self.stopping.cancel();
                json(&Done { success: true })
            }
            Operation::Events | Operation::AttachSession => {
                Err(No::new(Word::InvalidRequest, "This answers with a stream; ask for it as one."))
            }
        }
    }

    /// The keeper of the space that a body means.
    pub(crate) async fn keeper(&self, body: &impl Asker) -> Result<Keeper, No> {
        let space = door::space(body, &self.default_space)?;
        self.spaces.keeper(&space).await.map_err(|error| match error {
            NoKeeper::TooMany => {
                No::new(Word::LimitExceeded, format!("One service keeps at most {SPACES_MAX} spaces."))
            }
            NoKeeper::Failed(error) => No::new(Word::Unavailable, refusal::sentence(&error.to_string())),
        })
    }

    async fn keeper_noted(&self, body: &impl Asker, noted: &mut Noted) -> Result<Keeper, No> {
        noted.request = body.who().request_id.map(str::to_owned);
        let keeper = self.keeper(body).await?;
        noted.space = Some(keeper.space().clone());
        Ok(keeper)
    }

    async fn acquire(&self, body: AcquireRequest, caller: &Caller, noted: &mut Noted) -> Body {
        noted.key = body.file_path.clone().or_else(|| {
            let keys: Vec<&str> = body.locks.iter().flatten().take(16).map(|spec| spec.file_path.as_str()).collect();
            (!keys.is_empty()).then(|| keys.join(" "))
        });
        noted.intention.clone_from(&body.intention);
        let keeper = self.keeper_noted(&body, noted).await?;
        let acquire = door::acquire(&body, caller, self.settings.default_ttl)?;
        noted.actor(&acquire.actor);
        let (set, actor, default_space) = (body.locks.is_some(), acquire.actor.clone(), keeper.space().clone());
        let answer = keeper.ask(Command::Acquire(acquire)).await?;
        let viewer = Viewer { now: keeper.now() };
        let Answer::Granted { action, locks } = answer else { return Err(unexpected(answer, viewer)) };
        if action == GrantAction::Acquired {
            let locks = locks.iter().map(|lock| lock.id).collect();
            noted.granted = Some(Acquired { space: default_space, actor, locks });
        }
        let strength = keeper.strength().to_string();
        let heartbeat = locks.iter().map(|lock| self.heartbeat(lock.ttl)).min().unwrap_or(self.settings.heartbeat_interval.0);
        match locks.as_slice() {
            [lock] if !set => json(&Granted {
                success: true,
                action: action.word().to_owned(),
                lock: viewer.lock(lock),
                strength,
                heartbeat_interval_ms: heartbeat,
            }),
            _ => json(&Changed {
                success: true,
                action: action.word().to_owned(),
                locks: viewer.locks(&locks),
                file_path: None,
                strength: Some(strength),
                heartbeat_interval_ms: Some(heartbeat),
            }),
        }
    }

    /// How often to beat for a lock: often enough that two lost beats do no harm.
    fn heartbeat(&self, ttl: Millis) -> u64 {
        self.settings.heartbeat_interval.0.min(ttl.0 / 3).max(100)
    }

    async fn release(&self, body: ReleaseRequest, caller: &Caller, noted: &mut Noted) -> Body {
        noted.key = body.file_path.clone().or_else(|| body.lock_id.clone());
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        let which = match door::which(body.lock_id.as_deref(), body.file_path.as_deref(), body.start_line, body.end_line)? {
            Some(which) => which,
            None if body.all == Some(true) => Which::Everything,
            None => return Err(No::new(Word::InvalidRequest, "Say what to release: a file_path, a lock_id, or all.")),
        };
        let token = door::token(body.fencing_token)?;
        let request = door::request("locks/release", &body)?;
        let answer = keeper.ask(Command::Release { actor, which, token, request }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::Released { locks } => changed("released", viewer.locks(&locks), body.file_path),
            other => Err(unexpected(other, viewer)),
        }
    }

    async fn renew(&self, body: RenewRequest, caller: &Caller, noted: &mut Noted) -> Body {
        noted.key = body.file_path.clone().or_else(|| body.lock_id.clone());
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        let which = door::which(body.lock_id.as_deref(), body.file_path.as_deref(), body.start_line, body.end_line)?;
        let which = which.unwrap_or(Which::Everything);
        let (ttl, token) = (door::ttl(body.ttl_ms, body.ttl_minutes)?, door::token(body.fencing_token)?);
        let answer = keeper.ask(Command::Renew { actor, which, ttl, token }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::Renewed { locks } => changed("renewed", viewer.locks(&locks), body.file_path),
            other => Err(unexpected(other, viewer)),
        }
    }

    async fn force_release(&self, body: ForceReleaseRequest, caller: &Caller, noted: &mut Noted) -> Body {
        noted.key = body.file_path.clone().or_else(|| body.lock_id.clone());
        noted.intention.clone_from(&body.reason);
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        let reason = Intention::parse(body.reason.as_deref().unwrap_or_default())?;
        if reason.is_empty() {
            return Err(No::new(Word::InvalidRequest, "Taking a lock away needs a reason, for its holder to read."));
        }
        let which = door::which(body.lock_id.as_deref(), body.file_path.as_deref(), body.start_line, body.end_line)?;
        let Some(which) = which else {
            return Err(No::new(Word::InvalidRequest, "Say what to take away: a file_path or a lock_id."));
        };
        let request = door::request("locks/force-release", &body)?;
        let answer = keeper.ask(Command::ForceRelease { by: actor.agent, reason, which, request }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::ForceReleased { locks } => changed("force_released", viewer.locks(&locks), body.file_path),
            other => Err(unexpected(other, viewer)),
        }
    }

    async fn check(&self, body: CheckRequest, caller: &Caller, noted: &mut Noted) -> Body {
        noted.key.clone_from(&body.file_path);
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller).ok();
        let wants = door::checked(&body)?;
        let token = door::token(body.fencing_token)?;
        let session = actor.map(|actor| actor.session);
        if wants.is_empty() && (token.is_none() || session.is_none()) {
            return Err(No::new(Word::InvalidRequest, "Say what to check: a file_path, or file_paths."));
        }
        keeper
            .read(move |state, now| {
                let viewer = Viewer { now };
                if let Some(token) = token {
                    return token_checked(state, token, session.as_ref(), &wants, viewer);
                }
                let nobody = SessionId::parse("-").expect("a session id");
                let busy = state.conflicts(session.as_ref().unwrap_or(&nobody), &wants);
                let own = session.iter().flat_map(|session| state.locks_of(session)).filter_map(|id| state.lock(id));
                let held: Vec<_> = own.filter(|lock| wants.iter().any(|want| want.target.overlaps(&lock.target))).take(100).collect();
                let message = match busy.conflicts.first() {
                    None if held.is_empty() => "Free.".to_owned(),
                    None => "Yours.".to_owned(),
                    Some(first) => refusal::conflict_sentence(first, viewer),
                };
                Ok(Checked {
                    success: true,
                    free: busy.conflicts.is_empty(),
                    message,
                    conflicts: busy.conflicts.iter().map(|conflict| viewer.conflict(conflict)).collect(),
                    more_conflicts: busy.more,
                    held: viewer.locks(held),
                })
            })
            .await?
            .and_then(|checked| json(&checked))
    }

    async fn active(&self, body: ListRequest, noted: &mut Noted) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let about = body.file_path.as_deref().map(|path| door::key(Some(path))).transpose()?;
        let most = door::limit(body.limit, LIST_DEFAULT, LIST_MAX)?;
        let waiting = body.waiting == Some(true);
        let list = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let meant = |key: &Key| about.as_ref().is_none_or(|about| about.overlaps(key));
            let mut locks: Vec<_> = state.locks().filter(|lock| meant(&lock.target.key)).collect();
            let total = locks.len();
            locks.sort_unstable_by(|one, other| one.target.cmp(&other.target).then(one.id.cmp(&other.id)));
            let listed = locks.into_iter().take(most).map(|lock| Listed { id: lock.id.to_string(), lock: viewer.lock(lock) });
            let mut waiters: Vec<_> = state.waiters().filter(|_| waiting).collect();
            waiters.retain(|waiter| waiter.asked.wants.iter().any(|want| meant(&want.target.key)));
            waiters.sort_unstable_by_key(|waiter| waiter.rank());
            let waiting = waiters.into_iter().take(most).map(|waiter| viewer.waiter(waiter)).collect();
            LockList { locks: listed.collect(), total, waiting }
        });
        json(&list.await?)
    }

    async fn key_status(&self, body: CheckRequest, noted: &mut Noted) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let key = door::key(body.file_path.as_deref())?;
        let target = Target { key, span: Span::WHOLE };
        let status = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let mut locks = Vec::new();
            state.all_overlapping(&target, |lock| {
                locks.push(viewer.lock(lock));
                if locks.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            let lock = locks.first().map(|first| HolderView {
                locked_by: first.owner.clone(),
                agent_type: SessionId::parse(&first.session_id)
                    .ok()
                    .and_then(|id| state.session(&id)?.agent_type.as_ref().map(ToString::to_string)),
                locked_at: first.created_at.clone(),
                expires_at: first.expires_at.clone(),
                reason: first.intention.clone(),
            });
            KeyStatus { locked: lock.is_some(), file_path: target.key.to_string(), lock, locks }
        });
        json(&status.await?)
    }

    async fn history(&self, body: HistoryRequest, noted: &mut Noted) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let about = body.file_path.as_deref().map(|path| door::key(Some(path))).transpose()?;
        let most = door::limit(body.limit, HISTORY_DEFAULT, LIST_MAX)?;
        let epoch = keeper.epoch();
        let list = keeper.read(move |state, _| {
            let meant = |entry: &&Arc<Entry>| {
                about.as_ref().is_none_or(|about| about.overlaps(&entry.target.key))
            };
            let events = state.history().newest().filter(meant).take(most).map(|entry| view::event(epoch, entry));
            HistoryList { events: events.collect(), total: state.history().len() }
        });
        json(&list.await?)
    }

    async fn session(
        &self,
        body: SessionRequest,
        caller: &Caller,
        noted: &mut Noted,
        command: impl FnOnce(Actor) -> Command,
    ) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        let owner = actor.agent.to_string();
        let answer = keeper.ask(command(actor)).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::Opened { session, restored, refreshed, skipped } => {
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
                    skipped: skipped.collect(),
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

    async fn sessions(&self, body: StatusRequest, noted: &mut Noted) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let list = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let mut sessions: Vec<_> = state.sessions().collect();
            let total = sessions.len();
            sessions.sort_unstable_by(|one, other| other.seen.cmp(&one.seen).then(one.id.cmp(&other.id)));
            let sessions = sessions.into_iter().take(LIST_DEFAULT).map(|session| viewer.session(state, session)).collect();
            SessionList { sessions, total }
        });
        json(&list.await?)
    }

    async fn open_room(&self, body: RoomRequest, caller: &Caller, noted: &mut Noted) -> Body {
        noted.key.clone_from(&body.file_path);
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        let (key, busy) = door::room(&body)?;
        let answer = keeper.ask(Command::OpenRoom { actor, key, busy }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::RoomOpened { room, present } => json(&RoomChanged {
                success: true,
                action: "opened".to_owned(),
                file_path: room.key.to_string(),
                room: Some(viewer.room(&room)),
                present: viewer.locks(&present),
            }),
            other => Err(unexpected(other, viewer)),
        }
    }

    async fn close_room(&self, body: RoomRequest, caller: &Caller, noted: &mut Noted) -> Body {
        noted.key.clone_from(&body.file_path);
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        let (key, _) = door::room(&body)?;
        let answer = keeper.ask(Command::CloseRoom { actor, key }).await?;
        match answer {
            Answer::RoomClosed { key } => json(&RoomChanged {
                success: true,
                action: "closed".to_owned(),
                file_path: key.to_string(),
                room: None,
                present: Vec::new(),
            }),
            other => Err(unexpected(other, Viewer { now: keeper.now() })),
        }
    }

    async fn rooms(&self, body: StatusRequest, noted: &mut Noted) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let list = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let rooms: Vec<_> = state.rooms().take(LIST_DEFAULT).map(|room| viewer.room(room)).collect();
            RoomList { rooms, total: state.rooms().count() }
        });
        json(&list.await?)
    }

    async fn read_audit(&self, body: AuditRequest, noted: &mut Noted) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let most = door::limit(body.limit, HISTORY_DEFAULT, LIST_MAX)?;
        let (audit, space) = (self.audit.clone(), keeper.space().to_string());
        let read = tokio::task::spawn_blocking(move || {
            audit.last(most, |line| line.space == space && body.outcome.as_ref().is_none_or(|outcome| line.outcome == *outcome))
        });
        let failed = |error: String| No::new(Word::Internal, format!("The audit log can't be read: {error}."));
        let lines = read.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        let lines = lines.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
        json(&AuditList { lines })
    }

    async fn status(&self, body: StatusRequest, noted: &mut Noted) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let (locks, waiting, sessions) =
            keeper.read(|state, _| (state.lock_count(), state.waiter_count(), state.session_count())).await?;
        let Settings { rules, default_ttl, heartbeat_interval } = &self.settings;
        json(&ServiceStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            background: self.about.background,
            engine: self.engine.place(),
            durability: self.about.durability.clone(),
            strength: keeper.strength().to_string(),
            space: keeper.space().to_string(),
            locks,
            waiting,
            sessions,
            started_at: self.started_at.to_string(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            socket: self.about.socket.clone(),
            listen: self.about.listen.clone(),
            settings: SettingsView {
                default_ttl_ms: default_ttl.0,
                heartbeat_interval_ms: heartbeat_interval.0,
                rate_limit: rules.quota_limit,
                rate_limit_window_ms: rules.quota_window.0,
                history_ttl_sec: rules.history_kept.0 / 1000,
            },
        })
    }

    fn write_audit(&self, action: &str, outcome: &str, body: &Body, noted: &Noted, caller: &Caller) {
        let shown = |text: &String| lockkeeper_core::text::one_line(&text.chars().take(1024).collect::<String>());
        self.audit.write(Line {
            time: jiff::Timestamp::now().to_string(),
            space: noted.space.as_ref().map(ToString::to_string).unwrap_or_default(),
            action: action.to_owned(),
            outcome: outcome.to_owned(),
            reason: body.as_ref().err().and_then(|no| no.body.reason.clone()),
            key: noted.key.as_ref().map(shown),
            intention: noted.intention.as_ref().map(shown),
            session_id: noted.session.as_ref().map(ToString::to_string),
            agent_id: noted.agent.as_ref().map(ToString::to_string),
            request_id: noted.request.as_ref().map(shown),
            trace_id: caller.trace.as_ref().map(|trace| trace.trace_id.clone()),
            span_id: caller.trace.as_ref().map(|trace| trace.span_id.clone()),
        });
    }
}

/// Whether a fencing token is that of a lock which is held now.
fn token_checked(
    state: &State,
    token: Token,
    session: Option<&SessionId>,
    wants: &[Want],
    viewer: Viewer,
) -> Result<Checked, No> {
    let mut current = session.into_iter().flat_map(|session| state.locks_of(session)).filter_map(|id| state.lock(id));
    let mut found = current.find(|lock| lock.token == token).cloned();
    for want in wants {
        state.all_overlapping(&want.target, |lock| {
            if lock.token == token {
                found = Some(lock.clone());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
    }
    let meant = |lock: &Lock| wants.is_empty() || wants.iter().any(|want| want.target.overlaps(&lock.target));
    match found.filter(|lock| meant(lock)) {
        Some(lock) => Ok(Checked {
            success: true,
            free: true,
            message: format!("Fencing token {token} is the one of {}.", lock.target),
            conflicts: Vec::new(),
            more_conflicts: false,
            held: vec![viewer.lock(&lock)],
        }),
        None => {
            let targets = wants.iter().map(|want| want.target.clone()).collect();
            Err(refusal::refused(&Refusal::LockLost { targets }, viewer))
        }
    }
}

/// Whether the caller may ask for this at all.
pub(crate) fn permitted(operation: Operation, caller: &Caller) -> Result<(), No> {
    let missing = |what: &str| Err(No::new(Word::OperationNotPermitted, format!("That needs {what}.")));
    match operation.row().access {
        Access::Anybody => Ok(()),
        Access::Credential if caller.known => Ok(()),
        Access::Operator if caller.known && !caller.operator => missing("an operator's credential"),
        Access::Operator if caller.known => Ok(()),
        Access::Local if caller.local => Ok(()),
        Access::Local if caller.known => missing("the local user, over the private socket"),
        Access::Credential | Access::Operator | Access::Local => {
            Err(No::new(Word::Unauthorized, "That needs a credential: Authorization: Bearer ...")
                .hint("the credential is in the file 'credential' in LOCKKEEPER_HOME of the service"))
        }
    }
}

/// Requests that are written down even when they succeed. Beats and looks are not.
fn is_audited(operation: Operation) -> bool {
    match operation {
        Operation::Acquire
        | Operation::Release
        | Operation::ForceRelease
        | Operation::OpenSession
        | Operation::CloseSession
        | Operation::RestoreSession
        | Operation::AttachSession
        | Operation::OpenRoom
        | Operation::CloseRoom
        | Operation::Stop => true,
        Operation::Renew
        | Operation::Check
        | Operation::Active
        | Operation::KeyStatus
        | Operation::History
        | Operation::Events
        | Operation::Sessions
        | Operation::Rooms
        | Operation::Audit
        | Operation::Status => false,
    }
}

pub(crate) fn parse<T: DeserializeOwned + Default>(input: Input<'_>) -> Result<T, No> {
    match input {
        Input::Json(body) if body.iter().all(u8::is_ascii_whitespace) => Ok(T::default()),
        Input::Json(body) => serde_json::from_slice(body)
            .map_err(|error| No::new(Word::Malformed, format!("The body can't be read: {error}."))),
        Input::Query(uri) => axum::extract::Query::<T>::try_from_uri(uri)
            .map(|query| query.0)
            .map_err(|error| No::new(Word::Malformed, refusal::sentence(&error.body_text()))),
    }
}

pub(crate) fn json(body: &impl Serialize) -> Body {
    serde_json::to_vec(body).map_err(|error| No::new(Word::Internal, error.to_string()))
}

fn changed(action: &str, locks: Vec<lockkeeper_wire::answer::LockView>, file_path: Option<String>) -> Body {
    json(&Changed { success: true, action: action.to_owned(), locks, file_path, strength: None, heartbeat_interval_ms: None })
}

/// A refusal, or an answer that does not belong to its question.
fn unexpected(answer: Answer, viewer: Viewer) -> No {
    match answer {
        Answer::Refused(refused) => refusal::refused(&refused, viewer),
        Answer::Withdrawn => No::new(Word::Unavailable, "The wait was given up."),
        other => No::new(Word::Internal, format!("An answer to another question: {other:?}")),
    }
}

pub(crate) fn reply(body: Body, granted: Option<Acquired>) -> Reply {
    match body {
        Ok(body) => Reply { status: 200, body, retry_after: None, granted },
        Err(no) => {
            let retry_after = no.body.retry_after_ms.map(|ms| ms.div_ceil(1000).max(1));
            let body = serde_json::to_vec(&*no.body).expect("a refusal has a form");
            Reply { status: no.word.status(), body, retry_after, granted: None }
        }
    }
}
