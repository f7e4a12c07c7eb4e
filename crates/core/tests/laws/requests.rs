//! Requests that come twice, and requests that come too often.

use lockkeeper_core::command::{Acquire, Command, Request, Which};
use lockkeeper_core::decide::Context;
use lockkeeper_core::key::Key;
use lockkeeper_core::limits::{REQUESTS_LOCKS_MAX, SET_MAX};
use lockkeeper_core::outcome::{Answer, Outcome, Refusal};
use lockkeeper_core::session::RequestId;
use lockkeeper_core::state::Rules;
use lockkeeper_core::time::Millis;

use crate::house::{House, actor, wanting};

#[test]
fn p7_the_same_request_gets_the_same_answer_and_changes_nothing() {
    let mut house = House::new();
    let request = |digest| Some(Request { id: RequestId::parse("r1").unwrap(), digest });
    let acquire = |digest| Command::Acquire(Acquire { request: request(digest), ..wanting("a", &["x"]) });
    let Answer::Granted { locks: first, .. } = house.tell(acquire(1)) else { panic!() };
    house.release("a", "x");
    house.wait(1000);
    let Answer::Granted { locks: again, fresh } = house.tell(acquire(1)) else { panic!() };
    assert_eq!((again, fresh), (first, 1));
    assert!(house.holders("x").is_empty(), "told again, not done again");
    assert!(matches!(house.refused(acquire(2)), Refusal::RequestMismatch));
    house.wait(600_000);
    assert!(matches!(house.tell(acquire(2)), Answer::Granted { .. }), "forgotten after ten minutes");
}

#[test]
fn p7_the_id_of_what_waits_names_nothing_else() {
    let mut house = House::new();
    house.granted("a", "x");
    house.granted("b", "y");
    let request = |digest| Some(Request { id: RequestId::parse("r1").unwrap(), digest });
    let acquire = Command::Acquire(Acquire { wait: Millis(5000), request: request(1), ..wanting("b", &["x"]) });
    assert!(matches!(house.outcome(acquire), Outcome::Queued(_)));
    let which = Which::Key(Key::parse("y").unwrap(), None);
    let release = Command::Release { actor: actor("b"), which, token: None, request: request(2) };
    assert!(matches!(house.refused(release), Refusal::RequestMismatch));
    assert_eq!(house.holders("y"), ["b"]);
}

#[test]
fn a_waiting_request_that_comes_back_finds_its_place() {
    let mut house = House::new();
    house.granted("a", "x");
    let request = Some(Request { id: RequestId::parse("r1").unwrap(), digest: 1 });
    let acquire = Command::Acquire(Acquire { wait: Millis(5000), request, ..wanting("b", &["x"]) });
    let Outcome::Queued(first) = house.outcome(acquire.clone()) else { panic!() };
    let Outcome::Queued(again) = house.outcome(acquire) else { panic!() };
    assert_eq!((first, house.state.waiter_count()), (again, 1));
}

#[test]
fn a_session_over_its_quota_is_told_when_to_come_back() {
    let mut house = House::new();
    house.rules = Rules { quota_limit: 3, quota_window: Millis(60_000), ..Rules::default() };
    for key in ["x", "y", "z"] {
        house.granted("a", key);
        house.wait(1000);
    }
    let refusal = house.refused(Command::Acquire(wanting("a", &["w"])));
    assert!(matches!(refusal, Refusal::RateLimited { limit: 3, retry_after: Millis(57_000), .. }), "{refusal:?}");
    assert!(matches!(house.acquire("a", &["x"]), Answer::Granted { .. }), "a refresh costs nothing");
    house.granted("b", "w");
    house.release("b", "w");
    house.wait(57_000);
    house.granted("a", "w");
}

#[test]
fn a_session_that_is_only_refused_uses_up_its_quota_too() {
    let mut house = House::new();
    house.rules.quota_limit = 3;
    house.granted("a", "x");
    let ago = |ms| house.now.time.minus(Millis(ms));
    let refusals = [ago(50_000), ago(20_000), ago(10_000)];
    let cx = Context { rules: &house.rules, now: house.now, refused_lately: &refusals };
    let refused = house.state.decide(&cx, &Command::Acquire(wanting("polls", &["x"])), &mut Vec::new());
    let Outcome::Told(Answer::Refused(Refusal::RateLimited { retry_after, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(retry_after, Millis(10_000), "when the first of them is a minute old");
}

#[test]
fn whoever_comes_back_when_it_was_told_to_is_not_told_again() {
    let mut house = House::new();
    house.rules = Rules { quota_limit: 3, quota_window: Millis(60_000), ..Rules::default() };
    house.granted("a", "x");
    house.wait(59_000);
    // One grant is about to be forgotten, and four refusals are not.
    let refusals = [1, 2, 3, 4].map(|second| house.now.time.minus(Millis(second * 1000)));
    let ask = Command::Acquire(wanting("a", &["y"]));
    let cx = Context { rules: &house.rules, now: house.now, refused_lately: &refusals };
    let refused = house.state.decide(&cx, &ask, &mut Vec::new());
    let Outcome::Told(Answer::Refused(Refusal::RateLimited { retry_after, .. })) = refused else {
        panic!("{refused:?}")
    };
    house.wait(retry_after.0);
    let cx = Context { rules: &house.rules, now: house.now, refused_lately: &refusals };
    let granted = house.state.decide(&cx, &ask, &mut Vec::new());
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
}

#[test]
fn what_is_waited_for_counts_for_the_quota() {
    let mut house = House::new();
    house.rules = Rules { quota_limit: 3, quota_window: Millis(60_000), ..Rules::default() };
    house.granted("holder", "src/**");
    for file in ["src/a", "src/b", "src/c"] {
        house.queue("many", &[file], 5);
    }
    let wait = Acquire { wait: Millis(5000), ..wanting("many", &["src/d"]) };
    let refusal = house.refused(Command::Acquire(wait));
    assert!(matches!(refusal, Refusal::RateLimited { .. }), "{refusal:?}");
    house.release("holder", "src/**");
    assert_eq!(house.holders("src/**").len(), 3);
}

#[test]
fn p7_whoever_gives_back_what_was_lost_is_told_the_same_again() {
    let mut house = House::new();
    house.granted("a", "x");
    house.wait(40_000);
    let request = Some(Request { id: RequestId::parse("r1").unwrap(), digest: 1 });
    let which = Which::Key(Key::parse("x").unwrap(), None);
    let release = Command::Release { actor: actor("a"), which, token: None, request };
    assert!(matches!(house.refused(release.clone()), Refusal::LockLost { .. }));
    house.granted("b", "x");
    let again = house.refused(release);
    assert!(matches!(&again, Refusal::LockLost { targets } if targets.len() == 1), "{again:?}");
}

#[test]
fn answers_are_remembered_by_how_much_they_say() {
    let mut house = House::new();
    let keys: Vec<String> = (0..SET_MAX).map(|number| format!("f{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let first = Some(Request { id: RequestId::parse("first").unwrap(), digest: 1 });
    let ask = |session: &str, request| Command::Acquire(Acquire { request, ..wanting(session, &keys) });
    house.tell(ask("s0", first.clone()));
    // As many large answers as there is room for, and one more: the first is forgotten long before its ten minutes.
    for number in 0..=REQUESTS_LOCKS_MAX / SET_MAX {
        let session = format!("s{}", number / 100);
        let everything =
            Command::Release { actor: actor(&session), which: Which::Everything, token: None, request: None };
        let holder = format!("s{}", number.saturating_sub(1) / 100);
        house.tell(Command::Release { actor: actor(&holder), which: Which::Everything, token: None, request: None });
        let request = Some(Request { id: RequestId::parse(&format!("r{number}")).unwrap(), digest: 1 });
        assert!(matches!(house.tell(ask(&session, request)), Answer::Granted { .. }));
        house.tell(everything);
    }
    let answer = house.tell(ask("s0", first));
    let Answer::Granted { locks, .. } = answer else { panic!("{answer:?}") };
    assert!(house.state.lock(locks[0].id).is_some(), "granted anew, not remembered");
}
