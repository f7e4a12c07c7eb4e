//! What is asked in each measurement, whatever the door: told once, and written down for a door before the clock runs.

use lockkeeper_core::limits::{SET_MAX, TTL_MAX};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AcquireRequest, CheckRequest, LockSpec, ReleaseRequest};
use serde::Serialize;

use super::What;
use super::flood::Step;

/// Clients that take what is held before a measurement, together.
pub(crate) const LOADERS: usize = 64;
/// The file that a tenth of what is held is in: one line each, every second line.
const CROWDED: &str = "src/crowded.rs";
/// Places of the crowded file that one client asks about, in turn.
const LOOKS: u64 = 8;
/// How long somebody stands in the queue.
const WAIT_MS: u64 = 60_000;

/// A file, or some lines of it.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) path: String,
    pub(crate) lines: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// One lock; who waits stands in the queue.
    Take {
        spot: Spot,
        wait_ms: u64,
    },
    /// Several at once, for as long as there is.
    TakeAll(Vec<Spot>),
    Give(Spot),
    Look {
        spot: Spot,
        free: bool,
    },
}

/// What one client asks in turn, again and again.
pub(crate) fn asks(what: What, client: u64, held: u64) -> Vec<Ask> {
    let whole = |path: String| Spot { path, lines: None };
    let pair = |spot: Spot, wait_ms| vec![Ask::Take { spot: spot.clone(), wait_ms }, Ask::Give(spot)];
    match what {
        What::Uncontended => pair(whole(format!("src/file-{client}.rs")), 0),
        What::Hot | What::Handover => pair(whole("src/hot.rs".to_owned()), WAIT_MS),
        What::Ranges => {
            let lines = Some((client * 10 + 1, client * 10 + 5));
            pair(Spot { path: "src/ranges.rs".to_owned(), lines }, 0)
        }
        What::Check => (0..LOOKS)
            .map(|look| {
                let crowd = held / 10;
                // Spread over the file; every second place is between two locks.
                let place = (client * LOOKS + look).wrapping_mul(0x9e37_79b9) % crowd.max(1);
                let free = look % 2 == 1 || crowd == 0;
                let line = place * 2 + 1 + u64::from(free);
                Ask::Look { spot: Spot { path: CROWDED.to_owned(), lines: Some((line, line)) }, free }
            })
            .collect(),
    }
}

/// What one of the loaders takes, so that all of them together hold so many locks.
pub(crate) fn load(loader: u64, held: u64) -> Vec<Ask> {
    let crowd = held / 10;
    let spot = |number: u64| match number {
        crowded if crowded < crowd => {
            Spot { path: CROWDED.to_owned(), lines: Some((crowded * 2 + 1, crowded * 2 + 1)) }
        }
        _ => Spot { path: format!("src/held/{number}.rs"), lines: None },
    };
    let own: Vec<u64> = (loader..held).step_by(LOADERS).collect();
    own.chunks(SET_MAX).map(|part| Ask::TakeAll(part.iter().map(|number| spot(*number)).collect())).collect()
}

impl Ask {
    fn operation(&self) -> Operation {
        match self {
            Ask::Take { .. } | Ask::TakeAll(_) => Operation::Acquire,
            Ask::Give(_) => Operation::Release,
            Ask::Look { .. } => Operation::Check,
        }
    }

    /// How the body of the right answer begins.
    fn expected(&self) -> &'static str {
        match self {
            Ask::Take { .. } | Ask::TakeAll(_) => r#"{"success":true,"action":"acquired""#,
            Ask::Give(_) => r#"{"success":true,"action":"released""#,
            Ask::Look { free: true, .. } => r#"{"success":true,"free":true"#,
            Ask::Look { free: false, .. } => r#"{"success":true,"free":false"#,
        }
    }

    fn body(&self, session: &str) -> String {
        let session_id = Some(session.to_owned());
        let start = |spot: &Spot| spot.lines.map(|(start, _)| Whole::from(start));
        let end = |spot: &Spot| spot.lines.map(|(_, end)| Whole::from(end));
        let path = |spot: &Spot| Some(spot.path.clone());
        match self {
            Ask::Take { spot, wait_ms } => text(&AcquireRequest {
                file_path: path(spot),
                start_line: start(spot),
                end_line: end(spot),
                wait_ms: (*wait_ms > 0).then(|| Whole::from(*wait_ms)),
                session_id,
                ..AcquireRequest::default()
            }),
            Ask::TakeAll(spots) => {
                let spec = |spot: &Spot| LockSpec {
                    file_path: spot.path.clone(),
                    start_line: start(spot),
                    end_line: end(spot),
                    mode: None,
                };
                let locks = Some(spots.iter().map(spec).collect());
                let ttl_ms = Some(Whole::from(TTL_MAX.0));
                text(&AcquireRequest { locks, ttl_ms, session_id, ..AcquireRequest::default() })
            }
            Ask::Give(spot) => text(&ReleaseRequest {
                file_path: path(spot),
                start_line: start(spot),
                end_line: end(spot),
                session_id,
                ..ReleaseRequest::default()
            }),
            Ask::Look { spot, free: _ } => text(&CheckRequest {
                file_path: path(spot),
                start_line: start(spot),
                end_line: end(spot),
                session_id,
                ..CheckRequest::default()
            }),
        }
    }

    /// As a line of the private socket.
    pub(crate) fn line(&self, session: &str) -> Step {
        let (name, body) = (self.operation().row().name, self.body(session));
        let question = format!("{{\"id\":1,\"op\":\"{name}\",\"body\":{body}}}\n").into_bytes();
        Step { question, expected: self.expected() }
    }

    /// As a request over HTTP.
    pub(crate) fn http(&self, session: &str, host: &str, credential: &str) -> Step {
        let (name, body) = (self.operation().row().name, self.body(session));
        let question = format!(
            "POST /{name} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {credential}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Step { question: question.into_bytes(), expected: self.expected() }
    }
}

fn text(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("a request has a form")
}

/// The session of a client.
pub(crate) fn session(role: &str, number: impl std::fmt::Display) -> String {
    format!("bench-{role}-{number}")
}
