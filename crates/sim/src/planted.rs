//! Looks for a seed that finds each planted bug.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lockkeeper_core::planted::{Bug, plant};
use lockkeeper_sim::run;

/// Bugs that the simulation cannot find, and why; they are looked for a tenth as long. Everything else must be found.
const NOT_FOUND: &[(Bug, &str)] = &[(
    Bug::TokensFallBack,
    "a clock that moves keeps tokens rising by itself: the rule is a second line of defence, and a test with a clock that stands \
     holds it (holders_and_waiters_of_a_rewritten_ledger_are_told)",
)];

/// Seeds that found a bug only after hundreds of others: tried first, and the rest only if they do not find it any more.
const TRIED_FIRST: &[(Bug, u64)] = &[
    (Bug::SnapshotWithoutTokens, 7428),
    (Bug::TornTaken, 1764),
    (Bug::UnknownIsNothing, 506),
    (Bug::ExpiresEarly, 467),
    (Bug::SecondWaitDemoted, 904),
    (Bug::OverdueGranted, 5983),
    (Bug::DeadGranted, 1173),
    (Bug::QuotaOneMore, 246),
    (Bug::QuotaForgotten, 246),
];

pub(crate) fn named(name: &str) -> Bug {
    let known = |bug: &&Bug| format!("{bug:?}").eq_ignore_ascii_case(name);
    *Bug::ALL.iter().find(known).unwrap_or_else(|| {
        eprintln!("There is no planted bug {name:?}. They are: {:?}", Bug::ALL);
        std::process::exit(2);
    })
}

/// `true`: all were found that can be.
pub(crate) fn hunt(only: Option<&str>, seeds: u64, threads: usize) -> bool {
    let only = only.map(named);
    let (began, mut found, mut missed) = (Instant::now(), 0, Vec::new());
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| only.is_none_or(|only| only == *bug)).collect();
    for bug in &bugs {
        plant(Some(*bug));
        let name = format!("{bug:?}");
        let known = NOT_FOUND.iter().any(|(known, _)| known == bug);
        let tried = TRIED_FIRST.iter().find(|(tried, _)| tried == bug).and_then(|(_, seed)| finding(*seed));
        match tried.or_else(|| first_finding(if known { seeds / 10 } else { seeds }, threads)) {
            Some((seed, promise)) => {
                found += 1;
                println!("{name:<26} seed {seed:<6} {promise:<10} {}", bug.text());
            }
            None => {
                let why = NOT_FOUND.iter().find(|(known, _)| known == bug).map(|(_, why)| *why);
                println!("{name:<26} NOT FOUND              {} ({})", bug.text(), why.unwrap_or("nobody knows why"));
                missed.push((*bug, why));
            }
        }
    }
    plant(None);
    println!("{found} of {} found within {seeds} seeds, {:.0} s", bugs.len(), began.elapsed().as_secs_f64());
    missed.iter().all(|(_, why)| why.is_some()) && found * 100 >= bugs.len() * 95
}

fn first_finding(seeds: u64, threads: usize) -> Option<(u64, &'static str)> {
    let (next, first) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || seed > first.load(Ordering::Relaxed) {
                        return;
                    }
                    if !run(seed, false).broken.is_empty() {
                        first.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seed = first.into_inner();
    if seed == u64::MAX { None } else { finding(seed) }
}

/// What a seed finds.
fn finding(seed: u64) -> Option<(u64, &'static str)> {
    run(seed, false).broken.first().map(|broken| (seed, broken.promise))
}
