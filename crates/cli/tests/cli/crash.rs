//! The service is killed at the wrong moment.

use std::time::Duration;

use crate::house::{House, finish, wait_for};

#[test]
fn p6_every_acknowledged_lock_is_there_after_kill_9_and_tokens_go_on_rising() {
    let house = House::new();
    let mut last = 0;
    for round in 0..5 {
        for n in 0..4 {
            let file = format!("src/r{round}-{n}.rs");
            let lock = house.json("a", &["lock", "acquire", &file, "--ttl", "10m"]);
            let token = lock["fencing_token"].as_u64().unwrap();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        house.kill_service();
    }
    assert_eq!(house.held().len(), 20);
    house.say("a", &["lock", "release", "src/r0-0.rs"]);
    house.kill_service();
    assert_eq!(house.held().len(), 19, "an acknowledged release survives kill -9");
}

#[test]
fn a_waiting_client_comes_back_by_itself() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x", "--ttl", "10m"]);
    let waiting = house.start("b", &["--json", "lock", "acquire", "x", "--wait", "30s"]);
    std::thread::sleep(Duration::from_millis(400));
    house.kill_service();
    // The next command starts a service; the one that waits finds it.
    let waiters = || house.json("x", &["lock", "list"])["waiting"].as_array().map_or(0, Vec::len);
    wait_for("the waiter", || (waiters() == 1).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(house.say("a", &["lock", "release", "x"]).code, 0);
    let said = finish(waiting);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(house.held(), ["b x"]);
}

#[test]
fn a_killed_waiter_leaves_the_queue() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x"]);
    let mut waiting = house.start("b", &["lock", "acquire", "x", "--wait", "60s"]);
    let waiters = || house.json("x", &["lock", "list"])["waiting"].as_array().map_or(0, Vec::len);
    wait_for("the waiter", || (waiters() == 1).then_some(()));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    wait_for("the empty queue", || (waiters() == 0).then_some(()));
}

#[test]
fn stopping_releases_nothing() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x", "--ttl", "10m"]);
    let holding = house.start("b", &["lock", "acquire", "y", "--ttl", "10m", "--hold"]);
    wait_for("the second lock", || (house.held().len() == 2).then_some(()));
    assert_eq!(house.say("x", &["stop"]).code, 0);
    assert_eq!(house.held(), ["a x", "b y"]);
    let mut holding = holding;
    holding.kill().unwrap();
    holding.wait().unwrap();
}
