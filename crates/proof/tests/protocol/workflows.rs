//! The document's own examples, by the letter, side by side with ours on one ledger.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use lockkeeper_proof::{Profile, Sequence};
use serde_json::{Value, json};

use crate::desk::{Proof, clock, deep, event, node, owner, set_clock};

/// `acquireLedgerLock` of the document, with a longer timeout.
fn acquire_ledger_lock(ledger: &Path, agent_id: &str, timeout: Duration) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(ledger.join("ledger.lock"));
        if let Ok(mut file) = file {
            let meta = json!({ "agent_id": agent_id, "acquired_at": Timestamp::now().to_string() });
            writeln!(file, "{meta}")?;
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("timeout waiting for lock"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn count_events(ledger: &Path) -> usize {
    let names = std::fs::read_dir(ledger).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("event-")).count()
}

/// One write by the document: the lock, the number by counting, a temporary file, a rename that would replace.
fn add_event(ledger: &Path, writer: &str, number: u64) {
    acquire_ledger_lock(ledger, writer, Duration::from_secs(60)).unwrap();
    let next = count_events(ledger) + 1;
    let temporary = ledger.join(format!(".event-{writer}.tmp"));
    std::fs::write(&temporary, json!({ "type": "custom_event", "writer": writer, "n": number }).to_string()).unwrap();
    std::fs::File::open(&temporary).unwrap().sync_all().unwrap();
    std::fs::rename(&temporary, ledger.join(format!("event-{next:06}.json"))).unwrap();
    std::fs::remove_file(ledger.join("ledger.lock")).unwrap();
}

/// `isNodeClaimed` of the document.
fn is_node_claimed(ledger: &Path, node: &str) -> Option<String> {
    let mut locks: HashMap<String, (String, Timestamp)> = HashMap::new();
    for number in 1..=count_events(ledger) {
        let text = std::fs::read_to_string(ledger.join(format!("event-{number:06}.json"))).unwrap();
        let event: Value = serde_json::from_str(&text).unwrap();
        let of = |field: &str| event[field].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "lock_acquired" => {
                locks.insert(of("node_id"), (of("owner"), of("expires_at").parse().unwrap()));
            }
            "lock_released" | "lock_reaped" => {
                locks.remove(&of("node_id"));
            }
            _ => {}
        }
    }
    let (owner, expires_at) = locks.remove(node)?;
    (clock() < expires_at).then_some(owner)
}

#[test]
fn the_documents_examples_and_ours_write_one_ledger_without_a_lost_or_doubled_event() {
    let proof = Proof::new(Profile::Doc);
    let rounds: u64 = if deep() { 100 } else { 12 };
    let (ledger_folder, path) = (proof.ledger_folder(), proof.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/add-event.sh");
    let (guests, ours) = (AtomicU64::new(2), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                let status = Command::new("bash").arg(&script).env("PROOF_DIR", &path).status().unwrap();
                assert!(status.success());
            }
            guests.fetch_sub(1, Ordering::SeqCst);
        });
        scope.spawn(|| {
            for number in 1..=rounds {
                add_event(&ledger_folder, "go", number);
            }
            guests.fetch_sub(1, Ordering::SeqCst);
        });
        for writer in ["one", "two"] {
            let (proof, guests, ours) = (&proof, &guests, &ours);
            scope.spawn(move || {
                let ledger = proof.open();
                // As fast as they can, until the guests have got what they came for.
                for number in 1.. {
                    ledger.append(&event(Profile::Doc, writer, number)).unwrap();
                    ours.fetch_add(1, Ordering::SeqCst);
                    if guests.load(Ordering::SeqCst) == 0 {
                        break;
                    }
                }
            });
        }
    });
    proof.assert_sound();
    let mut each: HashMap<String, u64> = HashMap::new();
    for event in proof.open().events_after(Sequence(0)) {
        let event: Value = serde_json::from_str(&event.unwrap().json).unwrap();
        let count = each.entry(event["writer"].as_str().unwrap_or("shell").to_owned()).or_default();
        *count += 1;
        assert!(event["n"].is_null() || event["n"].as_u64() == Some(*count), "each once and in order");
    }
    assert_eq!((each["shell"], each["go"]), (rounds, rounds));
    assert_eq!(each["one"] + each["two"], ours.load(Ordering::SeqCst));
}

#[test]
fn whoever_reads_claims_by_the_document_sees_what_we_see() {
    let proof = Proof::new(Profile::Doc);
    let (ledger, folder) = (proof.open(), proof.ledger_folder());
    let minute = Some(Duration::from_secs(60));
    let agree = |owner: Option<&str>| {
        assert_eq!(is_node_claimed(&folder, "1.2"), owner.map(str::to_owned));
        let claims = ledger.claims().unwrap();
        let ours = claims.get(&node("1.2")).filter(|claim| claim.is_active(clock())).map(|claim| claim.owner.as_str());
        assert_eq!(ours, owner);
    };
    set_clock(0);
    agree(None);
    ledger.claim(&node("1.2"), &owner("ada"), minute).unwrap();
    agree(Some("ada"));
    set_clock(50);
    ledger.refresh(&node("1.2"), &owner("ada"), minute).unwrap();
    set_clock(100);
    agree(Some("ada"));
    set_clock(120);
    agree(None);
    ledger.claim(&node("1.2"), &owner("bob"), minute).unwrap();
    // Late, and so without effect on anybody.
    ledger.release(&node("1.2"), &owner("ada")).unwrap_err();
    agree(Some("bob"));
    ledger.release(&node("1.2"), &owner("bob")).unwrap();
    agree(None);
    ledger.claim(&node("1.2"), &owner("eve"), minute).unwrap();
    set_clock(300);
    ledger.reap().unwrap();
    set_clock(0);
    agree(None);
}
