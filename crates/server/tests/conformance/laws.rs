//! The laws. Each is told to a fresh service.

use std::time::{Duration, Instant};

use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::Room;
use lockkeeper_wire::operation::Operation;
use serde_json::{Value, json};

use crate::doors::{House, wanting};

/// Every law as a test of the suite around it.
#[macro_export]
macro_rules! laws {
    ($house:ident) => {
        $crate::laws!(@each $house:
            overlapping_lines_are_refused_with_all_that_helps
            other_lines_are_granted
            lines_behind_a_colon_are_lines
            asking_again_refreshes
            p9_a_set_is_whole_or_nothing
            readers_share_and_writers_do_not
            a_release_hands_over_within_moments
            a_wait_that_is_over_says_lock_timeout
            a_circle_of_waits_is_refused
            a_wait_that_becomes_a_circle_is_ended_with_the_circle
            p5_only_the_owner_releases_and_renews
            p8_a_dead_sessions_lock_is_free_soon_after_its_ttl
            a_heartbeat_keeps_all_locks
            p2_tokens_rise_and_an_old_one_does_not_count
            p7_the_same_request_gets_the_same_answer
            invalid_requests_are_refused_and_change_nothing
            rooms_keep_agents_out
            a_session_gets_back_what_it_lost
            closing_a_session_frees_all
            a_forced_release_needs_a_reason_and_is_remembered
            spaces_are_worlds_of_their_own
            trees_cover_what_is_below
            p14_a_grant_says_how_strong_it_is
            a_paused_feature_stops_the_line_and_its_holders_lose_nothing
            a_finish_keeps_a_pause_away
            p7_a_pause_is_answered_again_though_another_has_begun
            what_is_refused_at_the_door_is_still_somebodys
            features_are_registered_compared_and_ended
            ports_are_a_sessions_own
            keys_that_are_none_say_what_is_wrong
            a_stop_that_can_not_be_read_stops_nothing
            a_long_list_is_whole_and_in_order
        );
    };
    (@each $house:ident: $($law:ident)*) => {$(
        #[test]
        fn $law() {
            $crate::laws::$law(&$house());
        }
    )*};
}

const ACQUIRE: Operation = Operation::Acquire;
const RELEASE: Operation = Operation::Release;

fn release(session: &str, path: &str) -> serde_json::Value {
    json!({ "session_id": session, "file_path": path })
}

pub(crate) fn overlapping_lines_are_refused_with_all_that_helps(house: &House) {
    house.granted(
        "a",
        "src/auth.rs",
        json!({ "start_line": 10, "end_line": 50, "intention": "Adding JWT validation" }),
    );
    let wanted = wanting("b", "./src//auth.rs", json!({ "start_line": 25, "end_line": 40 }));
    let no = house.refused(ACQUIRE, wanted, 409, "busy");
    assert_eq!(no["reason"], "lock_contended");
    let conflict = &no["conflicts"][0];
    assert_eq!(
        (conflict["owner"].as_str(), conflict["intention"].as_str()),
        (Some("a"), Some("Adding JWT validation"))
    );
    assert_eq!(conflict["overlap"], json!({ "start_line": 25, "end_line": 40 }));
    assert!(conflict["expires_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{conflict}");
    assert_eq!(no["free"][0], json!({ "start_line": 51, "end_line": 66 }));
    assert!(no["hint"].as_str().is_some_and(|hint| hint.contains("src/auth.rs:51-66")), "{no}");
}

pub(crate) fn other_lines_are_granted(house: &House) {
    house.granted("a", "f", json!({ "start_line": 10, "end_line": 50 }));
    house.granted("b", "f", json!({ "start_line": 60, "end_line": -1 }));
    house.refused(ACQUIRE, wanting("c", "f", json!({ "start_line": 1_000_000, "end_line": null })), 409, "busy");
    house.refused(ACQUIRE, wanting("c", "f", json!({})), 409, "busy");
}

pub(crate) fn lines_behind_a_colon_are_lines(house: &House) {
    let held = house.granted("a", "src/f.rs:10-20", json!({}));
    assert_eq!(
        (&held["file_path"], &held["start_line"], &held["end_line"]),
        (&json!("src/f.rs"), &json!(10), &json!(20))
    );
    house.refused(ACQUIRE, wanting("b", "src/f.rs", json!({})), 409, "busy");
    house.granted("b", "src/f.rs:30-", json!({}));
    let looked = house.ask(Operation::Check, json!({ "session_id": "b", "file_paths": ["src/f.rs:15"] })).1;
    assert_eq!(looked["free"], json!(false), "{looked}");
    for slip in ["src/f.rs:10:5", "src/f.rs:0", "src/f.rs:9-3"] {
        house.refused(ACQUIRE, wanting("c", slip, json!({})), 422, "invalid_range");
    }
    // A file that is really called so is meant by whoever says its lines by number.
    house.granted("c", "src/g.rs:7", json!({ "start_line": 1 }));
    house.granted("d", "src/g.rs", json!({}));
    assert_eq!(house.ask(RELEASE, release("a", "src/f.rs:10-20")).0, 200);
    house.granted("c", "src/f.rs:10-20", json!({}));
}

pub(crate) fn asking_again_refreshes(house: &House) {
    let first = house.granted("a", "f", json!({ "ttl_ms": 2000 }));
    let again = house.granted("a", "f", json!({ "ttl_minutes": 2 }));
    assert_eq!((first["action"].as_str(), again["action"].as_str()), (Some("acquired"), Some("refreshed")));
    assert_eq!((&first["lock_id"], &first["fencing_token"]), (&again["lock_id"], &again["fencing_token"]));
    assert!(again["expires_in_ms"].as_u64() > Some(100_000), "{again}");
}

pub(crate) fn p9_a_set_is_whole_or_nothing(house: &House) {
    house.granted("a", "two", json!({}));
    let set = json!({ "session_id": "b", "locks": [{ "file_path": "one" }, { "file_path": "two" }, { "file_path": "three" }] });
    house.refused(ACQUIRE, set.clone(), 409, "busy");
    assert_eq!(house.held(), ["a two"]);
    house.ask(RELEASE, release("a", "two"));
    let (status, answer) = house.ask(ACQUIRE, set);
    assert_eq!((status, answer["locks"].as_array().map(Vec::len)), (200, Some(3)), "{answer}");
}

pub(crate) fn readers_share_and_writers_do_not(house: &House) {
    for session in ["a", "b", "c"] {
        house.granted(session, "f", json!({ "mode": "shared" }));
    }
    house.refused(ACQUIRE, wanting("d", "f", json!({})), 409, "busy");
}

pub(crate) fn a_release_hands_over_within_moments(house: &House) {
    house.granted("a", "f", json!({}));
    let waiting = house.ask_aside(ACQUIRE, wanting("b", "f", json!({ "wait_ms": 20_000 })));
    let released = Instant::now();
    house.ask(RELEASE, release("a", "f"));
    let (status, answer) = waiting.join().expect("an answer");
    assert_eq!(status, 200, "{answer}");
    // Far below any interval at which somebody could be polling, far above a slow machine's scheduling.
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
}

pub(crate) fn a_wait_that_is_over_says_lock_timeout(house: &House) {
    house.granted("a", "f", json!({}));
    let no = house.refused(ACQUIRE, wanting("b", "f", json!({ "wait_ms": 200 })), 409, "busy");
    assert_eq!((no["reason"].as_str(), no["conflicts"][0]["owner"].as_str()), (Some("lock_timeout"), Some("a")));
    house.ask(RELEASE, release("a", "f"));
    house.granted("c", "f", json!({}));
}

pub(crate) fn a_circle_of_waits_is_refused(house: &House) {
    house.granted("a", "x", json!({}));
    house.granted("b", "y", json!({}));
    let waiting = house.ask_aside(ACQUIRE, wanting("a", "y", json!({ "wait_ms": 20_000 })));
    let no = house.refused(ACQUIRE, wanting("b", "x", json!({ "wait_ms": 20_000 })), 409, "deadlock");
    assert_eq!(no["cycle"].as_array().map(Vec::len), Some(2), "{no}");
    house.ask(RELEASE, release("b", "y"));
    assert_eq!(waiting.join().expect("an answer").0, 200);
}

pub(crate) fn a_wait_that_becomes_a_circle_is_ended_with_the_circle(house: &House) {
    for path in ["x", "z"] {
        house.granted("a", path, json!({}));
    }
    house.granted("c", "y", json!({}));
    let set = |session: &str, paths: [&str; 2]| {
        let locks: Vec<Value> = paths.iter().map(|path| json!({ "file_path": path })).collect();
        json!({ "session_id": session, "agent_id": session, "locks": locks, "wait_ms": 20_000 })
    };
    let theirs = house.ask_aside(ACQUIRE, set("b", ["x", "z"]));
    let ours = house.ask_aside(ACQUIRE, set("a", ["x", "y"]));
    house.ask(RELEASE, release("a", "x"));
    let (status, no) = ours.join().expect("an answer");
    assert_eq!((status, no["error"].as_str()), (409, Some("deadlock")), "{no}");
    assert_eq!(no["cycle"].as_array().map(Vec::len), Some(2), "{no}");
    house.ask(RELEASE, release("a", "z"));
    assert_eq!(theirs.join().expect("an answer").0, 200);
}

pub(crate) fn p5_only_the_owner_releases_and_renews(house: &House) {
    let lock = house.granted("a", "f", json!({}));
    house.refused(RELEASE, release("b", "f"), 403, "not_owner");
    house.refused(RELEASE, json!({ "session_id": "b", "lock_id": lock["lock_id"] }), 403, "not_owner");
    house.refused(Operation::Renew, release("b", "f"), 403, "not_owner");
    house.refused(RELEASE, release("b", "nothing"), 404, "not_found");
    assert_eq!(house.held(), ["a f"]);
    let (status, answer) = house.ask(RELEASE, release("a", "f"));
    assert_eq!((status, answer["action"].as_str()), (200, Some("released")));
}

pub(crate) fn p8_a_dead_sessions_lock_is_free_soon_after_its_ttl(house: &House) {
    let lock = house.granted("a", "f", json!({ "ttl_ms": 1000 }));
    let asked = Instant::now();
    let (status, answer) = house.ask(ACQUIRE, wanting("b", "f", json!({ "wait_ms": 20_000 })));
    assert_eq!(status, 200, "{answer}");
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    assert!(answer["fencing_token"].as_u64() > lock["fencing_token"].as_u64());
    house.refused(Operation::Renew, release("a", "f"), 410, "lock_lost");
    house.refused(RELEASE, release("a", "f"), 410, "lock_lost");
    assert_eq!(house.held(), ["b f"]);
}

pub(crate) fn a_heartbeat_keeps_all_locks(house: &House) {
    for path in ["x", "y"] {
        house.granted("a", path, json!({ "ttl_ms": 1500 }));
    }
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(600));
        let (status, answer) = house.ask(Operation::Renew, json!({ "session_id": "a" }));
        assert_eq!((status, answer["locks"].as_array().map(Vec::len)), (200, Some(2)), "{answer}");
    }
    assert_eq!(house.held(), ["a x", "a y"]);
}

pub(crate) fn p2_tokens_rise_and_an_old_one_does_not_count(house: &House) {
    let first = house.granted("a", "f", json!({}));
    let check = |token: &serde_json::Value| json!({ "session_id": "a", "file_path": "f", "fencing_token": token });
    assert_eq!(house.ask(Operation::Check, check(&first["fencing_token"])).0, 200);
    house.ask(RELEASE, release("a", "f"));
    let second = house.granted("b", "f", json!({}));
    assert!(second["fencing_token"].as_u64() > first["fencing_token"].as_u64());
    house.refused(Operation::Check, check(&first["fencing_token"]), 410, "lock_lost");
    let late = json!({ "session_id": "b", "file_path": "f", "fencing_token": first["fencing_token"] });
    house.refused(RELEASE, late, 410, "lock_lost");
    assert_eq!(house.held(), ["b f"]);
}

pub(crate) fn p7_the_same_request_gets_the_same_answer(house: &House) {
    let request = json!({ "request_id": "r-1" });
    let first = house.granted("a", "f", request.clone());
    house.ask(RELEASE, release("a", "f"));
    let again = house.granted("a", "f", request);
    assert_eq!((&first["lock_id"], &first["fencing_token"]), (&again["lock_id"], &again["fencing_token"]));
    assert!(house.held().is_empty(), "told again, not done again");
    house.refused(ACQUIRE, wanting("a", "g", json!({ "request_id": "r-1" })), 409, "request_mismatch");
}

pub(crate) fn invalid_requests_are_refused_and_change_nothing(house: &House) {
    let many: Vec<_> = (0..10_000).map(|n| json!({ "file_path": format!("f{n}") })).collect();
    let table = [
        (wanting("a", "../../etc/passwd", json!({})), 422, "invalid_path"),
        (wanting("a", "/etc/passwd", json!({})), 422, "invalid_path"),
        (wanting("a", "C:\\x", json!({})), 422, "invalid_path"),
        (wanting("a", "a\u{0}b", json!({})), 422, "invalid_path"),
        (wanting("a", "a\u{202e}b", json!({})), 422, "invalid_path"),
        (wanting("a", "", json!({})), 422, "invalid_path"),
        (wanting("a", ".git/index", json!({})), 403, "operation_not_permitted"),
        (wanting("a", "foo:bar", json!({})), 403, "operation_not_permitted"),
        (wanting("a", "api:", json!({})), 422, "invalid_key"),
        (wanting("a", "f", json!({ "start_line": 0, "end_line": 5 })), 422, "invalid_range"),
        (wanting("a", "f", json!({ "start_line": 9, "end_line": 3 })), 422, "invalid_range"),
        (wanting("a", "f", json!({ "start_line": -4 })), 422, "invalid_range"),
        (wanting("a", "f", json!({ "start_line": 1, "end_line": u64::MAX })), 422, "invalid_range"),
        (wanting("a", "f", json!({ "start_line": 1, "end_line": 1e18 })), 422, "invalid_range"),
        (wanting("a", "f", json!({ "ttl_ms": 0 })), 422, "invalid_ttl"),
        (wanting("a", "f", json!({ "ttl_ms": -1 })), 422, "invalid_ttl"),
        (wanting("a", "f", json!({ "ttl_ms": 1e18 })), 422, "invalid_ttl"),
        (wanting("a", "f", json!({ "ttl_minutes": 525_600 })), 422, "invalid_ttl"),
        (wanting("a/b", "f", json!({})), 422, "invalid_session_id"),
        (wanting("a", "f", json!({ "intention": "x".repeat(100_000) })), 422, "limit_exceeded"),
        (wanting("a", "f", json!({ "priority": 11 })), 422, "invalid_request"),
        (wanting("a", "f", json!({ "start": 3 })), 400, "malformed"),
        (json!({ "session_id": "a", "locks": many }), 422, "limit_exceeded"),
        (json!({ "session_id": "a" }), 422, "invalid_request"),
        (json!({ "file_path": "f" }), 422, "invalid_session_id"),
        (wanting("a", "f", json!({ "space": "" })), 422, "invalid_space"),
    ];
    for (body, status, word) in table {
        house.refused(ACQUIRE, body, status, word);
    }
    assert!(house.held().is_empty());
    let escapes = house.granted("a", "f", json!({ "intention": "\u{1b}[31mred\u{7}\n" }));
    assert_eq!(escapes["intention"], "[31mred");
}

pub(crate) fn rooms_keep_agents_out(house: &House) {
    let room = json!({ "session_id": "person", "file_path": "f", "busy_ms": 60_000 });
    assert_eq!(house.ask(Operation::OpenRoom, room.clone()).0, 200);
    let no = house.refused(ACQUIRE, wanting("a", "f", json!({ "start_line": 1 })), 409, "busy");
    assert_eq!(no["reason"], "room_busy");
    for lines in ["f:1-3", "src/f:1-3"] {
        let (status, no) = house.ask(Operation::OpenRoom, json!({ "session_id": "person", "file_path": lines }));
        assert_eq!((status, &no["error"]), (422, &json!("invalid_range")), "{no}");
    }
    let (_, rooms) = house.ask(Operation::Rooms, json!({}));
    assert_eq!(rooms["total"], 1);
    assert_eq!(rooms["rooms"][0]["room_id"], Room::id(&Key::parse("f").expect("a key")), "the same everywhere");
    let closed = json!({ "session_id": "person", "file_path": "f" });
    assert_eq!(house.ask(Operation::CloseRoom, closed.clone()).0, 200);
    house.granted("a", "f", json!({}));
    house.refused(Operation::CloseRoom, closed, 404, "not_found");
}

pub(crate) fn a_session_gets_back_what_it_lost(house: &House) {
    let lock = house.granted("a", "x", json!({ "ttl_ms": 1000 }));
    house.granted("a", "y", json!({ "ttl_ms": 1000 }));
    std::thread::sleep(Duration::from_millis(1300));
    house.granted("b", "y", json!({}));
    let (status, answer) = house.ask(Operation::OpenSession, json!({ "session_id": "a" }));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["restored"][0]["file_path"], "x");
    assert!(answer["restored"][0]["fencing_token"].as_u64() > lock["fencing_token"].as_u64());
    assert_eq!(answer["skipped"][0]["file_path"], "y");
}

pub(crate) fn closing_a_session_frees_all(house: &House) {
    for path in ["x", "y"] {
        house.granted("a", path, json!({}));
    }
    let (status, answer) = house.ask(Operation::CloseSession, json!({ "session_id": "a" }));
    assert_eq!((status, answer["released"].as_array().map(Vec::len)), (200, Some(2)), "{answer}");
    assert!(house.held().is_empty());
    assert_eq!(house.ask(Operation::CloseSession, json!({ "session_id": "never-there" })).0, 200);
}

pub(crate) fn a_forced_release_needs_a_reason_and_is_remembered(house: &House) {
    house.granted("a", "f", json!({}));
    house.refused(Operation::ForceRelease, json!({ "agent_id": "op", "file_path": "f" }), 422, "invalid_request");
    let (status, answer) =
        house.ask(Operation::ForceRelease, json!({ "agent_id": "op", "file_path": "f", "reason": "stuck" }));
    assert_eq!(status, 200, "{answer}");
    let (_, history) = house.ask(Operation::History, json!({}));
    let last = &history["events"][0];
    assert_eq!((last["action"].as_str(), last["note"].as_str()), (Some("force_released"), Some("op: stuck")));
    house.refused(Operation::Renew, release("a", "f"), 410, "lock_lost");
}

pub(crate) fn spaces_are_worlds_of_their_own(house: &House) {
    house.granted("a", "f", json!({}));
    house.granted("b", "f", json!({ "space": "another" }));
    assert_eq!(house.held(), ["a f"]);
}

pub(crate) fn trees_cover_what_is_below(house: &House) {
    house.granted("a", "src/**", json!({}));
    house.refused(ACQUIRE, wanting("b", "src/deep/er/a.rs", json!({ "start_line": 1, "end_line": 2 })), 409, "busy");
    house.granted("b", "srcs/a.rs", json!({}));
    house.granted("b", "flag:billing/*", json!({}));
    house.refused(ACQUIRE, wanting("a", "flag:billing/new/checkout", json!({})), 409, "busy");
}

pub(crate) fn p14_a_grant_says_how_strong_it_is(house: &House) {
    let lock = house.granted("a", "f", json!({}));
    let (_, status) = house.ask(Operation::Status, json!({}));
    assert_eq!(lock["strength"], status["strength"]);
    assert_eq!(lock["strength"], house.strength());
}

fn of_feature(session: &str) -> serde_json::Value {
    json!({ "session_id": session, "feature_id": "F-1" })
}

fn pause(session: &str) -> serde_json::Value {
    json!({ "session_id": session, "feature_id": "F-1", "intention": "contract revision", "wait_ms": 0 })
}

pub(crate) fn a_paused_feature_stops_the_line_and_its_holders_lose_nothing(house: &House) {
    house.granted("worker", "src/a.rs", json!({ "feature_id": "F-1" }));
    let nameless = json!({ "session_id": "boss", "feature_id": "F-1" });
    house.refused(Operation::PauseFeature, nameless, 422, "invalid_request");
    let (status, paused) = house.ask(Operation::PauseFeature, pause("boss"));
    assert_eq!((status, paused["file_path"].as_str()), (200, Some("feature:F-1:pause")), "{paused}");
    let no = house.refused(ACQUIRE, wanting("worker", "src/b.rs", json!({ "feature_id": "F-1" })), 409, "paused");
    assert!(no["message"].as_str().is_some_and(|message| message.contains("contract revision")), "{no}");
    assert_eq!(no["conflicts"][0]["owner"], "boss");
    house.refused(Operation::CheckFeature, of_feature("worker"), 409, "paused");
    assert_eq!(house.ask(Operation::CheckFeature, of_feature("boss")).0, 200, "whoever pauses may go on");
    let (status, beat) = house.ask(Operation::Renew, json!({ "session_id": "worker" }));
    assert_eq!((status, beat["paused"][0]["owner"].as_str()), (200, Some("boss")), "{beat}");
    assert_eq!(beat["locks"][0]["file_path"], "src/a.rs");
    house.refused(Operation::ResumeFeature, of_feature("worker"), 403, "not_owner");
    let waits = json!({ "session_id": "worker", "feature_id": "F-1", "wait_ms": 20_000 });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| house.ask(Operation::CheckFeature, waits));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(house.ask(Operation::ResumeFeature, of_feature("boss")).0, 200);
        let (status, answer) = waiting.join().expect("answered");
        assert_eq!((status, answer["paused"].as_bool()), (200, Some(false)), "{answer}");
    });
    house.granted("worker", "src/b.rs", json!({ "feature_id": "F-1" }));
    house.refused(Operation::ResumeFeature, of_feature("boss"), 404, "not_found");
    assert_eq!(house.held(), ["worker src/a.rs", "worker src/b.rs"], "looking leaves nothing behind");
}

pub(crate) fn a_finish_keeps_a_pause_away(house: &House) {
    let finish = json!({ "session_id": "worker", "feature_id": "F-1", "finalize": true });
    let (status, answer) = house.ask(Operation::CheckFeature, finish.clone());
    assert_eq!(status, 200, "{answer}");
    assert!(answer["lock"]["expires_in_ms"].as_u64().is_some_and(|more| more <= 30_000), "{answer}");
    house.refused(Operation::PauseFeature, pause("boss"), 409, "busy");
    house.ask(RELEASE, release("worker", "feature:F-1:pause"));
    assert_eq!(house.ask(Operation::PauseFeature, pause("boss")).0, 200);
    house.refused(Operation::CheckFeature, finish, 409, "paused");
}

pub(crate) fn p7_a_pause_is_answered_again_though_another_has_begun(house: &House) {
    let asked = |session: &str| {
        let body = json!({ "session_id": session, "feature_id": "F-1", "intention": "why", "request_id": session });
        house.ask(Operation::PauseFeature, body)
    };
    let (status, first) = asked("boss");
    assert_eq!(status, 200, "{first}");
    assert_eq!(house.ask(Operation::ResumeFeature, of_feature("boss")).0, 200);
    assert_eq!(asked("other").0, 200);
    let (status, again) = asked("boss");
    assert_eq!((status, &again["fencing_token"]), (200, &first["fencing_token"]), "{again}");
    assert_eq!(asked("third").1["error"], "paused", "who asks for the first time is told at once");
}

pub(crate) fn what_is_refused_at_the_door_is_still_somebodys(house: &House) {
    house.refused(ACQUIRE, wanting("hasty", "f", json!({ "ttl_ms": 5 })), 422, "invalid_ttl");
    // Each service has an audit log of its own, and asks go to all of them in turn.
    let mut logs = (0..3).map(|_| house.ask(Operation::Audit, json!({ "outcome": "invalid_ttl" })).1);
    let line = logs.find_map(|mut log| log["lines"].as_array_mut()?.pop()).expect("one of them has it");
    assert_eq!((line["sessionId"].as_str(), line["agentId"].as_str()), (Some("hasty"), Some("hasty")), "{line}");
}

pub(crate) fn features_are_registered_compared_and_ended(house: &House) {
    let register = |id: &str, claims: serde_json::Value| {
        house.ask(
            Operation::RegisterFeature,
            json!({ "agent_id": "lead", "feature_id": id, "resource_claims": claims, "metadata": { "pr": 7 } }),
        )
    };
    let (status, first) = register("F-1", json!(["src/api/**", "db:schema:users"]));
    assert_eq!((status, first["feasibility"].as_str()), (200, Some("FULL")), "{first}");
    let (status, second) = register("F-2", json!(["src/api/users.py", "docs/a.md", "docs/b.md"]));
    assert_eq!((status, second["feasibility"].as_str()), (200, Some("PARTIAL")), "{second}");
    let candidate = json!({ "candidate_feature_id": "F-3", "candidate_claims": ["src/api/x.py"] });
    let (_, compared) = house.ask(Operation::FeatureConflicts, candidate);
    assert_eq!(
        (compared["feasibility"].as_str(), compared["conflicts"][0]["feature_id"].as_str()),
        (Some("SEQUENTIAL"), Some("F-1"))
    );
    let (_, listed) = house.ask(Operation::Features, json!({}));
    assert_eq!((listed["total"].as_u64(), listed["features"][0]["metadata"]["pr"].as_u64()), (Some(2), Some(7)));
    let end = json!({ "agent_id": "lead", "feature_id": "F-1", "status": "cancelled" });
    assert_eq!(house.ask(Operation::EndFeature, end.clone()).0, 200);
    house.refused(Operation::EndFeature, end, 404, "not_found");
    for (id, claims) in [("F 1", json!([])), ("F-1", json!(["foo:bar"])), ("", json!([]))] {
        assert_ne!(register(id, claims).0, 200, "{id}");
    }
}

pub(crate) fn ports_are_a_sessions_own(house: &House) {
    let allocate =
        |session: &str| house.ask(Operation::AllocatePorts, json!({ "session_id": session, "taken": [10_101] }));
    let (status, first) = allocate("a");
    assert_eq!((status, first["allocation"]["db_port"].as_u64()), (200, Some(10_000)), "{first}");
    assert!(first["env_snippet"].as_str().is_some_and(|lines| lines.contains("export API_PORT=10003\n")), "{first}");
    assert_eq!(allocate("b").1["allocation"]["db_port"], 10_200);
    assert_eq!(allocate("a").1["allocation"]["db_port"], 10_000);
    let elsewhere = json!({ "session_id": "a", "space": "another" });
    let (_, elsewhere) = house.ask(Operation::AllocatePorts, elsewhere);
    assert_eq!(elsewhere["allocation"]["db_port"], 10_100, "spaces share the machine");
    house.ask(Operation::ReleasePorts, json!({ "session_id": "a", "space": "another" }));
    let (_, status) = house.ask(Operation::PortsStatus, json!({}));
    assert_eq!(status["allocations"].as_array().map(Vec::len), Some(2), "{status}");
    for released in [true, false] {
        let (status, answer) = house.ask(Operation::ReleasePorts, json!({ "session_id": "a" }));
        assert_eq!((status, answer["released"].as_bool()), (200, Some(released)));
    }
    for n in 0..19 {
        assert_eq!(allocate(&format!("s{n}")).0, if n < 18 { 200 } else { 409 }, "{n}");
    }
    let late = json!({ "session_id": "late", "taken": [10_101] });
    assert_eq!(house.refused(Operation::AllocatePorts, late, 409, "no_ports_available")["limit"], 20);
}

pub(crate) fn keys_that_are_none_say_what_is_wrong(house: &House) {
    for (key, status, word, part) in [
        ("foo:bar", 403, "operation_not_permitted", "no known prefix"),
        ("api:get /", 422, "invalid_key", "api:GET /v1/users"),
        ("env:port-5432", 422, "invalid_key", "ports allocate"),
        ("feature:F:stop", 422, "invalid_key", "pause, merge or plan"),
    ] {
        let no = house.refused(ACQUIRE, wanting("a", key, json!({})), status, word);
        assert!(no["message"].as_str().is_some_and(|message| message.contains(part)), "{no}");
    }
    house.granted("a", "api:GET /v1//users/", json!({}));
    house.refused(ACQUIRE, wanting("b", "api:GET /v1/users", json!({})), 409, "busy");
}

pub(crate) fn a_stop_that_can_not_be_read_stops_nothing(house: &House) {
    for operation in [Operation::Stop, Operation::ReloadPolicy] {
        let (status, answer) = house.ask(operation, json!({ "spcae": "another" }));
        // Over HTTP, nobody may ask for it at all.
        let kept_out = status == 403 && answer["message"] == "That needs the local user, over the private socket.";
        assert!(status == 400 || kept_out, "{operation:?}: {answer}");
    }
    house.granted("a", "f", json!({}));
}

/// So many that it is not made at once.
pub(crate) fn a_long_list_is_whole_and_in_order(house: &House) {
    for part in 0..6 {
        let keys = (0..200).map(|n| json!({ "file_path": format!("f{:04}", part * 200 + n) }));
        let set = json!({ "session_id": "a", "locks": keys.collect::<Vec<_>>(), "ttl_minutes": 5 });
        assert_eq!(house.ask(ACQUIRE, set).0, 200);
    }
    let (status, list) = house.ask(Operation::Active, json!({ "limit": 1150 }));
    let rows = list["locks"].as_array().expect("rows");
    assert_eq!((status, rows.len(), list["total"].as_u64()), (200, 1150, Some(1200)));
    let in_order = |(n, row): (usize, &Value)| row["file_path"] == format!("f{n:04}") && row["owner"] == "a";
    assert!(rows.iter().enumerate().all(in_order), "{rows:?}");
    let (status, history) = house.ask(Operation::History, json!({ "limit": 1100 }));
    let events = history["events"].as_array().expect("events");
    assert_eq!((status, events.len(), history["total"].as_u64()), (200, 1100, Some(1200)));
    assert_eq!((&events[0]["file_path"], &events[1099]["file_path"]), (&json!("f1199"), &json!("f0100")));
}
