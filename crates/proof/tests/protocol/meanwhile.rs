//! What others do in the middle of what we do: strangers that write without the lock, or break ours because it is old.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_proof::{Error, Ledger, NewEvent, Options, Profile, Result, Sequence, watch_steps};

use crate::desk::{Proof, at_next_clock, event, node, options, owner, set_clock};

/// Does something, once, right before this thread makes the first change of that name.
fn before(name: &'static str, act: impl FnOnce() + 'static) {
    let mut act = Some(act);
    watch_steps(Some(Box::new(move |step| {
        if step == name
            && let Some(act) = act.take()
        {
            act();
        }
    })));
}

fn write_raw(proof: &Proof, number: u64, text: &str) -> impl FnOnce() + use<> {
    let (path, text) = (proof.event_file(number), text.to_owned());
    move || std::fs::write(path, text).unwrap()
}

/// Somebody calls us dead, and takes the lock.
fn break_lock(proof: &Proof) -> impl FnOnce() + use<> {
    let path = proof.lock_file();
    move || {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, r#"{"agent_id":"other","acquired_at":"2026-11-15T19:54:15Z"}"#).unwrap();
    }
}

fn acquired(profile: Profile, by: &str) -> String {
    match profile {
        Profile::Doc => format!(
            r#"{{"type":"lock_acquired","timestamp":"2026-01-01T00:00:00Z","node_id":"1","owner":"{by}","expires_at":"2999-01-01T00:00:00Z"}}"#
        ),
        Profile::Af => {
            format!(r#"{{"type":"nodes_claimed","node_ids":["1"],"owner":"{by}","timeout":"2999-01-01T00:00:00Z"}}"#)
        }
    }
}

fn is_eves(ledger: &Ledger, at: u64) {
    watch_steps(None);
    assert_eq!(ledger.sequence().unwrap(), Sequence(at), "nothing of ours was recorded");
    assert_eq!(ledger.claims().unwrap().get(&node("1")).unwrap().owner, owner("eve"));
}

#[test]
fn a_claim_that_came_in_between_is_seen_before_ours_is_written() {
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        let ledger = proof.open();
        before("sync file", write_raw(&proof, 1, &acquired(profile, "eve")));
        let refused = ledger.claim(&node("1"), &owner("ada"), None);
        assert!(matches!(&refused, Err(Error::NodeLocked(held, _)) if held.owner == owner("eve")), "{refused:?}");
        is_eves(&ledger, 1);
        proof.assert_sound();
    }
}

#[test]
fn a_claim_by_hand_is_judged_again_if_somebody_came_in_between() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    let by_hand = r#"{"type":"lock_acquired","node_id":"1","owner":"ada","expires_at":"2024-01-01T00:00:00Z"}"#;
    let by_hand = NewEvent::parse(by_hand, Profile::Doc).unwrap();
    at_next_clock(write_raw(&proof, 1, &acquired(Profile::Doc, "eve")));
    assert!(matches!(ledger.append(&by_hand), Err(Error::NodeLocked(..))));
    is_eves(&ledger, 1);
}

#[test]
fn an_event_that_takes_our_number_at_the_last_moment_stays_and_ours_comes_behind_it() {
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        let ledger = proof.open();
        ledger.append(&event(profile, "a", 1)).unwrap();
        // The end of the ledger was looked for already.
        before("publish", write_raw(&proof, 2, r#"{"type":"hint_added","by":"somebody"}"#));
        let appended = ledger.append(&event(profile, "a", 2));
        watch_steps(None);
        assert_eq!(appended.unwrap(), Sequence(3));
        assert!(std::fs::read_to_string(proof.event_file(2)).unwrap().contains("somebody"));
        before("publish", write_raw(&proof, 4, r#"{"type":"hint_added","by":"somebody"}"#));
        let compared = ledger.append_if_sequence(&event(profile, "a", 3), Sequence(3));
        watch_steps(None);
        assert!(matches!(compared, Err(Error::SequenceMismatch { .. })), "{compared:?}");
    }
}

/// The claim of ada was over, and somebody ended it and gave the node to eve.
fn succeeded(proof: &Proof) -> impl FnOnce() + use<> {
    let reaped = r#"{"type":"lock_reaped","node_id":"1","owner":"ada"}"#;
    let (first, second) = (write_raw(proof, 2, reaped), write_raw(proof, 3, &acquired(Profile::Doc, "eve")));
    move || {
        first();
        second();
    }
}

#[test]
fn what_ends_or_lengthens_a_claim_is_not_written_behind_the_claim_of_a_successor() {
    type Asks = fn(&Ledger) -> Result<usize>;
    let asks: [(i64, Asks); 3] = [
        (0, |ledger| ledger.refresh(&node("1"), &owner("ada"), None).map(|_| 1)),
        (0, |ledger| ledger.release(&node("1"), &owner("ada")).map(|_| 1)),
        (60, |ledger| ledger.reap().map(|reaped| reaped.events.len())),
    ];
    for (ahead, ask) in asks {
        let proof = Proof::new(Profile::Doc);
        let ledger = proof.open();
        set_clock(0);
        ledger.claim(&node("1"), &owner("ada"), Some(Duration::from_secs(5))).unwrap();
        set_clock(ahead);
        before("sync file", succeeded(&proof));
        let asked = ask(&ledger);
        assert!(matches!(asked, Ok(0) | Err(Error::NotOwner { .. })), "{asked:?}");
        is_eves(&ledger, 3);
        proof.assert_sound();
        set_clock(0);
    }
}

#[test]
fn whoever_lost_the_lock_writes_nothing() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    before("sync file", break_lock(&proof));
    let refused = ledger.append_if_sequence(&event(Profile::Doc, "a", 1), Sequence(0));
    assert!(matches!(refused, Err(Error::LockLost)), "{refused:?}");
    watch_steps(None);
    assert_eq!(ledger.sequence().unwrap(), Sequence(0));
    assert!(std::fs::read_to_string(proof.lock_file()).unwrap().contains("other"), "what is there is theirs");
}

#[test]
fn whoever_lost_the_lock_while_publishing_is_not_told_that_all_is_well() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    before("publish", break_lock(&proof));
    let unknown = ledger.append(&event(Profile::Doc, "a", 1));
    assert!(matches!(unknown, Err(Error::Overtaken { sequence: Sequence(1) })), "{unknown:?}");
    watch_steps(None);
}

#[test]
fn an_event_is_on_the_disk_before_it_has_a_name_and_its_name_before_the_answer() {
    for expected in [None, Some(Sequence(0))] {
        let proof = Proof::new(Profile::Doc);
        let ledger = proof.open();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let seeing = seen.clone();
        watch_steps(Some(Box::new(move |step| seeing.borrow_mut().push(step))));
        let event = event(Profile::Doc, "a", 1);
        match expected {
            None => ledger.append(&event).unwrap(),
            Some(expected) => ledger.append_if_sequence(&event, expected).unwrap(),
        };
        seen.borrow_mut().push("answer");
        watch_steps(None);
        let matters = ["set mode", "sync file", "publish", "sync folder", "answer"];
        let order: Vec<&str> = seen.borrow().iter().copied().filter(|step| matters.contains(step)).collect();
        assert_eq!(order, matters);
    }
}

fn write_expired_claims(proof: &Proof, count: u64) {
    for number in 1..=count {
        let text = format!(
            r#"{{"type":"lock_acquired","node_id":"1.{number}","owner":"a","expires_at":"2024-01-01T00:00:00Z"}}"#
        );
        write_raw(proof, number, &text)();
    }
}

#[test]
fn much_to_reap_keeps_nobody_out_for_long() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    write_expired_claims(&proof, 40);
    // A slow disk; somebody waits as long as one hold may last, and a little.
    let path = proof.path();
    let rival = std::thread::spawn(move || {
        let patience = Options { lock_timeout: Duration::from_millis(2500), ..options(Profile::Doc) };
        let ledger = patience.open(&path).unwrap();
        ledger.wait_beyond(Sequence(42), Duration::from_secs(60)).unwrap();
        ledger.append(&event(Profile::Doc, "rival", 1))
    });
    watch_steps(Some(Box::new(|step| {
        if step == "sync file" {
            std::thread::sleep(Duration::from_millis(100));
        }
    })));
    let reaped = ledger.reap().unwrap();
    watch_steps(None);
    assert_eq!((reaped.events.len(), reaped.stopped), (40, None));
    let between = rival.join().unwrap().expect("somebody gets in between");
    assert!(between < *reaped.events.last().unwrap(), "{between}");
    proof.assert_sound();
}

#[test]
fn a_long_ledger_is_read_before_it_is_locked() {
    let proof = Proof::new(Profile::Doc);
    for number in 1..=3_000 {
        write_raw(&proof, number, r#"{"type":"custom_event"}"#)();
    }
    let ledger = proof.open();
    // All that is read under the lock is what came after it was asked for: so what is lost before is not looked at again.
    let lost = proof.event_file(1);
    before("create file", move || std::fs::remove_file(lost).unwrap());
    ledger.claim(&node("1"), &owner("ada"), None).unwrap();
    watch_steps(None);
}

#[test]
fn what_stopped_a_reaping_is_told_with_what_was_done() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    write_expired_claims(&proof, 3);
    let (mut syncs, lock) = (0, proof.lock_file());
    watch_steps(Some(Box::new(move |step| {
        syncs += usize::from(step == "sync file");
        if syncs == 2 && step == "sync file" {
            std::fs::remove_file(&lock).unwrap();
        }
    })));
    let told = ledger.reap();
    watch_steps(None);
    assert!(matches!(told, Err(Error::Overtaken { sequence: Sequence(4) })), "{told:?}");
    assert_eq!(ledger.reap().unwrap().events.len(), 2);
    proof.assert_sound();
}
