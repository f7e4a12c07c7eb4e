//! Processes that end in the middle of something, and disks that fail: what was acknowledged is there afterwards.
//!
//! The processes are this same program again: each test here is also the process that it watches, when it finds
//! itself started with a part to play.

mod desk;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use desk::{open_sound, records};
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Base, Confirm, Durable, Position};

const PART: &str = "LOCKKEEPER_TEST_PART";
const ROOT: &str = "LOCKKEEPER_TEST_ROOT";

/// Starts a test of this program as a process of its own that plays a part.
fn start(test: &str, part: &str, root: &Path, variable: &str, value: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture", test])
        .env(PART, part)
        .env(ROOT, root)
        .env(variable, value)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

/// Plays the part that this process was started for; false if it is the one that watches.
async fn plays_a_part() -> bool {
    let Ok(part) = std::env::var(PART) else { return false };
    let root = PathBuf::from(std::env::var_os(ROOT).expect("comes with the part"));
    let scribe = open_sound(&root).await;
    match part.as_str() {
        "works" => works(scribe).await,
        "fifth sync fails" => fifth_sync_fails(scribe).await,
        "third write fails" => third_write_fails(scribe).await,
        "snapshot fails" => snapshot_fails(scribe).await,
        other => panic!("nobody plays {other}"),
    }
    true
}

/// The number in a line such as `durable 17`.
fn number(line: &str, word: &str) -> Option<u64> {
    line.strip_prefix(word)?.trim().parse().ok()
}

fn last_number(lines: &[String], word: &str) -> u64 {
    lines.iter().filter_map(|line| number(line, word)).max().unwrap_or(0)
}

/// A payload that a reader can check by its revision alone.
fn payload(revision: u64) -> Vec<u8> {
    vec![revision as u8; 1 + (revision as usize * 7919) % 20_000]
}

async fn works(mut scribe: Scribe) {
    println!();
    for revision in 1..=400 {
        scribe.append(&payload(revision)).await;
        println!("ordered {revision}");
        if revision % 10 == 0 {
            scribe.wait_durable().await;
            println!("durable {revision}");
        }
        if revision % 90 == 0 {
            scribe.ledger.compact(scribe.at, revision.to_le_bytes().to_vec()).await.expect("compacts");
            println!("compacted {revision}");
        }
    }
    scribe.wait_durable().await;
    println!("finished");
}

/// Everything up to some revision is there, unharmed, and that is no less than was acknowledged.
async fn holds_what_was_told(root: &Path, lines: &[String], what: &str) {
    let scribe = open_sound(root).await;
    let delta = scribe.read(Position::ORIGIN).await;
    let from = match &delta.base {
        Base::Asked => 0,
        Base::Snapshot { position, snapshot } => {
            assert_eq!(*snapshot, position.revision.to_le_bytes(), "{what}");
            position.revision
        }
        Base::Rewritten { .. } => panic!("{what}: nobody's past was lost"),
    };
    for (record, revision) in delta.records.iter().zip(from + 1..) {
        assert_eq!(record.position.revision, revision, "{what}");
        assert_eq!(record.payload, payload(revision), "{what}");
    }
    let end = from + delta.records.len() as u64;
    let told = last_number(lines, "ordered ");
    assert!(end >= told, "{what}: {told} were acknowledged, {end} are there");
    assert!(from >= last_number(lines, "compacted "), "{what}: a snapshot was acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_moment_a_process_crashes_at_nothing_acknowledged_is_lost() {
    if plays_a_part().await {
        return;
    }
    let test = "whatever_moment_a_process_crashes_at_nothing_acknowledged_is_lost";
    for point in [
        "create-before-rename",
        "append-before-write:200",
        "append-after-write:200",
        "append-before-sync:30",
        "append-after-sync:30",
        "spare-before-rename",
        "spare-before-rename:2",
        "snapshot-before-sync",
        "snapshot-before-rename:2",
        "snapshot-before-directory-sync:2",
        "compact-before-delete:2",
        "compact-between-deletes",
        "compact-between-deletes:2",
    ] {
        let root = tempfile::tempdir().expect("a directory");
        let mut child = start(test, "works", root.path(), "LOCKKEEPER_CRASH_AT", point);
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let lines: Vec<String> = out.lines().map(|line| line.expect("text")).collect();
        let ended = child.wait().expect("ends");
        assert_eq!(ended.code(), None, "{point}: the process must die there, or the point is not where it was");
        assert!(!lines.contains(&"finished".to_owned()), "{point}");
        holds_what_was_told(root.path(), &lines, point).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_while_a_torn_end_is_cut_leaves_it_to_the_next_opening() {
    if plays_a_part().await {
        return;
    }
    let test = "a_crash_while_a_torn_end_is_cut_leaves_it_to_the_next_opening";
    let root = tempfile::tempdir().expect("a directory");
    let mut scribe = open_sound(root.path()).await;
    for revision in 1..=5 {
        scribe.append(&payload(revision)).await;
    }
    let Scribe { ledger, written, .. } = scribe;
    drop(ledger);
    let log = desk::logs(root.path()).remove(0);
    let mut bytes = fs::read(&log).expect("readable");
    let end = bytes.iter().rposition(|&byte| byte != 0).expect("records");
    bytes[end] ^= 1;
    fs::write(&log, bytes).expect("written");
    for point in ["recovery-before-cut", "recovery-after-cut"] {
        let output = start(test, "works", root.path(), "LOCKKEEPER_CRASH_AT", point).wait_with_output();
        assert_eq!(output.expect("ends").status.code(), None, "{point}: the process must die there");
    }
    assert_eq!(records(&open_sound(root.path()).await).await, written[..4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_the_directory_free_and_all_it_acknowledged_there() {
    if plays_a_part().await {
        return;
    }
    let test = "a_killed_process_leaves_the_directory_free_and_all_it_acknowledged_there";
    for kill_after in [1, 57, 205] {
        let root = tempfile::tempdir().expect("a directory");
        let mut child = start(test, "works", root.path(), "LOCKKEEPER_CRASH_AT", "nowhere");
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            lines.push(line.expect("text"));
            if last_number(&lines[lines.len() - 1..], "ordered ") == kill_after {
                let refusal = desk::open_engine(root.path()).expect_err("the process holds it");
                assert!(refusal.to_string().contains(&format!("pid {}", child.id())), "{refusal}");
                child.kill().expect("killed");
            }
        }
        child.wait().expect("ends");
        assert!(last_number(&lines, "ordered ") >= kill_after);
        holds_what_was_told(root.path(), &lines, "killed").await;
    }
}

async fn takes_nothing_more(scribe: &mut Scribe) {
    let mut durable = scribe.ledger.durable();
    let failed = durable.wait_for(|durable| matches!(durable, Durable::Failed(_)));
    let failed = tokio::time::timeout(Duration::from_secs(10), failed).await;
    println!("{:?}", *failed.expect("is told, for good").expect("the ledger lives"));
    for _ in 0..3 {
        let Append::Down(error) = scribe.try_append(b"more").await else { panic!("taken after a failure") };
        assert!(error.to_string().starts_with("stopped"), "{error}");
    }
    assert!(matches!(scribe.ledger.confirm(scribe.at).await, Confirm::Down(_)));
    scribe.ledger.read(Position::ORIGIN).await.expect_err("nobody knows what is on the disk");
    scribe.ledger.compact(scribe.at, b"state".to_vec()).await.expect_err("stopped");
}

async fn fifth_sync_fails(mut scribe: Scribe) {
    for number in 1..=4 {
        scribe.append(&[number]).await;
        scribe.wait_durable().await;
    }
    assert!(!scribe.append(b"not durable").await.durable);
    takes_nothing_more(&mut scribe).await;
    assert_eq!(scribe.at.revision, 5);
}

async fn third_write_fails(mut scribe: Scribe) {
    scribe.append(b"one").await;
    scribe.append(b"two").await;
    let Append::Unknown(_) = scribe.try_append(b"three").await else { panic!("a failed write is told") };
    takes_nothing_more(&mut scribe).await;
}

async fn snapshot_fails(mut scribe: Scribe) {
    scribe.append(b"one").await;
    scribe.ledger.compact(scribe.at, b"state".to_vec()).await.expect_err("its sync failed");
    scribe.append(b"the log itself is sound").await;
    assert_eq!(records(&scribe).await, scribe.written);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_disk_stops_the_ledger_for_good_and_what_was_durable_stays() {
    if plays_a_part().await {
        return;
    }
    let test = "a_failed_disk_stops_the_ledger_for_good_and_what_was_durable_stays";
    for (part, point, least) in
        [("fifth sync fails", "sync:5", 4), ("third write fails", "write:3", 2), ("snapshot fails", "snapshot-sync", 2)]
    {
        let root = tempfile::tempdir().expect("a directory");
        let child = start(test, part, root.path(), "LOCKKEEPER_FAIL_AT", point);
        let output = child.wait_with_output().expect("ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{part}: {text}");
        assert!(records(&open_sound(root.path()).await).await.len() >= least, "{part}");
    }
}

/// A place that nobody crashes at, or a name that was mistyped, would prove nothing.
#[test]
fn every_named_place_of_the_engine_is_crashed_or_failed_at() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/embedded");
    let sources = fs::read_dir(folder).expect("sources").map(|entry| entry.expect("an entry").path());
    let text: String = sources.map(|path| fs::read_to_string(path).expect("text")).collect();
    let named = |call: &str| -> Vec<String> {
        let behind = text.split(call).skip(1);
        behind.filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect()
    };
    let places = [named("crash_point(\""), named("fault_point(\"")].concat();
    assert!(places.len() >= 16, "{places:?}");
    let tests = include_str!("crash.rs");
    for place in places {
        let there = [format!("\"{place}\""), format!("\"{place}:")].iter().any(|name| tests.contains(name));
        assert!(there, "nothing crashes or fails at {place}");
    }
}
