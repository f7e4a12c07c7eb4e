//! How long a lock lives, and who may end it.

use lockkeeper_core::command::{Command, Which};
use lockkeeper_core::history::Action;
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, NotFound, Refusal};
use lockkeeper_core::time::Millis;

use crate::house::{House, actor, busy};

#[test]
fn p4_a_lock_lives_to_the_end_of_its_ttl_and_not_longer() {
    let mut house = House::new();
    house.granted("a", "x");
    house.wait(29_999);
    busy(house.acquire("b", &["x"]));
    house.wait(1);
    house.granted("b", "x");
    let actions: Vec<Action> = house.state.history().newest().map(|entry| entry.action).collect();
    assert_eq!(
        actions,
        [Action::Acquired, Action::Expired, Action::Acquired],
        "it left before anything took its place"
    );
}

#[test]
fn a_beat_renews_everything_that_a_session_holds() {
    let mut house = House::new();
    house.granted("a", "x");
    house.granted("a", "y");
    house.wait(20_000);
    house.beat("a");
    house.wait(20_000);
    busy(house.acquire("b", &["x"]));
    busy(house.acquire("b", &["y"]));
}

#[test]
fn p5_release_and_renew_need_the_owner() {
    let mut house = House::new();
    house.granted("a", "x");
    let refusal = house.release("b", "x");
    assert!(matches!(refusal, Answer::Refused(Refusal::NotOwner { .. })), "{refusal:?}");
    let which = Which::Key(Key::parse("x").unwrap(), None);
    let renew = Command::Renew { actor: actor("b"), which, ttl: None, token: None };
    assert!(matches!(house.refused(renew), Refusal::NotOwner { .. }));
    assert_eq!(house.holders("x"), ["a"]);
    let nothing = house.release("b", "never-held");
    assert!(matches!(nothing, Answer::Refused(Refusal::NotFound { what: NotFound::Key(..) })), "{nothing:?}");
}

#[test]
fn an_expired_holder_is_told_that_it_lost_the_lock() {
    let mut house = House::new();
    let token = house.granted("a", "x");
    house.wait(31_000);
    house.granted("b", "x");
    let renew = |token| {
        let which = Which::Key(Key::parse("x").unwrap(), None);
        Command::Renew { actor: actor("a"), which, ttl: None, token }
    };
    assert!(matches!(house.refused(renew(None)), Refusal::LockLost { .. }));
    assert!(matches!(house.refused(renew(Some(token))), Refusal::LockLost { .. }));
    let released = house.release("a", "x");
    assert!(matches!(released, Answer::Refused(Refusal::LockLost { .. })), "{released:?}");
    assert_eq!(house.holders("x"), ["b"], "the successor's lock stays");
}

#[test]
fn a_stale_token_releases_nothing() {
    let mut house = House::new();
    let old = house.granted("a", "x");
    house.release("a", "x");
    house.granted("a", "x");
    let which = Which::Key(Key::parse("x").unwrap(), None);
    let release = Command::Release { actor: actor("a"), which, token: Some(old), request: None };
    assert!(matches!(house.refused(release), Refusal::LockLost { .. }));
    assert_eq!(house.holders("x"), ["a"]);
}

#[test]
fn release_by_key_frees_all_own_spans_and_with_lines_the_one() {
    let mut house = House::new();
    for lines in ["x#1-5", "x#10-15", "x#20-25"] {
        house.granted("a", lines);
    }
    house.granted("b", "x#30-35");
    house.release("a", "x#10-15");
    assert_eq!(house.holders("x"), ["a", "a", "b"]);
    house.release("a", "x");
    assert_eq!(house.holders("x"), ["b"]);
}

#[test]
fn p5_a_stale_token_gives_back_and_renews_nothing_of_all_that_is_held() {
    let mut house = House::new();
    let stale = house.granted("a", "x");
    house.wait(40_000);
    let token = house.granted("a", "x");
    let all = |token| Command::Release { actor: actor("a"), which: Which::Everything, token, request: None };
    let renew = |token| Command::Renew { actor: actor("a"), which: Which::Everything, ttl: None, token };
    for command in [all(Some(stale)), renew(Some(stale))] {
        let refusal = house.refused(command);
        assert!(matches!(refusal, Refusal::LockLost { .. }), "{refusal:?}");
        assert_eq!(house.holders("x"), ["a"]);
    }
    house.granted("a", "y");
    assert!(matches!(house.tell(renew(Some(token))), Answer::Renewed { locks, .. } if locks.len() == 1));
    assert!(matches!(house.tell(all(Some(token))), Answer::Released { locks } if locks.len() == 1));
    assert_eq!(house.holders("y"), ["a"], "it came with another token");
}

#[test]
fn whoever_renews_everything_for_longer_is_told_what_was_lost() {
    let mut house = House::new();
    house.granted("a", "x");
    house.wait(40_000);
    house.granted("a", "y");
    let ttl = Some(Millis(60_000));
    let renew = Command::Renew { actor: actor("a"), which: Which::Everything, ttl, token: None };
    let Answer::Renewed { locks, lost, .. } = house.tell(renew) else { panic!() };
    assert_eq!((locks.len(), lost.len()), (1, 1));
}
