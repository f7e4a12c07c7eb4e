//! `lockkeeper serve`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use lockkeeper_advisory::{Address, Monitor};
use lockkeeper_client::{Client, Endpoint};
use lockkeeper_core::space::Space;
use lockkeeper_engine::{Durability, Engine, EngineError, Options};
use lockkeeper_keeper::audit::Audit;
use lockkeeper_keeper::metrics::Metrics;
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::spans::Spans;
use lockkeeper_server::serve::{self, Doors};
use lockkeeper_server::service::{About, Advisory, Service};
use lockkeeper_wire::answer::{Done, ServiceStatus};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::StatusRequest;
use lockkeeper_wire::word::Word;
use tokio::signal::unix::{SignalKind, signal};

use crate::allocator;
use crate::config::{Config, EngineChoice};
use crate::context::Context;
use crate::failure::Failure;
use crate::otlp::Collector;
use crate::output::{note, say};
use crate::password;
use crate::proof::Outside;
use crate::start;

const LISTEN_DEFAULT: &str = "127.0.0.1:5625";
/// How long another service may take to let go.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  lockkeeper serve                               this user's locks, at 127.0.0.1:5625 and on the private socket
  lockkeeper serve --listen none                 the private socket only
  lockkeeper serve --engine memory:              nothing is kept
  lockkeeper serve --engine redis://db:6379      shares locks with every service on this Redis
  lockkeeper serve --engine postgres://db/locks  the same on a PostgreSQL; write a password into LOCKKEEPER_ENGINE
  lockkeeper serve --durability interval         does not wait for the disk";

/// Takes over from a service that a command started in the background.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Where ledgers are kept: file:DIR, redis://HOST:PORT, postgres://HOST/DATABASE or memory: [env: LOCKKEEPER_ENGINE=, LOCK_REDIS_URL=, REDIS_URL=]
    /// [default: file: in LOCKKEEPER_HOME]
    #[arg(long, value_name = "URL")]
    engine: Option<String>,
    /// Address for HTTP and MCP, or none [env: LOCKKEEPER_LISTEN=] [default: 127.0.0.1:5625]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The private socket [default: socket in LOCKKEEPER_HOME]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Whether a grant waits for the disk: always or interval [env: LOCKKEEPER_DURABILITY=] [default: always]
    #[arg(long, value_name = "WHEN")]
    durability: Option<String>,
    /// Started by a command: says ready, and leaves the terminal.
    #[arg(long, hide = true)]
    background: bool,
}

impl Serve {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        allocator::set_up_for_batches();
        let config = context.config()?;
        start::make_home(&config.home).with_context(|| format!("{} can't be made", config.home.display()))?;
        log();
        if self.background {
            // Of its own session, so that the end of a terminal is not its end.
            let _ = rustix::process::setsid();
        }
        // One thread takes what all connections ask, decides it as one batch, and answers all: a second one would only
        // wait for the first. Disk, audit and snapshots have threads of their own.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = runtime.block_on(self.serve(config));
        runtime.shutdown_timeout(Duration::from_secs(2));
        if let (Err(failure), true) = (&served, self.background) {
            say!("{}", background_reason(failure));
        }
        served
    }

    async fn serve(&self, config: &Config) -> Result<(), Failure> {
        let socket = self.socket.clone().unwrap_or_else(|| config.socket());
        start::check_socket(&socket)?;
        // Everything that can be wrong is looked at before a service that runs is asked to go.
        let durability = durability(self.durability.clone().or_else(|| config.durability()).as_deref())?;
        let named = self.engine.clone().map(|url| EngineChoice { url, from: "--engine" });
        let choice = named.unwrap_or_else(|| config.engine());
        if let Err(error) = lockkeeper_engine::place_of(&choice.url) {
            return Err(Failure::usage(choice.explain(&error)));
        }
        if let Some(url) = &self.engine {
            password::refuse(url, "write the URL into LOCKKEEPER_ENGINE, and leave --engine out")?;
        }
        let server =
            Some(format!("{} ({})", rustix::system::uname().nodename().to_string_lossy(), config.home.display()));
        let settings = Settings { server, ..config.settings()? };
        let collector = Collector::configured().map_err(|error| Failure::usage(error.to_string()))?;
        let credentials = config.credentials()?;
        let policy = config.policy()?;
        let shared_space = config.shared_space()?;
        let advisory = watched_database(config)?;
        let space = Space::parse(&config.space()?).map_err(anyhow::Error::from)?;
        let http = self.bind_http(config)?;
        let address = http.as_ref().and_then(|http| http.local_addr().ok());
        // While one service gives way to another, no command may start a third. In the background, the command that
        // starts it has the guard.
        let guard = if self.background { None } else { Some(start::guard(&config.home)?) };
        take_over(&socket, self.background).await?;
        let engine = open_engine(&choice, &Options { durability, shared_space }).await?;
        let place = engine.place();
        // Before anybody can connect.
        if socket == config.socket() && !start::write_down(config, &place) {
            tracing::warn!("which engine is used could not be written down");
        }
        let listener = serve::bind_socket(&socket).await.with_context(|| format!("the socket {}", socket.display()))?;
        drop(guard);
        let metrics = Arc::new(Metrics::new());
        let audit = Audit::open(&config.home, metrics.clone()).context("the audit log can't be written")?;
        let about = About {
            background: self.background,
            engine_from: choice.from.to_owned(),
            // How safe a grant on a server is, the server decides.
            durability: match engine.scheme() {
                "file" | "memory" => durability.to_string(),
                server => server.to_owned(),
            },
            socket: Some(socket.display().to_string()),
            listen: address.map(|address| format!("http://{address}")),
        };
        let read_anew =
            Box::new(|| Config::load().and_then(|config| config.policy()).map_err(|error| format!("{error:#}")));
        let traced = collector.map(|collector| (collector, Spans::new(metrics.clone())));
        let mut service = Service::new(engine, space, settings, audit, metrics, about).with_policy(policy, read_anew);
        let outside = Outside::new(config.proof_directories()?);
        if !outside.is_empty() {
            service = service.with_outside(Arc::new(outside));
        }
        if let Some((collector, (spans, sent))) = traced {
            service = service.with_spans(spans);
            std::thread::Builder::new().name("spans".to_owned()).spawn(move || collector.run(&sent))?;
        }
        let service = Arc::new(service.with_advisory(advisory));
        let doors = Doors { socket: Some(listener), http, credentials, hosts: config.allowed_hosts() };
        self.announce(&socket, address, &format!("{place} ({})", choice.from), config)?;
        obey_signals(&service);
        serve::run(service.clone(), doors).await;
        if !service.was_asked_to_stop() {
            let why = anyhow::anyhow!("a ledger failed, so the service has stopped; all that it acknowledged is kept");
            return Err(Failure::Other(why));
        }
        if !self.background {
            let kept = if choice.url.starts_with("memory:") {
                "memory: forgets all locks"
            } else {
                "Nothing was released; locks live on until their TTL"
            };
            note!("Stopped. {kept}.");
        }
        Ok(())
    }

    /// Listens for HTTP, unless it is not to.
    fn bind_http(&self, config: &Config) -> Result<Option<tokio::net::TcpListener>, Failure> {
        let default = (!self.background).then(|| LISTEN_DEFAULT.to_owned());
        let listen = self.listen.clone().or_else(|| config.listen()).or(default).filter(|listen| listen != "none");
        let Some(text) = listen else { return Ok(None) };
        let address = address(&text)?;
        let bound = serve::bind_http(address);
        let busy = || format!("{address} can't be listened on; choose another with --listen, or --listen none");
        Ok(Some(bound.with_context(busy)?))
    }

    fn announce(
        &self,
        socket: &std::path::Path,
        address: Option<SocketAddr>,
        place: &str,
        config: &Config,
    ) -> Result<(), Failure> {
        if self.background {
            say!("ready");
            // Whoever waits for the end of this output may go on, and the folder may be removed.
            let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(&nowhere).map_err(std::io::Error::from)?;
            std::env::set_current_dir("/")?;
            return Ok(());
        }
        say!("Lockkeeper {} keeps locks in {place}", env!("CARGO_PKG_VERSION"));
        if place.starts_with("memory:") {
            note!("Warning: locks are kept in memory only; those of another engine are not seen.");
        }
        say!("  commands of this user: {}", socket.display());
        if let Some(address) = address {
            say!("  HTTP:                  http://{address} (MCP at /mcp, OpenAPI at /openapi.json)");
            say!("  credential:            {}", config.credential_file().display());
            if !address.ip().is_loopback() {
                note!("Warning: {address} can be reached from other machines, without encryption.");
            }
        }
        say!("Ctrl-C stops it; nothing is released by that.");
        Ok(())
    }
}

/// Whether the settings are such that a service could start with them.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    durability(config.durability().as_deref())?;
    if let Some(listen) = config.listen().filter(|listen| listen != "none") {
        address(&listen)?;
    }
    config.other_credentials()?;
    config.shared_space()?;
    config.proof_directories()?;
    Ok(())
}

fn durability(text: Option<&str>) -> Result<Durability, Failure> {
    match text {
        None | Some("always") => Ok(Durability::Always),
        Some("interval") => Ok(Durability::Interval),
        Some(other) => Err(Failure::usage(format!("durability is always or interval, not '{other}'"))),
    }
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| Failure::usage(format!("'{text}' is no address; write 127.0.0.1:5625, or none")))
}

/// The database whose advisory locks are shown, if one is configured.
fn watched_database(config: &Config) -> Result<Advisory, Failure> {
    let Some(url) = config.database_url() else { return Ok(Advisory::NotConfigured) };
    let names = config.namespaces()?;
    Ok(match Address::parse(&url) {
        Ok(address) => Advisory::Watched(Arc::new(Monitor::new(address, names))),
        Err(error) => Advisory::Unusable(error.to_string()),
    })
}

/// What a command that waits for the start is told.
fn background_reason(failure: &Failure) -> String {
    match failure {
        Failure::Service(error) => error.to_string(),
        Failure::Question { message, .. } | Failure::Written { message, .. } => message.clone(),
        Failure::Other(error) => format!("{error:#}"),
        Failure::Silent(code) => format!("it ended with {code}"),
    }
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LOCKKEEPER_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,lockkeeper=info"));
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A line that can't be written, on a full disk or to a reader that has left, is dropped: complaining of it there would end
    // the service.
    let writer = tracing_subscriber::fmt().with_ansi(colour).with_writer(std::io::stderr).log_internal_errors(false);
    let _ = writer.with_env_filter(filter).try_init();
}

/// Stops, or reads the policy anew, when a signal says so.
fn obey_signals(service: &Arc<Service>) {
    let (stopped, reloaded) = (service.clone(), service.clone());
    tokio::spawn(async move {
        stop_signal().await;
        stopped.stop();
    });
    tokio::spawn(async move {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        while hangup.recv().await.is_some() {
            reloaded.reload();
        }
    });
}

async fn stop_signal() {
    let (Ok(mut interrupted), Ok(mut terminated)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
}

/// A service that a command started gives way to one that a person starts.
async fn take_over(socket: &std::path::Path, background: bool) -> Result<(), Failure> {
    let endpoint = Endpoint::Unix(socket.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let Ok(client) = Client::connect(endpoint) else { return Ok(None) };
        let Ok(status) = client.call::<ServiceStatus>(Operation::Status, &StatusRequest::default()) else {
            return Ok(None);
        };
        if background || !status.background {
            return Err(status.pid);
        }
        let _ = client.call::<Done>(Operation::Stop, &StatusRequest::default());
        Ok(Some(status.pid))
    });
    match asked.await.map_err(anyhow::Error::from)? {
        Ok(None) => return Ok(()),
        Ok(Some(pid)) => note!("Takes over from the service in the background (pid {pid})."),
        Err(pid) => {
            return Err(Failure::Question {
                word: Word::Unavailable,
                message: format!("A service runs already (pid {pid})."),
                hint: Some("lockkeeper status shows it, lockkeeper stop stops it".to_owned()),
            });
        }
    }
    let give_up = Instant::now() + HANDOVER_TIME_MAX;
    while Instant::now() < give_up && serve::listens(socket).await.unwrap_or(false) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Opens the engine; one that is just being let go is waited for.
async fn open_engine(choice: &EngineChoice, options: &Options) -> Result<Arc<dyn Engine>, Failure> {
    let give_up = Instant::now() + HANDOVER_TIME_MAX;
    loop {
        match lockkeeper_engine::open(&choice.url, options).await {
            Ok(engine) => return Ok(engine),
            Err(EngineError::InUse { .. }) if Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error @ EngineError::Invalid(_)) => return Err(Failure::usage(choice.explain(&error))),
            Err(error @ EngineError::Unreachable(_)) => {
                let message = format!("{}.", choice.explain(&error));
                return Err(Failure::Question { word: Word::Unavailable, message, hint: None });
            }
            Err(error) => return Err(Failure::Other(anyhow::anyhow!(choice.explain(&error)))),
        }
    }
}
