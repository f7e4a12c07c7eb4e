//! Commands on a Redis: how it is named, and what is said when it can't be used.

use std::time::Duration;

use crate::house::{House, said};
use crate::redis_server::RedisServer;

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
    let doctor = say(&house, &named, &["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("can't be reached"), "{doctor:?}");
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
