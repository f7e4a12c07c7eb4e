//! Days drawn from seeds, in the default run and, with LOCKKEEPER_DEEP, ten times as many.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_sim::{crowd, run};

/// Seeds that found something once, and what it was. A later change of the simulation gives them another day, but
/// never a day on which a promise may be broken.
const FOUND: &[(u64, &str)] = &[
    (2, "a lock id was given twice when the first batch was stamped later than it was decided"),
    (11211, "the same again, for the second grant of the first batch"),
    (2317, "a grant was told as lost because of what came later in the same batch"),
    (3395, "a waiter whose wait was over was granted what came free"),
    (13706, "a rewritten ledger was noticed, and its holders were told only when somebody asked again"),
    (373, "a grant that its asker had not heard of was given back though somebody else had been told of it"),
    (4730, "the same, of a replay"),
    (731, "a lease began before it was asked for, by as much as its server's idea of the time lay behind"),
    (13555, "a wait that was stamped later than it was decided stood behind others, in a circle"),
    (15522, "the same, in a crowd"),
    (13784, "a wait became a circle when its session lost what it also asked for"),
    (7234, "the same, through a pause"),
    (8892, "an exclusive lock that was lost with a rewritten ledger was forgotten beside an older, shared one"),
    (8975, "a loss of a rewritten ledger that was heard of late hid a newer one"),
    (18923, "a lock that was lost with a rewritten ledger, and was its session's again, was called unknown"),
    (15873, "the same"),
    (13068, "a pause made no room for somebody who held what the paused waited for"),
    (31314, "a wait that was stamped later than it was decided stood between two of another session, in a circle"),
    (67815, "that a lock was lost went with the next lost past, and was told to nobody"),
    (67925, "the same"),
    (4811, "a pause that overtook a finish closed a circle"),
    (42566, "a place that was given up and still seen was taken for the next one"),
];

fn deep() -> bool {
    std::env::var_os("LOCKKEEPER_DEEP").is_some()
}

#[test]
fn whatever_the_day_brings_no_promise_is_broken() {
    let count = if deep() { 20_000 } else { 2000 };
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    let report = run(seed, false);
                    if let Some(broken) = report.broken.first() {
                        failed.lock().unwrap().push((seed, broken.clone()));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "of {count} seeds {} failed, such as {:?}", failed.len(), &failed[..1]);
}

#[test]
fn seeds_that_found_a_bug_once_find_none_now() {
    for (seed, what) in FOUND {
        let report = run(*seed, false);
        assert!(report.broken.is_empty(), "seed {seed} ({what}): {:?}", report.broken);
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..50 {
        let (one, other) = (run(seed, false), run(seed, true));
        assert_eq!(one.trace_hash, other.trace_hash, "seed {seed}");
        assert!(!other.trace.is_empty());
    }
    assert_ne!(run(1, false).trace_hash, run(2, false).trace_hash);
}

#[test]
fn a_hundred_servers_on_one_ledger_make_progress_and_none_starves() {
    let fared = crowd(1, 100, Duration::from_secs(60));
    let (total, least) = (fared.iter().map(|one| one.pairs).sum::<u64>(), fared.iter().map(|one| one.pairs).min());
    let longest = fared.iter().map(|one| one.longest).max().unwrap();
    println!("{total} pairs in a minute, at least {least:?} for each, longest wait {longest} ms");
    for one in &fared {
        assert!(one.pairs >= 15 && one.longest < 5000, "{one:?}");
    }
}
