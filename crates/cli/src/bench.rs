//! `lockkeeper bench`

mod ask;
mod figures;
mod flood;
mod leavings;
mod library;
mod percentiles;
mod private;
mod servers;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use lockkeeper_core::limits::LOCKS_MAX;
use lockkeeper_engine::Durability;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use self::figures::{Figures, Spent};
use self::leavings::Leavings;
use self::library::Library;
use self::private::Private;
use crate::allocator;
use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::password;

/// How long somebody has waited before the lock is handed over.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(2);
const CLIENTS_MAX: usize = 4000;
/// For a URL with a password, which everybody can read on a command line.
const ENGINE_VARIABLE: &str = "LOCKKEEPER_BENCH_ENGINE";

const EXAMPLES: &str = "\
Examples:
  lockkeeper bench                                         everything, at 64 clients, each for 5 s
  lockkeeper bench --what uncontended --clients 1          how long one agent waits for the disk
  lockkeeper bench --durability interval --door http       without waiting for it, over TCP
  lockkeeper bench --what check --held 1000000             among a million locks
  lockkeeper bench --engine memory: --door library --json  the rules alone, for a program

What is measured:
  uncontended  everybody takes a file of their own, and gives it back
  ranges       everybody takes lines of their own in one file
  hot          everybody wants the same file, and stands in its queue
  check        who stands in the way? with --held, in a file that holds a tenth of them
  handover     from a release to the grant of the one who waits: two clients, whatever --clients says";

/// Measures how fast locks are on this machine. Starts a private service for it, which is removed at the end; your own
/// service and your locks are not touched.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Bench {
    /// How many ask at once, each one question at a time.
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: usize,
    /// How long each measurement takes.
    #[arg(long = "for", value_name = "TIME", default_value = "5s")]
    length: String,
    /// What is measured.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Chosen::All, hide_possible_values = true)]
    what: Chosen,
    /// Locks that are held before it begins.
    #[arg(long, value_name = "N", default_value_t = 0)]
    held: u64,
    /// The way in: socket, http, or library (no service, the keeper in this process).
    #[arg(long, value_enum, default_value_t = Door::Socket, hide_possible_values = true)]
    door: Door,
    /// Where ledgers are kept: file:DIR, memory:, redis:// or postgres:// [env: LOCKKEEPER_BENCH_ENGINE=] [default: a folder beside
    /// your own, removed at the end]
    #[arg(long, value_name = "URL", env = ENGINE_VARIABLE, hide_env = true)]
    engine: Option<String>,
    /// Whether a grant waits for the disk: always or interval.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    durability: String,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Uncontended,
    Ranges,
    Hot,
    Check,
    Handover,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Chosen {
    Uncontended,
    Ranges,
    Hot,
    Check,
    Handover,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Door {
    Socket,
    Http,
    Library,
}

/// All that a program is told.
#[derive(Debug, Serialize)]
struct Report {
    door: Door,
    engine: String,
    durability: String,
    held: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_seconds: Option<f64>,
    /// Memory of the service before anything was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_rss_bytes: Option<u64>,
    figures: Vec<Figures>,
}

enum Subject {
    Service(Private),
    Library(Library),
}

impl Bench {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        if self.door == Door::Library {
            // As a service does.
            allocator::set_up_for_batches();
        }
        let length = config::length(&self.length).map_err(|error| Failure::usage(error.to_string()))?;
        let durability: Durability = self.durability.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return Err(Failure::usage(format!("--clients is 1 to {CLIENTS_MAX}, not {}", self.clients)));
        }
        if context.global.url.is_some() {
            return Err(Failure::usage("it measures a service of its own, which --url can't name"));
        }
        if self.held >= LOCKS_MAX as u64 {
            return Err(Failure::usage(format!("one space holds at most {LOCKS_MAX} locks")));
        }
        let folder = Private::folder(context.config()?)?;
        let engine = self.engine.clone().unwrap_or_else(|| format!("file:{}", folder.path().join("ledgers").display()));
        let place = lockkeeper_engine::place_of(&engine).map_err(|error| Failure::usage(error.to_string()))?;
        if std::env::var(ENGINE_VARIABLE).ok().as_ref() != Some(&engine) {
            password::refuse(&engine, &format!("write the URL into {ENGINE_VARIABLE}, and leave --engine out"))?;
        }
        let stop = stop_when_interrupted()?;
        // Before whoever writes there, and so removed after it has ended.
        let leavings = Leavings::new(&engine)?;
        let space = leavings.space();
        let (mut subject, _folder) = match self.door {
            Door::Socket | Door::Http => {
                (Subject::Service(Private::start(folder, &engine, &self.durability, space)?), None)
            }
            Door::Library => (Subject::Library(Library::open(&engine, durability, space, stop.clone())?), Some(folder)),
        };
        let idle_rss_bytes = subject.pid().and_then(figures::rss_bytes);
        let began = Instant::now();
        if self.held > 0 {
            progress(&format!("taking {} locks", self.held));
            subject.load(self.held, &stop)?;
        }
        let load_seconds = (self.held > 0).then(|| began.elapsed().as_secs_f64());
        let mut measured = Vec::new();
        for what in self.what.all() {
            progress(&format!("{} for {}", what.name(), output::millis(length.0)));
            measured.push(self.measure(&mut subject, *what, Duration::from_millis(length.0), &stop)?);
        }
        progress("");
        let report = Report {
            door: self.door,
            engine: place,
            durability: self.durability,
            held: self.held,
            load_seconds,
            idle_rss_bytes,
            figures: measured,
        };
        report.tell(context.global.json)
    }

    fn measure(
        &self,
        subject: &mut Subject,
        what: What,
        length: Duration,
        stop: &AtomicBool,
    ) -> Result<Figures, Failure> {
        let clients = if what == What::Handover { 2 } else { self.clients };
        let (times, spent) = match subject {
            Subject::Library(library) => {
                let before = Spent::so_far(None);
                let times = library.measure(what, clients, self.held, length)?;
                (times, Spent::so_far(None).since(before))
            }
            Subject::Service(private) => {
                let own = |client: u64| {
                    let asks = ask::asks(what, client, self.held);
                    private.client(self.door, &ask::session("client", client), &asks)
                };
                let mut all = (0..clients as u64).map(own).collect::<anyhow::Result<Vec<_>>>()?;
                // Sessions are opened, and files, before the clock runs.
                let warm = if what == What::Handover {
                    flood::once(&mut all[0], 0)?
                } else {
                    flood::run(&mut all, flood::Until::Once, stop)?.first_failure.map_or(Ok(()), Err)
                };
                if let Err(answer) = warm {
                    return Err(anyhow::anyhow!("the service answered: {answer}").into());
                }
                let before = Spent::so_far(subject.pid());
                let times = match all.as_mut_array() {
                    Some(two) if what == What::Handover => flood::hand_over(two, length, HAND_OVER_PAUSE, stop)?,
                    _ => flood::run(&mut all, flood::Until::Elapsed(length), stop)?,
                };
                (times, Spent::so_far(subject.pid()).since(before))
            }
        };
        Ok(Figures::new(what, clients, times, spent, subject.pid()))
    }
}

impl Subject {
    fn pid(&self) -> Option<u32> {
        match self {
            Subject::Service(private) => Some(private.pid()),
            Subject::Library(_) => None,
        }
    }

    fn load(&mut self, held: u64, stop: &AtomicBool) -> anyhow::Result<()> {
        match self {
            Subject::Service(private) => private.load(held, stop),
            Subject::Library(library) => library.load(held),
        }
    }
}

impl Report {
    fn tell(&self, json: bool) -> Result<(), Failure> {
        if json {
            output::json(self);
        } else {
            say!(
                "{} over {}, durability {}, {} held before",
                self.engine,
                self.door.name(),
                self.durability,
                self.held
            );
            output::table(
                ["What", "Clients", "In a second", "p50", "p99", "p99.9", "CPU of the service", "Failures"],
                self.figures.iter().map(Figures::row),
            );
        }
        for failed in self.figures.iter().filter(|figures| figures.failures > 0) {
            let why = failed.first_failure.as_deref().unwrap_or_default().trim_end();
            note!("{}: {} failures, the first: {why}", failed.what.name(), failed.failures);
        }
        if self.figures.iter().any(|figures| figures.failures > 0) { Err(Failure::Silent(1)) } else { Ok(()) }
    }
}

impl Figures {
    fn row(&self) -> [String; 8] {
        let time = |us: f64| if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.2} ms", us / 1000.0) };
        [
            self.what.name().to_owned(),
            self.clients.to_string(),
            format!("{:.0} {}", self.per_second, self.unit),
            time(self.time.half),
            time(self.time.most),
            time(self.time.nearly_all),
            self.service_cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1} µs each")),
            self.failures.to_string(),
        ]
    }
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Uncontended => "uncontended",
            What::Ranges => "ranges",
            What::Hot => "hot",
            What::Check => "check",
            What::Handover => "handover",
        }
    }
}

impl Chosen {
    fn all(self) -> &'static [What] {
        match self {
            Chosen::Uncontended => &[What::Uncontended],
            Chosen::Ranges => &[What::Ranges],
            Chosen::Hot => &[What::Hot],
            Chosen::Check => &[What::Check],
            Chosen::Handover => &[What::Handover],
            Chosen::All => &[What::Uncontended, What::Ranges, What::Hot, What::Check, What::Handover],
        }
    }
}

impl Door {
    fn name(self) -> &'static str {
        match self {
            Door::Socket => "the socket",
            Door::Http => "HTTP",
            Door::Library => "the library",
        }
    }
}

/// What is going on, on a terminal only; nothing wipes it away.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

/// Set when the user wants to stop, so that the private service is ended and its folder removed.
fn stop_when_interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let of_signal = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupted, mut terminated) = {
        let _inside = runtime.enter();
        let listen = |kind| signal(kind).context("signals can't be listened to");
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
        });
        of_signal.store(true, Ordering::Relaxed);
    })?;
    Ok(stop)
}
