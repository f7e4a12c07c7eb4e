//! Runs seeds: one in full, or many in a row.

#[cfg(feature = "planted")]
mod planted;

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use lockkeeper_sim::{Report, run};

/// Simulates servers and clients of one ledger under faults, and checks the promises.
///
/// Examples:
///   lockkeeper-sim --seed 7           replays seed 7, twice, and compares
///   lockkeeper-sim --seed 7 --trace   tells all that was sent and told
///   lockkeeper-sim --seeds 20000      runs seeds 0 to 19999
///   lockkeeper-sim --bugs             shows which seed finds which planted bug
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Args {
    /// Replays this seed
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Runs this many seeds
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first of the seeds
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Tells all that was sent and told
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Shows for each planted bug the first seed that finds it (with the feature `planted`)
    #[arg(long, conflicts_with = "seed")]
    bugs: bool,
    /// Plants this bug first, or looks for this one only (with the feature `planted`)
    #[arg(long)]
    bug: Option<String>,
    /// How many run at once
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() {
    let args = Args::parse();
    #[cfg(feature = "planted")]
    if args.bugs {
        std::process::exit(i32::from(!planted::hunt(args.bug.as_deref(), args.seeds, args.threads)));
    }
    #[cfg(feature = "planted")]
    if let Some(name) = &args.bug {
        lockkeeper_core::planted::plant(Some(planted::named(name)));
    }
    #[cfg(not(feature = "planted"))]
    if args.bugs || args.bug.is_some() {
        eprintln!("Built without planted bugs. Hint: cargo run -p lockkeeper-sim --features planted -- --bugs");
        std::process::exit(2);
    }
    let fine = match args.seed {
        Some(seed) => replay(seed, args.trace),
        None => campaign(args.from, args.seeds, args.threads),
    };
    std::process::exit(i32::from(!fine));
}

fn replay(seed: u64, traced: bool) -> bool {
    let report = run(seed, traced);
    for line in &report.trace {
        println!("{line}");
    }
    println!("{:?}", report.weather);
    let again = run(seed, false);
    tell(&report);
    if again.trace_hash != report.trace_hash {
        println!("seed {seed} does not replay: {:016x} and {:016x}", report.trace_hash, again.trace_hash);
        return false;
    }
    report.broken.is_empty()
}

fn tell(report: &Report) {
    let Report { seed, trace_hash, broken, .. } = report;
    println!("seed {seed}: trace {trace_hash:016x}, {} promises broken", broken.len());
    for broken in broken {
        println!("  {}: {:.2000}", broken.promise, broken.how);
    }
}

fn campaign(from: u64, count: u64, threads: usize) -> bool {
    let (next, done, failed) = (AtomicU64::new(from), AtomicU64::new(0), Mutex::new(Vec::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count {
                        return;
                    }
                    let report = run(seed, false);
                    done.fetch_add(1, Ordering::Relaxed);
                    if !report.broken.is_empty() {
                        tell(&report);
                        failed.lock().expect("no holder panics").push(seed);
                    }
                }
            });
        }
        scope.spawn(|| progress(&done, count, began));
    });
    let (failed, seconds) = (failed.into_inner().expect("all have ended"), began.elapsed().as_secs_f64());
    println!("{count} seeds in {seconds:.1} s, {:.0} a minute, {} failed", count as f64 * 60.0 / seconds, failed.len());
    failed.is_empty()
}

/// A bar on a terminal, until all are done.
fn progress(done: &AtomicU64, count: u64, began: Instant) {
    while std::io::stderr().is_terminal() {
        let so_far = done.load(Ordering::Relaxed);
        let share = (so_far * 40 / count.max(1)) as usize;
        let rate = so_far as f64 * 60.0 / began.elapsed().as_secs_f64().max(0.001);
        let bar = format!("{}{}", "#".repeat(share), ".".repeat(40 - share));
        let _ = write!(std::io::stderr(), "\r[{bar}] {so_far}/{count}, {rate:.0} a minute ");
        if so_far >= count {
            let _ = writeln!(std::io::stderr());
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
