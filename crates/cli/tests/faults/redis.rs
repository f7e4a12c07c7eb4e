//! Three services on one Redis that is paused, killed and cut off, and one of the services is killed as well.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::history::{explain, record, unanswered};
use crate::house::{House, said};
use crate::redis_server::RedisServer;
use crate::service::{Dice, Service, deep};

/// How long a command of theirs may take.
const LIMIT_MS: u64 = 250;

fn start(house: &House, redis: &RedisServer) -> Service {
    let engine = format!("{}?timeout_ms={LIMIT_MS}", redis.url());
    Service::start_with(house, &["--listen", "none", "--engine", &engine], |mut command| {
        command.env("LOCKKEEPER_SPACE", "shared");
        command
    })
}

#[test]
fn whatever_happens_to_redis_what_the_clients_were_told_is_one_order_of_events_for_each_key() {
    let long = Duration::from_secs(if deep() { 60 } else { 6 });
    let mut redis = RedisServer::durable();
    let houses = [House::new(), House::new(), House::new()];
    let mut services: Vec<Option<Service>> = houses.iter().map(|house| Some(start(house, &redis))).collect();
    let sockets: Vec<_> = services.iter().flatten().map(|service| service.socket().to_owned()).collect();
    let mut dice = Dice::new(5);
    let mut did = [0; 4];
    let (answers, history) = record(&sockets, || {
        let began = Instant::now();
        while began.elapsed() < long {
            std::thread::sleep(Duration::from_millis(200 + dice.below(300)));
            let what = (did.iter().sum::<usize>()) % 4;
            did[what] += 1;
            match what {
                0 => {
                    redis.pause();
                    // Shorter than the limit, and longer.
                    std::thread::sleep(Duration::from_millis(50 + dice.below(3 * LIMIT_MS)));
                    redis.resume();
                }
                1 => {
                    for _ in 0..20 {
                        redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
                        std::thread::sleep(Duration::from_millis(dice.below(10)));
                    }
                }
                2 => {
                    redis.kill();
                    std::thread::sleep(Duration::from_millis(dice.below(200)));
                    redis.start_again();
                }
                _ => {
                    let place = dice.below(3) as usize;
                    services[place].take().expect("a service").kill();
                    services[place] = Some(start(&houses[place], &redis));
                }
            }
        }
    });
    let open = unanswered(&history);
    let [pauses, cuts, ends, kills] = did;
    println!(
        "{answers} answers in {long:?}; {pauses} pauses, {cuts} cuts and {ends} ends of Redis, {kills} of a service; {open} never answered"
    );
    assert!(answers > long.as_secs() * 200, "{answers} answers are too few to prove anything");
    assert!(open >= 1 && did.iter().all(|count| *count >= 1), "{did:?} left {open} without an answer");
    explain(&history);
    for service in services.iter().flatten() {
        let (_, status) = service.line().ask("status", json!({})).expect("a status");
        assert_eq!(status["rewrites"], 0, "nothing that was acknowledged was lost: {status}");
        assert_eq!(status["strength"], "strict");
    }
}

#[test]
fn a_service_that_is_killed_takes_no_lock_with_it_and_who_does_not_come_back_is_free_in_time() {
    let redis = RedisServer::durable();
    let houses = [House::new(), House::new(), House::new()];
    let mut services: Vec<Option<Service>> = houses.iter().map(|house| Some(start(house, &redis))).collect();
    let ask = |services: &[Option<Service>], place: usize, operation: &str, body: serde_json::Value| {
        services[place].as_ref().expect("a service").line().ask(operation, body).expect("an answer").1
    };
    let take = |key: &str, session: &str, ttl_ms: u64, wait_ms: u64| json!({"file_path": key, "session_id": session, "ttl_ms": ttl_ms, "wait_ms": wait_ms});
    let kept = ask(&services, 0, "locks/acquire", take("x", "a", 20_000, 0));
    let began = Instant::now();
    assert_eq!(ask(&services, 0, "locks/acquire", take("y", "gone", 2000, 0))["success"], true);
    services[0].take().expect("a service").kill();
    // Through another server all of it is still held, and goes on in the order of the queue.
    assert_eq!(ask(&services, 1, "locks/acquire", take("x", "b", 2000, 0))["error"], "busy");
    assert_eq!(ask(&services, 2, "locks/acquire", take("y", "c", 2000, 10_000))["success"], true);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(4), "free at the end of its TTL: {took:?}");
    // Its clients go on through another one, or through its restart.
    let renewed = ask(&services, 1, "locks/renew", json!({"session_id": "a", "file_path": "x"}));
    assert_eq!(renewed["locks"][0]["fencing_token"], kept["fencing_token"], "{renewed}");
    services[0] = Some(start(&houses[0], &redis));
    let released = ask(
        &services,
        0,
        "locks/release",
        json!({"session_id": "a", "file_path": "x", "fencing_token": kept["fencing_token"]}),
    );
    assert_eq!(released["success"], true, "{released}");
}

/// Runs a command with variables that name a Redis.
fn say(house: &House, variables: &[(&str, &str)], arguments: &[&str]) -> crate::house::Said {
    let mut command = house.command("a", arguments);
    said(command.envs(variables.iter().copied()).output().expect("the program runs"))
}

#[test]
fn the_environment_names_a_redis_and_status_and_doctor_say_so() {
    let redis = RedisServer::with(&["--requirepass", "s3cret"]);
    let url = format!("redis://:s3cret@127.0.0.1:{}", redis.port);
    let place = format!("redis://127.0.0.1:{}/0", redis.port);
    for (variables, from) in [
        (&[("REDIS_URL", url.as_str())][..], "REDIS_URL"),
        (&[("REDIS_URL", "redis://127.0.0.1:1"), ("LOCK_REDIS_URL", &url)], "LOCK_REDIS_URL"),
        (&[("LOCK_REDIS_URL", "redis://127.0.0.1:1"), ("LOCKKEEPER_ENGINE", &url)], "LOCKKEEPER_ENGINE"),
    ] {
        let house = House::new();
        let doctor = say(&house, variables, &["doctor"]);
        assert!(doctor.out.contains(&format!("{place} from {from}")), "{doctor:?}");
        let acquired = say(&house, variables, &["lock", "acquire", "f", "--ttl", "1s"]);
        assert_eq!(acquired.code, 0, "{acquired:?}");
        let status = say(&house, &[], &["status"]);
        assert!(status.out.contains(&format!("Engine      {place} from {from}")), "{status:?}");
        // Whoever asks without the variables is told that another service would be another world.
        let other = say(&house, &[], &["doctor"]);
        assert!(other.out.contains("a service started from here would use file:"), "{other:?}");
        for told in [doctor, acquired, status, other] {
            assert!(!told.out.contains("s3cret") && !told.err.contains("s3cret"), "{told:?}");
        }
        say(&house, &[], &["stop"]);
        std::thread::sleep(Duration::from_millis(1200));
    }
}

#[test]
fn a_service_whose_redis_is_away_says_so_and_can_be_stopped() {
    let mut redis = RedisServer::start();
    let house = House::new();
    let url = redis.url();
    let named = [("LOCK_REDIS_URL", url.as_str())];
    assert_eq!(say(&house, &named, &["lock", "acquire", "x"]).code, 0);
    redis.kill();
    let said = say(&house, &named, &["status"]);
    assert!(said.code == 3 && said.out.contains("Trouble") && said.out.contains("can't be reached"), "{said:?}");
    assert_eq!(say(&house, &named, &["lock", "list"]).code, 3);
    let said = say(&house, &named, &["stop"]);
    assert!(said.code == 0 && said.out.contains("Stopped the service"), "{said:?}");
}

#[test]
fn what_the_user_wrote_down_comes_before_a_redis_that_others_use_too() {
    let house = House::new();
    let config = house.path().join("config/lockkeeper");
    std::fs::create_dir_all(&config).expect("a folder");
    std::fs::write(config.join("lockkeeper.toml"), "engine = \"memory:\"").expect("a file");
    let variables = [("REDIS_URL", "redis://127.0.0.1:1")];
    assert_eq!(say(&house, &variables, &["lock", "acquire", "f"]).code, 0);
    let status = say(&house, &variables, &["status"]);
    assert!(status.out.contains("memory: from the settings file"), "{status:?}");
    say(&house, &[], &["stop"]);
}

#[test]
fn a_redis_that_can_not_be_used_is_said_with_what_names_it() {
    let evicts = RedisServer::with(&["--maxmemory-policy", "allkeys-lru"]);
    let house = House::new();
    let variables = [("REDIS_URL", evicts.url())];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, url)| (*name, url.as_str())).collect();
    let refused = say(&house, &variables, &["serve", "--listen", "none"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    for part in ["allkeys-lru", "noeviction", "REDIS_URL names this engine", "LOCKKEEPER_ENGINE"] {
        assert!(refused.err.contains(part), "{part}: {refused:?}");
    }
    let doctor = say(&house, &variables, &["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("noeviction"), "{doctor:?}");
    let started = say(&house, &variables, &["lock", "acquire", "f"]);
    assert!(started.code != 0 && started.err.contains("noeviction"), "{started:?}");
}
