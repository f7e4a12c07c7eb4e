//! HTTP: the table of operations and a few routes more, behind checks of host, origin, credential, type and size.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures_util::Stream;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use lockkeeper_core::session::SessionId;
use lockkeeper_core::text::percent_decoded;
use lockkeeper_wire::operation::{Method, Operation};
use lockkeeper_wire::request::{AttachRequest, EventsRequest};
use lockkeeper_wire::word::Word;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, Said};
use crate::mcp::{InProcess, Tools};
use crate::refusal::{self, No};
use crate::service::{self, Caller, Input, Reply, Service};
use crate::stream::{Attached, Events};
use crate::view;

/// The largest body that is read.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Headers that the library has no names for.
const X_AGENT_ID: HeaderName = HeaderName::from_static("x-agent-id");
const X_REASON: HeaderName = HeaderName::from_static("x-reason");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long a holder whose connection broke has to come back: over a network, connections break under programs that live.
const GRACE: Duration = Duration::from_secs(2);
/// How long a client may take to send its body.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// An answer that takes room until it is read.
const LONG_BYTES: usize = 1 << 16;

/// What every request passes.
pub(crate) struct Doors {
    pub(crate) service: Arc<Service>,
    pub(crate) admission: Admission,
}

/// Answers the requests of one service.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) doors: Arc<Doors>,
    /// What is no plain operation of the table.
    others: TowerToHyperService<Router>,
}

impl Http {
    pub(crate) fn new(service: Arc<Service>, admission: Admission) -> Http {
        let doors = Arc::new(Doors { service, admission });
        Http { others: TowerToHyperService::new(router(&doors)), doors }
    }

    /// Plain operations are looked up in the table and asked for right here: the general way costs as much as the rest.
    pub(crate) async fn call(self, request: hyper::Request<Incoming>) -> Result<Answer, Infallible> {
        let operation =
            request.uri().path().strip_prefix('/').and_then(Operation::named).filter(|operation| is_plain(*operation));
        let Some(operation) = operation else { return Ok(self.others.call(request).await?.map(Either::Right)) };
        let caller = match self.doors.admission.admit(&Said::read(request.headers()), request.uri()) {
            Ok(caller) => caller,
            Err(no) => return Ok(answer_no(&no).map(Either::Right)),
        };
        let right = match operation.row().method {
            Method::Get => matches!(*request.method(), axum::http::Method::GET | axum::http::Method::HEAD),
            Method::Post => request.method() == axum::http::Method::POST,
        };
        if !right {
            return Ok(wrong_method().map(Either::Right));
        }
        let service = &self.doors.service;
        Ok(respond_at_length(service, answer(operation, service, &caller, request).await).map(Either::Left))
    }
}

/// A text that is there as a whole, or whatever else a route answers with.
pub(crate) type Answer = axum::http::Response<Either<Full<Bytes>, Body>>;

/// Whether one body is asked for by name, and one comes back.
pub(crate) fn is_plain(operation: Operation) -> bool {
    !matches!(operation, Operation::Events | Operation::AttachSession | Operation::KeyStatus)
}

fn router(doors: &Arc<Doors>) -> Router {
    let service = &doors.service;
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        .with_cancellation_token(service.stopping.child_token());
    let tools = service.clone();
    let mcp = StreamableHttpService::new(
        move || Ok(Tools::new(InProcess::new(tools.clone()), false)),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let named = |operation: Operation| format!("/{}", operation.row().name);
    Router::new()
        .route(&named(Operation::Events), get(events))
        .route(&named(Operation::AttachSession), post(attach))
        .route("/locks/status/{*key}", get(key_status))
        .route("/locks/{*key}", delete(force_release))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/openapi.json", get(async || axum::Json(crate::openapi::document())))
        .merge(Router::new().nest_service("/mcp", mcp).layer(middleware::from_fn(message)))
        .fallback(async || answer_no(&No::new(Word::NotFound, "There is no such route.").hint("see /openapi.json")))
        .method_not_allowed_fallback(async || wrong_method())
        .layer(middleware::from_fn_with_state(doors.clone(), guard))
        .with_state(doors.clone())
}

fn wrong_method() -> Response {
    let mut response = answer_no(&No::new(Word::Malformed, "This route takes another method; see /openapi.json."));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

type DoorsState = State<Arc<Doors>>;
type KnownCaller = axum::Extension<Caller>;

async fn guard(State(doors): DoorsState, mut request: Request, next: Next) -> Response {
    match doors.admission.admit(&Said::read(request.headers()), request.uri()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(no) => answer_no(&no),
    }
}

/// Messages to the tools are held to the same bounds as other bodies, and told by the same words.
async fn message(request: Request, next: Next) -> Response {
    if request.method() != axum::http::Method::POST {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = match body_of(&parts.headers, body).await {
        Ok(body) => body,
        Err(no) => return answer_no(&no),
    };
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    // Its type is right by now: the library says this of whatever it can't read.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return answer_no(&No::new(Word::Malformed, "The body can't be read: it is no message of MCP."));
    }
    response
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

async fn answer(operation: Operation, service: &Service, caller: &Caller, request: hyper::Request<Incoming>) -> Reply {
    if operation.row().method == Method::Get {
        return service.call(operation, Input::Query(request.uri()), caller).await;
    }
    let (parts, body) = request.into_parts();
    let reply = match body_of(&parts.headers, body).await {
        Ok(body) => service.call(operation, input_of(&body), caller).await,
        Err(no) => service::reply(Err(no)),
    };
    service.turns.let_others_answer().await;
    reply
}

/// Reads a JSON body, within its bounds of size and time.
async fn body_of<B>(headers: &HeaderMap, body: B) -> Result<Bytes, No>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    if !is_json(text(headers, header::CONTENT_TYPE).unwrap_or_default()) {
        return Err(No::new(Word::WrongType, "A body is JSON: Content-Type: application/json."));
    }
    let announced = text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if announced.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let mut gathered = std::pin::pin!(gathered(body));
    // Most of the time all of it came with the headers, and needs no clock.
    match std::future::poll_fn(|cx| Poll::Ready(gathered.as_mut().poll(cx))).await {
        Poll::Ready(gathered) => gathered,
        Poll::Pending => tokio::time::timeout(BODY_TIME_MAX, gathered)
            .await
            .unwrap_or_else(|_| Err(No::new(Word::Malformed, "The body took too long to come."))),
    }
}

/// Whether a body of this type may be read. A form of another site can send text/plain without asking; it can't send this.
pub(crate) fn is_json(kind: &str) -> bool {
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn too_large() -> No {
    No::new(Word::TooLarge, format!("A body has at most {BODY_BYTES_MAX} bytes."))
}

/// All parts of a body as one. What comes in one part is not copied.
async fn gathered<B>(body: B) -> Result<Bytes, No>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    let mut body = std::pin::pin!(body);
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let unread = |error: B::Error| No::new(Word::Malformed, format!("The body can't be read: {}.", error.into()));
        let Ok(part) = frame.map_err(unread)?.into_data() else { continue };
        if first.len().max(all.len()) + part.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        if first.is_empty() {
            first = part;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&part);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// A body as the text that it has to be.
fn input_of(body: &Bytes) -> Input<'_> {
    std::str::from_utf8(body).map_or(Input::NotText, Input::Json)
}

async fn key_status(
    State(doors): DoorsState,
    axum::Extension(caller): KnownCaller,
    key: Result<Path<String>, PathRejection>,
    axum::extract::RawQuery(query): axum::extract::RawQuery,
) -> Response {
    let Ok(Path(key)) = key else { return unreadable_key() };
    let space = match space_of(query) {
        Ok(space) => space,
        Err(no) => return answer_no(&no),
    };
    let body = serde_json::json!({ "file_path": key, "space": space }).to_string();
    respond(doors.service.call(Operation::KeyStatus, Input::Json(&body), &caller).await).into_response()
}

fn unreadable_key() -> Response {
    answer_no(&No::new(Word::Malformed, "The key in the path can't be read: it is no UTF-8."))
}

/// The space that a query names, and nothing else: a slip would mean another one.
fn space_of(query: Option<String>) -> Result<Option<String>, No> {
    let query = query.unwrap_or_default();
    let mut space = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some(named) = pair.strip_prefix("space=").filter(|_| space.is_none()) else {
            return Err(No::new(Word::Malformed, "The query of this route names a space, once: ?space=NAME."));
        };
        space = Some(percent_decoded(&named.replace('+', " ")));
    }
    Ok(space)
}

/// `DELETE /locks/{key}` takes a lock away, as existing clients ask for it.
async fn force_release(
    State(doors): DoorsState,
    axum::Extension(caller): KnownCaller,
    key: Result<Path<String>, PathRejection>,
    axum::extract::RawQuery(query): axum::extract::RawQuery,
    headers: HeaderMap,
) -> Response {
    let Ok(Path(key)) = key else { return unreadable_key() };
    let space = match space_of(query) {
        Ok(space) => space,
        Err(no) => return answer_no(&no),
    };
    // Names and reasons of people have letters of all languages.
    let words = |name: HeaderName| headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let agent = words(X_AGENT_ID).unwrap_or("operator");
    let reason = words(X_REASON).unwrap_or("DELETE over HTTP");
    // Not every name can be that of a session.
    let session = SessionId::parse(agent).is_err().then_some("operator");
    let body = serde_json::json!({
        "file_path": key, "agent_id": agent, "session_id": session, "reason": reason, "space": space,
    });
    let body = body.to_string();
    respond(doors.service.call(Operation::ForceRelease, Input::Json(&body), &caller).await).into_response()
}

async fn metrics(State(doors): DoorsState) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    doors.service.count_advisory_locks().await;
    ([(header::CONTENT_TYPE, kind)], doors.service.metrics.encode()).into_response()
}

async fn events(State(doors): DoorsState, axum::Extension(caller): KnownCaller, request: Request) -> Response {
    if let Err(no) = service::permitted(Operation::Events, &caller) {
        return answer_no(&no);
    }
    let mut body: EventsRequest = match service::parse(Input::Query(request.uri())) {
        Ok(body) => body,
        Err(no) => return answer_no(&no),
    };
    if let Some(last) = text(request.headers(), LAST_EVENT_ID) {
        body.after = Some(last.to_owned());
    }
    match Events::open(&doors.service, &body, &caller).await {
        Ok(events) => sse(follow(events, doors.service.clone())),
        Err(no) => answer_no(&no),
    }
}

fn follow(events: Events, service: Arc<Service>) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    futures_util::stream::unfold(Some((events, service)), async |place| {
        let (mut events, service) = place?;
        let next = tokio::select! {
            next = events.next_permitted(&service) => next,
            () = service.stopping.cancelled() => return None,
        };
        Some(match next {
            Ok(entry) => {
                let view = view::event(events.epoch(), &entry);
                let event = Event::default().id(view.id.clone()).event(view.action.clone()).json_data(&view);
                (Ok(event.unwrap_or_default()), Some((events, service)))
            }
            Err(no) => (Ok(Event::default().event("error").json_data(&*no.body).unwrap_or_default()), None),
        })
    })
}

async fn attach(State(doors): DoorsState, axum::Extension(caller): KnownCaller, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let opened = match body_of(&parts.headers, body).await {
        Ok(body) => match service::parse::<AttachRequest>(input_of(&body)) {
            Ok(request) => Attached::open(&doors.service, &request, &caller).await,
            Err(no) => Err(no),
        },
        Err(no) => Err(no),
    };
    match opened {
        Ok(attached) => sse(losses(attached, doors.service.clone())),
        Err(no) => answer_no(&no),
    }
}

/// Losses until the connection ends; then, whichever way it ends, what is bound to it is released.
fn losses(attached: Attached, service: Arc<Service>) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let superseded = attached.supersede(&service);
    let grace = if attached.is_named() { GRACE } else { Duration::ZERO };
    let bound =
        ReleaseOnDrop { binding: Some(attached.binding(&service)), service: service.clone(), superseded, grace };
    futures_util::stream::unfold((attached, service, bound, true), async |(mut attached, service, bound, first)| {
        if first {
            let event = Event::default().event("attached").data("{}");
            return Some((Ok(event), (attached, service, bound, false)));
        }
        let next = tokio::select! {
            next = attached.next_loss() => next.ok()?,
            () = bound.superseded.cancelled() => return None,
            () = service.stopping.cancelled() => return None,
        };
        let event =
            Event::default().id(next.id.clone()).event(next.action.clone()).json_data(&next).unwrap_or_default();
        Some((Ok(event), (attached, service, bound, false)))
    })
}

struct ReleaseOnDrop {
    binding: Option<crate::binding::Binding>,
    service: Arc<Service>,
    /// Another connection of the same holder has taken its place.
    superseded: CancellationToken,
    grace: Duration,
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        let (superseded, grace, service) = (self.superseded.clone(), self.grace, self.service.clone());
        if let Some(binding) = self.binding.take().filter(|_| !superseded.is_cancelled()) {
            tokio::spawn(async move {
                if tokio::time::timeout(grace, superseded.cancelled()).await.is_err() {
                    superseded.cancel();
                    binding.release(&service).await;
                }
            });
        }
    }
}

fn sse(stream: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))).into_response()
}

/// As [`respond`]; a long answer takes room until it is read.
fn respond_at_length(service: &Service, mut reply: Reply) -> axum::http::Response<Full<Bytes>> {
    if reply.body.len() < LONG_BYTES {
        return respond(reply);
    }
    match service.unread.hold(reply.body.len()) {
        Ok(room) => {
            let body = std::mem::take(&mut reply.body);
            respond(reply).map(|_| Full::from(Bytes::from_owner(Long { body, _room: room })))
        }
        Err(error) => respond(service::reply(Err(No::new(Word::Unavailable, refusal::sentence(&error.to_string()))))),
    }
}

/// A long answer, as long as it is not read.
struct Long {
    body: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn respond(reply: Reply) -> axum::http::Response<Full<Bytes>> {
    let mut response = axum::http::Response::new(Full::from(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = reply.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn answer_no(no: &No) -> Response {
    respond(service::reply(Err(no.clone()))).into_response()
}
