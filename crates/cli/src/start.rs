//! Finds the service, and starts one in the background when none is configured and none runs: one, however many ask.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_client::{Client, Endpoint, Error};
use lockkeeper_keeper::trace::TraceParent;

use crate::config::{self, Config};
use crate::output::note;

/// Where a caller says which trace a command belongs to.
const TRACE_VARIABLE: &str = "TRACEPARENT";
/// Says in LOCKKEEPER_HOME which process serves, and where it keeps its locks.
const SERVICE_FILE: &str = "service.now";
/// How long a service may take to start, and others to wait for it.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// The longest name that a socket may have on every system, with what its hidden name has more.
const SOCKET_BYTES_MAX: usize = 98;

/// A connection to the configured service, or to the one of this user.
pub(crate) fn client(config: &Config, url: Option<&str>) -> Result<Client, Error> {
    let trace = std::env::var(TRACE_VARIABLE).ok().map(|trace| trace.trim().to_owned());
    // What does not follow the standard is ignored, as the standard asks.
    let trace = trace.filter(|trace| TraceParent::parse(trace).is_some());
    Ok(connected(config, url)?.traced_by(trace.as_deref()))
}

fn connected(config: &Config, url: Option<&str>) -> Result<Client, Error> {
    let configured = url.map(str::to_owned).or_else(|| config.url());
    if let Some(url) = configured {
        // No split worlds: a service that was named and can't be reached is not replaced by another.
        let client = Client::connect(Endpoint::parse(&url, config.credential())?)?;
        return Ok(client);
    }
    let endpoint = Endpoint::Unix(config.socket());
    let connected = Client::connect(endpoint.clone()).or_else(|_| {
        start(config)?;
        Client::connect(endpoint)
    })?;
    if let Some((warning, hint)) = other_engine(config) {
        note!("Warning: {warning}");
        note!("Hint: {hint}");
    }
    // A service that is killed while a command waits or holds is started again by that command.
    let of_revive = config.clone();
    Ok(connected.revived_by(Arc::new(move || start(&of_revive))))
}

/// Takes down which process serves this user, and where it keeps its locks, for commands that were told of another place or
/// find no socket. `false`: it could not, which is no reason not to serve.
pub(crate) fn write_down(config: &Config, place: &str) -> bool {
    let (path, part) =
        (config.home.join(SERVICE_FILE), config.home.join(format!(".{SERVICE_FILE}.{}", std::process::id())));
    let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part);
    let written = file.and_then(|mut file| writeln!(file, "{}\n{place}", std::process::id()));
    // In one piece, or not at all: what is there of an earlier service is not true any more.
    let done = written.and_then(|()| std::fs::rename(&part, &path));
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
        let _ = std::fs::remove_file(&path);
    }
    done.is_ok()
}

/// The process that last served from this home, and where it kept its locks.
pub(crate) fn written_down(home: &Path) -> Option<(u32, String)> {
    let text = std::fs::read_to_string(home.join(SERVICE_FILE)).ok()?;
    let (pid, place) = text.trim_end().split_once('\n')?;
    Some((pid.parse().ok()?, place.to_owned()))
}

/// What to say when the service that runs keeps its locks elsewhere than where this command was told to look.
fn other_engine(config: &Config) -> Option<(String, String)> {
    let choice = config.engine();
    if choice.is_default() {
        return None;
    }
    choice.beside(&written_down(&config.home)?.1)
}

fn start(config: &Config) -> Result<(), Error> {
    let failed = |what: &str, error: &std::io::Error| Error::Unreachable(format!("{what}: {error}"));
    make_home(&config.home).map_err(|error| failed(&format!("{} can't be used", config.home.display()), &error))?;
    let socket = config.socket();
    check_socket(&socket)?;
    let _guard = guard(&config.home)?;
    // Whoever had the guard before has started it.
    if lockkeeper_client::listens(&socket) {
        return Ok(());
    }
    spawn(config).map_err(|error| failed("a service could not be started", &error))
}

/// Whether a socket can have this name on every system.
pub(crate) fn check_socket(socket: &Path) -> Result<(), Error> {
    if socket.as_os_str().len() > SOCKET_BYTES_MAX {
        return Err(Error::Unreachable(format!(
            "{} is too long for a socket; set LOCKKEEPER_HOME to a shorter folder",
            socket.display()
        )));
    }
    Ok(())
}

/// Makes the directory of the service's state, for its owner only.
pub(crate) fn make_home(home: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    let found = std::fs::metadata(home)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(std::io::Error::other("it belongs to another user; set LOCKKEEPER_HOME to a folder of yours"));
    }
    if found.permissions().mode() & 0o077 != 0 {
        return Err(std::io::Error::other(format!("it is open to others; chmod go-rwx {}", home.display())));
    }
    Ok(())
}

/// Waits until nobody else is starting a service; nobody will until the file is dropped.
pub(crate) fn guard(home: &Path) -> Result<File, Error> {
    let path = home.join("start.lock");
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let guard = opened.map_err(|error| {
        let home = "LOCKKEEPER_HOME must be a folder that you may write to";
        Error::Unreachable(format!("{} can't be opened: {error}; {home}", path.display()))
    })?;
    let give_up = Instant::now() + START_TIME_MAX;
    loop {
        match guard.try_lock() {
            Ok(()) => return Ok(guard),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(Error::Unreachable(format!("another command is starting a service: {error}"))),
        }
    }
}

/// Starts this program again as a service of its own session, and waits until it says that it listens.
fn spawn(config: &Config) -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(config.home.join("service.log"))?;
    let mut service = Command::new(program);
    service.args(["serve", "--background"]).current_dir("/").env("LOCKKEEPER_HOME", &config.home);
    if let Some(policy) = config::policy_from_environment() {
        service.env(config::POLICY_VARIABLE, policy);
    }
    let mut child = service.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
    let mut ready = child.stdout.take().ok_or_else(|| std::io::Error::other("it has no output"))?;
    let mut said = String::new();
    ready.read_to_string(&mut said)?;
    if said.trim() == "ready" {
        // Whoever lives longer than the service fetches it when it ends: else it would seem to be there.
        std::thread::spawn(move || child.wait());
        return Ok(());
    }
    let why = if said.trim().is_empty() { "it ended at once".to_owned() } else { said.trim().to_owned() };
    Err(std::io::Error::other(format!("{why} (see {})", config.home.join("service.log").display())))
}
