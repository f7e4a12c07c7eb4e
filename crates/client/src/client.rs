//! Calls to a service, over whichever door, again when the connection breaks.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::Asker;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::http::Http;
use crate::lines::{Answered, Answers, Lines};

/// How long a service may take to answer something that waits for nothing.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a broken connection is tried again.
const AGAIN_TIME_MAX: Duration = Duration::from_secs(10);
const AGAIN_PAUSE: Duration = Duration::from_millis(50);

/// Who asks.
#[derive(Clone, Debug)]
pub struct Identity {
    pub session: String,
    pub agent: String,
    pub agent_type: Option<String>,
    pub space: Option<String>,
}

impl Identity {
    /// Fills in who asks, and a name for the request.
    pub fn sign<B: Asker>(&self, mut body: B) -> B {
        let who = body.who_mut();
        *who.session_id = Some(self.session.clone());
        *who.agent_id = Some(self.agent.clone());
        who.agent_type.clone_from(&self.agent_type);
        who.space.clone_from(&self.space);
        *who.request_id = Some(uuid::Uuid::now_v7().to_string());
        body
    }
}

/// Brings a service back that has gone away.
pub type Revive = Arc<dyn Fn() -> Result<(), Error> + Send + Sync>;

/// A service, as seen from outside. Clones share the connection.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    door: Arc<Mutex<Door>>,
    revive: Option<Revive>,
    traceparent: Option<Arc<str>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
enum Door {
    Lines(Arc<Lines>),
    Http(Arc<Http>),
}

impl Client {
    pub fn connect(endpoint: Endpoint) -> Result<Client, Error> {
        let door = open(&endpoint)?;
        Ok(Client { endpoint, door: Arc::new(Mutex::new(door)), revive: None, traceparent: None })
    }

    /// From now on, every question says that it belongs to this W3C trace context.
    #[must_use]
    pub fn traced_by(self, traceparent: Option<&str>) -> Client {
        Client { traceparent: traceparent.map(Arc::from), ..self }
    }

    /// From now on, a service that has gone away is brought back by this.
    #[must_use]
    pub fn revived_by(self, revive: Revive) -> Client {
        Client { revive: Some(revive), ..self }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether what is acquired here is bound to this connection once the session is attached.
    pub(crate) fn binds(&self) -> bool {
        matches!(self.endpoint, Endpoint::Unix(_))
    }

    /// Asks, and reads the answer.
    pub fn call<T: DeserializeOwned>(&self, operation: Operation, body: &impl Serialize) -> Result<T, Error> {
        self.call_within(operation, body, Duration::ZERO)
    }

    /// Asks something that may wait for `wait` before it is answered.
    ///
    /// If the connection breaks, it asks again: a request with an id changes at most once.
    pub fn call_within<T: DeserializeOwned>(
        &self,
        operation: Operation,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, Error> {
        let (status, body) = self.call_raw(operation, &raw(body)?, wait)?;
        read(status, &body)
    }

    /// As [`Client::call_within`], with the status and the body as they came.
    pub fn call_raw(&self, operation: Operation, body: &RawValue, wait: Duration) -> Result<Answered, Error> {
        let give_up = Instant::now() + wait + AGAIN_TIME_MAX;
        loop {
            match self.once(operation, body, wait + ANSWER_TIME_MAX) {
                Ok(answered) => return Ok(answered),
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => std::thread::sleep(AGAIN_PAUSE),
            }
            self.reopen();
        }
    }

    /// Asks once, on the connection that there is.
    pub(crate) fn once(&self, operation: Operation, body: &RawValue, within: Duration) -> Result<Answered, Error> {
        let broken = |why: &str| Error::Unreachable(format!("{} does not answer: {why}", self.endpoint));
        let trace = self.traceparent.as_deref();
        match self.door() {
            Door::Http(http) => http.call(operation, body, trace, within).map_err(|error| broken(&error)),
            Door::Lines(lines) => {
                let answers = lines.ask(operation, body, trace).map_err(|error| broken(&error.to_string()))?;
                answers.recv_timeout(within).map_err(|error| match error {
                    RecvTimeoutError::Timeout => broken("it takes too long"),
                    RecvTimeoutError::Disconnected => broken("the connection was closed"),
                })
            }
        }
    }

    /// Asks for a stream, and waits until it is open.
    pub fn stream(&self, operation: Operation, body: &impl Serialize, within: Duration) -> Result<Answers, Error> {
        let broken = |why: String| Error::Unreachable(format!("{} does not answer: {why}", self.endpoint));
        let (body, trace) = (raw(body)?, self.traceparent.as_deref());
        let answers = match self.door() {
            Door::Http(http) => Answers(http.stream(operation, &body, trace, within).map_err(broken)?),
            Door::Lines(lines) => {
                Answers(lines.ask(operation, &body, trace).map_err(|error| broken(error.to_string()))?)
            }
        };
        match answers.next(within) {
            Ok(Some(_)) => Ok(answers),
            Ok(None) => Err(broken("it takes too long".to_owned())),
            Err(ended) => match ended.0 {
                Some(body) => Err(read::<serde_json::Value>(400, &body).expect_err("a refusal")),
                None => Err(broken("the connection was closed".to_owned())),
            },
        }
    }

    /// Connects anew if the connection has ended. `true`: there is one.
    pub fn reopen(&self) -> bool {
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        match &*door {
            Door::Http(_) => true,
            Door::Lines(lines) if !lines.has_ended() => true,
            Door::Lines(_) => match open(&self.endpoint).or_else(|error| self.revived(error)) {
                Ok(opened) => {
                    *door = opened;
                    true
                }
                Err(_) => false,
            },
        }
    }

    fn revived(&self, error: Error) -> Result<Door, Error> {
        let Some(revive) = &self.revive else { return Err(error) };
        revive()?;
        open(&self.endpoint)
    }

    fn door(&self) -> Door {
        self.door.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn open(endpoint: &Endpoint) -> Result<Door, Error> {
    match endpoint {
        Endpoint::Unix(path) => match Lines::connect(path) {
            Ok(lines) => Ok(Door::Lines(Arc::new(lines))),
            Err(error) => Err(Error::Unreachable(format!("no service at {endpoint}: {error}"))),
        },
        Endpoint::Http { url, credential } => {
            crate::http::reach(url).map_err(|why| Error::Unreachable(format!("no service at {endpoint}: {why}")))?;
            Ok(Door::Http(Arc::new(Http::new(url.clone(), credential.clone()))))
        }
    }
}

pub(crate) fn raw(body: &impl Serialize) -> Result<Box<RawValue>, Error> {
    to_raw_value(body).map_err(|error| Error::Strange(error.to_string()))
}

/// An answer of a known form, or the refusal that came in its place.
pub(crate) fn read<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, Error> {
    if status == 200 {
        return serde_json::from_slice(body).map_err(|error| Error::Strange(error.to_string()));
    }
    match serde_json::from_slice(body) {
        Ok(refused) => Err(Error::Refused(Box::new(refused))),
        Err(error) => Err(Error::Strange(format!("status {status}: {error}"))),
    }
}
