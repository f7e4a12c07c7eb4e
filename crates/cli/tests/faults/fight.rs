//! Many processes fight for one key: one at a time is inside, and everybody gets their turn in the order of the queue.
//!
//! The processes are this same program again: each test here is also the fighter that it starts, when it finds itself
//! started with a part to play.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::house::House;
use crate::service::{Line, Service, deep, send};

const FIGHTERS: usize = 64;
const PART: &str = "LOCKKEEPER_TEST_PART";
const FOLDER: &str = "LOCKKEEPER_TEST_FOLDER";
const SOCKET: &str = "LOCKKEEPER_TEST_SOCKET";

fn start(test: &str, part: &str, folder: &Path, socket: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(PART, part).env(FOLDER, folder).env(SOCKET, socket);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("starts")
}

/// The part that this process was started for; none if it is the one that watches.
fn part() -> Option<(String, PathBuf, Line)> {
    let part = std::env::var(PART).ok()?;
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("comes with the part"));
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("comes with the part"));
    Some((part, folder, Line::connect(&socket).expect("a connection")))
}

fn acquire(line: &mut Line, session: &str, ttl_ms: u64) -> u64 {
    let body = json!({ "session_id": session, "file_path": "ring", "ttl_ms": ttl_ms, "wait_ms": 600_000 });
    let (status, answer) = line.ask("locks/acquire", body).expect("an answer");
    assert_eq!(status, 200, "{answer}");
    answer["fencing_token"].as_u64().expect("a token")
}

/// Goes in and out this many times. What is inside only works for one.
fn fight(line: &mut Line, session: &str, folder: &Path, turns: u64) {
    let (inside, counter) = (folder.join("inside"), folder.join("counter"));
    for _ in 0..turns {
        acquire(line, session, 60_000);
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

/// Something that a lock protects. If it checks tokens, it takes none below the greatest that it has seen.
struct Resource {
    path: PathBuf,
    checks: bool,
}

impl Resource {
    fn write(&self, token: u64, author: &str) -> bool {
        let mut file =
            File::options().create(true).truncate(false).read(true).append(true).open(&self.path).expect("opens");
        file.lock().expect("locked");
        let written = fs::read_to_string(&self.path).expect("a text");
        if self.checks && tokens(&written).any(|seen| seen > token) {
            return false;
        }
        writeln!(file, "{token} {author}").expect("written");
        true
    }
}

fn tokens(written: &str) -> impl Iterator<Item = u64> + '_ {
    written.lines().filter_map(|line| line.split_once(' ')?.0.parse().ok())
}

/// Takes the lock, falls asleep, and writes when it wakes up, none the wiser.
fn sleeper(line: &mut Line, folder: &Path) {
    let checks = folder.join("checks").exists();
    let token = acquire(line, "sleeper", 1000);
    println!("\nhave {token}");
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).expect("a word");
    let resource = Resource { path: folder.join("resource"), checks };
    println!("wrote {}", resource.write(token, "sleeper"));
}

#[test]
fn a_paused_holders_stale_write_gets_in_only_where_no_token_is_checked() {
    let test = "fight::a_paused_holders_stale_write_gets_in_only_where_no_token_is_checked";
    if let Some((_, folder, mut line)) = part() {
        return sleeper(&mut line, &folder);
    }
    let house = House::new();
    let service = Service::start(&house);
    for checks in [true, false] {
        let folder = house.path().join(format!("{checks}"));
        fs::create_dir(&folder).expect("a folder");
        if checks {
            fs::write(folder.join("checks"), "").expect("written");
        }
        let mut child = start(test, "sleeper", &folder, service.socket());
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let stale: u64 = said.find_map(|line| line.strip_prefix("have ")?.parse().ok()).expect("a lock");
        send(child.id(), Signal::STOP);
        let asked = Instant::now();
        let mut line = service.line();
        let token = acquire(&mut line, "other", 60_000);
        assert!(token > stale, "{token} after {stale}");
        assert!(asked.elapsed() < Duration::from_secs(4), "freed late: {:?}", asked.elapsed());
        assert!(Resource { path: folder.join("resource"), checks }.write(token, "other"));
        child.stdin.take().expect("piped").write_all(b"go\n").expect("written");
        send(child.id(), Signal::CONT);
        let wrote = said.find_map(|line| line.strip_prefix("wrote ").map(|wrote| wrote == "true")).expect("a word");
        assert!(child.wait().expect("ends").success());
        let written = fs::read_to_string(folder.join("resource")).expect("a text");
        let overlaps = !tokens(&written).is_sorted();
        // Without the check the overlap is there: this test is able to see one.
        assert_eq!((wrote, overlaps), (!checks, !checks), "{written}");
        line.ask("locks/release", json!({ "session_id": "other", "file_path": "ring" })).expect("an answer");
    }
}
