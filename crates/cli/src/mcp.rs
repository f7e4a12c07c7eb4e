//! `lockkeeper mcp`: tools over stdin and stdout. Beats by itself, and releases when its input ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use lockkeeper_client::{Client, Error, Holding, Identity};
use lockkeeper_server::mcp::{Backend, ToolUser, Tools};
use lockkeeper_wire::answer::PortsStatus;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{
    AcquireRequest, CheckRequest, FeatureCheckRequest, ForceReleaseRequest, HistoryRequest, ListRequest, PortsRequest,
    ReleaseRequest, RenewRequest, SessionRequest, StatusRequest,
};
use rmcp::ServiceExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::{start, who};

const EXAMPLES: &str = "\
In an agent's settings:
  {\"mcpServers\": {\"lockkeeper\": {\"command\": \"lockkeeper\", \"args\": [\"mcp\"]}}}";

/// Each connection is a session of its own, unless SESSION_ID names one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    /// Also offer force_release_lock.
    #[arg(long)]
    operator: bool,
}

impl Mcp {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let desk = Desk {
            config: context.config()?.clone(),
            url: context.global.url.clone(),
            session: context.global.session.clone(),
            agent: context.global.agent.clone(),
            open: Arc::default(),
        };
        let open = desk.open.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let served = runtime.block_on(async {
            let serving = Tools::new(desk, self.operator).serve(rmcp::transport::stdio()).await;
            let serving = serving.map_err(|error| anyhow::anyhow!("no client: {error}"))?;
            serving.waiting().await.map_err(anyhow::Error::from)
        });
        // A client that says nothing and goes away is no failure.
        let released = close(&open);
        runtime.shutdown_background();
        match served {
            Ok(_) => released,
            Err(error) if open.lock().unwrap_or_else(PoisonError::into_inner).is_none() => {
                tracing::debug!(%error, "the client went away");
                released
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The input has ended: everything is given back.
fn close(open: &Mutex<Option<Arc<Session>>>) -> Result<(), Failure> {
    let session = open.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(session) = session.and_then(Arc::into_inner) {
        if session.has_ports.load(Ordering::Acquire) {
            let body = session.identity.sign(SessionRequest::default());
            let _ = session.client.call::<Value>(Operation::ReleasePorts, &body);
        }
        session.holding.release()?;
    }
    Ok(())
}

/// The backend of the tools: the service, asked as one session.
#[derive(Debug)]
struct Desk {
    config: Config,
    url: Option<String>,
    session: Option<String>,
    agent: Option<String>,
    /// Opened with the first call: who uses it is known only then.
    open: Arc<Mutex<Option<Arc<Session>>>>,
}

#[derive(Debug)]
struct Session {
    client: Client,
    identity: Identity,
    holding: Holding,
    /// To be given back in the end.
    has_ports: AtomicBool,
}

/// So many letters of its session tell an agent from others of its kind.
const NAMESAKES: usize = 4;
/// Of a name, with room for them.
const AGENT_CHARS: usize = 120;

impl Desk {
    fn session(&self, user: &ToolUser) -> Result<Arc<Session>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*open {
            return Ok(session.clone());
        }
        let strange = |error: anyhow::Error| Error::Strange(format!("{error:#}"));
        let client = start::client(&self.config, self.url.as_deref())?;
        let named = self.session.clone().or_else(|| std::env::var("SESSION_ID").ok().filter(|id| !id.is_empty()));
        let is_named = named.is_some();
        let session = named.unwrap_or_else(|| format!("mcp-{}", uuid::Uuid::now_v7().simple()));
        let introduced = user
            .agent
            .as_deref()
            .map(|name| lockkeeper_core::text::one_line(name).chars().take(AGENT_CHARS).collect::<String>());
        let agent = match introduced.filter(|name| !name.is_empty()) {
            Some(name) if self.agent.is_none() && std::env::var_os("AGENT_ID").is_none() => {
                // All programs of one kind introduce themselves alike.
                if is_named { name } else { format!("{name}-{}", &session[session.len() - NAMESAKES..]) }
            }
            _ => who::agent(self.agent.as_deref(), &session),
        };
        let space = Some(self.config.space().map_err(strange)?);
        let identity = Identity { session, agent, agent_type: who::agent_type(), space };
        let holding = Holding::start(client.clone(), identity.clone())?;
        let opened = Arc::new(Session { client, identity, holding, has_ports: AtomicBool::new(false) });
        *open = Some(opened.clone());
        Ok(opened)
    }

    /// What the model calls a file, as the service knows it.
    fn resolve(&self, body: &mut Map<String, Value>) -> Result<(), Error> {
        self.resolve_one(body)?;
        for spec in body.get_mut("locks").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(spec) = spec.as_object_mut() {
                self.resolve_one(spec)?;
            }
        }
        for path in body.get_mut("file_paths").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(typed) = path.as_str() {
                *path = json!(self.config.place.key(typed).map_err(refused)?);
            }
        }
        Ok(())
    }

    /// What this user has set counts here as it does for commands.
    fn fill_in_ttl(&self, body: &mut Map<String, Value>) {
        let named = ["ttl_ms", "ttl_minutes"].iter().any(|name| body.contains_key(*name));
        if let Ok(Some(ttl)) = self.config.default_ttl()
            && !named
        {
            body.insert("ttl_ms".to_owned(), json!(ttl.0));
        }
    }

    fn resolve_one(&self, fields: &mut Map<String, Value>) -> Result<(), Error> {
        let Some(typed) = fields.get("file_path").and_then(Value::as_str).map(str::to_owned) else { return Ok(()) };
        if fields.contains_key("start_line") {
            fields.insert("file_path".to_owned(), json!(self.config.place.key(&typed).map_err(refused)?));
            return Ok(());
        }
        let (key, lines) = self.config.place.key_and_lines(&typed).map_err(refused)?;
        fields.insert("file_path".to_owned(), json!(key));
        if let Some(lines) = lines {
            let span = lockkeeper_core::span::Span::parse(&lines).map_err(|error| {
                let word = lockkeeper_wire::word::Word::InvalidRange;
                refused(crate::place::InvalidPath::new(word, format!("{typed}: {error}.")))
            })?;
            fields.insert("start_line".to_owned(), json!(span.start()));
            fields.insert("end_line".to_owned(), json!(span.last()));
        }
        Ok(())
    }
}

fn refused(invalid: crate::place::InvalidPath) -> Error {
    // Where these tools are is where they were started.
    let way =
        invalid.there.map_or_else(String::new, |there| format!("start lockkeeper mcp in {}, and ", there.display()));
    Error::Refused(Box::new(lockkeeper_wire::answer::Refused {
        error: invalid.word.text().to_owned(),
        message: invalid.message,
        hint: invalid.meant.map(|meant| format!("{way}ask for {meant}")),
        ..Default::default()
    }))
}

impl Backend for Desk {
    async fn call(&self, operation: Operation, mut body: Map<String, Value>, user: ToolUser) -> (u16, Value) {
        let asked = self.resolve(&mut body).and_then(|()| self.session(&user));
        if operation == Operation::Acquire {
            self.fill_in_ttl(&mut body);
        }
        let session = match asked {
            Ok(session) => session,
            Err(error) => return answer(Err(error)),
        };
        let wanted = Arc::new(AtomicBool::new(true));
        let _until_dropped = Wanted(wanted.clone());
        // A call waits for its answer; others go on meanwhile.
        let asking = session.clone();
        let called = tokio::task::spawn_blocking(move || {
            let (status, told) = answer(asking.call(operation, body));
            if !wanted.load(Ordering::Acquire) {
                asking.give_back(&told);
            }
            (status, told)
        });
        let (status, mut told) = called.await.unwrap_or_else(|error| answer(Err(Error::Strange(error.to_string()))));
        // Not before somebody hears it: a call that was cancelled tells nobody.
        let lost: Vec<Value> = std::iter::from_fn(|| session.holding.next_lost())
            .map(|lost| json!({ "file_path": lost.lock.file_path, "lock_id": lost.lock.lock_id, "why": lost.why }))
            .collect();
        // A beat names what the session lost, too, and by no more than its key.
        let named = told["lost"].as_array().into_iter().flatten().filter(|target| {
            target.as_str().is_some_and(|target| !lost.iter().any(|lost| lost["file_path"] == *target))
        });
        let named: Vec<Value> = named.map(|target| json!({ "file_path": target })).collect();
        if !(lost.is_empty() && named.is_empty()) {
            told["lost"] = json!([lost, named].concat());
        }
        (status, told)
    }

    fn beats(&self) -> bool {
        true
    }

    fn session_id(&self) -> Option<String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map(|session| session.identity.session.clone())
    }
}

/// Says that nobody waits for a call any more, when it is dropped.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Session {
    /// What a cancelled call was granted, the model knows nothing of.
    fn give_back(&self, granted: &Value) {
        if granted["action"] != "acquired" {
            return;
        }
        let one = granted["lock_id"].as_str().into_iter();
        let set = granted["locks"].as_array().into_iter().flatten().filter_map(|lock| lock["lock_id"].as_str());
        // What the session had before stays.
        let had = |id: &&str| granted["refreshed"].as_array().is_some_and(|had| had.iter().any(|had| had == *id));
        for lock_id in one.chain(set).filter(|id| !had(id)) {
            let body = ReleaseRequest { lock_id: Some(lock_id.to_owned()), ..ReleaseRequest::default() };
            let _ = self.client.call::<Value>(Operation::Release, &self.identity.sign(body));
            self.holding.forget(lock_id);
        }
    }

    fn call(&self, operation: Operation, body: Map<String, Value>) -> Result<Value, Error> {
        let body = Value::Object(body);
        match operation {
            Operation::Acquire => self.holding.take(parse::<AcquireRequest>(body)?),
            Operation::Release => {
                let answer: Value = self.client.call(operation, &self.identity.sign(parse::<ReleaseRequest>(body)?))?;
                for lock in answer["locks"].as_array().into_iter().flatten() {
                    self.holding.forget(lock["lock_id"].as_str().unwrap_or_default());
                }
                Ok(answer)
            }
            Operation::Renew => self.client.call(operation, &self.identity.sign(parse::<RenewRequest>(body)?)),
            Operation::Check => self.client.call(operation, &self.identity.sign(parse::<CheckRequest>(body)?)),
            Operation::Active => self.client.call(operation, &self.identity.sign(parse::<ListRequest>(body)?)),
            Operation::History => self.client.call(operation, &self.identity.sign(parse::<HistoryRequest>(body)?)),
            Operation::ForceRelease => {
                self.client.call(operation, &self.identity.sign(parse::<ForceReleaseRequest>(body)?))
            }
            Operation::CheckFeature => {
                let request: FeatureCheckRequest = parse(body)?;
                let wait = request.wait_ms.map_or(0, |wait| u64::try_from(wait.0).unwrap_or(0));
                self.client.call_within(operation, &self.identity.sign(request), Duration::from_millis(wait))
            }
            Operation::AllocatePorts => {
                let asked = StatusRequest { space: self.identity.space.clone(), ..StatusRequest::default() };
                let status: PortsStatus = self.client.call(Operation::PortsStatus, &asked)?;
                let taken = lockkeeper_client::ports::taken(crate::ports::offered(&status));
                let request = PortsRequest { taken: Some(taken), ..parse(body)? };
                let answer = self.client.call(operation, &self.identity.sign(request))?;
                // What the session had before is not this program's to give back.
                let had = status.allocations.iter().any(|ports| ports.session_id == self.identity.session);
                self.has_ports.fetch_or(!had, Ordering::AcqRel);
                self.holding.stay_alive();
                Ok(answer)
            }
            other => Err(Error::Strange(format!("no tool does {}", other.row().name))),
        }
    }
}

fn parse<T: DeserializeOwned>(body: Value) -> Result<T, Error> {
    serde_json::from_value(body).map_err(|error| {
        Error::Refused(Box::new(lockkeeper_wire::answer::Refused {
            error: "malformed".to_owned(),
            message: format!("The arguments can't be read: {error}."),
            ..Default::default()
        }))
    })
}

fn answer(result: Result<Value, Error>) -> (u16, Value) {
    match result {
        Ok(value) => (200, value),
        Err(error) => (error.word().status(), serde_json::to_value(error.body()).unwrap_or_default()),
    }
}
