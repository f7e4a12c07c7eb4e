//! Reading all of a large ledger.

use std::time::{Duration, Instant};

use lockkeeper_proof::{Ledger, Profile, Sequence};

use crate::desk::{Proof, clock, set_clock};

#[test]
fn a_hundred_thousand_events_are_replayed_in_moments() {
    let proof = Proof::new(Profile::Doc);
    let count = 100_000;
    for number in 1..=count {
        // Claims that come and go, in several zones and with trimmed nanoseconds, among other things.
        let (agent, node) = (number % 97, number % 9_973 / 5 + 1);
        let event_type = ["lock_acquired", "lock_released", "custom_event", "custom_event", "custom_event"][number % 5];
        let text = format!(
            r#"{{"type":"{event_type}","timestamp":"2024-01-15T10:30:00.{}+02:00","node_id":"1.{node}","owner":"agent-{agent}","expires_at":"2999-01-15T11:30:00Z"}}"#,
            number % 1000 + 1
        );
        std::fs::write(proof.event_file(number as u64), text).unwrap();
    }
    set_clock(0);
    let asked = Instant::now();
    let ledger = Ledger::open(proof.path()).unwrap();
    let claims = ledger.claims().unwrap();
    let took = asked.elapsed();
    println!("replayed {count} events in {} ms", took.as_millis());
    assert_eq!(claims.at(), Sequence(count as u64));
    assert!(claims.active(clock()).len() > 1_000);
    // A second without optimisation on a busy machine is not the promise; that nothing is read twice over is.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
