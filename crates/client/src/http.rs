//! HTTP, for services that are not on this machine's private socket.

use std::io::{BufRead, BufReader};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lockkeeper_wire::operation::{Method, Operation};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::lines::Answered;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// How long a connection may take to come about.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Whether anybody listens there: a service that is not there is said so at once.
pub(crate) fn reach(url: &str) -> Result<(), String> {
    let authority = url.strip_prefix("http://").unwrap_or(url).split('/').next().unwrap_or_default();
    let with_port = |text: &str| {
        if text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            text.to_owned()
        } else {
            format!("{text}:80")
        }
    };
    let addresses = with_port(authority).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIME_MAX) {
            Ok(_) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// How long to wait for what.
#[derive(Clone, Copy)]
enum Patience {
    InAll(Duration),
    /// For the beginning of an answer that has no end.
    UntilOpen(Duration),
}

impl Patience {
    fn in_all(self) -> Option<Duration> {
        match self {
            Patience::InAll(within) => Some(within),
            Patience::UntilOpen(_) => None,
        }
    }

    fn until_open(self) -> Duration {
        match self {
            Patience::InAll(within) | Patience::UntilOpen(within) => within,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Http {
    url: String,
    credential: Option<String>,
    agent: ureq::Agent,
}

impl Http {
    pub(crate) fn new(url: String, credential: Option<String>) -> Http {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .max_redirects(0)
            .build();
        Http { url, credential, agent: config.into() }
    }

    pub(crate) fn call(
        &self,
        operation: Operation,
        body: &RawValue,
        traceparent: Option<&str>,
        within: Duration,
    ) -> Result<Answered, String> {
        let mut response = self.send(operation, body, traceparent, Patience::InAll(within))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        body.map(|body| (status, body)).map_err(|error| error.to_string())
    }

    /// Server-sent events; each answer is the data of one.
    pub(crate) fn stream(
        &self,
        operation: Operation,
        body: &RawValue,
        traceparent: Option<&str>,
        within: Duration,
    ) -> Result<Receiver<Answered>, String> {
        let mut response = self.send(operation, body, traceparent, Patience::UntilOpen(within))?;
        let status = response.status().as_u16();
        let (sender, receiver) = channel();
        if status != 200 {
            let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
            let _ = sender.send((status, body.map_err(|error| error.to_string())?));
            return Ok(receiver);
        }
        // The first answer of a stream says that it is open.
        let _ = sender.send(alive());
        std::thread::spawn(move || {
            let reader = BufReader::new(response.body_mut().as_reader());
            let mut name = String::new();
            for line in reader.lines().map_while(Result::ok) {
                // Whoever is bound to a stream wants to know that it lives.
                if operation == Operation::AttachSession && line.starts_with(':') && sender.send(alive()).is_err() {
                    return;
                }
                if let Some(event) = line.strip_prefix("event:") {
                    event.trim().clone_into(&mut name);
                } else if let Some(data) = line.strip_prefix("data:")
                    && name != "attached"
                {
                    let status = if name == "error" { 410 } else { 200 };
                    if sender.send((status, data.trim().as_bytes().to_vec())).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(receiver)
    }

    fn send(
        &self,
        operation: Operation,
        body: &RawValue,
        traceparent: Option<&str>,
        patience: Patience,
    ) -> Result<ureq::http::Response<ureq::Body>, String> {
        let row = operation.row();
        let url = format!("{}/{}", self.url, row.name);
        let fields: Value = serde_json::from_str(body.get()).map_err(|error| error.to_string())?;
        let bearer = self.credential.as_ref().map(|credential| format!("Bearer {credential}"));
        let headers = [("Authorization", bearer.as_deref()), ("traceparent", traceparent)];
        let sent = match row.method {
            Method::Post => {
                let request = self.agent.post(&url).header("Content-Type", "application/json");
                prepared(request, headers, patience).send(body.get())
            }
            Method::Get => {
                let url = if operation == Operation::KeyStatus {
                    format!("{url}/{}", fields["file_path"].as_str().unwrap_or_default())
                } else {
                    url
                };
                let mut request = self.agent.get(&url);
                for (name, value) in fields.as_object().into_iter().flatten() {
                    request = match value {
                        Value::String(text) => request.query(name, text),
                        other => request.query(name, other.to_string()),
                    };
                }
                prepared(request, headers, patience).call()
            }
        };
        sent.map_err(|error| error.to_string())
    }
}

fn alive() -> Answered {
    (200, b"{\"success\":true}".to_vec())
}

/// The request with those of its headers that there are, and the time it may take.
fn prepared<Any>(
    mut request: ureq::RequestBuilder<Any>,
    headers: [(&str, Option<&str>); 2],
    patience: Patience,
) -> ureq::RequestBuilder<Any> {
    for (name, value) in headers {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    request.config().timeout_global(patience.in_all()).timeout_recv_response(Some(patience.until_open())).build()
}
