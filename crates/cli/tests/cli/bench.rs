//! `lockkeeper bench`: every measurement through every door. Never how fast: that is the machine's to say.

use lockkeeper_postgres_fixture::{Options, Postgres};
use serde_json::Value;

use crate::house::{House, finish, kill_child, wait_for};
use crate::redis_server::RedisServer;

/// Runs it briefly, and looks at all that it measured.
fn measured(house: &House, door: &str, durability: &str, held: &str) -> Value {
    let arguments = ["bench", "--for", "300ms", "--clients", "4", "--door", door, "--durability", durability];
    let report = house.json("nobody", &[&arguments[..], &["--held", held]].concat());
    let figures = report["figures"].as_array().expect("figures");
    let names: Vec<&str> = figures.iter().filter_map(|figures| figures["what"].as_str()).collect();
    assert_eq!(names, ["uncontended", "ranges", "hot", "check", "handover"], "{report}");
    for figures in figures {
        assert_eq!(figures["failures"], 0, "{figures}");
        let pair = figures["unit"] == "pairs";
        let halves = if pair { &["acquire", "release"][..] } else { &[] };
        let times = std::iter::once(figures).chain(halves.iter().map(|half| &figures[half]));
        let times = times.flat_map(|times| ["p50_us", "p99_us", "p99_9_us"].map(|name| &times[name]));
        let others = ["count", "per_second", "clients"].map(|name| &figures[name]);
        for figure in times.chain(others) {
            assert!(figure.as_f64().is_some_and(|figure| figure > 0.0), "{figures}");
        }
    }
    report
}

/// What is left behind in the home of the user.
fn left_behind(house: &House) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(house.home()) else { return Vec::new() };
    entries.map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn every_measurement_has_figures_over_the_socket() {
    let house = House::new();
    let report = measured(&house, "socket", "always", "1000");
    assert_eq!((&report["held"], report["durability"].as_str()), (&Value::from(1000), Some("always")));
    assert!(report["figures"][0]["service_cpu_us"].as_f64().is_some_and(|us| us > 0.0), "{report}");
    assert_eq!(left_behind(&house), [""; 0], "neither a service nor its folder");
}

#[test]
fn every_measurement_has_figures_over_http() {
    measured(&House::new(), "http", "interval", "0");
}

#[test]
fn every_measurement_has_figures_in_the_library() {
    let house = House::new();
    measured(&house, "library", "always", "1000");
    assert_eq!(left_behind(&house), [""; 0]);
}

#[test]
fn a_measurement_touches_no_lock_of_the_user() {
    let house = House::new();
    house.say("alice", &["lock", "acquire", "src/hot.rs", "--ttl", "10m"]);
    let before = house.service_pid();
    let said = house.say("nobody", &["bench", "--what", "hot", "--for", "300ms", "--clients", "2"]);
    assert!(said.code == 0 && said.out.contains("hot"), "{said:?}");
    assert_eq!((house.held(), house.service_pid()), (vec!["alice src/hot.rs".to_owned()], before));
}

#[test]
fn an_interrupted_measurement_leaves_nothing_behind() {
    let house = House::new();
    let bench = house.start("nobody", &["bench", "--what", "hot", "--for", "1m"]);
    wait_for("its folder", || left_behind(&house).into_iter().next());
    kill_child(&bench, "TERM");
    let said = finish(bench);
    assert_eq!((said.code, left_behind(&house)), (1, Vec::new()), "{said:?}");
}

#[test]
fn nothing_of_a_measurement_stays_in_a_redis_or_postgres() {
    let (house, redis, postgres) = (House::new(), RedisServer::start(), Postgres::start_with(&Options::quick()));
    assert_eq!(redis.ask(&["SET", "mine", "x"]), "OK");
    for door in ["library", "socket"] {
        for engine in [redis.url(), postgres.url()] {
            let arguments = ["--what", "uncontended", "--for", "200ms", "--clients", "2", "--door", door];
            let mut bench = house.command("nobody", &[&["bench"][..], &arguments].concat());
            // It has a password.
            let said = crate::house::said(bench.env("LOCKKEEPER_BENCH_ENGINE", &engine).output().unwrap());
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
    let bench = house.start("nobody", &["bench", "--engine", &redis.url(), "--what", "hot", "--for", "1m"]);
    wait_for("its keys", || (redis.ask(&["DBSIZE"]) != "1").then_some(()));
    kill_child(&bench, "TERM");
    assert_eq!(finish(bench).code, 1);
    assert_eq!(redis.ask(&["KEYS", "*"]), "mine");
    for table in ["ledgers", "records", "snapshots", "documents"] {
        assert_eq!(postgres.sql(&format!("select count(*) from lockkeeper_{table}")), "0", "{table}");
    }
}

#[test]
fn a_measurement_that_makes_no_sense_is_refused() {
    let house = House::new();
    for wrong in [
        ["--clients", "0"],
        ["--for", "x"],
        ["--held", "2000001"],
        ["--engine", "x:"],
        ["--durability", "x"],
        ["--url", "http://127.0.0.1:5625"],
    ] {
        let said = house.say("nobody", &[&["bench"], &wrong[..]].concat());
        assert_eq!(said.code, 2, "{wrong:?}: {said:?}");
    }
}
