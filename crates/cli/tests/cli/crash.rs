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
    house.wait_for_waiters(1);
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
    house.wait_for_waiters(1);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    house.wait_for_waiters(0);
}

#[test]
fn a_waiter_whose_http_connection_closes_leaves_the_queue() {
    let house = House::new();
    let serving = house.serve(&[]);
    house.say("a", &["lock", "acquire", "x"]);
    let body = r#"{"file_path":"x","agent_id":"b","wait_ms":60000}"#;
    let (code, _) = serving.curl("/locks/acquire", &["-m", "1", "-H", "Content-Type: application/json", "-d", body]);
    assert_eq!(code, 0, "curl gave up");
    house.wait_for_waiters(0);
}

#[test]
fn a_wait_with_more_behind_it_is_given_up_too_when_its_client_goes() {
    use std::io::Write;
    let house = House::new();
    let serving = house.serve(&[]);
    house.say("a", &["lock", "acquire", "x"]);
    let body = r#"{"file_path":"x","agent_id":"b","wait_ms":600000}"#;
    let asked = format!(
        "POST /locks/acquire HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        serving.credential,
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(serving.url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(asked.as_bytes()).unwrap();
    house.wait_for_waiters(1);
    drop(stream);
    house.wait_for_waiters(0);
}

#[test]
fn stopping_is_quick_and_whoever_waits_comes_back() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x", "--ttl", "10m"]);
    let waiting = house.start("b", &["--json", "lock", "acquire", "x", "--wait", "60s"]);
    house.wait_for_waiters(1);
    let began = std::time::Instant::now();
    assert_eq!(house.say("x", &["stop"]).code, 0);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    house.wait_for_waiters(1);
    assert_eq!(house.say("a", &["lock", "release", "x"]).code, 0);
    assert_eq!(finish(waiting).code, 0);
}

#[test]
fn stopping_waits_for_nobody_who_waits_over_http() {
    let house = House::new();
    let serving = house.serve(&[]);
    house.say("a", &["lock", "acquire", "x", "--ttl", "10m"]);
    let body = r#"{"agent_id":"b","file_path":"x","wait_ms":60000}"#;
    // The second goes the general way: it has a header that is not ordinary.
    let waiting: Vec<_> = ["", "X-Odd: 1\r\n"].map(|odd| serving.send("locks/acquire", odd, body)).into();
    house.wait_for_waiters(2);
    let began = std::time::Instant::now();
    assert_eq!(house.say("x", &["stop"]).code, 0);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(waiting);
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

#[test]
fn p7_the_same_request_gets_the_same_answer_after_kill_9() {
    let house = House::new();
    let body =
        r#"{"id":1,"op":"locks/acquire","body":{"session_id":"s","file_path":"x","request_id":"r1","ttl_minutes":5}}"#;
    house.say("a", &["lock", "list"]);
    let first = house.line(body);
    house.kill_service();
    house.say("a", &["lock", "list"]);
    let again = house.line(body);
    let told = |answer: &serde_json::Value| {
        let body = &answer["body"];
        (answer["status"].clone(), body["lock_id"].clone(), body["fencing_token"].clone(), body["action"].clone())
    };
    assert_eq!(told(&first), told(&again));
    assert_eq!(first["status"], 200);
    let other = house.line(&body.replace("\"x\"", "\"y\""));
    assert_eq!(other["body"]["error"], "request_mismatch");
}

/// A small file system of its own, gone with the test.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: std::path::PathBuf, size: &str) -> SmallDisk {
        std::fs::create_dir_all(&path).unwrap();
        let options = format!("size={size},mode=0700");
        let done =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).status();
        assert!(done.expect("mount runs").success(), "this test mounts a small file system: run it as root");
        SmallDisk(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn p16_a_full_disk_refuses_new_locks_and_still_serves_releases_and_lists() {
    let house = House::new();
    let disk = SmallDisk::mount(house.path().join("disk"), "40m");
    let url = format!("file:{}", disk.0.display());
    let held = |name: &str| format!("src/{name}.rs");
    let _serving = house.serve(&["--engine", &url]);
    for n in 0..20 {
        house.json("a", &["lock", "acquire", &held(&n.to_string()), "--ttl", "1h"]);
    }
    // Somebody else fills the disk; then the segment that is open is used up.
    let filler = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", disk.0.join("filler").display()))
        .output();
    assert!(!filler.expect("dd runs").status.success(), "the disk is full now");
    let refusal = fill(&house);
    assert_eq!(
        (refusal["error"].as_str(), refusal["reason"].as_str()),
        (Some("unavailable"), Some("disk_full")),
        "{refusal}"
    );
    assert_eq!(house.say("b", &["lock", "acquire", "src/new.rs"]).code, 3);
    assert_eq!(house.say("a", &["lock", "release", &held("3")]).code, 0, "a release still works");
    assert!(!house.held().contains(&"a src/3.rs".to_owned()), "and so does a list");
    std::fs::remove_file(disk.0.join("filler")).unwrap();
    wait_for("room", || (house.say("b", &["lock", "acquire", "src/new.rs"]).code == 0).then_some(()));
}

/// Asks for sets of locks, then for smaller ones, until the disk has no room for the smallest.
fn fill(house: &House) -> serde_json::Value {
    let mut refusal = serde_json::Value::Null;
    for (keys, length) in [(250, 900), (1, 900), (1, 1)] {
        refusal = (0..2000)
            .find_map(|n| {
                let name = |m: usize| format!("{}{keys}-{length}-{n}-{m}", "x".repeat(length));
                let locks: Vec<_> = (0..keys).map(|m| serde_json::json!({ "file_path": name(m) })).collect();
                let body = serde_json::json!({ "session_id": "filler", "locks": locks, "ttl_minutes": 60 });
                let answer =
                    house.line(&serde_json::json!({ "id": n, "op": "locks/acquire", "body": body }).to_string());
                (answer["status"] != 200).then(|| answer["body"].clone())
            })
            .expect("the disk is full at last");
    }
    refusal
}
