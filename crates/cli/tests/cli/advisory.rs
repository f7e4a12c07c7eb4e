//! `advisory` and `/api/advisory-locks`: the locks of a real PostgreSQL.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use lockkeeper_postgres_fixture::{Options, Postgres, free_port};
use serde_json::Value;

use crate::house::{House, Said, finish, kill_child, said, wait_for};

static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// The server that whoever runs now shares; each takes locks with an id of its own.
fn server() -> Arc<Postgres> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Postgres::start_with(&Options::quick()));
        *shared = Arc::downgrade(&server);
        server
    })
}

fn advisory(house: &House, url: &str, arguments: &[&str]) -> Said {
    let mut words = vec!["advisory"];
    words.extend(arguments);
    said(house.command("a", &words).env("DATABASE_URL", url).output().expect("the program runs"))
}

fn start(house: &House, url: &str, arguments: &[&str]) -> Child {
    let mut command = house.command("a", &["advisory"]);
    command.args(arguments).env("DATABASE_URL", url);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
}

/// The session that holds this lock, by the server's own account.
fn holder(server: &Postgres, class: i32, object: i32) -> Option<String> {
    let question =
        format!("SELECT pid FROM pg_locks WHERE classid = {class} AND objid = {object} AND objsubid = 2 AND granted");
    Some(server.sql(&question)).filter(|pid| !pid.is_empty())
}

#[test]
fn a_command_runs_under_an_advisory_lock_and_its_exit_code_is_passed_on() {
    let (house, server) = (House::new(), server());
    let psql = format!(
        "psql -h {} -p {} -U postgres -Atc 'SELECT classid, objid, objsubid FROM pg_locks WHERE objid = 42'; exit 7",
        server.dir().display(),
        server.port()
    );
    let said = advisory(&house, &server.url(), &["run", "AGENT", "42", "--", "sh", "-c", &psql]);
    assert_eq!((said.code, said.out.trim()), (7, "1|42|2"), "{said:?}");
    assert_eq!(holder(&server, 1, 42), None);
    assert_eq!(advisory(&house, &server.url(), &["run", "7", "-3", "--", "true"]).code, 0);
    assert_eq!(advisory(&house, &server.url(), &["run", "7", "a text", "--skip", "--", "/nonexistent"]).code, 127);
    for wrong in [["run", "NOBODY", "1"], ["run", "AGENT", "007"], ["run", "AGENT", "5000000000"]] {
        let said = advisory(&house, &server.url(), &[&wrong[..], &["--", "true"]].concat());
        assert_eq!(said.code, 2, "{said:?}");
    }
}

#[test]
fn a_taken_advisory_lock_gives_the_busy_exit_code_after_its_timeout_or_at_once() {
    let (house, server) = (House::new(), server());
    let mut first = start(&house, &server.url(), &["run", "AGENT", "43", "--", "sleep", "600"]);
    wait_for("the lock", || holder(&server, 1, 43));
    let began = Instant::now();
    let second = advisory(&house, &server.url(), &["run", "AGENT", "43", "--timeout", "1s", "--", "echo", "never"]);
    assert!(began.elapsed() >= Duration::from_millis(950));
    assert_eq!((second.code, second.out.as_str()), (5, ""), "{second:?}");
    assert!(second.err.contains("busy") && second.err.contains("Hint: lockkeeper advisory list"), "{second:?}");
    let skipped = advisory(&house, &server.url(), &["run", "AGENT", "43", "--skip", "--", "echo", "never"]);
    assert_eq!((skipped.code, skipped.out.as_str()), (5, ""), "{skipped:?}");
    assert!(skipped.err.contains("the command was not run"), "{skipped:?}");
    let fine = ["run", "AGENT", "43", "--skip", "--busy-exit-code", "0", "--", "echo", "never"];
    assert_eq!(advisory(&house, &server.url(), &fine).code, 0);
    // A signal is for the command, and the lock is given back when it has ended.
    kill_child(&first, "TERM");
    assert_eq!(first.wait().expect("it ends").code(), Some(128 + 15));
    assert_eq!(holder(&server, 1, 43), None);
}

#[test]
fn a_command_is_ended_when_its_advisory_lock_is_lost() {
    let (house, server) = (House::new(), server());
    let script = "trap 'echo told; exit 0' TERM; echo ready; sleep 600 & wait";
    let child = start(&house, &server.url(), &["run", "AGENT", "44", "--", "sh", "-c", script]);
    let pid = wait_for("the lock", || holder(&server, 1, 44));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.sql(&format!("SELECT pg_terminate_backend({pid})")), "t");
    let said = finish(child);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.out.contains("told") && said.err.contains("lock_lost"), "{said:?}");
}

#[test]
fn a_command_that_does_not_listen_is_killed_five_seconds_after_its_lock_is_lost() {
    let (house, server) = (House::new(), server());
    // Neither the command nor what it started hears the polite word.
    let script = "trap '' TERM; sleep 600 & echo ready; while :; do sleep 1; done";
    let child = start(&house, &server.url(), &["run", "AGENT", "46", "--", "sh", "-c", script]);
    let pid = wait_for("the lock", || holder(&server, 1, 46));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.sql(&format!("SELECT pg_terminate_backend({pid})")), "t");
    let began = Instant::now();
    let said = finish(child);
    assert_eq!(said.code, 4, "{said:?}");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(4500), "it had its time to end by itself: {took:?}");
    assert!(took < Duration::from_millis(9000), "{took:?}");
}

#[test]
fn who_holds_and_who_waits_is_listed_with_the_names_of_the_settings() {
    let (house, server) = (House::new(), server());
    std::fs::write(house.repository().join("lockkeeper.toml"), "[advisory.namespaces]\nREPORT = 1045\n")
        .expect("a file");
    let first = start(&house, &server.url(), &["run", "REPORT", "1", "--", "sleep", "600"]);
    let pid = wait_for("the lock", || holder(&server, 1045, 1));
    let second = start(&house, &server.url(), &["run", "1045", "1", "--", "true"]);
    let list = || -> Value {
        let said = advisory(&house, &server.url(), &["list", "--json"]);
        assert_eq!(said.code, 0, "{said:?}");
        serde_json::from_str(&said.out).expect("JSON")
    };
    let rows = wait_for("both", || {
        let list = list();
        let rows = list["locks"].as_array().expect("a list").iter();
        let ours: Vec<Value> = rows.filter(|row| row["namespace"] == "REPORT").cloned().collect();
        (ours.len() == 2).then_some(ours)
    });
    assert_eq!((rows[0]["granted"].as_bool(), rows[0]["pid"].to_string()), (Some(true), pid.clone()));
    assert_eq!((rows[1]["granted"].as_bool(), rows[1]["waiting_for"][0].to_string()), (Some(false), pid));
    let table = advisory(&house, &server.url(), &["list"]);
    assert!(
        table.out.contains("REPORT 1") && table.out.contains("waits") && table.out.contains("lockkeeper-run"),
        "{table:?}"
    );

    let mut watch = start(&house, &server.url(), &["watch", "--interval", "100ms"]);
    let lines = heard(&mut watch);
    let saw = |words: &str| wait_for(words, || lines.lock().expect("lines").contains(words).then_some(()));
    saw("waits  REPORT 1");
    kill_child(&first, "TERM");
    finish(first);
    assert_eq!(finish(second).code, 0);
    saw("gone   REPORT 1");
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
}

/// What a command says, as it says it.
fn heard(child: &mut Child) -> Arc<Mutex<String>> {
    let (heard, mut out) = (Arc::new(Mutex::new(String::new())), child.stdout.take().expect("piped"));
    let lines = heard.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut bytes) {
            lines.lock().expect("lines").push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    heard
}

#[test]
fn a_password_on_the_command_line_is_refused_and_one_in_a_file_is_taken() {
    let (house, server) = (House::new(), server());
    let bare = house.say("a", &["advisory", "list", "--database-url", &server.url()]);
    assert_eq!(bare.code, 2, "{bare:?}");
    assert!(bare.err.contains("DATABASE_URL") && !bare.err.contains(server.password()), "{bare:?}");
    let file = house.path().join("url");
    std::fs::write(&file, format!("{}\n", server.url())).expect("a file");
    let named = house.say("a", &["advisory", "list", "--database-url", &format!("@{}", file.display())]);
    assert_eq!(named.code, 0, "{named:?}");
    let without = server.url().replace(&format!(":{}@", server.password()), "@");
    let mut command = house.command("a", &["advisory", "list", "--database-url", &without]);
    let beside = said(command.env("PGPASSWORD", server.password()).output().expect("it runs"));
    assert_eq!(beside.code, 0, "{beside:?}");
    let none = house.say("a", &["advisory", "list"]);
    assert!(none.code == 2 && none.err.contains("export DATABASE_URL="), "{none:?}");
    let away = advisory(&house, &format!("postgres://me:hunter2@127.0.0.1:{}/db", free_port()), &["list"]);
    assert!(away.code == 3 && !away.err.contains("hunter2"), "{away:?}");
}

#[test]
fn the_service_shows_advisory_locks_over_http_and_counts_them() {
    let (house, server) = (House::new(), Postgres::start_with(&Options::quick()));
    let settings = house.path().join("config/lockkeeper");
    std::fs::create_dir_all(&settings).expect("a folder");
    let text = format!("[advisory]\ndatabase_url = \"{}\"\n[advisory.namespaces]\nREPORT = 7\n", server.url());
    std::fs::write(settings.join("lockkeeper.toml"), text).expect("a file");
    let serving = house.serve(&["--engine", "memory:"]);
    let child = start(&house, &server.url(), &["run", "REPORT", "5", "--", "sleep", "600"]);
    wait_for("the lock", || holder(&server, 7, 5));
    let (code, body) = serving.curl("/api/advisory-locks", &[]);
    let list: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    assert_eq!((code, list["status"].as_str(), list["total"].as_u64()), (200, Some("ok"), Some(1)), "{body}");
    let row = &list["locks"][0];
    assert_eq!(
        (row["namespace"].as_str(), row["entity_id"].as_i64(), row["granted"].as_bool()),
        (Some("REPORT"), Some(5), Some(true))
    );
    for field in ["pid", "application_name", "state", "query_start", "mode", "duration_seconds", "waiting_for"] {
        assert!(!row[field].is_null(), "{field}: {body}");
    }
    assert_eq!(serving.curl_bare("/api/advisory-locks", &[]).0, 401);
    let counted = "lockkeeper_advisory_locks{namespace=\"REPORT\",state=\"held\"} 1";
    wait_for("the count", || serving.curl("/metrics", &[]).1.contains(counted).then_some(()));
    let metrics = serving.curl("/metrics", &[]).1;
    assert!(
        metrics.lines().any(|line| line.starts_with("lockkeeper_advisory_up") && line.ends_with(" 1")),
        "{metrics}"
    );

    server.pause();
    let began = Instant::now();
    let (code, body) = serving.curl("/api/advisory-locks", &[]);
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("\"unavailable\"") && !body.contains(server.password()), "{body}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    for _ in 0..3 {
        let began = Instant::now();
        let (code, _) = serving.curl("/metrics", &[]);
        assert!(code == 200 && began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    server.resume();
    wait_for("the database", || (serving.curl("/api/advisory-locks", &[]).0 == 200).then_some(()));
    kill_child(&child, "TERM");
    finish(child);
}

#[test]
fn a_service_without_a_database_says_what_to_set() {
    let house = House::new();
    let serving = house.serve(&["--engine", "memory:"]);
    let (code, body) = serving.curl("/api/advisory-locks", &[]);
    assert!(code == 404 && body.contains("DATABASE_URL"), "{code} {body}");
    assert!(!serving.curl("/metrics", &[]).1.contains("lockkeeper_advisory_up"), "nothing is claimed");
}
