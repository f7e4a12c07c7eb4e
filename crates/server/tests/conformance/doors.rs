//! Services in this process, and the doors to them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_client::{Client, Endpoint};
use lockkeeper_core::space::Space;
use lockkeeper_engine::{Durability, Options};
use lockkeeper_keeper::audit::Audit;
use lockkeeper_keeper::metrics::Metrics;
use lockkeeper_keeper::settings::Settings;
use lockkeeper_server::auth::{Credential, Credentials};
use lockkeeper_server::serve::{self, Doors};
use lockkeeper_server::service::{About, Caller, Input, Service};
use lockkeeper_wire::operation::Operation;
use serde_json::{Value, json};

use crate::postgres_server;
use crate::redis_server::RedisServer;

#[derive(Clone, Copy)]
pub(crate) enum EngineKind {
    Memory,
    File,
    FileInterval,
    Redis,
    /// One that syncs before it answers.
    RedisAlways,
    Postgres,
    /// One that syncs before it answers.
    PostgresAlways,
}

#[derive(Clone, Copy)]
pub(crate) enum DoorKind {
    Api,
    Socket,
    Http,
}

/// Running services on one store, each with one door, and everything that has to live as long.
pub(crate) struct House {
    runtime: tokio::runtime::Runtime,
    doors: Vec<Door>,
    /// Whose turn it is: no question goes to the service that had the one before.
    turn: AtomicUsize,
    engine: EngineKind,
    redis: Option<RedisServer>,
    _folder: tempfile::TempDir,
}

#[derive(Clone)]
enum Door {
    Api(Arc<Service>),
    Client(Client),
}

pub(crate) const SECRET: &str = "a-secret-of-the-tests";

impl House {
    /// Several services share the store, and take turns.
    pub(crate) fn open(engine: EngineKind, door: DoorKind, services: usize) -> House {
        House::limited(engine, door, services, "")
    }

    /// The same with something added to the URL of the store.
    pub(crate) fn limited(engine: EngineKind, door: DoorKind, services: usize, limits: &str) -> House {
        let folder = tempfile::tempdir().expect("a folder");
        let redis = match engine {
            EngineKind::Redis => Some(RedisServer::start()),
            EngineKind::RedisAlways => Some(RedisServer::durable()),
            _ => None,
        };
        let url = match (engine, &redis) {
            (EngineKind::File | EngineKind::FileInterval, _) => {
                format!("file:{}", folder.path().join("ledgers").display())
            }
            (EngineKind::Postgres, _) => postgres_server::database(false),
            (EngineKind::PostgresAlways, _) => postgres_server::database(true),
            (_, Some(redis)) => redis.url(),
            (_, None) => "memory:".to_owned(),
        };
        House { redis, ..House::on(&format!("{url}{limits}"), engine, door, services, folder) }
    }

    /// The same on a store that the caller has started.
    pub(crate) fn on(
        url: &str,
        engine: EngineKind,
        door: DoorKind,
        services: usize,
        folder: tempfile::TempDir,
    ) -> House {
        House::with_settings(url, engine, door, folder, vec![unlimited(); services])
    }

    /// The same with services that are set like this.
    pub(crate) fn with_settings(
        url: &str,
        engine: EngineKind,
        door: DoorKind,
        folder: tempfile::TempDir,
        settings: Vec<Settings>,
    ) -> House {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let durability = match engine {
            EngineKind::FileInterval => Durability::Interval,
            _ => Durability::Always,
        };
        let doors = settings.into_iter().enumerate().map(|(number, settings)| {
            let place = folder.path().join(number.to_string());
            std::fs::create_dir(&place).expect("a folder");
            serve(&runtime, url, durability, &place, door, settings)
        });
        let doors = doors.collect();
        House { runtime, doors, turn: AtomicUsize::new(0), engine, redis: None, _folder: folder }
    }

    /// How strong the grants of its engine are.
    pub(crate) fn strength(&self) -> &'static str {
        match self.engine {
            EngineKind::File | EngineKind::RedisAlways | EngineKind::PostgresAlways => "strict",
            EngineKind::Memory | EngineKind::FileInterval | EngineKind::Redis | EngineKind::Postgres => "best_effort",
        }
    }

    /// The Redis behind its services.
    pub(crate) fn redis(&mut self) -> &mut RedisServer {
        self.redis.as_mut().expect("an engine on Redis")
    }

    fn door(&self) -> &Door {
        &self.doors[self.turn.fetch_add(1, Ordering::Relaxed) % self.doors.len()]
    }

    /// Asks, and gives back the status and the body.
    pub(crate) fn ask(&self, operation: Operation, body: Value) -> (u16, Value) {
        ask(self.door(), self.runtime.handle(), operation, body)
    }

    /// Asks several things at the same moment, of the same service.
    pub(crate) fn ask_together(&self, questions: Vec<(Operation, Value)>) -> Vec<(u16, Value)> {
        let door = self.door();
        let asked = questions.into_iter().map(|(operation, body)| {
            let (door, handle) = (door.clone(), self.runtime.handle().clone());
            std::thread::spawn(move || ask(&door, &handle, operation, body))
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    }

    /// Asks something that waits, beside the test; goes on when it stands in the queue.
    pub(crate) fn ask_aside(&self, operation: Operation, body: Value) -> std::thread::JoinHandle<(u16, Value)> {
        let (door, handle) = (self.door().clone(), self.runtime.handle().clone());
        let asked = std::thread::spawn(move || ask(&door, &handle, operation, body));
        let give_up = std::time::Instant::now() + Duration::from_secs(15);
        while self.ask(Operation::Status, json!({})).1["waiting"].as_u64() == Some(0) {
            assert!(std::time::Instant::now() < give_up, "nobody waits");
            std::thread::sleep(Duration::from_millis(10));
        }
        asked
    }

    /// Expects a grant, and gives back the lock.
    pub(crate) fn granted(&self, session: &str, path: &str, more: Value) -> Value {
        let (status, body) = self.ask(Operation::Acquire, wanting(session, path, more));
        assert_eq!(status, 200, "{session} {path}: {body}");
        body
    }

    /// Expects a refusal with this word, and gives it back.
    pub(crate) fn refused(&self, operation: Operation, body: Value, status: u16, word: &str) -> Value {
        let (told, answer) = self.ask(operation, body);
        assert_eq!((told, answer["error"].as_str()), (status, Some(word)), "{answer}");
        assert_eq!(answer["success"], false);
        assert!(!answer["message"].as_str().unwrap_or_default().is_empty(), "a refusal says why: {answer}");
        answer
    }

    pub(crate) fn held(&self) -> Vec<String> {
        let (_, list) = self.ask(Operation::Active, json!({}));
        let rows = list["locks"].as_array().cloned().unwrap_or_default();
        rows.iter()
            .map(|lock| format!("{} {}", lock["session_id"].as_str().unwrap(), lock["file_path"].as_str().unwrap()))
            .collect()
    }
}

/// Without a quota.
pub(crate) fn unlimited() -> Settings {
    let mut settings = Settings::default();
    settings.rules.quota_limit = 0;
    settings
}

/// Starts a service, and goes to one of its doors.
fn serve(
    runtime: &tokio::runtime::Runtime,
    url: &str,
    durability: Durability,
    place: &Path,
    door: DoorKind,
    settings: Settings,
) -> Door {
    let socket_path = place.join("socket");
    let (service, address) = runtime.block_on(async {
        let engine =
            lockkeeper_engine::open(url, &Options { durability, ..Options::default() }).await.expect("an engine");
        let metrics = Arc::new(Metrics::new());
        let audit = Audit::open(place, metrics.clone()).expect("an audit log");
        let about = About {
            background: false,
            engine_from: "a test".to_owned(),
            durability: durability.to_string(),
            socket: None,
            listen: None,
        };
        let space = Space::parse("test").expect("a space");
        let service = Arc::new(Service::new(engine, space, settings, audit, metrics, about));
        let socket = serve::bind_socket(&socket_path).await.expect("a socket");
        let http = serve::bind_http("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = http.local_addr().expect("an address");
        let credentials = Credentials::new(vec![Credential::new(SECRET, None, true)]);
        let doors = Doors { socket: Some(socket), http: Some(http), credentials, hosts: Vec::new() };
        tokio::spawn(serve::run(service.clone(), doors));
        (service, address)
    });
    let endpoint = match door {
        DoorKind::Api => return Door::Api(service),
        DoorKind::Socket => Endpoint::Unix(socket_path),
        DoorKind::Http => Endpoint::Http { url: format!("http://{address}"), credential: Some(SECRET.into()) },
    };
    Door::Client(Client::connect(endpoint).expect("a connection"))
}

fn ask(door: &Door, handle: &tokio::runtime::Handle, operation: Operation, body: Value) -> (u16, Value) {
    match door {
        Door::Api(service) => {
            let text = body.to_string();
            let reply = handle.block_on(service.call(operation, Input::Json(&text), &Caller::local()));
            (reply.status, serde_json::from_slice(&reply.body).expect("JSON"))
        }
        Door::Client(client) => {
            let wait = Duration::from_millis(body["wait_ms"].as_u64().unwrap_or(0));
            let raw = serde_json::value::to_raw_value(&body).expect("JSON");
            let (status, body) = client.call_raw(operation, &raw, wait).expect("an answer");
            (status, serde_json::from_slice(&body).expect("JSON"))
        }
    }
}

/// The body of an acquisition: `more` adds to it or replaces.
pub(crate) fn wanting(session: &str, path: &str, more: Value) -> Value {
    let mut body = json!({ "session_id": session, "agent_id": session, "file_path": path, "intention": "work" });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}
