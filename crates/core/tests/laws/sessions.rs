//! Sessions that end, come back, lose a lock by force, or belong to somebody else.

use std::sync::Arc;

use lockkeeper_core::command::{Acquire, Actor, Command, Which};
use lockkeeper_core::history::Action;
use lockkeeper_core::key::Key;
use lockkeeper_core::lock::Lock;
use lockkeeper_core::outcome::{Answer, Outcome, Refusal, Skip, Skipped};
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::time::Millis;

use crate::house::{House, actor, wanting};

#[test]
fn closing_a_session_frees_all_and_forgets_its_quota_and_history() {
    let mut house = House::new();
    house.rules.quota_limit = 2;
    house.granted("a", "x");
    house.granted("a", "y");
    house.queue("b", &["x"], 5);
    let Answer::Closed { released, .. } = house.tell(Command::CloseSession { actor: actor("a") }) else { panic!() };
    assert_eq!(released.len(), 2);
    assert_eq!(house.holders("x"), ["b"]);
    house.granted("a", "z");
    assert_eq!(house.state.lost_of(&SessionId::parse("a").unwrap()).count(), 0);
}

#[test]
fn a_session_that_opens_again_gets_back_what_is_free() {
    let mut house = House::new();
    let old = house.granted("a", "x");
    house.granted("a", "y");
    house.wait(31_000);
    house.granted("b", "y");
    let Answer::Opened { restored, skipped, refreshed, .. } = house.tell(Command::OpenSession { actor: actor("a") })
    else {
        panic!()
    };
    assert_eq!((restored.len(), skipped.len(), refreshed.len()), (1, 1, 0));
    assert!(restored[0].token > old, "a new grant");
    assert_eq!(house.holders("y"), ["b"]);
}

#[test]
fn a_forced_release_is_in_the_history_and_not_restored() {
    let mut house = House::new();
    house.granted("a", "x");
    let (by, reason) = (AgentName::parse("root").unwrap(), Intention::parse("stuck").unwrap());
    let which = Which::Key(Key::parse("x").unwrap(), None);
    house.tell(Command::ForceRelease { by, reason, which, request: None });
    let entry = house.state.history().newest().next().unwrap().clone();
    assert_eq!((entry.action, entry.note.as_deref()), (Action::ForceReleased, Some("root: stuck")));
    let released = house.release("a", "x");
    assert!(matches!(released, Answer::Refused(Refusal::LockLost { .. })), "the holder learns it: {released:?}");
    // Expired, it would be restored; taken away, it is not.
    house.granted("a", "x");
    let (by, reason) = (AgentName::parse("root").unwrap(), Intention::parse("stuck").unwrap());
    let which = Which::Key(Key::parse("x").unwrap(), None);
    house.tell(Command::ForceRelease { by, reason, which, request: None });
    let (restored, skipped) = opened(&mut house, "a");
    assert!(restored.is_empty());
    assert!(
        matches!(&skipped[..], [Skipped { why: Skip::Taken { note: Some(note) }, .. }] if &**note == "root: stuck")
    );
}

fn opened(house: &mut House, session: &str) -> (Vec<Arc<Lock>>, Vec<Skipped>) {
    match house.tell(Command::OpenSession { actor: actor(session) }) {
        Answer::Opened { restored, skipped, .. } => (restored, skipped),
        other => panic!("{other:?}"),
    }
}

/// A session that lost as many locks as this, in a house with a quota.
fn lost(count: usize, quota_limit: u32) -> House {
    let mut house = House::new();
    for number in 0..count {
        house.granted("a", &format!("f{number}"));
    }
    house.wait(31_000);
    house.rules.quota_limit = quota_limit;
    house
}

#[test]
fn a_restore_counts_once_however_much_comes_back() {
    let mut house = lost(10, 3);
    let (restored, skipped) = opened(&mut house, "a");
    assert_eq!((restored.len(), skipped.len()), (10, 0));
    house.granted("a", "x");
    house.granted("a", "y");
    let refusal = house.refused(Command::Acquire(wanting("a", &["z"])));
    assert!(matches!(refusal, Refusal::RateLimited { limit: 3, .. }), "{refusal:?}");
}

#[test]
fn a_restore_beyond_the_quota_says_so() {
    let mut house = lost(3, 1);
    house.granted("a", "x");
    let (restored, skipped) = opened(&mut house, "a");
    assert_eq!((restored.len(), skipped.len()), (0, 3));
    for skipped in skipped {
        let Skip::Refused(why) = &skipped.why else { panic!("{skipped:?}") };
        assert!(matches!(**why, Refusal::RateLimited { limit: 1, .. }), "{why:?}");
    }
}

#[test]
fn what_is_waited_for_in_a_restore_is_counted_with_it() {
    let mut house = lost(2, 2);
    for key in ["f0", "f1"] {
        house.granted("b", key);
    }
    let session = SessionId::parse("a").unwrap();
    let lost = house.state.lost_of(&session);
    let lost: Vec<_> = lost.map(|(target, loss)| (target.clone(), loss.clone())).collect();
    assert_eq!(lost.len(), 2);
    opened(&mut house, "a");
    for (number, (target, loss)) in lost.iter().enumerate() {
        let again = Acquire { restores: number > 0, ..loss.again(&actor("a"), target, Millis(5000)) };
        assert!(matches!(house.outcome(Command::Acquire(again)), Outcome::Queued(_)));
    }
    house.release("b", "f0");
    house.release("b", "f1");
    assert_eq!((house.holders("f0"), house.holders("f1")), (vec!["a".to_owned()], vec!["a".to_owned()]));
    house.granted("a", "x");
    assert!(matches!(house.refused(Command::Acquire(wanting("a", &["z"]))), Refusal::RateLimited { limit: 2, .. }));
}

#[test]
fn a_bound_credential_may_not_use_another_agents_session() {
    let mut house = House::new();
    house.granted("a", "x");
    let thief = Actor { bound: true, agent: AgentName::parse("thief").unwrap(), ..actor("a") };
    let which = Which::Everything;
    let refusal = house.refused(Command::Release { actor: thief, which, token: None, request: None });
    assert!(matches!(refusal, Refusal::ForeignSession { .. }));
    assert_eq!(house.holders("x"), ["a"]);
}

#[test]
fn a_grant_that_nobody_heard_of_is_given_back_unless_its_session_was_told_what_it_holds() {
    let mut house = House::new();
    let session = SessionId::parse("a").unwrap();
    let give_back = |house: &mut House, even_if_heard: bool| {
        let key = Key::parse("x").unwrap();
        let locks = house.state.own_on_key(&session, &key).map(|lock| lock.id).collect();
        house.tell(Command::GiveBack { session: session.clone(), locks, even_if_heard });
    };
    house.granted("a", "x");
    house.wait(10);
    give_back(&mut house, false);
    assert!(house.holders("x").is_empty(), "nobody knows of it");
    house.granted("a", "x");
    house.wait(10);
    house.granted("a", "y");
    give_back(&mut house, false);
    assert!(house.holders("x").is_empty(), "nor by what its session does elsewhere");
    house.granted("a", "x");
    house.wait(10);
    house.tell(Command::OpenSession { actor: actor("a") });
    give_back(&mut house, false);
    assert_eq!(house.holders("x"), ["a"], "it was told what it holds");
    give_back(&mut house, true);
    assert!(house.holders("x").is_empty());
}

#[test]
fn what_a_session_still_holds_is_refreshed_by_a_restore() {
    let mut house = House::new();
    let token = house.granted("a", "x");
    for command in [
        |actor| Command::RestoreSession { actor },
        |actor| Command::OpenSession { actor },
        |actor| Command::RestoreSession { actor },
    ] {
        house.wait(20_000);
        let answer = house.tell(command(actor("a")));
        let Answer::Opened { restored, refreshed, skipped, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((restored.len(), refreshed.len(), skipped.len()), (0, 1, 0));
        assert_eq!((refreshed[0].token, refreshed[0].expires), (token, house.now.time.plus(Millis(30_000))));
    }
    assert_eq!(house.holders("x"), ["a"], "twice as long as its TTL");
}

#[test]
fn closing_a_session_that_holds_nothing_forgets_what_it_lost_and_its_quota() {
    let mut house = lost(1, 1);
    house.rules.quota_limit = 1;
    house.granted("a", "y");
    house.release("a", "y");
    assert!(matches!(house.refused(Command::Acquire(wanting("a", &["z"]))), Refusal::RateLimited { .. }));
    assert_eq!(house.state.lost_of(&SessionId::parse("a").unwrap()).count(), 1);
    let answer = house.tell(Command::CloseSession { actor: actor("a") });
    assert!(matches!(&answer, Answer::Closed { released, .. } if released.is_empty()), "{answer:?}");
    assert_eq!(house.state.lost_of(&SessionId::parse("a").unwrap()).count(), 0);
    assert_eq!(opened(&mut house, "a").0.len(), 0, "nothing comes back");
    assert!(house.holders("f0").is_empty());
    house.granted("a", "z");
}

#[test]
fn who_gives_everything_back_is_not_told_of_losses_any_more() {
    let mut house = House::new();
    house.granted("a", "x");
    let (by, reason) = (AgentName::parse("root").unwrap(), Intention::parse("stuck").unwrap());
    let which = Which::Key(Key::parse("x").unwrap(), None);
    house.tell(Command::ForceRelease { by, reason, which, request: None });
    assert_eq!(house.state.lost_of(&SessionId::parse("a").unwrap()).count(), 1);
    house.tell(Command::Release { actor: actor("a"), which: Which::Everything, token: None, request: None });
    assert_eq!(house.state.lost_of(&SessionId::parse("a").unwrap()).count(), 0);
}

#[test]
fn a_loss_that_is_heard_of_late_does_not_hide_a_newer_one() {
    let mut house = House::new();
    let held = |house: &House| house.state.locks().next().expect("held").clone();
    house.granted("a", "x");
    let vanished = held(&house);
    house.release("a", "x");
    house.wait(1);
    house.granted("a", "x");
    let newer = held(&house).id;
    house.wait(31_000);
    let last_token = house.state.last_token();
    house.outcome(Command::Mourn { locks: vec![vanished], last_token });
    let renew = Command::Renew { actor: actor("a"), which: Which::Id(newer), ttl: None, token: None };
    let refusal = house.refused(renew);
    assert!(matches!(refusal, Refusal::LockLost { .. }), "{refusal:?}");
}

/// As a server does that hears late of a rewritten past: it writes down all that it knew and that is no more.
fn mourn(house: &mut House, lock: &Arc<Lock>) {
    house.outcome(Command::Mourn { locks: vec![lock.clone()], last_token: lock.token });
}

#[test]
fn what_was_given_back_before_a_lost_past_is_heard_of_is_not_called_lost() {
    let mut house = House::new();
    house.granted("a", "x");
    let known = house.state.locks().next().unwrap().clone();
    house.release("a", "x");
    mourn(&mut house, &known);
    let session = SessionId::parse("a").unwrap();
    assert_eq!(house.state.lost_of(&session).count(), 0);
    let Answer::Opened { restored, .. } = house.tell(Command::OpenSession { actor: actor("a") }) else { panic!() };
    assert!(restored.is_empty(), "nobody wants it back: {restored:?}");
}

#[test]
fn the_id_of_a_lock_that_a_lost_past_gave_is_not_given_again() {
    let mut lost = House::new();
    lost.granted("a", "x");
    lost.granted("a", "y");
    let gone = lost.state.locks().max_by_key(|lock| lock.token).unwrap().clone();
    // The same past, without its last moment.
    let mut house = House::new();
    house.granted("a", "x");
    mourn(&mut house, &gone);
    house.granted("a", "z");
    assert!(house.state.lock(gone.id).is_none(), "{:?}", house.state.lock(gone.id));
}

#[test]
fn a_token_means_the_span_that_it_came_with() {
    let mut house = House::new();
    let first = house.granted("a", "f#1-10");
    let second = house.granted("a", "f#20-30");
    let release = |token| Command::Release {
        actor: actor("a"),
        which: Which::Key(Key::parse("f").unwrap(), None),
        token: Some(token),
        request: None,
    };
    let Answer::Released { locks } = house.tell(release(first)) else { panic!() };
    assert_eq!(locks.iter().map(|lock| lock.token).collect::<Vec<_>>(), [first]);
    assert!(matches!(house.refused(release(first)), Refusal::LockLost { .. }));
    let Answer::Released { locks } = house.tell(release(second)) else { panic!() };
    assert_eq!(locks.len(), 1);
}
