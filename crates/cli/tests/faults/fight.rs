//! Many processes fight for one key: one at a time is inside, and everybody gets their turn in the order of the queue.
//!
//! The processes are this same program again: each test here is also the fighter that it starts, when it finds itself
//! started with a part to play.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::house::House;
use crate::service::{Line, Service, deep};

const FIGHTERS: usize = 64;
const PART: &str = "LOCKKEEPER_TEST_PART";
const FOLDER: &str = "LOCKKEEPER_TEST_FOLDER";
const SOCKET: &str = "LOCKKEEPER_TEST_SOCKET";

pub(crate) fn start(test: &str, part: &str, folder: &Path, socket: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(PART, part).env(FOLDER, folder).env(SOCKET, socket);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("starts")
}

/// The part that this process was started for; none if it is the one that watches.
pub(crate) fn part() -> Option<(String, PathBuf, Line)> {
    let part = std::env::var(PART).ok()?;
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("comes with the part"));
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("comes with the part"));
    Some((part, folder, Line::connect(&socket).expect("a connection")))
}

/// Waits for the lock, and gives back its fencing token.
pub(crate) fn acquire(line: &mut Line, session: &str, key: &str, ttl_ms: u64) -> u64 {
    let body = json!({ "session_id": session, "file_path": key, "ttl_ms": ttl_ms, "wait_ms": 600_000 });
    let (status, answer) = line.ask("locks/acquire", body).expect("an answer");
    assert_eq!(status, 200, "{answer}");
    answer["fencing_token"].as_u64().expect("a token")
}

/// Goes in and out this many times. What is inside only works for one.
fn fight(line: &mut Line, session: &str, folder: &Path, turns: u64) {
    let (inside, counter) = (folder.join("inside"), folder.join("counter"));
    for _ in 0..turns {
        acquire(line, session, "ring", 60_000);
        drop(File::create_new(&inside).expect("nobody else is inside"));
        let count: u64 = fs::read_to_string(&counter).expect("a counter").trim().parse().expect("a number");
        fs::write(&counter, (count + 1).to_string()).expect("written");
        fs::remove_file(&inside).expect("still inside");
        let body = json!({ "session_id": session, "file_path": "ring" });
        assert_eq!(line.ask("locks/release", body).expect("an answer").0, 200);
    }
}

#[test]
fn sixty_four_processes_are_inside_one_at_a_time_and_in_the_order_of_the_queue() {
    let test = "fight::sixty_four_processes_are_inside_one_at_a_time_and_in_the_order_of_the_queue";
    let turns: u64 = if deep() { 157 } else { 20 };
    if let Some((session, folder, mut line)) = part() {
        return fight(&mut line, &session, &folder, turns);
    }
    let house = House::new();
    let service = Service::start(&house);
    fs::write(house.path().join("counter"), "0").expect("written");
    let began = Instant::now();
    let fighters: Vec<Child> =
        (0..FIGHTERS).map(|n| start(test, &format!("f{n}"), house.path(), service.socket())).collect();
    for fighter in fighters {
        let output = fighter.wait_with_output().expect("ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let count = fs::read_to_string(house.path().join("counter")).expect("a counter");
    assert_eq!(count, (FIGHTERS as u64 * turns).to_string(), "nothing was torn");
    println!("{count} turns of {FIGHTERS} processes in {:?}", began.elapsed());
    let (_, history) = service.line().ask("locks/history", json!({ "limit": 100_000 })).expect("a history");
    in_order(history["events"].as_array().expect("a list"), turns);
}

/// Whoever stands first in the queue is next, and nobody comes in beside it.
fn in_order(newest_first: &[Value], turns: u64) {
    let mut queue: VecDeque<&str> = VecDeque::new();
    let mut had: BTreeMap<&str, u64> = BTreeMap::new();
    let mut queued = 0;
    for event in newest_first.iter().rev() {
        let session = event["session_id"].as_str().expect("a session");
        match event["action"].as_str() {
            Some("requested") => {
                queue.push_back(session);
                queued += 1;
            }
            Some("acquired") => {
                assert_eq!(queue.pop_front().unwrap_or(session), session, "the first in the queue is next: {event}");
                *had.entry(session).or_default() += 1;
            }
            _ => {}
        }
    }
    assert_eq!(had.len(), FIGHTERS);
    assert!(had.values().all(|count| *count == turns), "everybody gets their turn: {had:?}");
    assert!(queued > FIGHTERS as u64, "{queued} stood in the queue: that was no fight");
}

#[test]
#[should_panic(expected = "the first in the queue is next")]
fn an_order_in_which_somebody_was_overtaken_is_seen() {
    let story = [("a", "acquired"), ("b", "requested"), ("c", "requested"), ("a", "released"), ("c", "acquired")];
    let events: Vec<Value> =
        story.iter().rev().map(|(session, action)| json!({ "session_id": session, "action": action })).collect();
    in_order(&events, 1);
}
