//! Files that are not as they should be: they are told in words, and nothing hangs or follows them out.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper_proof::{Error, Ledger, Problem, Profile, Sequence, Severity, verify};

use crate::desk::{Proof, event, node, options, owner};

/// Puts something where a file should be.
type Makes = Box<dyn Fn(&Path)>;

fn problems(proof: &Proof) -> Vec<(Severity, Problem)> {
    let found = verify(&proof.path(), options(proof.profile)).unwrap();
    assert!(found.findings.iter().all(|finding| !finding.what.is_empty() && !finding.meaning.is_empty()));
    found.findings.iter().map(|finding| (finding.severity, finding.problem)).collect()
}

fn with_events(profile: Profile, count: u64) -> Proof {
    let proof = Proof::new(profile);
    let ledger = proof.open();
    for number in 1..=count {
        ledger.append(&event(profile, "a", number)).unwrap();
    }
    proof
}

#[test]
fn a_hostile_event_is_refused_in_words_and_nothing_hangs() {
    let deep = format!("{{\"type\":\"x\",\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let write = |text: Vec<u8>| move |path: &Path| std::fs::write(path, &text).unwrap();
    let things: [(Makes, &str); 9] = [
        (Box::new(write(Vec::new())), "EOF"),
        (Box::new(write(b"{\"type\":\"x\"}\0".to_vec())), "trailing"),
        (Box::new(write(b"\0\0\0\0".to_vec())), "expected value"),
        (Box::new(write(b"{\"type\":\"\xff\"}".to_vec())), "UTF-8"),
        (Box::new(write(deep.into_bytes())), "deep"),
        (Box::new(|path| std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap()), "limit"),
        (Box::new(|path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())), "a pipe"),
        (Box::new(|path| std::os::unix::fs::symlink("/etc/hostname", path).unwrap()), "a symbolic link"),
        (Box::new(|path| std::fs::create_dir(path).unwrap()), "a folder"),
    ];
    for profile in [Profile::Doc, Profile::Af] {
        for (make, said) in &things {
            let proof = with_events(profile, 2);
            make(&proof.event_file(3));
            let asked = Instant::now();
            let ledger = proof.open();
            let error = ledger.claims().unwrap_err();
            assert!(
                matches!(&error, Error::Damaged { file, what } if file.contains("000003") && what.contains(said)),
                "{error}"
            );
            assert!(ledger.events_after(Sequence(0)).last().unwrap().is_err());
            assert!(ledger.claim(&node("1"), &owner("a"), None).is_err(), "nobody knows who holds what");
            assert!(problems(&proof).contains(&(Severity::Error, Problem::BadEvent)), "{said}");
            assert!(asked.elapsed() < Duration::from_secs(20), "{said}");
        }
    }
}

#[test]
fn no_link_leads_out_of_the_proof() {
    let (proof, outside) = (Proof::new(Profile::Doc), tempfile::tempdir().unwrap());
    let ledger = proof.ledger_folder();
    std::fs::remove_dir_all(&ledger).unwrap();
    std::os::unix::fs::symlink(outside.path(), &ledger).unwrap();
    assert!(matches!(options(Profile::Doc).open(&proof.path()), Err(Error::Io { .. })));
    assert!(options(Profile::Doc).init(&proof.path(), None).is_err());
    let proof = with_events(Profile::Doc, 1);
    std::os::unix::fs::symlink(outside.path(), proof.path().join("locks")).unwrap();
    assert!(proof.open().reap().is_err());
    let meta = proof.path().join("meta.json");
    std::fs::remove_file(&meta).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &meta).unwrap();
    assert!(matches!(proof.open().claim_timeout(), Err(Error::Damaged { .. })));
    for name in [".lockkeeper.queue", ".lockkeeper.turn", ".lockkeeper.guard"] {
        let own = proof.ledger_folder().join(name);
        let aside = std::fs::read(&own).unwrap();
        std::fs::remove_file(&own).unwrap();
        std::os::unix::fs::symlink(outside.path().join("victim"), &own).unwrap();
        let refused = match proof.open_impatient().lock() {
            Ok(lock) => lock.release().is_err(),
            Err(_) => true,
        };
        assert!(refused, "{name} is not followed");
        std::fs::remove_file(&own).unwrap();
        std::fs::write(&own, aside).unwrap();
        let _ = std::fs::remove_file(proof.lock_file());
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "nothing was made outside");
}

#[test]
fn the_profile_is_seen_from_the_files_and_an_empty_ledger_needs_to_be_told() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Ledger::open(folder.path()), Err(Error::NotAProof(_))));
    std::fs::create_dir(folder.path().join("ledger")).unwrap();
    assert!(matches!(Ledger::open(folder.path()), Err(Error::ProfileUnknown(_))));
    std::fs::write(folder.path().join("meta.json"), r#"{"version": "1.0"}"#).unwrap();
    assert!(matches!(Ledger::open(folder.path()), Err(Error::ProfileUnknown(_))));
    std::fs::write(folder.path().join("ledger/000001.json"), r#"{"type":"proof_initialized"}"#).unwrap();
    assert_eq!(Ledger::open(folder.path()).unwrap().profile(), Profile::Af);
    // The program does not see the other's events; whoever says so goes on as it does.
    std::fs::write(folder.path().join("ledger/event-000001.json"), r#"{"type":"custom_event"}"#).unwrap();
    assert!(matches!(Ledger::open(folder.path()), Err(Error::ProfileMixed(_))));
    assert!(matches!(options(Profile::Doc).open(folder.path()), Err(Error::ProfileMixed(_))));
    let ledger = options(Profile::Af).open(folder.path()).unwrap();
    assert_eq!(ledger.append(&event(Profile::Af, "a", 1)).unwrap(), Sequence(2));
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        assert_eq!(Ledger::open(proof.path()).unwrap().profile(), profile, "a new one says it in its settings");
    }
}

#[test]
fn the_sequence_is_the_highest_number_and_goes_on_past_six_digits() {
    let proof = Proof::new(Profile::Doc);
    std::fs::write(proof.event_file(999_999), r#"{"type":"hint_added"}"#).unwrap();
    assert_eq!(proof.open().sequence().unwrap(), Sequence(999_999));
    assert_eq!(Profile::Doc.file_name(Sequence(1_000_000)), "event-1000000.json");
    {
        let profile = Profile::Af;
        let proof = Proof::new(profile);
        std::fs::write(proof.event_file(999_999), r#"{"type":"hint_added"}"#).unwrap();
        let ledger = proof.open();
        assert_eq!(ledger.sequence().unwrap(), Sequence(999_999));
        assert_eq!(ledger.append(&event(profile, "a", 1)).unwrap(), Sequence(1_000_000));
        assert!(
            proof.event_file(1_000_000).exists()
                && proof.event_file(1_000_000).to_str().unwrap().contains("1000000.json")
        );
        assert_eq!(proof.open().sequence().unwrap(), Sequence(1_000_000));
        assert!(
            matches!(ledger.append_if_sequence(&event(profile, "a", 2), Sequence(2)), Err(Error::SequenceMismatch { actual, .. }) if actual.0 == 1_000_000)
        );
        assert_eq!(problems(&proof), [(Severity::Error, Problem::Gap)]);
        assert!(ledger.claims().is_err(), "nobody knows what was lost");
    }
}

#[test]
fn no_event_is_ever_replaced_even_if_somebody_writes_without_the_lock() {
    let proof = with_events(Profile::Af, 1);
    let ledger = proof.open();
    std::fs::write(proof.event_file(2), r#"{"type":"hint_added","by":"somebody"}"#).unwrap();
    assert!(matches!(
        ledger.append_if_sequence(&event(Profile::Af, "a", 2), Sequence(1)),
        Err(Error::SequenceMismatch { .. })
    ));
    assert_eq!(ledger.append(&event(Profile::Af, "a", 2)).unwrap(), Sequence(3));
    assert!(std::fs::read_to_string(proof.event_file(2)).unwrap().contains("somebody"));
}

#[test]
fn an_optimistic_append_tries_again_and_says_when_it_gave_up() {
    let proof = with_events(Profile::Doc, 1);
    let (ledger, rival) = (proof.open(), proof.open());
    let mut losses = 2;
    let appended = ledger.append_optimistic(|seen| {
        if losses > 0 {
            losses -= 1;
            rival.append(&event(Profile::Doc, "rival", seen.0)).unwrap();
        }
        Ok(event(Profile::Doc, "a", seen.0))
    });
    assert_eq!(appended.unwrap(), Sequence(4));
    let error = ledger.append_optimistic(|seen| {
        rival.append(&event(Profile::Doc, "rival", seen.0)).unwrap();
        Ok(event(Profile::Doc, "a", seen.0))
    });
    assert!(error.unwrap_err().to_string().starts_with("max retries exceeded"));
    assert_eq!(ledger.sequence().unwrap(), Sequence(7));
}

#[test]
fn a_verification_finds_what_is_wrong_says_what_it_means_and_changes_nothing() {
    let proof = with_events(Profile::Af, 6);
    let folder = proof.ledger_folder();
    std::fs::remove_file(proof.event_file(2)).unwrap();
    std::fs::copy(proof.event_file(3), folder.join("3.json")).unwrap();
    std::fs::write(proof.event_file(4), "{").unwrap();
    std::fs::write(proof.event_file(5), r#"{"type":"lock_acquired"}"#).unwrap();
    std::fs::rename(proof.event_file(6), folder.join("6.json")).unwrap();
    std::fs::write(folder.join("event-000009.json"), r#"{"type":"custom_event"}"#).unwrap();
    std::fs::write(folder.join(".event-abc.tmp"), "").unwrap();
    let old = Command::new("touch").args(["-d", "2 days ago"]).arg(folder.join(".event-abc.tmp")).status().unwrap();
    assert!(old.success());
    std::fs::create_dir(proof.lock_file()).unwrap();
    std::fs::create_dir(proof.path().join("locks")).unwrap();
    std::fs::write(proof.path().join("locks/1.lock"), "{").unwrap();
    std::fs::write(proof.path().join("meta.json"), r#"{"lock_timeout":"5m"}"#).unwrap();
    let list = || {
        let out = Command::new("ls").args(["-laR", "--full-time"]).arg(proof.path()).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let before = list();
    let found = problems(&proof);
    assert_eq!(list(), before);
    for expected in [
        (Severity::Error, Problem::Gap),
        (Severity::Error, Problem::Duplicate),
        (Severity::Error, Problem::BadEvent),
        (Severity::Error, Problem::WrongProfile),
        (Severity::Warning, Problem::WrongProfile),
        (Severity::Warning, Problem::UnusualName),
        (Severity::Note, Problem::Leftover),
        (Severity::Warning, Problem::Lock),
        (Severity::Warning, Problem::ClaimFile),
        (Severity::Warning, Problem::Meta),
    ] {
        assert!(found.contains(&expected), "{expected:?} in {found:?}");
    }
    std::fs::write(folder.join(".event-new.tmp"), "").unwrap();
    assert_eq!(proof.open().remove_leftovers().unwrap(), [".event-abc.tmp"], "what is new is somebody's");
    let proof = Proof::new(Profile::Af);
    let claimed = r#"{"type":"nodes_claimed","node_ids":["1"],"owner":"a","timeout":"2024-01-15T10:35:00Z"}"#;
    for number in 1..=2 {
        std::fs::write(proof.event_file(number), claimed).unwrap();
    }
    assert_eq!(problems(&proof), [(Severity::Error, Problem::ImpossibleTransition)]);
}

#[test]
fn a_number_far_away_is_a_gap_and_not_a_walk() {
    for profile in [Profile::Doc, Profile::Af] {
        let proof = with_events(profile, 1);
        std::fs::write(proof.event_file(999_999_999_999), r#"{"type":"hint_added"}"#).unwrap();
        let path = proof.path();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(verify(&path, options(profile))));
        let found = receive.recv_timeout(Duration::from_secs(20)).expect("nothing hangs").unwrap();
        let gaps: Vec<_> = found.findings.iter().filter(|finding| finding.problem == Problem::Gap).collect();
        assert!(gaps.len() == 1 && gaps[0].what.contains("999999999998"), "{gaps:?}");
    }
}

#[test]
fn whoever_counts_files_would_overwrite_where_one_is_missing_so_nothing_is_appended() {
    let proof = with_events(Profile::Doc, 3);
    let ledger = proof.open();
    std::fs::remove_file(proof.event_file(2)).unwrap();
    let late = proof.open();
    assert!(matches!(late.append(&event(Profile::Doc, "a", 4)), Err(Error::Damaged { .. })));
    assert!(!proof.event_file(4).exists() && !proof.lock_file().exists());
    drop(ledger);
    // Mended, it goes on, without being opened again.
    std::fs::write(proof.event_file(2), r#"{"type":"custom_event"}"#).unwrap();
    assert_eq!(late.append(&event(Profile::Doc, "a", 4)).unwrap(), Sequence(4));
}

#[test]
fn what_looks_like_an_event_and_is_none_is_found() {
    for name in ["event-000000.json", "event-x.json", "event-1000000000000.json"] {
        let proof = with_events(Profile::Doc, 1);
        std::fs::write(proof.ledger_folder().join(name), r#"{"type":"custom_event"}"#).unwrap();
        assert_eq!(problems(&proof), [(Severity::Warning, Problem::NotAnEvent)], "{name}");
    }
}

#[test]
fn a_release_by_somebody_else_leaves_readers_that_disagree() {
    let proof = Proof::new(Profile::Doc);
    proof.open().claim(&node("1"), &owner("ada"), None).unwrap();
    std::fs::write(proof.event_file(2), r#"{"type":"lock_released","node_id":"1","owner":"eve"}"#).unwrap();
    assert_eq!(problems(&proof), [(Severity::Error, Problem::ImpossibleTransition)]);
}

#[test]
fn a_ledger_that_was_cut_is_noticed_by_whoever_has_it_open() {
    let proof = with_events(Profile::Doc, 3);
    let ledger = proof.open();
    ledger.claims().unwrap();
    std::fs::remove_file(proof.event_file(3)).unwrap();
    assert_eq!(ledger.sequence().unwrap(), Sequence(2));
    assert_eq!(ledger.append(&event(Profile::Doc, "a", 3)).unwrap(), Sequence(3));
    assert_eq!(ledger.claims().unwrap().at(), Sequence(3));
}

#[test]
fn a_claim_in_words_that_we_would_not_write_is_read_and_stops_nobody() {
    let proof = Proof::new(Profile::Doc);
    let long = "x".repeat(300);
    for (number, (node, owner)) in [("root", "eve"), ("../../x", "a\\tb"), ("1.7", &long)].into_iter().enumerate() {
        let text = format!(
            r#"{{"type":"lock_acquired","node_id":"{node}","owner":"{owner}","expires_at":"2024-01-15T10:35:00Z"}}"#
        );
        std::fs::write(proof.event_file(number as u64 + 1), text).unwrap();
    }
    let ledger = proof.open();
    ledger.claim(&node("1"), &owner("ada"), None).unwrap();
    let claims = ledger.claims().unwrap();
    assert!(claims.all().iter().all(|claim| !format!("{} {}", claim.node, claim.owner).contains('\t')));
    let reaped = ledger.reap().unwrap();
    assert_eq!(reaped.events.len(), 3);
    assert_eq!(proof.open().claims().unwrap().all().len(), 1);
    proof.assert_sound();
}
