//! Drives the contenders that Lockkeeper is measured beside, and the yardsticks of the machine itself.
//!
//! Each command prints one JSON object. `bench/compare` starts the servers and puts the figures together.

mod advisory;
mod bare;
mod disk;
mod echo;
mod etcd;
// The load of `lockkeeper bench`: all contenders are driven alike.
#[path = "../../crates/cli/src/bench/flood.rs"]
mod flood;
#[path = "../../crates/cli/src/bench/percentiles.rs"]
mod percentiles;
mod postgres;
mod process;
mod proof;
mod redis;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Parser};
use serde::Serialize;

use crate::flood::Times;
use crate::percentiles::Percentiles;

/// Nobody interrupts this but by ending it.
static STOP: AtomicBool = AtomicBool::new(false);
/// How long somebody has waited before the lock is handed over, as in `lockkeeper bench`.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, Parser)]
#[command(about = "Drives the contenders; bench/compare puts their figures together.")]
enum Contender {
    /// SET NX PX, and DEL or a script that compares first.
    RedisPairs {
        /// A socket's path, or HOST:PORT.
        place: String,
        #[arg(long)]
        compare: bool,
        #[command(flatten)]
        load: Load,
    },
    /// From LPUSH to the answer of BLPOP.
    RedisHandover {
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// From a script that compares and appends to the message about it.
    RedisRelay {
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// A row with a lease: INSERT ... ON CONFLICT ... WHERE it has expired, and DELETE.
    PostgresPairs {
        /// As libpq writes it: host=/folder user=...
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// From pg_advisory_unlock to the answer of pg_advisory_lock.
    PostgresHandover {
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// pg_advisory_lock and pg_advisory_unlock, as they are.
    PostgresAdvisory {
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// The same by the library.
    AdvisoryPairs {
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// A transaction that puts if the key is not there, and a delete.
    EtcdPairs {
        /// http://HOST:PORT
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// A lock server over HTTP with nothing but a range index; says where it listens, and runs until it is ended.
    BareServe,
    BarePairs {
        /// HOST:PORT
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// A service that answers every line with the same one; runs until it is ended.
    EchoServe {
        path: PathBuf,
        /// Has what came together synced into this file before it is answered.
        #[arg(long)]
        synced: Option<PathBuf>,
    },
    EchoPairs {
        /// The socket's path.
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// A service that hands one thing over, and writes that into this file; runs until it is ended.
    HandoverServe { path: PathBuf, log: PathBuf },
    EchoHandover {
        /// The socket's path.
        place: String,
        #[command(flatten)]
        load: Load,
    },
    /// fdatasync of a written page in a file that was there before.
    Fsync {
        folder: PathBuf,
        #[command(flatten)]
        load: Load,
    },
    /// Appends to a proof's ledger, by so many processes.
    ProofAppends {
        folder: PathBuf,
        way: proof::Way,
        #[command(flatten)]
        load: Load,
    },
    #[command(hide = true)]
    ProofWorker {
        proof: PathBuf,
        way: proof::Way,
        #[command(flatten)]
        load: Load,
    },
    /// From the start of a program to its end.
    Process {
        #[arg(long, default_value_t = 200)]
        runs: usize,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, Args)]
struct Load {
    #[arg(long, default_value_t = 64)]
    clients: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

impl Load {
    fn length(self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

#[derive(Debug, Serialize)]
struct Figures {
    per_second: f64,
    count: usize,
    failures: u64,
    #[serde(flatten)]
    time: Percentiles,
}

fn main() -> anyhow::Result<()> {
    let times = match Contender::parse() {
        Contender::RedisPairs { place, compare, load } => redis::pairs(&place, compare, load)?,
        Contender::RedisHandover { place, load } => redis::hand_over(&place, load)?,
        Contender::RedisRelay { place, load } => redis::relay(&place, load)?,
        Contender::PostgresPairs { place, load } => postgres::pairs(&place, load)?,
        Contender::PostgresHandover { place, load } => postgres::hand_over(&place, load)?,
        Contender::PostgresAdvisory { place, load } => advisory::bare(&place, load)?,
        Contender::AdvisoryPairs { place, load } => advisory::library(&place, load)?,
        Contender::EtcdPairs { place, load } => etcd::pairs(&place, load)?,
        Contender::BareServe => return bare::serve(),
        Contender::BarePairs { place, load } => bare::pairs(&place, load)?,
        Contender::EchoServe { path, synced } => return echo::serve(&path, synced.as_deref()),
        Contender::EchoPairs { place, load } => echo::pairs(&place, load)?,
        Contender::HandoverServe { path, log } => return echo::serve_hand_over(&path, &log),
        Contender::EchoHandover { place, load } => echo::hand_over(&place, load)?,
        Contender::Fsync { folder, load } => disk::fsync(&folder, load)?,
        Contender::ProofAppends { folder, way, load } => proof::appends(&folder, way, load)?,
        Contender::ProofWorker { proof, way, load } => return proof::work(&proof, way, load.length()),
        Contender::Process { runs, command } => process::starts(&command, runs)?,
    };
    let Times { elapsed, rounds, failures, first_failure, .. } = times;
    if let Some(failure) = first_failure {
        anyhow::bail!("{failures} failures, the first: {failure}");
    }
    let (count, per_second) = (rounds.len(), rounds.len() as f64 / elapsed.as_secs_f64());
    let figures = Figures { per_second, count, failures, time: Percentiles::of(rounds) };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// Lets clients ask once before the clock runs, then until it is over.
fn flooded(mut clients: Vec<flood::Client>, load: Load) -> anyhow::Result<Times> {
    if let Some(failure) = flood::run(&mut clients, flood::Until::Once, &STOP)?.first_failure {
        anyhow::bail!("answered: {failure}");
    }
    Ok(flood::run(&mut clients, flood::Until::Elapsed(load.length()), &STOP)?)
}
