//! What is said when something is not as it should be, and what to do then.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::house::{House, finish, said};

#[test]
fn an_answer_that_can_not_be_written_is_a_failure_unless_nobody_wants_it() {
    let house = House::new();
    for command in
        [&["lock", "list"][..], &["lock", "list", "--json"], &["completions", "bash"], &["packages", "schema"]]
    {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let mut lost = house.command("a", command);
        let lost = said(lost.stdout(full).stderr(Stdio::piped()).output().expect("the program runs"));
        assert!(lost.code == 1 && lost.err.contains("could not be written"), "{command:?}: {lost:?}");
        let (unread, writer) = std::io::pipe().expect("a pipe");
        drop(unread);
        let mut enough = house.command("a", command);
        let enough = said(enough.stdout(writer).stderr(Stdio::piped()).output().expect("the program runs"));
        assert!(enough.code == 0 && enough.err.is_empty(), "{command:?}: {enough:?}");
    }
}

#[test]
fn whoever_follows_ends_when_nobody_reads_any_more() {
    let house = House::new();
    let proof = house.path().join("proof").display().to_string();
    assert_eq!(house.say("a", &["proof", "init", &proof, "--profile", "doc"]).code, 0);
    house.json("a", &["lock", "acquire", "src/auth.rs"]);
    let first = house.json("a", &["lock", "history"])["events"][0]["id"].as_str().expect("an id").to_owned();
    house.json("a", &["lock", "acquire", "src/other.rs"]);
    for arguments in [
        &["watch"][..],
        &["watch", "--json"],
        &["watch", "--after", &first],
        &["proof", "watch", &proof],
        &["proof", "watch", &proof, "--json"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut watch = house.command("a", arguments);
        let watch = watch.stdout(writer).stderr(Stdio::piped()).spawn().expect("the program runs");
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(reader);
        let ended = finish(watch);
        assert!(ended.code == 0 && ended.err.is_empty(), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn whoever_follows_and_is_not_read_starts_no_service() {
    let house = House::new();
    house.json("a", &["lock", "list"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut watch = house.command("a", &["watch"]);
    let watch = watch.stdout(writer).stderr(Stdio::piped()).spawn().expect("the program runs");
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(reader);
    assert_eq!(house.say("a", &["stop"]).code, 0);
    finish(watch);
    assert!(house.say("a", &["stop"]).out.contains("No service runs"));
}

#[test]
fn a_service_whose_socket_is_gone_is_named_by_stop() {
    let house = House::new();
    house.say("a", &["lock", "list"]);
    let pid = house.service_pid();
    std::fs::remove_file(house.home().join("socket")).expect("removed");
    let told = house.say("a", &["stop"]);
    assert!(told.code == 1 && told.err.contains(&format!("kill {pid}")), "{told:?}");
    crate::house::kill(pid, "TERM");
}

#[test]
fn doctor_says_what_to_do() {
    let house = House::new();
    let named = |engine: &str| {
        let mut doctor = house.command("a", &["doctor"]);
        said(doctor.env("LOCKKEEPER_ENGINE", engine).output().expect("the program runs"))
    };
    let away = named("redis://127.0.0.1:1");
    let hint = "look whether a server runs at redis://127.0.0.1:1/0, and whether user and password are right in LOCKKEEPER_ENGINE";
    assert!(away.code == 1 && away.out.contains(hint), "{away:?}");
    house.say("a", &["lock", "list"]);
    for (engine, what) in [("memory:", "would use memory:"), ("mysql://x", "unset LOCKKEEPER_ENGINE")] {
        let other = named(engine);
        assert!(other.code == 1 && other.out.contains("BAD engine") && other.out.contains(what), "{other:?}");
    }
    let mut list = house.command("a", &["lock", "list"]);
    let list = said(list.env("LOCKKEEPER_ENGINE", "mysql://x:secret@y").output().expect("the program runs"));
    assert!(list.code == 0 && list.err.contains("unset LOCKKEEPER_ENGINE") && !list.err.contains("secret"), "{list:?}");
}

#[test]
fn a_second_person_is_told_whose_room_it_is() {
    let house = House::new();
    assert!(house.say("bob", &["room", "open", "doc/x.md"]).out.starts_with("Agents keep out"));
    let second = house.say("alice", &["room", "open", "doc/x.md"]).out;
    assert!(
        second.starts_with("bob is in the room of doc/x.md already") && second.contains("until bob closes it"),
        "{second}"
    );
}

#[test]
fn a_room_that_stays_open_for_longer_is_said_to() {
    let house = House::new();
    assert_eq!(house.say("bob", &["room", "open", "doc/x.md"]).out, "Agents keep out of doc/x.md for 30 min\n");
    let again = house.say("bob", &["room", "open", "doc/x.md", "--for", "1m"]).out;
    assert!(!again.contains("for 1 min") && again.contains("as it was opened before"), "{again}");
    assert!(again.contains("lockkeeper room close doc/x.md"), "{again}");
    let longer = house.say("bob", &["room", "open", "doc/x.md", "--for", "1h"]).out;
    assert_eq!(longer, "Agents keep out of doc/x.md for 1 h\n");
}

#[test]
fn doctor_does_not_contradict_itself_about_a_broken_policy() {
    let house = House::new();
    let policy = house.path().join("policy.toml");
    std::fs::write(&policy, "[[rule]]\nname = = 5\n").expect("written");
    let doctor = |arguments: &[&str]| {
        let mut doctor = house.command("a", arguments);
        said(doctor.env("LOCKKEEPER_POLICY", &policy).output().expect("the program runs"))
    };
    let told = doctor(&["doctor"]);
    assert_eq!(told.code, 1, "{told:?}");
    for line in ["BAD to serve", "BAD policy", "BAD service"] {
        assert!(told.out.lines().any(|said| said.starts_with(line)), "{line}: {told:?}");
    }
    assert!(!told.out.contains("mend: mend") && told.out.contains("policy.toml: line 2: "), "{told:?}");
    let known = |line: &str| ["ok  ", "BAD ", "                mend: "].iter().any(|begin| line.starts_with(begin));
    assert!(told.out.lines().all(known), "{told:?}");
    // One that runs goes on with the policy before.
    std::fs::write(&policy, "").expect("written");
    assert_eq!(doctor(&["lock", "list"]).code, 0);
    std::fs::write(&policy, "[[rule]]\nname = = 5\n").expect("written");
    let told = doctor(&["doctor"]);
    assert!(told.out.contains("BAD to serve") && told.out.contains("ok  service"), "{told:?}");
    let reload = doctor(&["policy", "reload"]);
    assert!(reload.code == 2 && reload.err.lines().count() == 1, "{reload:?}");
    assert!(reload.err.ends_with(". The policy before stays in force.\n"), "{reload:?}");
}

#[test]
fn whoever_waits_to_restore_is_told_for_how_long_each_is_waited_for() {
    let house = House::new();
    house.json("a", &["lock", "acquire", "f", "--ttl", "1s"]);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(house.say("b", &["lock", "acquire", "f"]).code, 0);
    let told = finish(house.start("a", &["session", "restore", "--wait", "1s"]));
    assert!(told.err.contains("for up to 1 s;"), "{told:?}");
}

#[test]
fn tools_use_the_ttl_that_the_user_has_set() {
    let house = House::new();
    let set = house.say("a", &["config", "set", "--user", "lock.default_ttl", "2m"]);
    assert_eq!(set.code, 0, "{set:?}");
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": { "name": "agent", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "acquire_lock",
            "arguments": { "file_path": "f", "intention": "work" } } }),
    ];
    let mut server = house.command("a", &["mcp"]);
    let mut server =
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let mut input = server.stdin.take().expect("an input");
    for line in lines {
        std::io::Write::write_all(&mut input, format!("{line}\n").as_bytes()).expect("written");
    }
    let lock = crate::house::wait_for("the lock", || {
        let list = house.json("b", &["lock", "list"]);
        list["locks"].get(0).cloned()
    });
    assert_eq!(lock["ttl_ms"], 120_000, "{lock}");
    drop(input);
    finish(server);
}

#[test]
fn a_home_that_can_not_be_written_to_is_bad() {
    // Root may write everywhere but to a file system that nobody may write to.
    let house = House::new();
    let locked = house.path().join("locked");
    std::fs::create_dir(&locked).expect("made");
    let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(&locked).status().expect("mount runs");
    assert!(mount(&["-t", "tmpfs", "-o", "ro,mode=0700", "lockkeeper-test"]).success(), "this test must run as root");
    let home = locked.join("home");
    let in_home = |arguments: &[&str]| {
        let mut command = house.command("a", arguments);
        said(command.env("LOCKKEEPER_HOME", &home).output().expect("the program runs"))
    };
    let (doctor, list) = (in_home(&["doctor"]), in_home(&["lock", "list"]));
    Command::new("umount").arg(&locked).status().expect("umount runs");
    assert!(doctor.code == 1 && doctor.out.contains("BAD home"), "{doctor:?}");
    assert!(list.code == 3 && list.err.contains(&home.display().to_string()), "{list:?}");
}

#[test]
fn a_home_in_which_no_service_starts_is_no_place_to_serve_from() {
    use std::os::unix::fs::PermissionsExt;
    let house = House::new();
    std::fs::create_dir(house.home()).expect("a folder");
    std::fs::set_permissions(house.home(), std::fs::Permissions::from_mode(0o755)).expect("open to others");
    let doctor = house.say("a", &["doctor"]);
    for line in ["BAD to serve", "BAD home", "BAD service"] {
        assert!(doctor.code == 1 && doctor.out.contains(line), "{doctor:?}");
    }
    assert_eq!(house.say("a", &["lock", "list"]).code, 3);
}

#[test]
fn whoever_closes_a_session_that_is_not_there_is_told() {
    let house = House::new();
    house.json("agent-1", &["lock", "acquire", "x"]);
    let slip = house.say("looker", &["session", "close", "--session", "agent-l"]);
    assert!(slip.code == 0 && slip.err.contains("There was no session agent-l"), "{slip:?}");
    assert_eq!(house.held(), ["agent-1 x"]);
    let json = house.say("looker", &["--json", "session", "close", "--session", "agent-l"]);
    assert!(json.code == 0 && json.err.is_empty(), "{json:?}");
    let closed = house.say("agent-1", &["session", "close"]);
    assert!(closed.code == 0 && closed.err.is_empty() && closed.out.contains("Released x"), "{closed:?}");
    assert!(house.say("agent-1", &["session", "close"]).err.contains("There was no session agent-1"));
    // What has been there without a lock was there.
    for opened in [&["session", "open"][..], &["room", "open", "x"], &["ports", "allocate"]] {
        assert_eq!(house.say("b", opened).code, 0);
        let closed = house.say("b", &["session", "close"]);
        assert!(closed.code == 0 && closed.err.is_empty(), "{opened:?}: {closed:?}");
    }
}
