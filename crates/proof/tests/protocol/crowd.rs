//! Many processes append at once, and some are killed: every event is there, once.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_proof::{Error, Ledger, Profile, Sequence};
use serde_json::Value;

use crate::desk::{Player, Proof, deep, event, variable};

/// Where a writer has come to, according to the ledger alone.
fn written(ledger: &Ledger, writer: &str) -> u64 {
    let own = |json: &str| {
        let event: Value = serde_json::from_str(json).unwrap();
        (event["writer"] == writer).then(|| event["n"].as_u64().unwrap())
    };
    ledger.events_after(Sequence(0)).filter_map(|event| own(&event.unwrap().json)).max().unwrap_or(0)
}

/// A part: writes so many events, each if the ledger is where it was seen, from where it was when it was killed.
pub(crate) fn writes(ledger: &Ledger) {
    let writer = variable("WRITER").unwrap();
    let count: u64 = variable("COUNT").unwrap().parse().unwrap();
    println!("\nready");
    for number in written(ledger, &writer) + 1..=count {
        let event = event(ledger.profile(), &writer, number);
        loop {
            let seen = ledger.sequence().unwrap();
            match ledger.append_if_sequence(&event, seen) {
                Ok(sequence) => {
                    assert_eq!(sequence, seen.next().unwrap(), "it follows what was seen");
                    println!("wrote {number} {sequence}");
                    break;
                }
                Err(Error::SequenceMismatch { expected, actual }) => assert!(expected == seen && actual > seen),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn start(proof: &Proof, writer: usize, count: u64) -> Player {
    let (writer, count) = (writer.to_string(), count.to_string());
    let more = [("WRITER", writer.as_str()), ("COUNT", &count), ("PROFILE", proof.profile.as_str())];
    Player::start("writes", &proof.path(), &more)
}

#[test]
fn of_many_processes_that_append_with_compare_no_event_is_lost_or_doubled_though_a_third_is_killed() {
    let (processes, events): (usize, u64) = if deep() { (64, 10_000) } else { (16, 1_500) };
    for profile in if deep() { vec![Profile::Doc, Profile::Af] } else { vec![Profile::Doc] } {
        let proof = Proof::new(profile);
        let count = |writer: usize| events / processes as u64 + u64::from((writer as u64) < events % processes as u64);
        let mut players: Vec<Player> = (0..processes).map(|writer| start(&proof, writer, count(writer))).collect();
        let ledger = proof.open();
        // A third is killed, one after the other while the ledger grows, and each comes back.
        for (killed, writer) in (0..processes).step_by(3).enumerate() {
            let after = Sequence(events * killed as u64 / (processes as u64 / 3 + 2));
            assert!(ledger.wait_beyond(after, Duration::from_secs(120)).unwrap() > after, "writers go on");
            players[writer].child.kill().unwrap();
            players[writer] = start(&proof, writer, count(writer));
        }
        for player in players {
            let (lines, well) = player.finish();
            assert!(well, "{:?}", lines.last());
        }
        proof.assert_sound();
        assert_eq!(ledger.sequence().unwrap(), Sequence(events));
        let mut each: BTreeMap<String, u64> = BTreeMap::new();
        for event in ledger.events_after(Sequence(0)) {
            let event: Value = serde_json::from_str(&event.unwrap().json).unwrap();
            let last = each.entry(event["writer"].as_str().unwrap().to_owned()).or_default();
            assert_eq!(event["n"].as_u64(), Some(*last + 1), "each once, and in its writer's order");
            *last += 1;
        }
        assert_eq!(each.values().sum::<u64>(), events);
    }
}

#[test]
fn reading_goes_on_while_others_write_and_never_sees_a_gap() {
    let proof = Proof::new(Profile::Af);
    let players: Vec<Player> = (0..4).map(|writer| start(&proof, writer, 60)).collect();
    let (mut before, mut reads) = (0, 0);
    while before < 240 {
        let fresh = proof.open();
        fresh.claims().unwrap();
        let numbers: Vec<u64> = fresh.events_after(Sequence(0)).map(|event| event.unwrap().sequence.0).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "in order and without a gap");
        assert!(numbers.len() >= before, "what was there stays");
        before = numbers.len();
        reads += 1;
    }
    assert!(reads > 1);
    assert!(players.into_iter().all(|player| player.finish().1));
}
