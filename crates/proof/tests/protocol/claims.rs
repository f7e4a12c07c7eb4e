//! Claims between processes and over time.

use std::io::BufRead;
use std::time::Duration;

use lockkeeper_proof::{Error, Ledger, NewEvent, Options, Profile, Sequence};

use crate::desk::{Player, Proof, clock, deep, node, options, owner, set_clock, variable};

/// A part: claims node 1 when it is told to.
pub(crate) fn claims(ledger: &Ledger) {
    let own = owner(&variable("OWNER").unwrap());
    println!("\nready");
    std::io::stdin().lock().lines().next().unwrap().unwrap();
    match ledger.claim(&node("1"), &own, None) {
        Ok(claim) => println!("won {} {}", claim.owner, claim.expires_at),
        Err(Error::NodeLocked(claim, false)) => {
            let error = Error::NodeLocked(claim.clone(), false).to_string();
            assert!(error.starts_with("node already locked"), "{error}");
            println!("lost {} {}", claim.owner, claim.expires_at);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn of_many_processes_that_claim_a_node_one_gets_it_and_the_others_learn_who_and_until_when() {
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        let start = |number: usize| {
            let name = format!("agent-{number}");
            Player::start("claims", &proof.path(), &[("OWNER", &name), ("PROFILE", profile.as_str())])
        };
        let mut players: Vec<Player> = (0..8).map(start).collect();
        for player in &mut players {
            player.hear("ready").unwrap();
        }
        for player in &mut players {
            player.tell("go");
        }
        let mut said = Vec::new();
        for player in players {
            let (lines, well) = player.finish();
            assert!(well, "{lines:?}");
            said.extend(lines.into_iter().filter(|line| line.starts_with("won ") || line.starts_with("lost ")));
        }
        let won: Vec<&String> = said.iter().filter(|line| line.starts_with("won ")).collect();
        assert!(said.len() == 8 && won.len() == 1, "{said:?}");
        let holder = won[0].strip_prefix("won ").unwrap();
        assert!(said.iter().all(|line| line.ends_with(holder)), "{said:?}");
        assert_eq!(proof.open().sequence().unwrap(), Sequence(1));
        proof.assert_sound();
    }
}

/// A part: reaps once for each line that it is told.
pub(crate) fn reaps(ledger: &Ledger) {
    println!("\nready");
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        println!("reaped {}", ledger.reap().unwrap().events.len());
    }
}

/// A claim whose time is over, by an event that somebody wrote earlier.
fn expired(profile: Profile, nodes: &[&str]) -> Vec<NewEvent> {
    let (then, over) = ("2024-01-15T10:30:00Z", "2024-01-15T10:35:00Z");
    let text = match profile {
        Profile::Doc => nodes
            .iter()
            .map(|node| {
                format!(r#"{{"type":"lock_acquired","timestamp":"{then}","node_id":"{node}","owner":"a","expires_at":"{over}"}}"#)
            })
            .collect(),
        Profile::Af => vec![format!(
            r#"{{"type":"nodes_claimed","timestamp":"{then}","node_ids":["{}"],"owner":"a","timeout":"{over}"}}"#,
            nodes.join("\",\"")
        )],
    };
    text.iter().map(|text| NewEvent::parse(text, profile).unwrap()).collect()
}

#[test]
fn however_many_reap_at_once_each_expired_claim_is_ended_by_one_event() {
    let rounds = if deep() { 1_000 } else { 100 };
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        let ledger = proof.open();
        let start = |_| Player::start("reaps", &proof.path(), &[("PROFILE", profile.as_str())]);
        let mut players: Vec<Player> = (0..4).map(start).collect();
        for player in &mut players {
            player.hear("ready").unwrap();
        }
        for round in 0..rounds {
            let before = ledger.append(&expired(profile, &["1"])[0]).unwrap();
            for player in &mut players {
                player.tell("go");
            }
            let reaped: u64 =
                players.iter_mut().map(|player| player.hear("reaped").unwrap().parse::<u64>().unwrap()).sum();
            assert_eq!(reaped, 1, "round {round}");
            assert_eq!(ledger.sequence().unwrap(), before.next().unwrap(), "round {round}");
        }
        assert!(players.into_iter().all(|player| player.finish().1));
        assert!(ledger.claims().unwrap().all().is_empty());
        proof.assert_sound();
    }
}

#[test]
fn the_program_gets_one_event_for_all_nodes_that_are_reaped_and_the_document_one_for_each() {
    for (profile, count) in [(Profile::Doc, 2), (Profile::Af, 1)] {
        let proof = Proof::new(profile);
        let ledger = proof.open();
        for event in expired(profile, &["1.1", "1.2"]) {
            ledger.append(&event).unwrap();
        }
        ledger.claim(&node("1.3"), &owner("b"), None).unwrap();
        let seen = ledger.reapable().unwrap();
        assert!(seen.claims.len() == 2 && seen.events.is_empty());
        let at = ledger.sequence().unwrap();
        let reaped = ledger.reap().unwrap();
        assert_eq!((reaped.events.len(), reaped.claims.len()), (count, 2));
        assert_eq!(ledger.sequence().unwrap().0, at.0 + count as u64);
        assert_eq!(ledger.claims().unwrap().all().len(), 1, "what is not expired stays");
        assert_eq!(ledger.reap().unwrap().events, []);
        proof.assert_sound();
    }
}

#[test]
fn a_late_release_of_an_expired_claim_does_not_free_the_successors() {
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        let ledger = proof.open();
        let (one, ada, bob) = (node("1"), owner("ada"), owner("bob"));
        set_clock(0);
        ledger.claim(&one, &ada, Some(Duration::from_secs(1))).unwrap();
        assert!(matches!(ledger.claim(&one, &ada, None), Err(Error::NodeLocked(_, false))), "not even twice by one");
        set_clock(5);
        match profile {
            // An expired claim is free.
            Profile::Doc => assert!(matches!(ledger.refresh(&one, &ada, None), Err(Error::ClaimExpired { .. }))),
            // An expired claim is taken until it is reaped.
            Profile::Af => {
                assert!(matches!(ledger.claim(&one, &bob, None), Err(Error::NodeLocked(_, true))));
                ledger.reap().unwrap();
            }
        }
        ledger.claim(&one, &bob, None).unwrap();
        let at = ledger.sequence().unwrap();
        assert!(matches!(ledger.release(&one, &ada), Err(Error::NotOwner { .. })));
        assert!(matches!(ledger.refresh(&one, &ada, None), Err(Error::NotOwner { .. })));
        assert_eq!(ledger.sequence().unwrap(), at, "nothing was recorded");
        // A release of somebody who follows the document by the letter, and one that names nobody.
        let claims = ledger.claims().unwrap();
        assert_eq!(claims.get(&one).unwrap().owner, bob);
        assert!(!ledger.release(&one, &bob).unwrap().expired);
        assert!(matches!(ledger.release(&one, &bob), Err(Error::NotClaimed(_))));
        proof.assert_sound();
    }
}

#[test]
fn a_clock_that_jumps_ends_claims_by_what_it_says_and_revives_none() {
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    let (one, ada, bob) = (node("1"), owner("ada"), owner("bob"));
    let names = |ledger: &Ledger| -> Vec<String> {
        ledger.claims().unwrap().active(clock()).iter().map(|claim| claim.owner.to_string()).collect()
    };
    set_clock(3600);
    ledger.claim(&one, &ada, None).unwrap();
    set_clock(0);
    assert_eq!(names(&ledger), ["ada"], "an hour back: it lasts longer, and stays one claim");
    assert!(matches!(ledger.claim(&one, &bob, None), Err(Error::NodeLocked(..))));
    set_clock(2 * 3600);
    assert!(names(&ledger).is_empty());
    assert_eq!(ledger.reap().unwrap().events.len(), 1);
    set_clock(0);
    assert!(names(&ledger).is_empty(), "reaped is reaped");
    ledger.claim(&one, &bob, None).unwrap();
    set_clock(3600);
    assert!(names(&ledger).is_empty());
    ledger.claim(&one, &ada, None).unwrap();
    set_clock(0);
    assert_eq!(names(&ledger), ["ada"], "the order of events decides, not their times");
    proof.assert_sound();
}

#[test]
fn a_refresh_keeps_the_acquisition_and_moves_the_expiry() {
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        let ledger = proof.open();
        set_clock(0);
        let first = ledger.claim(&node("1"), &owner("ada"), Some(Duration::from_secs(60))).unwrap();
        set_clock(30);
        let second = ledger.refresh(&node("1"), &owner("ada"), None).unwrap();
        assert!(second.expires_at > first.expires_at);
        let claims = proof.open().claims().unwrap();
        let seen = claims.get(&node("1")).unwrap();
        assert_eq!(
            (seen.sequence, seen.acquired_at, seen.expires_at),
            (Sequence(1), first.acquired_at, second.expires_at)
        );
        assert!(matches!(ledger.refresh(&node("1.1"), &owner("ada"), None), Err(Error::NotClaimed(_))));
        proof.assert_sound();
    }
}

#[test]
fn timeouts_come_from_the_settings_in_both_spellings_and_are_never_trimmed() {
    for (meta, lasts) in [(r#"{"lock_timeout": "90s"}"#, 90), (r#"{"lock_timeout": 90000000000}"#, 90), ("{}", 300)] {
        let proof = Proof::new(Profile::Doc);
        std::fs::write(proof.path().join("meta.json"), meta).unwrap();
        let ledger = options(Profile::Doc).open(&proof.path());
        // An empty ledger whose settings say that it is the program's is not the document's.
        if meta.contains("000") {
            assert!(matches!(ledger, Err(Error::ProfileMismatch { .. })));
            std::fs::write(proof.event_file(1), r#"{"type":"custom_event"}"#).unwrap();
        }
        let ledger = proof.open();
        let claim = ledger.claim(&node("1"), &owner("a"), None).unwrap();
        assert_eq!(claim.expires_at.duration_since(claim.acquired_at.unwrap()).as_secs(), lasts);
    }
    let proof = Proof::new(Profile::Doc);
    let ledger = proof.open();
    for wrong in [0, 999, 3_600_001] {
        let error = ledger.claim(&node("1"), &owner("a"), Some(Duration::from_millis(wrong))).unwrap_err();
        assert!(matches!(error, Error::InvalidTimeout(_)), "{error}");
    }
    std::fs::write(proof.path().join("meta.json"), r#"{"lock_timeout": "2h"}"#).unwrap();
    assert!(matches!(ledger.claim(&node("1"), &owner("a"), None), Err(Error::Damaged { .. })));
    assert_eq!(ledger.sequence().unwrap(), Sequence(0), "nothing was recorded");
}

#[test]
fn claim_files_follow_the_ledger_and_are_removed_after_the_event() {
    let proof = Proof::new(Profile::Doc);
    let ledger = Options { claim_files: true, ..options(Profile::Doc) }.open(&proof.path()).unwrap();
    let file = |node: &str| proof.path().join("locks").join(format!("{node}.lock"));
    set_clock(0);
    let claim = ledger.claim(&node("1.2"), &owner("ada"), Some(Duration::from_secs(5))).unwrap();
    let says = lockkeeper_proof::ClaimFile::parse(&std::fs::read(file("1.2")).unwrap()).unwrap();
    assert_eq!((says.owner.as_str(), says.expires_at), ("ada", claim.expires_at));
    let refreshed = ledger.refresh(&node("1.2"), &owner("ada"), Some(Duration::from_secs(9))).unwrap();
    assert!(std::fs::read_to_string(file("1.2")).unwrap().contains(&refreshed.expires_at.to_string()));
    proof.assert_sound();
    // Corrupt ones, and those of somebody else whose time is not over, are left alone; stale ones without a claim go.
    std::fs::write(file("corrupt"), "{").unwrap();
    let other = |node: &str, until: &str| {
        let text = format!(r#"{{"node_id":"{node}","owner":"x","acquired_at":"{until}","expires_at":"{until}"}}"#);
        std::fs::write(file(node), text).unwrap();
    };
    other("1.7", "2024-01-15T10:35:00.123456789Z");
    other("1.8", "2999-01-15T10:35:00.123456789Z");
    set_clock(20);
    let reaped = ledger.reap().unwrap();
    assert_eq!(reaped.files, ["1.2.lock", "1.7.lock"]);
    assert_eq!(reaped.claims.len(), 1, "no event says that a claim ended which nobody had");
    assert!(!file("1.2").exists() && file("corrupt").exists() && file("1.8").exists());
    ledger.claim(&node("1.2"), &owner("bob"), None).unwrap();
    ledger.release(&node("1.2"), &owner("bob")).unwrap();
    assert!(!file("1.2").exists());
}

#[test]
fn in_the_programs_ledger_nothing_is_written_that_it_could_not_load() {
    let proof = Proof::new(Profile::Af);
    let created = r#"{"type":"node_created","timestamp":"2026-11-15T19:53:38Z","node":{"id":"1","statement":"x"}}"#;
    let ledger = proof.open();
    ledger.append(&NewEvent::parse(created, Profile::Af).unwrap()).unwrap();
    assert!(matches!(ledger.claim(&node("1.5"), &owner("a"), None), Err(Error::UnknownNode(_))));
    assert!(matches!(ledger.claim(&node("2"), &owner("a"), None), Err(Error::InvalidNode { .. })));
    ledger.claim(&node("1"), &owner("a"), None).unwrap();
    let at = ledger.sequence().unwrap();
    // By hand, past the commands.
    let raw = |text: &str| ledger.append(&NewEvent::parse(text, Profile::Af).unwrap());
    let second = r#"{"type":"nodes_claimed","node_ids":["1"],"owner":"b","timeout":"2999-01-15T10:35:00Z"}"#;
    assert!(matches!(raw(second), Err(Error::NodeLocked(..))));
    assert!(matches!(raw(r#"{"type":"nodes_released","node_ids":["1.1"]}"#), Err(Error::NotClaimed(_))));
    assert!(matches!(raw(r#"{"type":"nodes_released","node_ids":["1","1"]}"#), Err(Error::InvalidEvent(_))));
    // The document's events do not get in by any way.
    let doc = NewEvent::parse(r#"{"type":"custom_event"}"#, Profile::Doc).unwrap();
    assert!(matches!(ledger.append(&doc), Err(Error::ProfileMismatch { .. })));
    assert!(matches!(options(Profile::Doc).open(&proof.path()), Err(Error::ProfileMismatch { .. })));
    assert!(matches!(options(Profile::Doc).init(&proof.path(), None), Err(Error::ProfileMismatch { .. })));
    assert_eq!(ledger.sequence().unwrap(), at, "nothing was recorded");
    let first = std::fs::read_to_string(proof.event_file(2)).unwrap();
    assert!(first.starts_with(r#"{"type":"nodes_claimed","timestamp":""#) && !first.ends_with('\n'), "{first}");
    proof.assert_sound();
}

#[test]
fn an_event_by_hand_takes_no_active_claim_from_anybody() {
    let raw = |ledger: &Ledger, text: String| ledger.append(&NewEvent::parse(&text, ledger.profile()).unwrap());
    for profile in [Profile::Doc, Profile::Af] {
        let proof = Proof::new(profile);
        let ledger = proof.open();
        set_clock(0);
        ledger.claim(&node("1"), &owner("ada"), Some(Duration::from_secs(5))).unwrap();
        let ends: &[&str] = match profile {
            Profile::Doc => &[
                r#"{"type":"lock_reaped","node_id":"1","owner":"ada"}"#,
                r#"{"type":"lock_reaped","node_id":"1"}"#,
                r#"{"type":"lock_released","node_id":"1"}"#,
            ],
            Profile::Af => &[
                r#"{"type":"nodes_released","node_ids":["1"],"owner":"ada","reaped":true}"#,
                r#"{"type":"nodes_released","node_ids":["1"]}"#,
            ],
        };
        for text in ends {
            assert!(matches!(raw(&ledger, (*text).to_owned()), Err(Error::NodeLocked(_, false))), "{text}");
        }
        let far = match profile {
            Profile::Doc => {
                r#"{"type":"lock_acquired","node_id":"1.1","owner":"b","expires_at":"2999-01-15T10:35:00Z"}"#
            }
            Profile::Af => {
                r#"{"type":"nodes_claimed","node_ids":["1.1"],"owner":"b","timeout":"2999-01-15T10:35:00Z"}"#
            }
        };
        assert!(matches!(raw(&ledger, far.to_owned()), Err(Error::InvalidTimeout(_))));
        assert_eq!(ledger.sequence().unwrap(), Sequence(1), "nothing was recorded");
        set_clock(60);
        raw(&ledger, ends[0].to_owned()).unwrap();
        proof.assert_sound();
    }
    set_clock(0);
}

#[test]
fn a_claim_that_only_a_file_tells_of_is_respected_as_long_as_it_lasts() {
    let proof = Proof::new(Profile::Doc);
    let ledger = Options { claim_files: true, ..options(Profile::Doc) }.open(&proof.path()).unwrap();
    std::fs::create_dir(proof.path().join("locks")).unwrap();
    let file = proof.path().join("locks/1.2.lock");
    let write = |owner: &str, until: &str| {
        let text = format!(r#"{{"node_id":"1.2","owner":"{owner}","acquired_at":"{until}","expires_at":"{until}"}}"#);
        std::fs::write(&file, text).unwrap();
    };
    set_clock(0);
    write("eve", "2999-01-15T10:35:00.123456789Z");
    let by_hand = r#"{"type":"lock_acquired","node_id":"1.2","owner":"ada","expires_at":"2024-01-15T10:35:00Z"}"#;
    let by_hand = NewEvent::parse(by_hand, Profile::Doc).unwrap();
    for refused in [ledger.claim(&node("1.2"), &owner("ada"), None).map(drop), ledger.append(&by_hand).map(drop)] {
        assert!(matches!(&refused, Err(Error::NodeLocked(held, false)) if held.owner == owner("eve")), "{refused:?}");
    }
    assert!(std::fs::read_to_string(&file).unwrap().contains("eve"));
    assert_eq!(ledger.sequence().unwrap(), Sequence(0));
    // Its owner may say it in the ledger, too; and what the ledger has ended is over, whatever file was left.
    ledger.claim(&node("1.2"), &owner("eve"), None).unwrap();
    let left = std::fs::read(&file).unwrap();
    ledger.release(&node("1.2"), &owner("eve")).unwrap();
    std::fs::write(&file, left).unwrap();
    ledger.claim(&node("1.2"), &owner("ada"), None).unwrap();
    ledger.release(&node("1.2"), &owner("ada")).unwrap();
    write("eve", "2024-01-15T10:35:00.123456789Z");
    ledger.claim(&node("1.2"), &owner("ada"), None).unwrap();
    assert!(std::fs::read_to_string(&file).unwrap().contains("ada"));
    proof.assert_sound();
}
