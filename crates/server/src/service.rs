//! What a service does, whichever door a request came through: parse, ask the keeper, answer, write the audit line.

mod about;
mod advisory;
mod elsewhere;
mod features;
mod locks;
mod noted;
mod packages;
mod policy;
mod ports;
mod sessions;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use axum::http::Uri;
use lockkeeper_core::command::{Actor, Command};
use lockkeeper_core::key::Key;
use lockkeeper_core::lock::LockId;
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::policy::Right;
use lockkeeper_core::session::{AgentName, SessionId};
use lockkeeper_core::space::Space;
use lockkeeper_engine::Engine;
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::audit::{self, Audit, Harmless};
use lockkeeper_keeper::metrics::{Metrics, OperationMetrics, SUCCEEDED};
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::spans::{self, Attribute, Span, Spans};
use lockkeeper_keeper::trace::TraceParent;
use lockkeeper_wire::answer::{Done, OutsideList, PolicyReloaded};
use lockkeeper_wire::operation::{Access, Operation, TABLE};
use lockkeeper_wire::request::{Asker, StatusRequest};
use lockkeeper_wire::word::Word;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use self::advisory::Advisory;
pub use self::elsewhere::Elsewhere;
use self::elsewhere::OUTSIDE_PATIENCE;
use self::noted::Noted;
use self::policy::PolicyInForce;
pub use self::policy::{ReadPolicy, policy};
use crate::binding::Users;
use crate::door;
use crate::outgoing::Unread;
use crate::refusal::{self, No};
use crate::spaces::{NoKeeper, SPACES_MAX, Spaces};
use crate::turns::{Turn, Turns};
use crate::view::Viewer;
use crate::written::ANSWER_BYTES;

/// Rows of a list that take no longer than some ten requests.
const ROWS_AT_ONCE: usize = 100;
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
    /// Agents with credentials of their own whose sessions could be taken for that one's.
    pub others: Vec<AgentName>,
    pub trace: Option<TraceParent>,
}

impl Caller {
    /// The local user, over the private socket.
    pub fn local() -> Caller {
        Caller { known: true, local: true, operator: true, agent: None, others: Vec::new(), trace: None }
    }
}

/// A body as it came.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    Json(&'a str),
    /// Bytes that are no text, and so no JSON either.
    NotText,
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
    /// What the request gave back.
    pub(crate) released: Vec<LockId>,
}

/// What a session got with one request.
#[derive(Clone, Debug)]
pub(crate) struct Acquired {
    pub(crate) space: Space,
    pub(crate) actor: Actor,
    pub(crate) locks: Vec<LockId>,
    /// What it had before, of what it asked for.
    pub(crate) had: Vec<LockId>,
    /// It was asked for by its name, and not because the session was opened.
    pub(crate) named: bool,
    pub(crate) ports: bool,
}

/// What `status` says about how the service runs.
#[derive(Clone, Debug)]
pub struct About {
    pub background: bool,
    /// What names the engine.
    pub engine_from: String,
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
    policy: PolicyInForce,
    /// Every space that there is a ledger of was opened once.
    all_spaces_open: OnceCell<()>,
    /// Whoever checks work packages has it.
    packages: Arc<Semaphore>,
    /// Whoever looks for ports that no space has given has it.
    allocating_ports: tokio::sync::Mutex<()>,
    pub(crate) audit: Audit,
    spans: Option<Spans>,
    advisory: Advisory,
    outside: Option<Arc<dyn Elsewhere>>,
    /// Whoever writes down a long list has it.
    listing: Arc<Semaphore>,
    /// Whoever looks there has it: a folder that hangs keeps one thread and no more.
    looking: Arc<Semaphore>,
    pub(crate) metrics: Arc<Metrics>,
    /// One for each operation that was asked for.
    counted: [OnceLock<OperationMetrics>; TABLE.len()],
    about: About,
    started: Instant,
    started_at: jiff::Timestamp,
    pub(crate) stopping: CancellationToken,
    asked_to_stop: AtomicBool,
    pub(crate) turns: Turns,
    /// Who holds locks over HTTP, by the name they give themselves.
    pub(crate) holders: Mutex<HashMap<(Space, SessionId, String), CancellationToken>>,
    pub(crate) users: Arc<Users>,
    pub(crate) unread: Unread,
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
        let stopping = CancellationToken::new();
        Service {
            spaces: Spaces::new(engine.clone(), settings.clone(), metrics.clone(), stopping.clone()),
            engine,
            default_space,
            settings,
            policy: PolicyInForce::default(),
            all_spaces_open: OnceCell::new(),
            packages: Arc::new(Semaphore::new(1)),
            allocating_ports: tokio::sync::Mutex::default(),
            audit,
            spans: None,
            advisory: Advisory::default(),
            outside: None,
            listing: Arc::new(Semaphore::new(1)),
            looking: Arc::new(Semaphore::new(1)),
            metrics,
            counted: [const { OnceLock::new() }; TABLE.len()],
            about,
            started: Instant::now(),
            started_at: jiff::Timestamp::now(),
            stopping,
            asked_to_stop: AtomicBool::new(false),
            turns: Turns::default(),
            holders: Mutex::default(),
            users: Arc::default(),
            unread: Unread::default(),
        }
    }

    /// Shows what others keep beside the locks; it is asked on a thread of its own, since it may read files.
    #[must_use]
    pub fn with_outside(self, list: Arc<dyn Elsewhere>) -> Service {
        Service { outside: Some(list), ..self }
    }

    pub(crate) async fn outside(&self) -> OutsideList {
        let Some(list) = self.outside.clone() else { return OutsideList::default() };
        elsewhere::look(list, self.looking.clone(), OUTSIDE_PATIENCE).await
    }

    /// Tells of each request there, too.
    #[must_use]
    pub fn with_spans(self, spans: Spans) -> Service {
        Service { spans: Some(spans), ..self }
    }

    /// Asks it to stop. Nothing is released by that.
    pub fn stop(&self) {
        self.asked_to_stop.store(true, Ordering::Release);
        self.stopping.cancel();
    }

    /// Whether somebody wanted it to stop. If not, a ledger failed.
    pub fn was_asked_to_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Acquire)
    }

    /// Cancelled when the service stops: it was asked to, or can't go on.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Lets every ledger and the audit log finish what they have begun.
    pub fn close(&self) {
        self.spaces.close();
        self.audit.flush();
    }

    /// Answers one request that is no stream.
    pub fn call<'a>(
        &'a self,
        operation: Operation,
        input: Input<'a>,
        caller: &'a Caller,
    ) -> impl Future<Output = Reply> + Send + 'a {
        self.call_in_turn(operation, input, caller, self.turns.begin())
    }

    /// The same. The turn is over when the answer is there, or as soon as it may take its time.
    pub(crate) async fn call_in_turn<'a>(
        &'a self,
        operation: Operation,
        input: Input<'a>,
        caller: &'a Caller,
        turn: Turn<'a>,
    ) -> Reply {
        let started = Instant::now();
        // What gives back or renews finds nothing in a space that nobody has used, and makes none.
        let looks = policy::right_of(operation) == Right::Read
            || matches!(operation, Operation::Release | Operation::Renew | Operation::CloseSession);
        let mut noted = Noted { turn: Some(turn), looks, ..Noted::default() };
        let body = match permitted(operation, caller) {
            Ok(()) => {
                let trace = caller.trace.as_ref();
                let span = tracing::debug_span!(
                    "request",
                    operation = operation.row().name,
                    trace_id = trace.map(|trace| trace.trace_id.as_str()),
                    parent_span_id = trace.map(|trace| trace.span_id.as_str()),
                );
                let dispatched = self.dispatch(operation, input, caller, &mut noted);
                if span.is_disabled() { dispatched.await } else { Box::pin(dispatched.instrument(span)).await }
            }
            Err(no) => Err(no),
        };
        if body.is_err() {
            noted.look_who_asked(input, caller);
        }
        let name = operation.row().name;
        let refused = body.as_ref().err().map(|no| no.word.text());
        let outcome = refused.unwrap_or(SUCCEEDED);
        let took = started.elapsed();
        self.counted[operation as usize].get_or_init(|| self.metrics.of_operation(name)).request(refused, took);
        if let Some(spans) = self.spans.as_ref().filter(|_| caller.known) {
            spans.send(span(name, outcome, took, &noted, caller));
        }
        if let Err(no) = &body
            && no.word == Word::Busy
        {
            self.metrics.contended(match no.body.reason.as_deref() {
                Some("lock_timeout") => "lock_timeout",
                Some("room_busy") => "room_busy",
                Some(_) | None => "lock_contended",
            });
        }
        // Strangers can't fill the log.
        if caller.known && (is_audited(operation) || body.is_err()) {
            self.write_audit(name, outcome, &body, &noted, caller);
        }
        Reply { granted: noted.granted, released: noted.released, ..reply(body) }
    }

    async fn dispatch(&self, operation: Operation, input: Input<'_>, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        match operation {
            // A body that is read goes with its future, and is boxed so that this is small.
            Operation::Acquire => self.acquire(Box::new(parse(input)?), caller, noted).await,
            Operation::Release => self.release(Box::new(parse(input)?), caller, noted).await,
            Operation::Renew => self.renew(Box::new(parse(input)?), caller, noted).await,
            Operation::Check => Box::pin(self.check(parse(input)?, caller, noted)).await,
            // Boxed, so that the frequent ones are small.
            other => Box::pin(self.dispatch_rare(other, input, caller, noted)).await,
        }
    }

    async fn dispatch_rare(
        &self,
        operation: Operation,
        input: Input<'_>,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Body {
        match operation {
            Operation::Acquire | Operation::Release | Operation::Renew | Operation::Check => {
                Err(No::new(Word::Internal, "A frequent operation is dispatched before."))
            }
            Operation::ForceRelease => self.force_release(parse(input)?, caller, noted).await,
            Operation::Active => self.active(parse(input)?, caller, noted).await,
            Operation::KeyStatus => self.key_status(parse(input)?, caller, noted).await,
            Operation::History => self.history(parse(input)?, caller, noted).await,
            Operation::OpenSession => {
                self.open_session(operation, parse(input)?, caller, noted, |actor| Command::OpenSession { actor }).await
            }
            Operation::CloseSession => self.close_session(parse(input)?, caller, noted).await,
            Operation::RestoreSession => {
                let restore = |actor| Command::RestoreSession { actor };
                self.open_session(operation, parse(input)?, caller, noted, restore).await
            }
            Operation::Sessions => self.sessions(parse(input)?, caller, noted).await,
            Operation::OpenRoom => self.open_room(parse(input)?, caller, noted).await,
            Operation::CloseRoom => self.close_room(parse(input)?, caller, noted).await,
            Operation::Rooms => self.rooms(parse(input)?, caller, noted).await,
            Operation::Audit => self.read_audit(parse(input)?, caller, noted).await,
            Operation::Status => self.status(parse(input)?, caller, noted).await,
            Operation::Stop => {
                parse::<StatusRequest>(input)?;
                self.stop();
                json(&Done { success: true })
            }
            Operation::RegisterFeature => self.register_feature(parse(input)?, caller, noted).await,
            Operation::EndFeature => self.end_feature(parse(input)?, caller, noted).await,
            Operation::FeatureConflicts => self.feature_conflicts(parse(input)?, caller, noted).await,
            Operation::Features => self.features(parse(input)?, caller, noted).await,
            Operation::PauseFeature => self.pause_feature(parse(input)?, caller, noted).await,
            Operation::ResumeFeature => self.resume_feature(parse(input)?, caller, noted).await,
            Operation::CheckFeature => self.check_feature(parse(input)?, caller, noted).await,
            Operation::AllocatePorts => self.allocate_ports(parse(input)?, caller, noted).await,
            Operation::ReleasePorts => self.release_ports(parse(input)?, caller, noted).await,
            Operation::PortsStatus => self.ports_status(parse(input)?, caller, noted).await,
            Operation::ValidatePackages => self.validate_packages(parse(input)?, caller).await,
            Operation::AdvisoryLocks => self.advisory_locks(parse(input)?, caller).await,
            Operation::CheckPolicy => self.check_policy(&parse(input)?, caller),
            Operation::ReloadPolicy => {
                parse::<StatusRequest>(input)?;
                self.reload_policy().and_then(|rules| json(&PolicyReloaded { success: true, rules }))
            }
            Operation::Events | Operation::AttachSession => {
                Err(No::new(Word::InvalidRequest, "This answers with a stream; ask for it as one."))
            }
        }
    }

    /// A list of so many rows. A long one is made and written down beside everything else, and one after the other.
    async fn list<T: Serialize>(
        &self,
        rows: usize,
        noted: &mut Noted<'_>,
        make: impl FnOnce() -> Result<T, No> + Send + 'static,
    ) -> Body {
        let written = || make().and_then(|list| json(&list));
        if rows <= ROWS_AT_ONCE {
            return written();
        }
        // Nobody makes room for an answer that takes its time.
        noted.turn = None;
        let turn = self.listing.clone().acquire_owned().await;
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            written()
        });
        made.await.unwrap_or_else(|error| Err(No::new(Word::Internal, error.to_string())))
    }

    /// The keeper of the space that a body means.
    pub(crate) async fn keeper(&self, body: &impl Asker) -> Result<Keeper, No> {
        let space = door::space(body, &self.default_space)?;
        self.spaces.keeper(&space).await.map_err(|error| no_keeper(&error))
    }

    /// The keeper of a space that is there already: whoever only looks, and shows no credential, makes none.
    async fn known_keeper(&self, body: &impl Asker, caller: &Caller) -> Result<Keeper, No> {
        let space = door::space(body, &self.default_space)?;
        match self.spaces.if_open(&space) {
            Some(keeper) => Ok(keeper),
            None if space == self.default_space => self.keeper(body).await,
            None if caller.known => self.spaces.looked_at(&space).await.map_err(|error| no_keeper(&error)),
            None => Err(No::new(Word::Unauthorized, "To ask about that space needs a credential.")),
        }
    }

    /// Which space a body means, for whoever has more to look at before it is opened.
    fn note_space(&self, body: &impl Asker, noted: &mut Noted<'_>) -> Result<(), No> {
        noted.request = body.who().request_id.map(str::to_owned);
        noted.space = Some(door::space(body, &self.default_space)?);
        Ok(())
    }

    async fn keeper_noted(&self, body: &impl Asker, noted: &mut Noted<'_>) -> Result<Keeper, No> {
        if noted.space.is_none() {
            self.note_space(body, noted)?;
        }
        let space = noted.space.as_ref().expect("just noted");
        if let Some(keeper) = self.spaces.if_open(space) {
            return Ok(keeper);
        }
        let opened = if noted.looks && *space != self.default_space {
            Box::pin(self.spaces.looked_at(space)).await
        } else {
            Box::pin(self.spaces.keeper(space)).await
        };
        opened.map_err(|error| no_keeper(&error))
    }

    /// The keeper and whoever asks, when the policy has nothing against it.
    async fn asked(
        &self,
        operation: Operation,
        body: &impl Asker,
        caller: &Caller,
        noted: &mut Noted<'_>,
        key: Option<&Key>,
    ) -> Result<(Keeper, Actor), No> {
        let keeper = self.keeper_noted(body, noted).await?;
        let actor = door::actor(body, caller)?;
        noted.actor(&actor);
        self.permit(operation, caller, Some(&actor.agent), key)?;
        Ok((keeper, actor))
    }

    fn write_audit(&self, action: &str, outcome: &str, body: &Body, noted: &Noted<'_>, caller: &Caller) {
        let trace = caller.trace.as_ref();
        self.audit.write(&audit::Noted {
            time: wall_micros(),
            space: noted.space.as_ref().map(Space::as_str).unwrap_or_default(),
            action,
            outcome,
            reason: body.as_ref().err().and_then(|no| no.body.reason.as_deref()),
            key: noted.key.as_deref().map(Harmless),
            intention: noted.intention.as_deref().map(Harmless),
            session_id: noted.session.as_ref().map(SessionId::as_str),
            agent_id: noted.agent.as_ref().map(AgentName::as_str),
            request_id: noted.request.as_deref().map(Harmless),
            trace_id: trace.map(|trace| trace.trace_id.as_str()),
            span_id: trace.map(|trace| trace.span_id.as_str()),
        });
    }
}

/// By the wall clock, in microseconds of the Unix epoch.
fn wall_micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// What a request was, for whoever collects traces. With the names that audit lines have.
fn span(name: &'static str, outcome: &'static str, took: Duration, noted: &Noted<'_>, caller: &Caller) -> Span {
    let text = |name, value: Option<&str>| Some((name, Attribute::Text(value?.to_owned())));
    let attributes = [
        text("lock.space", noted.space.as_ref().map(Space::as_str)),
        text("lock.key", noted.key.as_deref()),
        text("lock.session_id", noted.session.as_ref().map(SessionId::as_str)),
        text("lock.agent_id", noted.agent.as_ref().map(AgentName::as_str)),
        text("lock.request_id", noted.request.as_deref()),
        noted.ttl.map(|ttl| ("lock.ttl_ms", Attribute::Number(ttl.0))),
    ];
    let (trace_id, span_id) = spans::draw_ids();
    let trace = caller.trace.as_ref();
    let ended = SystemTime::now();
    Span {
        trace_id: trace.map_or(trace_id, |trace| trace.trace_id.clone()),
        span_id,
        parent_span_id: trace.map(|trace| trace.span_id.clone()),
        name,
        began: ended.checked_sub(took).unwrap_or(ended),
        ended,
        outcome,
        attributes: attributes.into_iter().flatten().collect(),
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
    policy::right_of(operation) != Right::Read && !matches!(operation, Operation::Renew | Operation::Audit)
}

pub(crate) fn parse<T: DeserializeOwned + Default>(input: Input<'_>) -> Result<T, No> {
    match input {
        Input::Json(body) if body.trim_ascii_start().is_empty() => Ok(T::default()),
        // By their places, fields would have no names to check.
        Input::Json(body) if !body.trim_ascii_start().starts_with('{') => {
            Err(No::new(Word::Malformed, "The body can't be read: it is no JSON object."))
        }
        Input::Json(body) => serde_json::from_str(body)
            .map_err(|error| No::new(Word::Malformed, format!("The body can't be read: {error}."))),
        Input::NotText => Err(No::new(Word::Malformed, "The body can't be read: it is no UTF-8.")),
        Input::Query(uri) => axum::extract::Query::<T>::try_from_uri(uri)
            .map(|query| query.0)
            .map_err(|error| No::new(Word::Malformed, refusal::sentence(&error.body_text()))),
    }
}

pub(crate) fn json(body: &impl Serialize) -> Body {
    let mut text = Vec::with_capacity(ANSWER_BYTES);
    lockkeeper_keeper::json::write(body, &mut text).map_err(|error| No::new(Word::Internal, error.to_string()))?;
    Ok(text)
}

fn no_keeper(error: &NoKeeper) -> No {
    match error {
        NoKeeper::TooMany => No::new(Word::LimitExceeded, format!("One service keeps at most {SPACES_MAX} spaces.")),
        NoKeeper::Failed(error) => No::new(Word::Unavailable, refusal::sentence(&error.to_string())),
    }
}

/// A refusal, or an answer that does not belong to its question.
fn unexpected(answer: Answer, viewer: Viewer) -> No {
    match answer {
        Answer::Refused(refused) => refusal::refused(&refused, viewer),
        Answer::Withdrawn => No::new(Word::Unavailable, "The wait was given up."),
        other => No::new(Word::Internal, format!("An answer to another question: {other:?}")),
    }
}

pub(crate) fn reply(body: Body) -> Reply {
    match body {
        Ok(body) => Reply { status: 200, body, retry_after: None, granted: None, released: Vec::new() },
        Err(no) => {
            let retry_after = no.body.retry_after_ms.map(|ms| ms.div_ceil(1000).max(1));
            let body = serde_json::to_vec(&*no.body).expect("a refusal has a form");
            Reply { status: no.word.status(), body, retry_after, granted: None, released: Vec::new() }
        }
    }
}
