//! Files that others take without asking here.

use lockkeeper_core::command::{Command, External, Which};
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, Blocker, Outcome, Refusal};
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::time::Millis;

use crate::house::{House, actor, busy};

fn see(house: &mut House, key: &str, left: Option<u64>) {
    let seen = vec![External { key: Key::parse(key).unwrap(), left: left.map(Millis), endless: false }];
    assert!(matches!(house.outcome(Command::SeeExternal { seen }), Outcome::Nothing));
}

#[test]
fn what_somebody_outside_has_is_a_lock_on_the_whole_file() {
    let mut house = House::new();
    see(&mut house, "src/a.rs", Some(5000));
    let refused = busy(house.acquire("b", &["src/a.rs#7-9"]));
    assert_eq!(refused.conflicts[0].with.agent().to_string(), "external");
    house.queue("c", &["src/a.rs"], 5);
    house.granted("b", "src/b.rs");
    see(&mut house, "src/a.rs", None);
    assert_eq!(house.holders("src/a.rs"), ["c"], "whoever waits gets it when it goes");
}

#[test]
fn nobody_takes_here_what_somebody_outside_has() {
    let mut house = House::new();
    see(&mut house, "src/a.rs", Some(5000));
    let (by, reason) = (AgentName::parse("op").unwrap(), Intention::default());
    let which = Which::Key(Key::parse("src/a.rs").unwrap(), None);
    let refused = house.outcome(Command::ForceRelease { by, reason, which, request: None });
    let is_theirs = matches!(&refused, Outcome::Told(Answer::Refused(Refusal::NotOwner { lock }))
        if lock.session == SessionId::external() && lock.intention.as_str() == "taken outside of Lockkeeper");
    assert!(is_theirs, "{refused:?}");
    assert_eq!(house.holders("src/a.rs"), ["~external"]);
    let endless = External { key: Key::parse("src/b.rs").unwrap(), left: Some(Millis(5000)), endless: true };
    house.outcome(Command::SeeExternal { seen: vec![endless] });
    let refused = busy(house.acquire("b", &["src/b.rs"]));
    let Blocker::Held(lock) = &refused.conflicts[0].with else { panic!("{refused:?}") };
    assert!(lock.intention.as_str().ends_with("without an expiry"), "{lock:?}");
}

#[test]
fn what_is_seen_taken_in_the_same_look_is_handed_to_nobody() {
    let mut house = House::new();
    see(&mut house, "x", Some(5000));
    house.queue("d", &["x", "y"], 5);
    let key = |text| Key::parse(text).unwrap();
    let gone = External { key: key("x"), left: None, endless: false };
    let taken = External { key: key("y"), left: Some(Millis(5000)), endless: false };
    house.outcome(Command::SeeExternal { seen: vec![gone, taken] });
    assert_eq!((house.holders("x"), house.holders("y")), (Vec::new(), vec!["~external".to_owned()]));
    assert_eq!(house.state.waiter_count(), 1);
}

#[test]
fn what_somebody_outside_has_ends_by_itself_and_is_followed_when_it_is_renewed() {
    let mut house = House::new();
    see(&mut house, "a", Some(5000));
    house.queue("b", &["a"], 5);
    house.wait(4000);
    let written = house.ledger.len();
    see(&mut house, "a", Some(1200));
    assert_eq!(house.ledger.len(), written, "the same end, roughly, is not written down again");
    see(&mut house, "a", Some(5000));
    house.beat("b");
    house.wait(4000);
    house.outcome(Command::Sweep);
    assert_eq!(house.holders("a"), ["~external"]);
    house.beat("b");
    house.wait(1001);
    house.outcome(Command::Sweep);
    assert_eq!(house.holders("a"), ["b"]);
}

#[test]
fn what_somebody_outside_has_taken_is_lost_here_and_whoever_waits_waits_on() {
    let mut house = House::new();
    house.granted("a", "x#1-5");
    house.queue("b", &["x"], 5);
    see(&mut house, "x", Some(5000));
    assert_eq!(house.holders("x"), ["~external"]);
    let actor = actor("a");
    let renew = Command::Renew { actor, which: Which::Everything, ttl: None, token: None };
    assert!(
        matches!(house.tell(renew), Answer::Renewed { lost, .. } if lost.len() == 1)
            || house.state.lost_of(&SessionId::parse("a").unwrap()).count() == 1
    );
    see(&mut house, "x", None);
    assert_eq!(house.holders("x"), ["b"]);
}

#[test]
fn what_is_over_goes_to_whoever_is_seen_outside_and_not_to_whoever_waits() {
    let mut house = House::new();
    house.granted("a", "x");
    house.queue("b", &["x"], 5);
    house.wait(29_000);
    house.beat("b");
    house.wait(1000);
    see(&mut house, "x", Some(5000));
    assert_eq!(house.holders("x"), ["~external"]);
    // Also when their own time was over by our clock: they are still there.
    house.wait(5001);
    house.beat("b");
    see(&mut house, "x", Some(700));
    assert_eq!(house.holders("x"), ["~external"]);
}

#[test]
fn a_tree_does_not_see_what_is_taken_below_it_but_its_holder_is_told_who_has_the_file() {
    let mut house = House::new();
    house.granted("b", "src/**");
    see(&mut house, "src/deep.rs", Some(5000));
    assert_eq!(house.holders("src/deep.rs"), ["b", "~external"]);
    let refused = busy(house.acquire("b", &["src/deep.rs"]));
    assert_eq!(refused.conflicts[0].with.agent().to_string(), "external");
}
