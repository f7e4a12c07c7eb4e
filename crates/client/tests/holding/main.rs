//! What becomes of a grant when the service fails right behind it.

mod service;

use std::time::{Duration, Instant};

use lockkeeper_client::{Client, Holding, Identity};
use lockkeeper_wire::request::{AcquireRequest, LockSpec};
use lockkeeper_wire::word::Word;
use service::{ATTACH, RELEASE, RENEW, Service};

/// Longer than a tenth of the TTL: a grant that took so long has to be proved.
const LONG: Duration = Duration::from_millis(300);
const TTL_MS: u64 = 1500;
const ALWAYS: u32 = u32::MAX;

fn holding(client: Client) -> Holding {
    let me = Identity { session: "a".into(), agent: "a".into(), agent_type: None, space: None };
    Holding::start(client, me).expect("a thread")
}

fn wanting(paths: &[&str]) -> AcquireRequest {
    let spec = |path: &&str| LockSpec { file_path: (*path).to_owned(), ..LockSpec::default() };
    AcquireRequest { locks: Some(paths.iter().map(spec).collect()), ..AcquireRequest::default() }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(15);
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_grant_that_can_not_be_proved_is_given_back_and_its_outcome_is_unknown() {
    let (service, client) = Service::start(LONG, TTL_MS);
    let holding = holding(client);
    service.fail(RENEW, ALWAYS);
    let began = Instant::now();
    let error = holding.take(wanting(&["x", "y"])).expect_err("no proof");
    assert!(began.elapsed() < Duration::from_millis(2 * TTL_MS), "its TTL bounds the trying: {:?}", began.elapsed());
    assert_eq!(error.word(), Word::OutcomeUnknown, "{error}");
    assert!(error.to_string().contains("Not now"), "says why: {error}");
    assert_eq!((service.held(), holding.locks().len()), (vec![], 0));
    assert!(holding.next_lost().is_none(), "what was never held is not lost");
}

#[test]
fn a_service_that_fails_for_a_moment_costs_no_lock() {
    let (service, client) = Service::start(LONG, TTL_MS);
    let holding = holding(client);
    service.fail(RENEW, 2);
    service.fail(ATTACH, 2);
    holding.take(wanting(&["x"])).expect("a lock");
    assert!(holding.is_held());
    assert_eq!(service.held(), ["x"]);
}

#[test]
fn what_can_not_be_given_back_at_once_is_given_back_before_the_next_beat() {
    let (service, client) = Service::start(LONG, TTL_MS);
    let holding = holding(client);
    holding.stay_alive();
    service.fail(RENEW, ALWAYS);
    service.fail(RELEASE, ALWAYS);
    assert_eq!(holding.take(wanting(&["x"])).expect_err("no proof").word(), Word::OutcomeUnknown);
    assert_eq!(service.held(), ["x"]);
    {
        let mut state = service.state();
        state.failures.clear();
        state.asked.clear();
    }
    eventually("nobody beats", || service.state().asked.iter().any(|(operation, _)| operation == RENEW));
    let asked = service.state().asked.clone();
    assert_eq!(asked[0].0, RELEASE, "{asked:?}");
    assert!(service.held().is_empty());
}

#[test]
fn whoever_asks_again_for_what_is_still_to_be_given_back_gets_it_anew() {
    let (service, client) = Service::start(LONG, TTL_MS);
    let holding = holding(client);
    service.fail(RENEW, ALWAYS);
    service.fail(RELEASE, ALWAYS);
    assert_eq!(holding.take(wanting(&["x"])).expect_err("no proof").word(), Word::OutcomeUnknown);
    assert_eq!(holding.take(wanting(&["x"])).expect_err("still away").word(), Word::Unavailable);
    service.state().failures.clear();
    let answer = holding.take(wanting(&["x"])).expect("a lock");
    assert_eq!(answer["action"], "acquired", "{answer}");
    // Longer than any pause after which something is given back.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(holding.is_held() && service.held() == ["x"]);
    holding.release().expect("its own");
    assert!(service.held().is_empty());
}

#[test]
fn what_the_session_had_before_is_not_given_back_with_what_could_not_be_proved() {
    let (service, client) = Service::start(Duration::ZERO, 60_000);
    let other = holding(client.clone());
    other.take(wanting(&["before"])).expect("a lock");
    let holding = holding(client);
    service.state().wait = LONG;
    service.state().ttl_ms = TTL_MS;
    service.fail(RENEW, ALWAYS);
    let error = holding.take(wanting(&["before", "new"])).expect_err("no proof");
    assert_eq!(error.word(), Word::OutcomeUnknown, "{error}");
    assert_eq!(service.held(), ["before"]);
    assert_eq!((other.locks().len(), holding.locks().len()), (1, 0));
}

#[test]
fn a_grant_that_can_not_be_bound_to_its_program_is_given_back_and_its_outcome_is_unknown() {
    let (service, client) = Service::start(Duration::ZERO, TTL_MS);
    let other = holding(client.clone());
    other.take(wanting(&["before"])).expect("a lock");
    let holding = holding(client);
    service.fail(ATTACH, ALWAYS);
    let error = holding.take(wanting(&["before", "x"])).expect_err("nothing binds it");
    assert_eq!(error.word(), Word::OutcomeUnknown, "{error}");
    assert_eq!((service.held(), other.locks().len(), holding.locks().len()), (vec!["before".to_owned()], 1, 0));
}

#[test]
fn a_grant_of_unknown_outcome_is_asked_for_again_by_its_id_and_is_this_programs_to_release() {
    let (service, client) = Service::start(Duration::ZERO, 60_000);
    let holding = holding(client);
    service.state().unknown = 3;
    let answer = holding.take(wanting(&["x"])).expect("known in the end");
    assert_eq!(answer["action"], "acquired", "{answer}");
    holding.release().expect("its own");
    assert!(service.held().is_empty());
}

#[test]
fn a_stream_that_is_cut_is_opened_again_until_it_is_open_and_then_a_beat_tells_what_was_missed() {
    let (service, client) = Service::start(Duration::ZERO, 60_000);
    let holding = holding(client);
    holding.take(wanting(&["x"])).expect("a lock");
    let (attached, beaten) = (service.count(ATTACH), service.count(RENEW));
    service.fail(ATTACH, 2);
    service.state().held.clear();
    service.cut_streams();
    // Long before the next beat is due, which is not before 10 s.
    let began = Instant::now();
    eventually("told of the loss", || holding.next_lost().is_some());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(service.count(ATTACH) >= attached + 3 && service.count(RENEW) > beaten);
}

#[test]
fn what_was_granted_to_whoever_heard_no_answer_is_given_back() {
    let (service, client) = Service::start(Duration::ZERO, 60_000);
    let holding = holding(client);
    holding.take(wanting(&["mine"])).expect("a lock");
    service.state().mute = true;
    let error = holding.take(wanting(&["ghost"])).expect_err("no answer");
    assert_eq!(error.word(), Word::OutcomeUnknown, "{error}");
    assert_eq!(service.held(), ["mine", "ghost"]);
    service.state().mute = false;
    eventually("the ghost is gone", || service.held() == ["mine"]);
    assert!(holding.is_held());
}
