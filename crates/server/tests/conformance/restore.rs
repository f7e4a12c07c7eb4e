//! What a session gets back when it comes again, when it is much and when others have it by now.

use std::time::Duration;

use lockkeeper_core::limits::WAITERS_PER_SESSION_MAX;
use lockkeeper_wire::operation::Operation;
use serde_json::{Value, json};

use crate::doors::{DoorKind, EngineKind, House};

/// More than a session may have in the queue at once.
const LOST: usize = WAITERS_PER_SESSION_MAX + 36;

fn all(session: &str, ttl_ms: u64) -> Value {
    let locks: Vec<Value> = (0..LOST).map(|number| json!({ "file_path": format!("f{number}") })).collect();
    json!({ "session_id": session, "locks": locks, "intention": "work", "ttl_ms": ttl_ms })
}

/// A house where `a` lost more than it may wait for at once, and `b` has it all.
fn taken(door: DoorKind) -> House {
    let house = House::open(EngineKind::Memory, door, 1);
    assert_eq!(house.ask(Operation::Acquire, all("a", 1000)).0, 200);
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!(house.ask(Operation::Acquire, all("b", 60_000)).0, 200);
    house
}

#[test]
fn a_session_may_wait_for_more_than_it_may_have_in_the_queue_at_once() {
    for door in [DoorKind::Api, DoorKind::Socket] {
        let house = taken(door);
        let waiting = house.ask_aside(Operation::RestoreSession, json!({ "session_id": "a", "wait_ms": 10_000 }));
        assert_eq!(house.ask(Operation::CloseSession, json!({ "session_id": "b" })).0, 200);
        let (status, answer) = waiting.join().expect("an answer");
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["restored"].as_array().map(Vec::len), Some(LOST), "{}", answer["skipped"]);
    }
}

#[test]
fn what_is_not_given_back_says_why_each_after_its_own_time() {
    let house = taken(DoorKind::Api);
    let forced = json!({ "agent_id": "op", "file_path": "f0", "reason": "stuck" });
    house.granted("a", "g", json!({}));
    assert_eq!(
        house.ask(Operation::ForceRelease, json!({ "agent_id": "op", "file_path": "g", "reason": "stuck" })).0,
        200
    );
    assert_eq!(house.ask(Operation::ForceRelease, forced).0, 200);
    let (status, answer) = house.ask(Operation::RestoreSession, json!({ "session_id": "a", "wait_ms": 200 }));
    assert_eq!((status, answer["restored"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");
    let skipped = answer["skipped"].as_array().expect("a list");
    assert_eq!(skipped.len(), LOST);
    for skipped in skipped {
        let message = skipped["message"].as_str().expect("words");
        if skipped["file_path"] == "g" {
            assert_eq!(skipped["error"], "lock_lost");
            assert!(message.contains("op: stuck"), "{message}");
        } else {
            assert_eq!(skipped["error"], "busy", "{message}");
            assert!(message.contains("held by b") && message.contains("The wait is over"), "{message}");
        }
    }
}

/// A house where `a` lost `x` and `y`, holds `z`, and `b` has `y`. What `a` gets lives for a second.
fn half_taken(door: DoorKind) -> House {
    let house = House::open(EngineKind::Memory, door, 1);
    house.granted("a", "x", json!({ "ttl_ms": 1000 }));
    house.granted("a", "y", json!({ "ttl_ms": 1000 }));
    std::thread::sleep(Duration::from_millis(1300));
    house.granted("a", "z", json!({ "ttl_ms": 1000 }));
    house.granted("b", "y", json!({ "ttl_ms": 60_000 }));
    house
}

fn paths(locks: &Value) -> Vec<&str> {
    locks.as_array().expect("a list").iter().map(|lock| lock["file_path"].as_str().expect("a path")).collect()
}

#[test]
fn what_came_back_lives_on_while_the_rest_is_waited_for() {
    for door in [DoorKind::Api, DoorKind::Socket] {
        let house = half_taken(door);
        let waiting = house.ask_aside(Operation::RestoreSession, json!({ "session_id": "a", "wait_ms": 10_000 }));
        // Longer than what came back lives by itself.
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(house.ask(Operation::CloseSession, json!({ "session_id": "b" })).0, 200);
        let (status, answer) = waiting.join().expect("an answer");
        assert_eq!(status, 200, "{answer}");
        assert_eq!((paths(&answer["restored"]), paths(&answer["refreshed"])), (vec!["x", "y"], vec!["z"]), "{answer}");
        assert_eq!(answer["skipped"], json!([]), "{answer}");
        assert_eq!(house.held(), ["a x", "a y", "a z"]);
    }
}

#[test]
fn what_came_back_and_went_while_the_rest_was_waited_for_is_told() {
    let house = half_taken(DoorKind::Api);
    let waiting = house.ask_aside(Operation::RestoreSession, json!({ "session_id": "a", "wait_ms": 1000 }));
    let forced = json!({ "agent_id": "op", "file_path": "x", "reason": "stuck" });
    assert_eq!(house.ask(Operation::ForceRelease, forced).0, 200);
    assert_eq!(house.ask(Operation::Release, json!({ "session_id": "a", "file_path": "z" })).0, 200);
    let (status, answer) = waiting.join().expect("an answer");
    assert_eq!((status, &answer["restored"], &answer["refreshed"]), (200, &json!([]), &json!([])), "{answer}");
    let skipped = answer["skipped"].as_array().expect("a list");
    let told: Vec<_> = skipped.iter().map(|one| (one["file_path"].as_str(), one["error"].as_str())).collect();
    assert_eq!(
        told,
        [(Some("x"), Some("lock_lost")), (Some("y"), Some("busy")), (Some("z"), Some("lock_lost"))],
        "{answer}"
    );
    assert!(skipped[0]["message"].as_str().is_some_and(|why| why.contains("op: stuck")), "{answer}");
    assert!(skipped[2]["message"].as_str().is_some_and(|why| why.contains("given back")), "{answer}");
}
