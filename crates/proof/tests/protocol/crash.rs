//! A process that ends, or a disk that fails, at each change that is made to the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_proof::{Error, Ledger, Profile, Result, Sequence};

use crate::desk::{Player, Proof, event, node, owner, set_clock};

/// A part: all that can be done to a ledger, once. It says what was acknowledged, and what was said to be not done.
pub(crate) fn works(ledger: &Ledger) {
    let (one, ada) = (node("1.1"), owner("ada"));
    println!();
    set_clock(0);
    let seen = ledger.sequence().unwrap();
    let steps: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("append", &|| ledger.append_if_sequence(&event(ledger.profile(), "w", 1), seen).map(drop)),
        ("claim", &|| ledger.claim(&one, &ada, Some(Duration::from_secs(5))).map(drop)),
        ("refresh", &|| ledger.refresh(&one, &ada, Some(Duration::from_secs(5))).map(drop)),
        ("release", &|| ledger.release(&one, &ada).map(drop)),
        ("claim again", &|| ledger.claim(&one, &ada, Some(Duration::from_secs(5))).map(drop)),
        ("reap", &|| {
            set_clock(60);
            ledger.reap().map(drop)
        }),
    ];
    for (name, step) in steps {
        let before = ledger.sequence().unwrap();
        let done = step();
        let after = ledger.sequence().unwrap();
        match done {
            Ok(()) => println!("did {name} {after}"),
            // The event is there.
            Err(
                Error::Unsynced { sequence, .. }
                | Error::Unreleased { sequence, .. }
                | Error::ClaimFile { sequence, .. },
            ) => {
                assert_eq!(sequence, after);
                println!("partly {name} {after}");
            }
            Err(error) => {
                assert_eq!(after, before, "{name}: {error}: nothing was recorded");
                println!("failed {name} {after}");
                step().unwrap_or_else(|error| panic!("{name} goes on when the disk is well: {error}"));
            }
        }
    }
    println!("all {}", lockkeeper_proof::steps_taken());
}

/// How many steps a run took that came to its end.
fn all(lines: &[String]) -> Option<u64> {
    lines.iter().find_map(|line| line.strip_prefix("all ")?.parse().ok())
}

/// Lets it happen at every step until one run goes through without it.
fn at_every_step(variable: &str, check: impl Fn(&Proof, &[String], u64) + Sync) -> u64 {
    let mut most = 0;
    for profile in [Profile::Doc, Profile::Af] {
        let (next, end) = (AtomicU64::new(1), AtomicU64::new(u64::MAX));
        std::thread::scope(|scope| {
            // Some wait for a second, so they do it side by side.
            for _ in 0..6 {
                scope.spawn(|| {
                    loop {
                        let step = next.fetch_add(1, Ordering::SeqCst);
                        if step > end.load(Ordering::SeqCst) {
                            return;
                        }
                        let proof = Proof::new(profile);
                        proof.open().append(&event(profile, "before", 1)).unwrap();
                        let at = step.to_string();
                        let more = [(variable, at.as_str()), ("PROFILE", profile.as_str())];
                        let (lines, _) = Player::start("works", &proof.path(), &more).finish();
                        check(&proof, &lines, step);
                        // It was over before it came to that step.
                        if all(&lines).is_some_and(|steps| steps < step) {
                            end.fetch_min(step, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        most = most.max(end.load(Ordering::SeqCst));
    }
    most
}

#[test]
fn whatever_moment_a_process_crashes_at_the_ledger_reads_correctly_and_the_next_goes_on() {
    let steps = at_every_step("LOCKKEEPER_PROOF_CRASH_AT", |proof, lines, step| {
        let ledger = proof.open();
        let acknowledged =
            lines.iter().filter_map(|line| line.strip_prefix("did ")?.rsplit(' ').next()?.parse().ok()).max();
        let at = ledger.sequence().unwrap();
        assert!(at >= Sequence(acknowledged.unwrap_or(1)), "step {step}: what was acknowledged is there");
        let events: Vec<u64> = ledger.events_after(Sequence(0)).map(|event| event.unwrap().sequence.0).collect();
        assert!(events.iter().copied().eq(1..=at.0), "step {step}");
        ledger.claims().unwrap();
        // Whoever comes next appends, whatever lock was left.
        assert_eq!(ledger.append(&event(proof.profile, "after", 1)).unwrap(), at.next().unwrap(), "step {step}");
        set_clock(3600);
        ledger.reap().unwrap();
        ledger.claim(&node("1.1"), &owner("bob"), None).unwrap();
        proof.assert_sound();
        set_clock(0);
    });
    assert!(steps > 60, "every change is a step: {steps}");
}

#[test]
fn whatever_change_fails_what_is_said_is_true_and_all_goes_on_when_the_disk_is_well() {
    let steps = at_every_step("LOCKKEEPER_PROOF_FAIL_AT", |proof, lines, step| {
        assert!(all(lines).is_some(), "step {step}: {lines:?}");
        let kinds =
            lines.iter().filter(|line| ["did ", "partly ", "failed "].iter().any(|word| line.starts_with(word)));
        assert_eq!(kinds.count(), 6, "step {step}: {lines:?}");
        proof.assert_sound();
    });
    assert!(steps > 60, "every change is a step: {steps}");
}
