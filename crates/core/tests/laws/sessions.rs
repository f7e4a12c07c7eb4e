//! Sessions that end, come back, lose a lock by force, or belong to somebody else.

use lockkeeper_core::command::{Actor, Command, Which};
use lockkeeper_core::history::Action;
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::session::{AgentName, Intention, SessionId};

use crate::house::{House, actor};

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
    let Answer::Opened { restored, .. } = house.tell(Command::OpenSession { actor: actor("a") }) else { panic!() };
    assert!(restored.is_empty());
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
