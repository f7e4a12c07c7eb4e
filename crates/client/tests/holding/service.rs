//! A service that grants what it is asked for, and fails where it is told to. Speaks as much HTTP as the client needs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_client::{Client, Endpoint};
use serde_json::{Value, json};

pub(crate) const RENEW: &str = "locks/renew";
pub(crate) const RELEASE: &str = "locks/release";
pub(crate) const ATTACH: &str = "sessions/attach";

#[derive(Clone, Default)]
pub(crate) struct Service(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    /// How often each operation fails from now on.
    pub failures: BTreeMap<&'static str, u32>,
    /// How long it takes to grant something.
    pub wait: Duration,
    pub ttl_ms: u64,
    /// Grants, and hangs up.
    pub mute: bool,
    /// How many of the next grants are told as of unknown outcome.
    pub unknown: u32,
    /// What was granted under which request id.
    granted: BTreeMap<String, Value>,
    /// What is held, by its id.
    pub held: BTreeMap<String, Value>,
    /// What was asked for, in order: the operation, and the lock if one is named.
    pub asked: Vec<(String, Option<String>)>,
    /// Connections that are never answered to the end.
    streams: Vec<TcpStream>,
    made: u64,
}

impl Service {
    pub(crate) fn start(wait: Duration, ttl_ms: u64) -> (Service, Client) {
        let service = Service(Arc::new(Mutex::new(State { wait, ttl_ms, ..State::default() })));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let of_thread = service.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let service = of_thread.clone();
                std::thread::spawn(move || service.serve(stream));
            }
        });
        (service, Client::connect(Endpoint::Http { url, credential: None }).expect("a connection"))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, this operation fails as often as that.
    pub(crate) fn fail(&self, operation: &'static str, times: u32) {
        self.state().failures.insert(operation, times);
    }

    /// Cuts every stream, as a network may.
    pub(crate) fn cut_streams(&self) {
        self.state().streams.clear();
    }

    /// How often an operation was asked for.
    pub(crate) fn count(&self, operation: &str) -> usize {
        self.state().asked.iter().filter(|(asked, _)| asked == operation).count()
    }

    /// The files that are held.
    pub(crate) fn held(&self) -> Vec<String> {
        let state = self.state();
        state.held.values().map(|lock| lock["file_path"].as_str().expect("a path").to_owned()).collect()
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).is_ok_and(|read| read > 0) {
                continue;
            }
            // Somebody looked whether anybody listens.
            return;
        }
        let operation = head.split_whitespace().nth(1).expect("a place").trim_start_matches('/').to_owned();
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        if operation == "locks/acquire" {
            let wait = self.state().wait;
            std::thread::sleep(wait);
        }
        let mut state = self.state();
        let mut stream = reader.into_inner();
        let (status, answer) = state.answer(&operation, &body);
        if operation == ATTACH && status == 200 {
            let opened = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: attached\ndata: {}\n\n";
            let _ = stream.write_all(opened);
            state.streams.push(stream);
            return;
        }
        if operation == "locks/acquire" && state.mute {
            return;
        }
        drop(state);
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {status} So\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
        let _ = stream.write_all(format!("{head}{answer}").as_bytes());
    }
}

impl State {
    fn answer(&mut self, operation: &str, body: &Value) -> (u16, Value) {
        let lock_id = body["lock_id"].as_str().map(str::to_owned);
        self.asked.push((operation.to_owned(), lock_id.clone()));
        if let Some(failures) = self.failures.get_mut(operation).filter(|failures| **failures > 0) {
            *failures -= 1;
            return (503, json!({ "success": false, "error": "unavailable", "message": "Not now." }));
        }
        match operation {
            "locks/acquire" => {
                let id = body["request_id"].as_str().expect("an id").to_owned();
                let granted = self.granted.get(&id).cloned().unwrap_or_else(|| self.grant(body));
                self.granted.insert(id, granted.clone());
                if self.unknown > 0 {
                    self.unknown -= 1;
                    return (503, json!({ "success": false, "error": "outcome_unknown", "message": "Who knows." }));
                }
                (200, granted)
            }
            RENEW => (200, changed("renewed", self.held.values().cloned().collect())),
            RELEASE => match self.held.remove(&lock_id.expect("a lock")) {
                Some(lock) => (200, changed("released", vec![lock])),
                None => (404, json!({ "success": false, "error": "not_found", "message": "There is none." })),
            },
            ATTACH => (200, json!({ "success": true })),
            other => panic!("nobody asks for {other}"),
        }
    }

    fn grant(&mut self, body: &Value) -> Value {
        let wanted = body["locks"].as_array().cloned().unwrap_or_else(|| vec![body.clone()]);
        let (mut locks, mut refreshed) = (Vec::new(), Vec::new());
        for wanted in wanted {
            let path = &wanted["file_path"];
            if let Some(held) = self.held.values().find(|held| held["file_path"] == *path) {
                refreshed.push(held["lock_id"].clone());
                locks.push(held.clone());
                continue;
            }
            self.made += 1;
            let lock_id = format!("lock-{:012}", self.made);
            let lock = json!({
                "lock_id": lock_id, "file_path": path, "start_line": null, "end_line": null, "mode": "exclusive",
                "intention": "", "owner": "a", "session_id": "a", "fencing_token": self.made, "created_at": "",
                "expires_at": "", "ttl_ms": self.ttl_ms, "expires_in_ms": self.ttl_ms,
            });
            self.held.insert(lock_id, lock.clone());
            locks.push(lock);
        }
        let action = if refreshed.len() == locks.len() { "refreshed" } else { "acquired" };
        let mut answer = changed(action, locks);
        answer["refreshed"] = json!(refreshed);
        answer["heartbeat_interval_ms"] = json!(self.ttl_ms / 3);
        answer
    }
}

fn changed(action: &str, locks: Vec<Value>) -> Value {
    json!({ "success": true, "action": action, "locks": locks })
}
