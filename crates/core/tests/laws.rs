//! The rules as laws: small stories told to a state, with time as an argument.

use std::collections::HashMap;

use lockkeeper_core::command::{Acquire, Actor, Command, Request, Want, Which};
use lockkeeper_core::decide::Context;
use lockkeeper_core::event::Event;
use lockkeeper_core::history::Action;
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::lock::{LockId, Token};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Answer, Blocker, BusyReason, Limit, NotFound, Outcome, Refusal};
use lockkeeper_core::session::{AgentName, Intention, RequestId, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::state::{Rules, State};
use lockkeeper_core::time::{Millis, Stamp, Time};
use proptest::prelude::*;

/// A state with a clock that the test turns, and the events that led to it.
struct House {
    state: State,
    rules: Rules,
    now: Stamp,
    ledger: Vec<(Stamp, Event)>,
}

impl House {
    fn new() -> House {
        let now = Stamp { time: Time(1_000_000_000), wall: 1_000_000_000 };
        House { state: State::new(7), rules: Rules { quota_limit: 0, ..Rules::default() }, now, ledger: Vec::new() }
    }

    fn wait(&mut self, ms: u64) {
        self.now.time = self.now.time.plus(Millis(ms));
        self.now.wall += ms * 1000;
    }

    fn outcome(&mut self, command: Command) -> Outcome {
        let mut events = Vec::new();
        let cx = Context { rules: &self.rules, now: self.now, refused_lately: 0 };
        self.state.begin();
        let outcome = self.state.decide(&cx, &command, &mut events);
        self.state.keep();
        self.ledger.extend(events.into_iter().map(|event| (self.now, event)));
        outcome
    }

    fn tell(&mut self, command: Command) -> Answer {
        let outcome = self.outcome(command);
        self.state.answer(&outcome).expect("an answer at once")
    }

    fn acquire(&mut self, session: &str, keys: &[&str]) -> Answer {
        self.tell(Command::Acquire(wanting(session, keys)))
    }

    fn granted(&mut self, session: &str, key: &str) -> Token {
        match self.acquire(session, &[key]) {
            Answer::Granted { locks, .. } => locks[0].token,
            other => panic!("{session} {key}: {other:?}"),
        }
    }

    fn refused(&mut self, command: Command) -> Refusal {
        match self.tell(command) {
            Answer::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    fn queue(&mut self, session: &str, keys: &[&str], priority: u8) {
        let acquire = Acquire { wait: Millis(3_600_000), priority, ..wanting(session, keys) };
        let outcome = self.outcome(Command::Acquire(acquire));
        assert!(matches!(outcome, Outcome::Queued(_)), "{session}: {outcome:?}");
    }

    fn release(&mut self, session: &str, key: &str) -> Answer {
        let (key, span) = split(key);
        let span = Some(span).filter(|span| !span.is_whole());
        self.tell(Command::Release { actor: actor(session), which: Which::Key(key, span), token: None, request: None })
    }

    fn holders(&self, key: &str) -> Vec<String> {
        let (key, span) = split(key);
        let target = Target::new(key, span).unwrap();
        let mut found: Vec<String> = self
            .state
            .locks()
            .filter(|lock| lock.target.overlaps(&target))
            .map(|lock| lock.session.to_string())
            .collect();
        found.sort();
        found
    }

    fn beat(&mut self, session: &str) {
        self.tell(Command::Beat { sessions: vec![SessionId::parse(session).unwrap()], waiters: Vec::new() });
    }
}

fn actor(session: &str) -> Actor {
    let session = SessionId::parse(session).unwrap();
    Actor { agent: AgentName::parse(session.as_str()).unwrap(), session, agent_type: None, bound: false }
}

fn split(text: &str) -> (Key, Span) {
    match text.rsplit_once('#') {
        Some((key, lines)) => (Key::parse(key).unwrap(), Span::parse(lines).unwrap()),
        None => (Key::parse(text).unwrap(), Span::WHOLE),
    }
}

fn want(text: &str) -> Want {
    let (text, mode) = text.strip_suffix('~').map_or((text, Mode::Exclusive), |text| (text, Mode::Shared));
    let (key, span) = split(text);
    Want { target: Target::new(key, span).unwrap(), mode }
}

/// `a.rs#1-5~` is lines 1 to 5 of a.rs, shared.
fn wanting(session: &str, keys: &[&str]) -> Acquire {
    Acquire {
        actor: actor(session),
        wants: keys.iter().map(|key| want(key)).collect(),
        intention: Intention::parse("work").unwrap(),
        ttl: Millis(30_000),
        wait: Millis(0),
        priority: 5,
        feature: None,
        request: None,
    }
}

fn busy(answer: Answer) -> lockkeeper_core::outcome::Busy {
    match answer {
        Answer::Refused(Refusal::Busy(busy)) => busy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn overlapping_lines_conflict_and_others_do_not() {
    let mut house = House::new();
    house.granted("a", "auth.rs#10-50");
    let refused = busy(house.acquire("b", &["auth.rs#25-40"]));
    assert_eq!(refused.reason, BusyReason::Contended);
    assert!(matches!(&refused.conflicts[0].with, Blocker::Held(lock) if lock.session.as_str() == "a"));
    assert_eq!(refused.free, [Span::parse("51-66").unwrap()], "nothing as long fits before line 10");
    house.granted("b", "auth.rs#60-80");
    assert_eq!(busy(house.acquire("c", &["auth.rs"])).conflicts.len(), 2);
}

#[test]
fn a_free_range_is_really_free() {
    let mut house = House::new();
    house.granted("a", "f#20-29");
    house.granted("b", "f#31-40");
    let free = busy(house.acquire("c", &["f#25-34"])).free;
    assert_eq!(free, [Span::parse("41-50").unwrap(), Span::parse("10-19").unwrap()]);
    for span in free {
        house.granted("c", &format!("f#{span}"));
    }
}

#[test]
fn shared_goes_with_shared_only() {
    let mut house = House::new();
    house.granted("a", "x~");
    house.granted("b", "x~");
    busy(house.acquire("c", &["x"]));
    house.release("a", "x");
    house.release("b", "x");
    house.granted("c", "x");
    busy(house.acquire("a", &["x~"]));
}

#[test]
fn own_locks_do_not_conflict_and_asking_again_refreshes() {
    let mut house = House::new();
    let token = house.granted("a", "x#1-9");
    house.wait(10_000);
    let Answer::Granted { locks, fresh } = house.acquire("a", &["x#1-9"]) else { panic!() };
    assert_eq!((fresh, locks[0].token), (0, token));
    assert_eq!(locks[0].expires, house.now.time.plus(Millis(30_000)));
    assert!(house.granted("a", "x#5-20") > token);
    assert_eq!(house.holders("x").len(), 2);
}

#[test]
fn from_shared_to_exclusive_is_a_new_grant_with_a_new_token() {
    let mut house = House::new();
    let shared = house.granted("a", "x~");
    house.granted("b", "x~");
    busy(house.acquire("a", &["x"]));
    house.release("b", "x");
    assert!(house.granted("a", "x") > shared);
    assert_eq!(house.holders("x"), ["a"], "the exclusive one took the place of the shared one");
}

#[test]
fn p9_a_set_is_whole_or_nothing() {
    let mut house = House::new();
    house.granted("a", "two");
    busy(house.acquire("b", &["one", "two", "three"]));
    assert!(house.holders("one").is_empty() && house.holders("three").is_empty());
    house.release("a", "two");
    let Answer::Granted { locks, .. } = house.acquire("b", &["one", "two", "three", "one"]) else { panic!() };
    assert_eq!(locks.len(), 3);
    let many: Vec<String> = (0..257).map(|n| format!("f{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = house.acquire("c", &many);
    assert!(matches!(refused, Answer::Refused(Refusal::LimitExceeded { what: Limit::Set })), "{refused:?}");
}

#[test]
fn p2_a_later_grant_has_a_greater_token_even_when_the_clock_stands() {
    let mut house = House::new();
    let first = house.granted("a", "x");
    house.release("a", "x");
    let second = house.granted("b", "x");
    assert!(second > first);
}

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
fn a_freed_lock_goes_to_the_first_in_the_queue_at_once() {
    let mut house = House::new();
    house.granted("a", "x");
    house.queue("b", &["x"], 5);
    house.queue("c", &["x"], 5);
    house.release("a", "x");
    assert_eq!(house.holders("x"), ["b"]);
    house.release("b", "x");
    assert_eq!(house.holders("x"), ["c"]);
}

#[test]
fn p11_a_newcomer_gets_nothing_before_an_earlier_waiter() {
    let mut house = House::new();
    house.granted("a", "x");
    house.queue("b", &["x", "y"], 5);
    let refused = busy(house.acquire("c", &["y"]));
    assert!(matches!(&refused.conflicts[0].with, Blocker::Waiting { .. }));
    assert_eq!(refused.ahead, 1);
    house.granted("c", "z");
}

#[test]
fn priority_goes_first_but_nobody_starves() {
    let mut house = House::new();
    house.granted("a", "x");
    house.queue("low", &["x"], 4);
    house.queue("high", &["x"], 5);
    house.release("a", "x");
    assert_eq!(house.holders("x"), ["high"]);
    house.wait(10_001);
    house.beat("high");
    house.beat("low");
    house.queue("later", &["x"], 5);
    house.release("high", "x");
    assert_eq!(house.holders("x"), ["low"], "a step of age outweighs a step of priority");
}

#[test]
fn p10_a_waiter_whose_session_is_gone_is_passed_over() {
    let mut house = House::new();
    house.tell(Command::Acquire(Acquire { ttl: Millis(600_000), ..wanting("a", &["x"]) }));
    house.queue("dead", &["x"], 5);
    house.queue("alive", &["x"], 5);
    house.wait(29_000);
    house.beat("alive");
    house.wait(2_000);
    house.release("a", "x");
    assert_eq!(house.holders("x"), ["alive"]);
    assert_eq!(house.state.waiter_count(), 0);
}

#[test]
fn p10_a_lock_that_expires_is_not_handed_to_a_session_that_died_meanwhile() {
    let mut house = House::new();
    house.tell(Command::Acquire(Acquire { ttl: Millis(40_000), ..wanting("a", &["x"]) }));
    house.queue("dead", &["x"], 5);
    house.wait(20_000);
    house.queue("alive", &["x"], 5);
    house.wait(20_000);
    house.outcome(Command::Sweep);
    assert_eq!(house.holders("x"), ["alive"], "nobody looked at the queue before the lock expired");
}

#[test]
fn a_wait_that_is_over_leaves_the_queue() {
    let mut house = House::new();
    house.tell(Command::Acquire(Acquire { ttl: Millis(600_000), ..wanting("a", &["x"]) }));
    let acquire = Acquire { wait: Millis(5_000), ..wanting("b", &["x", "y"]) };
    house.outcome(Command::Acquire(acquire));
    house.wait(5_000);
    house.outcome(Command::Sweep);
    assert_eq!(house.state.waiter_count(), 0);
    house.granted("c", "y");
}

#[test]
fn a_wait_that_is_over_gets_nothing_of_what_comes_free_at_the_same_moment() {
    let mut house = House::new();
    house.tell(Command::Acquire(Acquire { ttl: Millis(7_000), ..wanting("a", &["x"]) }));
    house.outcome(Command::Acquire(Acquire { wait: Millis(5_000), ..wanting("b", &["x"]) }));
    house.wait(8_000);
    house.outcome(Command::Sweep);
    assert_eq!(house.holders("x"), [""; 0], "nobody looked for a while: the wait was over before the lease");
    assert_eq!(house.state.waiter_count(), 0);
}

#[test]
fn a_wait_that_would_close_a_cycle_is_refused_with_the_cycle() {
    let mut house = House::new();
    house.granted("a", "x");
    house.granted("b", "y");
    house.granted("c", "z");
    house.queue("a", &["y"], 5);
    house.queue("b", &["z"], 5);
    let refusal = house.refused(Command::Acquire(Acquire { wait: Millis(1000), ..wanting("c", &["x"]) }));
    let Refusal::Deadlock { cycle } = refusal else { panic!("{refusal:?}") };
    let told: Vec<String> = cycle.iter().map(|step| format!("{} wants {}", step.session, step.wanted)).collect();
    assert_eq!(told, ["c wants x", "a wants y", "b wants z"]);
    busy(house.acquire("c", &["x"]));
}

#[test]
fn a_cycle_through_the_queue_is_found_too() {
    let mut house = House::new();
    house.granted("k", "x");
    house.granted("h", "y");
    house.granted("w", "z");
    house.queue("w", &["x"], 0);
    house.queue("h", &["z"], 5);
    let jumping = Acquire { wait: Millis(1000), priority: 10, ..wanting("n", &["x", "y"]) };
    let refusal = house.refused(Command::Acquire(jumping));
    assert!(matches!(refusal, Refusal::Deadlock { .. }), "{refusal:?}");
}

#[test]
fn a_holder_may_lock_a_part_of_what_it_holds_though_others_wait() {
    let mut house = House::new();
    house.granted("a", "x");
    house.queue("b", &["x"], 5);
    house.granted("a", "x#1-5");
}

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

#[test]
fn whoever_waits_overtakes_nobody_and_closes_no_circle_by_it() {
    let mut house = House::new();
    house.granted("u", "k1#1-10");
    house.granted("t", "k2");
    house.queue("t", &["k1#1-100"], 5);
    house.queue("s", &["k2"], 5);
    busy(house.tell(Command::Acquire(Acquire { priority: 10, ..wanting("s", &["k1#50-60"]) })));
    house.tell(Command::Acquire(Acquire { priority: 10, ..wanting("other", &["k1#50-60"]) }));
    assert_eq!(house.holders("k1#50"), ["other"], "who waits for nothing may");
}

#[test]
fn a_long_chain_of_waits_is_searched_without_harm() {
    let mut house = House::new();
    for n in 0..3000 {
        house.granted(&format!("s{n}"), &format!("k{n}"));
    }
    for n in 0..2999 {
        house.queue(&format!("s{n}"), &[&format!("k{}", n + 1)], 5);
    }
    let closing = Acquire { wait: Millis(1000), ..wanting("s2999", &["k0"]) };
    let refusal = house.refused(Command::Acquire(closing));
    assert!(matches!(&refusal, Refusal::Deadlock { cycle } if cycle.len() == 3000));
}

#[test]
fn whoever_opens_a_room_is_answered_though_it_is_closed_at_once() {
    let mut house = House::new();
    let key = Key::parse("x").unwrap();
    let opened = house.outcome(Command::OpenRoom { actor: actor("me"), key: key.clone(), busy: Millis(60_000) });
    house.tell(Command::CloseRoom { actor: actor("me"), key });
    assert!(matches!(house.state.answer(&opened), Some(Answer::RoomClosed { .. })));
}

#[test]
fn a_room_is_left_by_whoever_opened_it() {
    let mut house = House::new();
    let key = Key::parse("x").unwrap();
    house.tell(Command::OpenRoom { actor: actor("me"), key: key.clone(), busy: Millis(60_000) });
    let refusal = house.refused(Command::CloseRoom { actor: actor("agent"), key: key.clone() });
    assert!(matches!(refusal, Refusal::NotInRoom { .. }), "{refusal:?}");
    house.tell(Command::OpenRoom { actor: actor("agent"), key: key.clone(), busy: Millis(1_000) });
    house.wait(2_000);
    busy(house.acquire("agent", &["x"]));
    house.tell(Command::CloseRoom { actor: actor("me"), key });
    house.granted("agent", "x");
}

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
fn agents_keep_out_of_a_room_while_a_person_is_in() {
    let mut house = House::new();
    let key = Key::parse("src/a.rs").unwrap();
    house.tell(Command::OpenRoom { actor: actor("me"), key: key.clone(), busy: Millis(5000) });
    assert_eq!(busy(house.acquire("a", &["src/a.rs#1-5"])).reason, BusyReason::RoomBusy);
    assert_eq!(busy(house.acquire("a", &["src/**"])).reason, BusyReason::RoomBusy);
    house.granted("me", "src/a.rs#1-5");
    house.queue("b", &["src/a.rs#10-15"], 5);
    house.wait(5000);
    house.outcome(Command::Sweep);
    assert_eq!(house.holders("src/a.rs"), ["b", "me"]);
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

/// Commands of a few sessions over a few keys, so that they meet.
fn story() -> impl Strategy<Value = Vec<(u64, Command)>> {
    let session = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let key = prop_oneof![
        Just("f#1-5"),
        Just("f#4-9"),
        Just("f#7"),
        Just("f"),
        Just("f#1-3"),
        Just("d/**"),
        Just("d/x"),
        Just("d/*"),
        Just("f#1-5~"),
        Just("d/x~"),
        Just("flag:a/*"),
        Just("flag:a/b"),
    ];
    let request = prop_oneof![3 => Just(None), 1 => (0..3u64).prop_map(|n| {
        Some(Request { id: RequestId::parse(&format!("r{n}")).unwrap(), digest: n })
    })];
    let waits = prop_oneof![Just(0u64), Just(0), Just(8_000), Just(60_000)];
    let acquire = (session(), prop::collection::vec(key.clone(), 1..3), waits, 0..=10u8, request, 1..40u64).prop_map(
        |(session, keys, wait, priority, request, ttl)| {
            let base = wanting(session, &keys);
            Command::Acquire(Acquire { wait: Millis(wait), priority, request, ttl: Millis(ttl * 1000), ..base })
        },
    );
    let release = (session(), key.clone()).prop_map(|(session, key)| Command::Release {
        actor: actor(session),
        which: Which::Key(want(key).target.key, None),
        token: None,
        request: None,
    });
    let others = (session(), 0..7u8).prop_map(|(session, which)| {
        let key = Key::parse("f").unwrap();
        match which {
            0 => Command::CloseSession { actor: actor(session) },
            1 => Command::OpenSession { actor: actor(session) },
            2 => Command::OpenRoom { actor: actor(session), key, busy: Millis(5000) },
            3 => Command::CloseRoom { actor: actor(session), key },
            4 => Command::ForceRelease {
                by: AgentName::parse("op").unwrap(),
                reason: Intention::parse("r").unwrap(),
                which: Which::Key(key, None),
                request: None,
            },
            5 => Command::Beat { sessions: vec![SessionId::parse(session).unwrap()], waiters: Vec::new() },
            _ => Command::Sweep,
        }
    });
    prop::collection::vec((0..9_000u64, prop_oneof![5 => acquire, 3 => release, 2 => others]), 1..60)
}

fn check_invariants(state: &State, now: Time) {
    let locks: Vec<_> = state.locks().collect();
    for (n, one) in locks.iter().enumerate() {
        assert!(one.expires > now, "an overdue lock is gone after any decision");
        for other in &locks[n + 1..] {
            if one.session == other.session || !one.mode.conflicts(other.mode) || !one.target.overlaps(&other.target) {
                continue;
            }
            panic!("P1: {one:?} and {other:?}");
        }
    }
    let waiters: Vec<_> = state.waiters().collect();
    for waiter in &waiters {
        let blocked = state.timed_out(&waiter.asked.session, &waiter.asked.wants, waiter.asked.priority, waiter.queued);
        assert!(!blocked.conflicts.is_empty(), "nobody waits for nothing: {waiter:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("LOCKKEEPER_DEEP").is_some() { 20_000 } else { 1000 }))]

    #[test]
    fn whatever_is_asked_the_promises_hold_and_replay_equals_live(story in story()) {
        let mut house = House::new();
        for (ms, command) in story {
            house.wait(ms);
            let until: HashMap<LockId, Time> = house.state.locks().map(|lock| (lock.id, lock.expires)).collect();
            let known = house.ledger.len();
            house.outcome(command);
            check_invariants(&house.state, house.now.time);
            for (_, event) in &house.ledger[known..] {
                if let Event::Expired { locks } = event {
                    for lock in locks {
                        prop_assert!(until[lock] <= house.now.time, "P4: {lock} expired before its TTL");
                    }
                }
            }
        }
        let mut replayed = State::new(7);
        for (stamp, event) in &house.ledger {
            replayed.apply(*stamp, event);
        }
        prop_assert_eq!(replayed.snapshot(), house.state.snapshot(), "P12");
        let restored = State::from_snapshot(house.state.snapshot());
        prop_assert_eq!(restored.snapshot(), house.state.snapshot());
    }

    #[test]
    fn a_working_state_that_is_rolled_back_leaves_no_trace(before in story(), tried in story()) {
        let mut house = House::new();
        for (ms, command) in before {
            house.wait(ms);
            house.outcome(command);
        }
        let clean = house.state.snapshot();
        house.state.begin();
        let mut events = Vec::new();
        let mut now = house.now;
        for (ms, command) in &tried {
            now.time = now.time.plus(Millis(*ms));
            house.state.decide(&Context { rules: &house.rules, now, refused_lately: 0 }, command, &mut events);
        }
        house.state.roll_back();
        prop_assert_eq!(house.state.snapshot(), clean.clone());
        // And the indexes are those of a fresh state: both decide the same from here.
        let mut fresh = State::from_snapshot(clean);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for (ms, command) in &tried {
            house.now.time = house.now.time.plus(Millis(*ms));
            let cx = Context { rules: &house.rules, now: house.now, refused_lately: 0 };
            house.state.decide(&cx, command, &mut one);
            fresh.decide(&cx, command, &mut other);
        }
        prop_assert_eq!(one, other);
    }
}
