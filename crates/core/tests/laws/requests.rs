//! Requests that come twice, and requests that come too often.

use lockkeeper_core::command::{Acquire, Command, Request};
use lockkeeper_core::decide::Context;
use lockkeeper_core::outcome::{Answer, Outcome, Refusal};
use lockkeeper_core::session::RequestId;
use lockkeeper_core::state::Rules;
use lockkeeper_core::time::Millis;

use crate::house::{House, wanting};

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
    let cx = Context { rules: &house.rules, now: house.now, refused_lately: 3 };
    let refused = house.state.decide(&cx, &Command::Acquire(wanting("polls", &["x"])), &mut Vec::new());
    assert!(matches!(refused, Outcome::Told(Answer::Refused(Refusal::RateLimited { .. }))), "{refused:?}");
}
