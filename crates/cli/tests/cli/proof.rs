//! Proofs from the command line.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::house::{House, Said, wait_for};

struct Desk {
    house: House,
    dir: String,
}

impl Desk {
    fn new(profile: &str) -> Desk {
        let house = House::new();
        let dir = house.path().join("sqrt2").display().to_string();
        assert_eq!(house.say("a", &["proof", "init", &dir, "--profile", profile]).code, 0);
        Desk { house, dir }
    }

    fn say(&self, verb: &str, more: &[&str]) -> Said {
        let mut words = vec!["proof", verb, &self.dir];
        words.extend(more);
        self.house.say("a", &words)
    }

    fn json(&self, verb: &str, more: &[&str]) -> (i32, Value) {
        let mut words = vec!["--json", "proof", verb, &self.dir];
        words.extend(more);
        let said = self.house.say("a", &words);
        (said.code, serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}")))
    }

    fn lock_file(&self) -> PathBuf {
        PathBuf::from(&self.dir).join("ledger/ledger.lock")
    }
}

#[test]
fn a_node_is_claimed_by_one_and_every_no_has_its_exit_code() {
    for profile in ["doc", "af"] {
        let desk = Desk::new(profile);
        let (code, claim) = desk.json("claim", &["1.2", "--owner", "ada", "--timeout", "5m"]);
        assert!(code == 0 && claim["node_id"] == "1.2" && claim["expired"] == false, "{claim}");
        let taken = desk.say("claim", &["1.2", "--owner", "bob"]);
        assert_eq!(taken.code, 5, "{taken:?}");
        for part in ["node already locked", "ada", "until", "Hint:"] {
            assert!(taken.err.contains(part), "{part}: {taken:?}");
        }
        assert_eq!(desk.say("release", &["1.2", "--owner", "bob"]).code, 4);
        assert_eq!(desk.say("refresh", &["1.2", "--owner", "bob"]).code, 4);
        assert_eq!(desk.say("release", &["1.3", "--owner", "ada"]).code, 4);
        assert_eq!(desk.say("claim", &["1..2", "--owner", "ada"]).code, 2);
        assert_eq!(desk.say("claim", &["1.4", "--owner", "ada", "--timeout", "2h"]).code, 2);
        assert_eq!(desk.say("refresh", &["1.2", "--owner", "ada", "--timeout", "1h"]).code, 0);
        let (_, list) = desk.json("claims", &[]);
        assert!(list["total"] == 1 && list["claims"][0]["owner"] == "ada", "{list}");
        assert!(desk.say("claims", &[]).out.contains("ada"));
        assert_eq!(desk.say("release", &["1.2", "--owner", "ada"]).code, 0);
        assert!(desk.say("claims", &[]).out.contains("Nothing is claimed."));
        let (code, found) = desk.json("verify", &[]);
        assert!(code == 0 && found["success"] == true && found["events"] == 3, "{found}");
    }
}

#[test]
fn what_was_written_though_something_failed_afterwards_does_not_look_like_nothing_written() {
    let desk = Desk::new("doc");
    // The file of the claim can't be put where a folder is.
    std::fs::create_dir_all(format!("{}/locks/1.2.lock/x", desk.dir)).unwrap();
    let (code, body) = desk.json("claim", &["1.2", "--owner", "ada"]);
    assert_eq!((code, &body["error"], &body["sequence"]), (3, &"outcome_unknown".into(), &1.into()), "{body}");
    assert_eq!(desk.say("claim", &["1.3", "--owner", "ada"]).code, 0);
    // A link in place of the folder is not followed: nothing is written, inside or outside.
    let desk = Desk::new("doc");
    let elsewhere = desk.house.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, format!("{}/locks", desk.dir)).unwrap();
    assert_eq!(desk.say("claim", &["1.2", "--owner", "ada"]).code, 1);
    let (_, status) = desk.json("status", &[]);
    assert!(status["sequence"] == 0 && std::fs::read_dir(&elsewhere).unwrap().next().is_none(), "{status}");
}

#[test]
fn an_event_is_appended_if_the_ledger_is_where_it_was_seen() {
    let desk = Desk::new("doc");
    let event = r#"{"type":"note","text":"began"}"#;
    assert_eq!(desk.json("append", &["--json-event", event, "--expect", "0"]).1["sequence"], 1);
    let (code, no) = desk.json("append", &["--json-event", event, "--expect", "0"]);
    assert!(code == 5 && no["error"] == "sequence_mismatch", "{no}");
    assert!(no["message"].as_str().unwrap().contains("ErrSequenceMismatch"), "{no}");
    assert_eq!(desk.say("append", &["--json-event", "{"]).code, 2);
    assert_eq!(desk.json("log", &[]).1["events"][0]["event"]["text"], "began");
    assert!(desk.say("log", &["--after", "1"]).out.contains("No events."));
    let (_, status) = desk.json("status", &[]);
    assert!(status["profile"] == "doc" && status["sequence"] == 1 && status["lock"]["state"] == "free", "{status}");
    // The other profile's events do not get in.
    let af = Desk::new("af");
    assert_eq!(af.say("append", &["--json-event", event]).code, 2);
    assert_eq!(af.say("status", &["--profile", "doc"]).code, 2);
    assert_eq!(af.house.say("a", &["proof", "init", &af.dir, "--profile", "doc"]).code, 2);
}

#[test]
fn a_lock_that_proves_nothing_is_waited_for_and_removed_only_by_word() {
    let desk = Desk::new("doc");
    std::fs::create_dir(desk.lock_file()).unwrap();
    let event = ["--json-event", r#"{"type":"note"}"#, "--lock-timeout", "100ms"];
    let busy = desk.say("append", &event);
    assert!(busy.code == 5 && busy.err.contains("timeout waiting for lock"), "{busy:?}");
    assert!(desk.say("status", &[]).out.contains("is a folder"));
    assert_eq!(desk.say("recover", &[]).code, 5);
    assert_eq!(desk.say("recover", &["--holder-is-dead"]).code, 5, "it is too young");
    assert!(desk.lock_file().exists());
    assert_eq!(desk.say("recover", &["--holder-is-dead", "--older-than", "0s"]).code, 0);
    assert_eq!(desk.say("append", &event).code, 0);
    std::fs::remove_file(PathBuf::from(&desk.dir).join("ledger/event-000001.json")).unwrap();
    std::fs::write(PathBuf::from(&desk.dir).join("ledger/event-000002.json"), "{").unwrap();
    let (code, found) = desk.json("verify", &[]);
    let problems: Vec<&str> =
        found["findings"].as_array().unwrap().iter().filter_map(|one| one["problem"].as_str()).collect();
    assert!(code == 1 && problems == ["gap", "bad_event"], "{found}");
    assert_eq!(desk.say("claims", &[]).code, 1);
    assert_eq!(desk.house.say("a", &["proof", "status", "/nowhere"]).code, 4);
}

#[test]
fn what_is_expired_is_reaped_and_whoever_watches_sees_it() {
    let desk = Desk::new("af");
    let mut command = desk.house.command("a", &["--json", "proof", "watch", &desk.dir, "--after", "0", "--count", "2"]);
    let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
    let over = r#"{"type":"nodes_claimed","node_ids":["1"],"owner":"ada","timeout":"2024-01-15T10:35:00Z"}"#;
    assert_eq!(desk.say("append", &["--json-event", over]).code, 0);
    assert_eq!(desk.say("claim", &["1", "--owner", "bob"]).code, 5, "the program takes it for taken");
    assert_eq!(desk.json("claims", &[]).1["claims"][0]["expired"], true, "what keeps others out is listed");
    assert_eq!(desk.say("claim", &["1", "--owner", "bi\u{202e}di"]).code, 2);
    assert_eq!(desk.json("reap", &["--dry-run"]).1["claims"][0]["owner"], "ada");
    assert_eq!(desk.json("status", &[]).1["sequence"], 1);
    assert_eq!(desk.json("reap", &[]).1["events"], serde_json::json!([2]));
    assert!(desk.say("reap", &[]).out.contains("Nothing is expired."));
    let lines: Vec<String> = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(watch.wait().unwrap().success());
    assert!(lines.len() == 2 && lines[1].contains("nodes_released"), "{lines:?}");
}

#[test]
fn claims_of_proofs_that_the_user_names_are_listed_beside_the_locks_and_only_shown() {
    let desk = Desk::new("doc");
    assert_eq!(desk.say("claim", &["1.2", "--owner", "prover-1"]).code, 0);
    let settings = format!("[proof]\ndirectories = [\"{}\", \"/nowhere\"]\n", desk.dir);
    let folder = desk.house.path().join("config/lockkeeper");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("lockkeeper.toml"), settings).unwrap();
    let list = wait_for("the claim", || {
        let list = desk.house.json("a", &["lock", "list"]);
        list["outside"].is_array().then_some(list)
    });
    let held = &list["outside"][0];
    assert_eq!(held["key"], format!("proof:{}:1.2", desk.dir));
    assert!(held["owner"] == "prover-1" && held["read_only"] == true && list["total"] == 0, "{list}");
    assert!(list["outside_problems"][0].as_str().unwrap().contains("/nowhere"), "{list}");
    assert!(desk.house.say("a", &["lock", "list"]).out.contains("read-only: proof:"));
    assert_eq!(
        desk.house.say("a", &["lock", "acquire", held["key"].as_str().unwrap()]).code,
        2,
        "it is no key of ours"
    );
    assert_eq!(desk.say("release", &["1.2", "--owner", "prover-1"]).code, 0);
    assert!(desk.house.json("a", &["lock", "list"])["outside"].is_null(), "what was released is gone");
    // Another folder of the same name, with as many events and more.
    std::fs::rename(&desk.dir, desk.house.path().join("old")).unwrap();
    assert_eq!(desk.say("init", &["--profile", "doc"]).code, 0);
    for number in 1..=1_001 {
        let text = format!(
            r#"{{"type":"lock_acquired","node_id":"1.{number}","owner":"eve","expires_at":"2999-01-01T00:00:00Z"}}"#
        );
        std::fs::write(format!("{}/ledger/event-{number:06}.json", desk.dir), text).unwrap();
    }
    let list = desk.house.json("a", &["lock", "list"]);
    assert_eq!(list["outside"].as_array().map(Vec::len), Some(1_000), "{:?}", list["outside_problems"]);
    assert!(list["outside_problems"].to_string().contains("1000 of 1001"), "{}", list["outside_problems"]);
    // A repository must not make the service read folders.
    let file = desk.house.repository().join("lockkeeper.toml");
    std::fs::write(&file, "[proof]\ndirectories = [\"/etc\"]\n").unwrap();
    assert_eq!(desk.house.say("a", &["lock", "list"]).code, 2);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_is_no_object_is_no_event() {
    let house = House::new();
    let proof = house.path().join("proof").display().to_string();
    assert_eq!(house.say("a", &["proof", "init", &proof, "--profile", "doc"]).code, 0);
    for event in ["[]", "[\"note\", null]", "5", "", "null"] {
        let said = house.say("a", &["proof", "append", &proof, "--json-event", event]);
        assert!(said.code == 2 && said.err.contains("an event is a JSON object with a type"), "{event}: {said:?}");
    }
}

#[test]
fn a_claim_of_five_minutes_is_said_to_be_one() {
    let house = House::new();
    let proof = house.path().join("proof").display().to_string();
    assert_eq!(house.say("a", &["proof", "init", &proof, "--profile", "doc"]).code, 0);
    let said = house.say("a", &["proof", "claim", &proof, "1", "--owner", "p", "--timeout", "5m"]);
    assert!(said.out.contains(" for 5 min (until"), "{said:?}");
}
