//! `ledger.lock`: waited for, understood, recovered, and freed only by its holder.

use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper_proof::{Error, Ledger, LockState, Options, Profile, Recovery, Sequence, Verdict, watch_steps};
use rustix::fs::{FlockOperation, flock};

use crate::desk::{Player, Proof, deep, event, options};

/// Puts something where a file should be.
type Makes<'a> = Box<dyn Fn() + 'a>;

/// A part: takes the lock and keeps it until it is told to go, or killed.
pub(crate) fn holds(ledger: &Ledger) {
    let lock = ledger.lock().unwrap();
    println!("\nheld");
    std::io::stdin().lock().lines().next();
    assert!(lock.release().unwrap(), "it was still ours");
}

/// A part: takes the lock again and again, and looks whether anybody else is inside.
pub(crate) fn enters(ledger: &Ledger) {
    let inside = std::fs::File::create(ledger.path().join("inside")).unwrap();
    println!("\nready");
    for _ in 0..40 {
        let lock = ledger.lock().unwrap();
        // The kernel forgets it with its process, so a killed one is not inside any more.
        flock(&inside, FlockOperation::NonBlockingLockExclusive).expect("nobody else is inside");
        std::thread::sleep(Duration::from_micros(200));
        flock(&inside, FlockOperation::Unlock).unwrap();
        assert!(lock.release().unwrap(), "it was still ours");
        println!("entered");
    }
}

fn is_busy(ledger: &Ledger) {
    let error = ledger.append(&event(ledger.profile(), "a", 1)).unwrap_err();
    assert!(error.to_string().starts_with("timeout waiting for lock"), "{error}");
    assert!(matches!(error, Error::LockTimeout { .. }));
}

fn made_long_ago(path: &Path) {
    let status = Command::new("touch").args(["-h", "-d", "2 minutes ago"]).arg(path).status().unwrap();
    assert!(status.success());
}

#[test]
fn the_lock_is_the_documents_file_with_its_mode_and_fields() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    assert_eq!(ledger.lock_state().unwrap(), LockState::Free);
    let lock = ledger.lock().unwrap();
    let file = std::fs::metadata(proof.lock_file()).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(proof.lock_file()).unwrap();
    assert!(text.starts_with(r#"{"agent_id":"lockkeeper","acquired_at":""#) && text.ends_with("}\n"), "{text}");
    assert!(matches!(ledger.lock_state().unwrap(), LockState::Held { life: Verdict::Alive, .. }));
    is_busy(&proof.open_impatient());
    assert!(lock.release().unwrap());
    assert!(!proof.lock_file().exists());
    // A lock that is dropped is freed, too.
    drop(ledger.lock().unwrap());
    proof.assert_sound();
}

#[test]
fn whatever_lies_where_the_lock_is_it_excludes_and_is_understood() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open_impatient();
    let path = &proof.lock_file();
    let foreign = r#"{"agent_id":"append-if-sequence-operation","acquired_at":"2026-11-15T21:54:15.213655654+02:00"}"#;
    let write = |text: &'static str| -> Makes<'_> { Box::new(move || std::fs::write(path, text).unwrap()) };
    let things: [(Makes<'_>, &str); 7] = [
        (write(foreign), "append-if-sequence-operation"),
        (write(""), "is empty"),
        (write("\0\0"), "no lock of this protocol"),
        (Box::new(|| std::fs::create_dir(path).unwrap()), "is a folder"),
        (Box::new(|| std::os::unix::fs::symlink("/etc/passwd", path).unwrap()), "a symbolic link"),
        (Box::new(|| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())), "a pipe"),
        (Box::new(|| std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap()), "a file of"),
    ];
    for (make, said) in things {
        make();
        let asked = Instant::now();
        assert!(ledger.lock_state().unwrap().describe().contains(said), "{said}: {:?}", ledger.lock_state());
        is_busy(&ledger);
        // Nothing proves that somebody is dead: it is kept, young and old, unless somebody says so.
        assert!(matches!(ledger.recover(None).unwrap(), Recovery::Kept { .. }), "{said}");
        let half_a_minute = Some(Duration::from_secs(30));
        if said != "append-if-sequence-operation" {
            assert!(matches!(ledger.recover(half_a_minute).unwrap(), Recovery::Kept { .. }), "{said}");
        }
        made_long_ago(path);
        assert!(matches!(ledger.recover(None).unwrap(), Recovery::Kept { .. }), "{said}");
        assert!(matches!(ledger.recover(half_a_minute).unwrap(), Recovery::Removed { .. }), "{said}");
        assert_eq!(ledger.recover(half_a_minute).unwrap(), Recovery::Free);
        assert!(asked.elapsed() < Duration::from_secs(20), "nothing hangs");
    }
    assert_eq!(ledger.append(&event(Profile::Doc, "a", 1)).unwrap(), Sequence(1));
}

#[test]
fn the_lock_of_a_killed_process_is_recovered_by_whoever_comes_next_and_that_of_a_living_one_never() {
    let proof = Proof::new(Profile::Af);
    let ledger = proof.open_impatient();
    let mut player = Player::start("holds", &proof.path(), &[("PROFILE", "af")]);
    player.hear("held").unwrap();
    made_long_ago(&proof.lock_file());
    is_busy(&ledger);
    let kept = ledger.recover(Some(Duration::ZERO)).unwrap();
    assert!(matches!(&kept, Recovery::Kept { why, .. } if why == "its holder lives"), "{kept:?}");
    player.child.kill().unwrap();
    // Whether its parent has asked for it or not.
    let patient = proof.open();
    assert_eq!(patient.append(&event(Profile::Af, "a", 1)).unwrap(), Sequence(1));
    player.child.wait().unwrap();
    let mut player = Player::start("holds", &proof.path(), &[("PROFILE", "af")]);
    player.hear("held").unwrap();
    player.child.kill().unwrap();
    player.child.wait().unwrap();
    assert!(matches!(ledger.lock_state().unwrap(), LockState::Held { life: Verdict::Dead, .. }));
    assert!(matches!(ledger.recover(None).unwrap(), Recovery::Removed { .. }));
    proof.assert_sound();
}

#[test]
fn only_ones_own_lock_is_freed() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    let lock = ledger.lock().unwrap();
    // Somebody calls us dead and takes it.
    std::fs::remove_file(proof.lock_file()).unwrap();
    std::fs::write(proof.lock_file(), r#"{"agent_id":"other","acquired_at":"2026-11-15T19:54:15Z"}"#).unwrap();
    assert!(!lock.release().unwrap());
    assert!(std::fs::read_to_string(proof.lock_file()).unwrap().contains("other"));
}

#[test]
fn an_error_that_is_not_about_a_lock_that_exists_is_told_at_once() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    // All is well until the lock itself is to be created, in a folder that is gone by then.
    let folder = proof.ledger_folder();
    watch_steps(Some(Box::new(move |step| {
        if step == "create file" {
            std::fs::remove_dir_all(&folder).unwrap();
        }
    })));
    let asked = Instant::now();
    let error = ledger.lock().unwrap_err();
    watch_steps(None);
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound), "{error:?}");
    assert!(asked.elapsed() < Duration::from_secs(1), "the timeout is 60 s");
}

#[test]
fn whoever_could_not_free_the_lock_does_not_take_it() {
    let proof = Proof::new(Profile::Doc);
    let guard = proof.ledger_folder().join(".lockkeeper.guard");
    std::fs::create_dir(&guard).unwrap();
    assert!(proof.open().append(&event(Profile::Doc, "a", 1)).is_err());
    assert!(!proof.lock_file().exists(), "no lock is left that nobody can free");
    std::fs::remove_dir(&guard).unwrap();
    proof.open().append(&event(Profile::Doc, "a", 1)).unwrap();
}

#[test]
fn a_guard_that_is_held_for_ever_keeps_nobody_for_ever() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    let lock = ledger.lock().unwrap();
    let stopped = std::fs::File::open(proof.ledger_folder().join(".lockkeeper.guard")).unwrap();
    flock(&stopped, FlockOperation::LockExclusive).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || send.send(lock.release().map_err(|error| error.kind())));
        let told = receive.recv_timeout(Duration::from_secs(30));
        flock(&stopped, FlockOperation::Unlock).unwrap();
        assert_eq!(told.expect("it is told"), Err(std::io::ErrorKind::TimedOut));
    });
}

#[test]
fn a_recovery_says_what_is_in_its_way_and_leaves_alone_what_is_no_file() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    std::fs::create_dir(proof.lock_file()).unwrap();
    std::fs::write(proof.lock_file().join("a\tb"), "").unwrap();
    made_long_ago(&proof.lock_file());
    let kept = ledger.recover(Some(Duration::from_secs(30))).unwrap();
    assert!(matches!(&kept, Recovery::Kept { why, .. } if why.contains("'a\\tb'")), "{kept:?}");
    std::fs::remove_dir_all(proof.lock_file()).unwrap();
    let odd = proof.ledger_folder().join(".event-folder.tmp");
    std::fs::create_dir(&odd).unwrap();
    assert!(Command::new("touch").args(["-d", "2 days ago"]).arg(&odd).status().unwrap().success());
    assert!(ledger.remove_leftovers().unwrap().is_empty());
    assert!(odd.exists());
}

#[test]
fn what_a_lock_says_is_shown_on_one_line() {
    let proof = Proof::new(Profile::Doc);
    let text = r#"{"agent_id":"a\u001b[2J\nb","acquired_at":"2026-11-15T19:54:15Z"}"#;
    std::fs::write(proof.lock_file(), text).unwrap();
    let said = proof.open().lock_state().unwrap().describe();
    assert!(!said.contains(char::is_control) && said.contains("[2J"), "{said}");
}

#[test]
fn nobody_is_inside_with_anybody_else_while_holders_are_killed() {
    let proof = Proof::new(Profile::Doc);
    let mut players: Vec<Player> = (0..6).map(|_| Player::start("enters", &proof.path(), &[])).collect();
    for _ in 0..if deep() { 200 } else { 6 } {
        for player in &mut players {
            player.hear("ready").unwrap();
            player.hear("entered");
        }
        // Whoever it is, some of them will be inside.
        for player in players.iter_mut().take(3) {
            player.child.kill().unwrap();
            *player = Player::start("enters", &proof.path(), &[]);
        }
        for player in players.drain(3..) {
            let (lines, well) = player.finish();
            assert!(well, "{lines:?}");
        }
        players.extend((0..3).map(|_| Player::start("enters", &proof.path(), &[])));
    }
    assert!(players.into_iter().all(|player| player.finish().1));
    assert!(!proof.lock_file().exists());
}

#[test]
fn ours_wait_in_a_queue_with_their_timeout_and_leave_no_thread_behind_that_holds_it() {
    let proof = Proof::new(Profile::Doc);
    let (ledger, impatient) = (proof.open(), proof.open_impatient());
    let lock = ledger.lock().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| is_busy(&impatient));
        }
    });
    assert!(lock.release().unwrap());
    // Those who gave up let go as soon as they get there.
    let sequence = ledger.append(&event(Profile::Doc, "a", 1)).unwrap();
    assert_eq!(sequence, Sequence(1));
    assert_eq!(
        options(Profile::Doc).open(&proof.path()).unwrap().append(&event(Profile::Doc, "a", 2)).unwrap(),
        Sequence(2)
    );
    proof.assert_sound();
}

#[test]
fn ours_that_follow_each_other_leave_a_gap_that_somebody_who_polls_can_see() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    let (began, mut gap) = (Instant::now(), Instant::now());
    while began.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        let lock = ledger.lock().unwrap();
        if asked.elapsed() > Duration::from_millis(11) {
            gap = Instant::now();
        }
        assert!(gap.elapsed() < Duration::from_millis(1500), "one poll in 10 ms finds it free");
        std::thread::sleep(Duration::from_millis(1));
        assert!(lock.release().unwrap());
    }
}

/// The lock of ours as another kernel, container or boot would have written it.
fn as_if_written_elsewhere(proof: &Proof, field: &str, value: &str) {
    let text = std::fs::read_to_string(proof.lock_file()).unwrap();
    let mut lock: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(!lock[field].is_null(), "{text}");
    lock[field] = serde_json::from_str(value).unwrap();
    std::fs::write(proof.lock_file(), lock.to_string()).unwrap();
}

#[test]
fn another_boot_id_proves_no_death_while_it_may_be_that_of_a_container() {
    let proof = Proof::new(Profile::Doc);
    let (ledger, other) = (proof.open(), proof.open_impatient());
    let lock = ledger.lock().unwrap();
    let boot = "\"00000000-0000-4000-8000-000000000000\"";
    for (field, value) in [("boot_id", boot), ("pid_namespace", "7")] {
        as_if_written_elsewhere(&proof, field, value);
        assert!(matches!(other.lock_state().unwrap(), LockState::Held { life: Verdict::Unknown, .. }), "{field}");
        is_busy(&other);
        // It keeps its turn, so it lives, whatever somebody says.
        made_long_ago(&proof.lock_file());
        for called_dead_after in [None, Some(Duration::ZERO)] {
            let kept = other.recover(called_dead_after).unwrap();
            assert!(matches!(&kept, Recovery::Kept { why, .. } if why == "its holder lives"), "{kept:?}");
        }
    }
    assert!(lock.release().unwrap());
}

#[test]
fn an_empty_lock_that_a_stranger_made_is_not_taken_for_one_that_ours_left() {
    let proof = Proof::new(Profile::Doc);
    let mut player = Player::start("holds", &proof.path(), &[]);
    player.hear("held").unwrap();
    player.child.kill().unwrap();
    player.child.wait().unwrap();
    // The one that had created a lock is dead. What lies there now is another one, and its maker has not come to write.
    std::fs::remove_file(proof.lock_file()).unwrap();
    std::fs::write(proof.lock_file(), "").unwrap();
    let ledger = Options { lock_timeout: Duration::from_millis(2500), ..options(Profile::Doc) };
    is_busy(&ledger.open(&proof.path()).unwrap());
    assert!(proof.lock_file().exists());
}
