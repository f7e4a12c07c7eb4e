//! What a service says while its Redis or PostgreSQL is away, and after it came back with less than it had.

use std::time::{Duration, Instant};

use lockkeeper_postgres_fixture::{Options, Postgres, slow_way};
use lockkeeper_wire::operation::Operation;
use serde_json::{Value, json};

use crate::doors::{DoorKind, EngineKind, House, wanting};

/// How long a question may take, as it is set.
const TIME_LIMIT: &str = "?timeout_ms=500";
/// How long it takes while nobody answers: that, and some air.
const TOLD_WITHIN: Duration = Duration::from_millis(1500);

/// Asks until the service can answer again.
fn until_it_answers(house: &House, operation: Operation, body: &serde_json::Value) -> (u16, serde_json::Value) {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        let (status, answer) = house.ask(operation, body.clone());
        if status != 503 {
            return (status, answer);
        }
        assert!(Instant::now() < give_up, "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn while_away_nothing_is_granted(house: &House) {
    for body in [wanting("b", "f", json!({})), wanting("b", "other", json!({}))] {
        let asked = Instant::now();
        let (status, answer) = house.ask(Operation::Acquire, body);
        assert_eq!(status, 503, "{answer}");
        assert!(["unavailable", "outcome_unknown"].contains(&answer["error"].as_str().expect("a word")), "{answer}");
        assert!(asked.elapsed() < TOLD_WITHIN, "{:?}", asked.elapsed());
    }
    let asked = Instant::now();
    let (status, answer) = house.ask(Operation::Active, json!({}));
    assert_eq!((status, answer["error"].as_str()), (503, Some("unavailable")), "{answer}");
    assert!(asked.elapsed() < TOLD_WITHIN, "{:?}", asked.elapsed());
}

/// Somebody changes something and somebody looks, at the same moment, as soon as nobody answers any more.
fn all_are_told_in_time(house: &House) {
    let asked = Instant::now();
    let told = house.ask_together(vec![
        (Operation::Acquire, wanting("c", "h", json!({}))),
        (Operation::Active, json!({})),
        (Operation::Renew, json!({ "session_id": "a" })),
        (Operation::Active, json!({})),
    ]);
    assert!(told.iter().all(|(status, _)| *status == 503), "{told:?}");
    assert!(asked.elapsed() < TOLD_WITHIN, "{:?}", asked.elapsed());
}

#[test]
fn a_redis_that_is_away_grants_nothing_and_all_goes_on_when_it_is_back() {
    let mut house = House::limited(EngineKind::RedisAlways, DoorKind::Socket, 2, TIME_LIMIT);
    let lock = house.granted("a", "f", json!({ "ttl_minutes": 5 }));
    house.redis().kill();
    while_away_nothing_is_granted(&house);
    house.redis().start_again();
    let busy = wanting("b", "f", json!({}));
    for _ in 0..2 {
        let (status, answer) = until_it_answers(&house, Operation::Acquire, &busy);
        assert_eq!((status, answer["error"].as_str()), (409, Some("busy")), "{answer}");
    }
    let beat = json!({ "session_id": "a", "file_path": "f", "fencing_token": lock["fencing_token"] });
    assert_eq!(house.ask(Operation::Renew, beat).0, 200);
    assert_eq!(house.ask(Operation::Status, json!({})).1["rewrites"], 0);
    house.redis().pause();
    all_are_told_in_time(&house);
    while_away_nothing_is_granted(&house);
    house.redis().resume();
    assert_eq!(until_it_answers(&house, Operation::Acquire, &busy).0, 409);
}

#[test]
fn a_redis_that_lost_everything_is_said_and_its_holders_are_told_and_tokens_rise() {
    let mut house = House::open(EngineKind::Redis, DoorKind::Http, 3);
    for round in 1..=2 {
        let lock = house.granted("a", "f", json!({ "ttl_minutes": 5 }));
        house.granted("b", "g", json!({ "ttl_minutes": 5 }));
        for _ in 0..3 {
            assert_eq!(house.held().len(), 2, "every service knows of them");
        }
        if round == 1 {
            house.redis().ask(&["FLUSHALL"]);
        } else {
            house.redis().kill();
            house.redis().start_again();
        }
        let renew = json!({ "session_id": "a", "file_path": "f", "fencing_token": lock["fencing_token"] });
        let (status, answer) = until_it_answers(&house, Operation::Renew, &renew);
        assert_eq!((status, answer["error"].as_str()), (410, Some("lock_lost")), "{answer}");
        let (status, again) = until_it_answers(&house, Operation::Acquire, &wanting("c", "f", json!({})));
        assert_eq!(status, 200, "{again}");
        assert!(again["fencing_token"].as_u64() > lock["fencing_token"].as_u64(), "{again}");
        let (status, _) = house.ask(Operation::Release, json!({ "session_id": "c", "file_path": "f" }));
        assert_eq!(status, 200);
        for _ in 0..3 {
            let (_, status) = house.ask(Operation::Status, json!({}));
            assert!(status["rewrites"].as_u64() >= Some(round), "{status}");
        }
    }
}

#[test]
fn a_postgres_that_is_away_grants_nothing_and_all_goes_on_when_it_is_back() {
    let mut postgres = Postgres::start();
    let folder = tempfile::tempdir().expect("a folder");
    let url =
        format!("{}{}", postgres.url(), TIME_LIMIT.replace('?', if postgres.url().contains('?') { "&" } else { "?" }));
    let house = House::on(&url, EngineKind::PostgresAlways, DoorKind::Socket, 2, folder);
    let lock = house.granted("a", "f", json!({ "ttl_minutes": 5 }));
    for round in 0..2 {
        if round == 0 {
            postgres.kill();
        } else {
            postgres.pause();
        }
        all_are_told_in_time(&house);
        while_away_nothing_is_granted(&house);
        if round == 0 {
            postgres.run();
        } else {
            postgres.resume();
        }
        let (status, answer) = until_it_answers(&house, Operation::Acquire, &wanting("b", "f", json!({})));
        assert_eq!((status, answer["error"].as_str()), (409, Some("busy")), "{answer}");
    }
    let beat = json!({ "session_id": "a", "file_path": "f", "fencing_token": lock["fencing_token"] });
    assert_eq!(until_it_answers(&house, Operation::Renew, &beat).0, 200);
    assert_eq!(house.ask(Operation::Status, json!({})).1["rewrites"], 0);
}

#[test]
fn a_failover_that_loses_the_last_second_is_said_and_its_holders_are_told_and_tokens_rise() {
    let postgres = Postgres::start_with(&Options::quick());
    let folder = tempfile::tempdir().expect("a folder");
    let house = House::on(&postgres.url(), EngineKind::Postgres, DoorKind::Http, 3, folder);
    house.granted("a", "before", json!({ "ttl_minutes": 5 }));
    let kept = postgres.sql("select max(revision) from lockkeeper_records");
    let lock = house.granted("a", "f", json!({ "ttl_minutes": 5 }));
    for _ in 0..3 {
        assert_eq!(house.held().len(), 2, "every service knows of them");
    }
    // What a replica has that lags behind.
    postgres.sql(&format!(
        "delete from lockkeeper_records where revision > {kept};
         delete from lockkeeper_documents where document ->> 'key' = 'f'"
    ));
    let renew = json!({ "session_id": "a", "file_path": "f", "fencing_token": lock["fencing_token"] });
    let (status, answer) = until_it_answers(&house, Operation::Renew, &renew);
    assert_eq!((status, answer["error"].as_str()), (410, Some("lock_lost")), "{answer}");
    let again = house.granted("c", "f", json!({}));
    assert!(again["fencing_token"].as_u64() > lock["fencing_token"].as_u64(), "{again}");
    for _ in 0..3 {
        assert_eq!(house.held().len(), 2, "what was not lost is still held");
        let (_, status) = house.ask(Operation::Status, json!({}));
        assert!(status["rewrites"].as_u64() >= Some(1), "{status}");
    }
}

#[test]
fn people_see_in_the_view_what_is_held() {
    let postgres = Postgres::start_with(&Options::quick());
    let folder = tempfile::tempdir().expect("a folder");
    let house = House::on(&postgres.url(), EngineKind::Postgres, DoorKind::Socket, 2, folder);
    let seen = || {
        postgres.sql(
            "select string_agg(concat_ws(' ', key, start_line, end_line, mode, owner, session_id, intention), '; ' order by key)
             from lockkeeper_locks",
        )
    };
    let more =
        json!({ "start_line": 3, "end_line": 9, "intention": "it's \"quoted\"", "mode": "shared", "agent_id": "ann" });
    let lock = house.granted("s1", "src/a.rs", more);
    house.granted("s2", "db:schema:users", json!({}));
    assert_eq!(seen(), "db:schema:users exclusive s2 s2 work; src/a.rs 3 9 shared ann s1 it's \"quoted\"");
    let token = postgres.sql("select fencing_token from lockkeeper_locks where key = 'src/a.rs'");
    assert_eq!(Some(token), lock["fencing_token"].as_u64().map(|token| token.to_string()));
    let left = || -> f64 {
        let sql =
            "select extract(epoch from expires_at - clock_timestamp()) from lockkeeper_locks where key = 'src/a.rs'";
        postgres.sql(sql).parse().expect("a number")
    };
    assert!((20.0..=31.0).contains(&left()), "{}", left());
    let renew = json!({ "session_id": "s1", "file_path": "src/a.rs", "ttl_minutes": 10 });
    assert_eq!(house.ask(Operation::Renew, renew).0, 200);
    assert!((590.0..=601.0).contains(&left()), "{}", left());
    let release = json!({ "session_id": "s1", "file_path": "src/a.rs" });
    assert_eq!(house.ask(Operation::Release, release).0, 200);
    assert_eq!(seen(), "db:schema:users exclusive s2 s2 work");
}

#[test]
fn the_view_shows_what_is_held_whatever_happened() {
    let postgres = Postgres::start_with(&Options::quick());
    let folder = tempfile::tempdir().expect("a folder");
    // So far away that nobody who writes knows the stamp beforehand.
    let url = postgres.url_by(slow_way(postgres.port(), Duration::from_millis(3)));
    let house = House::on(&url, EngineKind::Postgres, DoorKind::Socket, 2, folder);
    let mut dice = 7_u64;
    let mut below = move |most: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % most
    };
    let seen = || {
        let rows =
            postgres.sql("select concat_ws(' ', session_id, key, fencing_token, intention) from lockkeeper_locks");
        let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
        rows.sort();
        rows
    };
    for step in 0..150 {
        let (session, path) = (format!("s{}", below(3)), format!("k{}", below(4)));
        let one = json!({ "session_id": session, "file_path": path });
        match below(10) {
            0..=4 => {
                let ttl_ms = if below(3) == 0 { 1000 } else { 60_000 };
                let mode = if below(2) == 0 { "shared" } else { "exclusive" };
                let intention = if below(2) == 0 { "work" } else { "rest" };
                let more = json!({ "ttl_ms": ttl_ms, "mode": mode, "intention": intention });
                let mut wanted = wanting(&session, &path, more);
                if below(3) == 0 {
                    wanted["locks"] = json!([{ "file_path": path }, { "file_path": format!("{path}b") }]);
                    wanted.as_object_mut().expect("a body").remove("file_path");
                }
                house.ask(Operation::Acquire, wanted);
            }
            5 | 6 => drop(house.ask(Operation::Release, one)),
            7 => drop(house.ask(Operation::Renew, one)),
            8 => drop(house.ask(Operation::Renew, json!({ "session_id": session }))),
            _ => drop(house.ask(Operation::CloseSession, json!({ "session_id": session }))),
        }
        if step % 15 == 14 {
            // Between two looks a lock may expire.
            let give_up = Instant::now() + Duration::from_secs(10);
            loop {
                let (_, list) = house.ask(Operation::Active, json!({}));
                let rows = list["locks"].as_array().into_iter().flatten();
                let words = |lock: &Value| {
                    let word = |name: &str| lock[name].as_str().expect("a word").to_owned();
                    format!(
                        "{} {} {} {}",
                        word("session_id"),
                        word("file_path"),
                        lock["fencing_token"],
                        word("intention")
                    )
                };
                let mut held: Vec<String> = rows.map(words).collect();
                held.sort();
                if held == seen() {
                    break;
                }
                assert!(Instant::now() < give_up, "held {held:?}, shown {:?}", seen());
            }
        }
    }
}
