//! The least that a lock server over HTTP can be: a map of ordered maps behind a mutex. Nothing is kept, nobody waits.

use std::collections::{BTreeMap, HashMap};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::Load;
use crate::flood::{Client, Step, Times, http};

/// Held lines of a file: from the first, to the last and the session.
type Held = BTreeMap<u64, (u64, String)>;
type Files = Arc<Mutex<HashMap<String, Held>>>;

pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let files = Files::default();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let files = files.clone();
            let service = service_fn(move |request| answer(files.clone(), request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    })
}

async fn answer(files: Files, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let acquires = request.uri().path() == "/locks/acquire";
    let body = request.into_body().collect().await?.to_bytes();
    let done = std::str::from_utf8(&body).ok().and_then(|body| {
        let (path, session) = (text(body, "file_path")?, text(body, "session_id")?);
        let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
        let held = files.entry(path.to_owned()).or_default();
        let (start, end) = (1, u64::MAX);
        if acquires {
            let before = held.range(..=end).next_back();
            before.is_none_or(|(_, (last, _))| *last < start).then(|| {
                held.insert(start, (end, session.to_owned()));
                r#"{"success":true,"action":"acquired"}"#
            })
        } else {
            held.get(&start).is_some_and(|(_, holder)| holder == session).then(|| {
                held.remove(&start);
                r#"{"success":true,"action":"released"}"#
            })
        }
    });
    let (status, body) = match done {
        Some(body) => (StatusCode::OK, body),
        None => (StatusCode::CONFLICT, r#"{"success":false}"#),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    Ok(response)
}

/// The value of a field, without a reader of JSON.
fn text<'a>(body: &'a str, field: &str) -> Option<&'a str> {
    let at = body.find(field)? + field.len() + 3;
    body.get(at..)?.split('"').next()
}

pub(crate) fn pairs(place: &str, load: Load) -> anyhow::Result<Times> {
    let client = |number: usize| {
        let body = format!(r#"{{"file_path":"src/file-{number}.rs","session_id":"bench-client-{number}"}}"#);
        let step = |route: &str, expected| {
            let question = format!(
                "POST /locks/{route} HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            Step { question: question.into_bytes(), expected }
        };
        let acquire = step("acquire", r#"{"success":true,"action":"acquired""#);
        let release = step("release", r#"{"success":true,"action":"released""#);
        let stream = TcpStream::connect(place)?;
        stream.set_nodelay(true)?;
        anyhow::Ok(Client::new(stream, http, vec![acquire, release]))
    };
    let clients = (0..load.clients).map(client).collect::<anyhow::Result<Vec<_>>>()?;
    crate::flooded(clients, load)
}
