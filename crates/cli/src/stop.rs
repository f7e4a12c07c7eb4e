//! `lockkeeper stop`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper_client::{Client, Endpoint};
use lockkeeper_wire::answer::{Done, ServiceStatus};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::StatusRequest;
use lockkeeper_wire::word::Word;

use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::start;

/// How long a service may take to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// Locks live on until their TTL, and are there again when a service starts.
#[derive(Debug, Args)]
pub(crate) struct Stop {}

impl Stop {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let Stop {} = self;
        let (socket, own) = match named(context)? {
            Some(socket) => (socket, false),
            None => (config::home()?.join("socket"), true),
        };
        let client = match Client::connect(Endpoint::Unix(socket)) {
            Ok(client) => client,
            Err(_) if own => return none_answers(context),
            Err(error) => return Err(error.into()),
        };
        let status: ServiceStatus = client.call(Operation::Status, &StatusRequest::default())?;
        let done: Done = client.call(Operation::Stop, &StatusRequest::default())?;
        drop(client);
        let give_up = Instant::now() + STOP_TIME_MAX;
        while is_running(status.pid) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        if is_running(status.pid) {
            let (pid, seconds) = (status.pid, STOP_TIME_MAX.as_secs());
            let why = format!("the service (pid {pid}) was asked to stop and still runs after {seconds} s");
            return Err(Failure::Other(anyhow::anyhow!(
                "{why}: its disk or its clients may be slow; `kill -9 {pid}` loses no lock"
            )));
        }
        if context.global.json {
            output::json(&done);
        } else {
            say!("Stopped the service (pid {}). Nothing was released.", status.pid);
        }
        Ok(())
    }
}

/// The socket of the service that the command line or the environment names. Not the settings: a broken file must not keep a service
/// running.
fn named(context: &Context) -> Result<Option<PathBuf>, Failure> {
    let from_environment = || std::env::var("LOCKKEEPER_URL").ok().filter(|url| !url.is_empty());
    let Some(url) = context.global.url.clone().or_else(from_environment) else { return Ok(None) };
    match Endpoint::parse(&url, None).map_err(|error| Failure::usage(error.to_string()))? {
        Endpoint::Unix(socket) => Ok(Some(socket)),
        Endpoint::Http { .. } => Err(Failure::Question {
            word: Word::OperationNotPermitted,
            message: format!("The service at {url} is stopped on its own machine, by the user who runs it."),
            hint: Some("env -u LOCKKEEPER_URL lockkeeper stop  (for this user's own)".to_owned()),
        }),
    }
}

/// Whether a process runs. One that has ended and was not fetched yet by whoever started it does not.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, behind)| !behind.trim_start().starts_with('Z'))
}

/// The process that serves from this home, if it lives.
fn alive(home: &Path) -> Option<u32> {
    let (pid, _) = start::written_down(home)?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    command.split(|byte| *byte == 0).any(|word| word == b"serve").then_some(pid)
}

/// Nobody listens: none runs, or its socket was removed.
fn none_answers(context: &Context) -> Result<(), Failure> {
    if let Some(pid) = config::home().ok().and_then(|home| alive(&home)) {
        let why = format!("a service runs (pid {pid}), and its socket is gone");
        return Err(Failure::Other(anyhow::anyhow!("{why}; `kill {pid}` ends it, and no lock is lost by that")));
    }
    if context.global.json {
        output::json(&Done { success: true });
    } else {
        say!("No service runs.");
    }
    Ok(())
}
