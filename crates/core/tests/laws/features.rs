//! Features: paused, resumed, compared.

use lockkeeper_core::command::{Acquire, Command, Which};
use lockkeeper_core::feature::{Feasibility, Feature, FeatureEnd};
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, Limit, NotFound, Outcome, Refusal, Skip};
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::state::State;
use lockkeeper_core::time::{Millis, Time};

use crate::house::{House, actor, wanting};

fn for_feature(session: &str, key: &str) -> Acquire {
    Acquire { feature: Some("F-1".into()), ..wanting(session, &[key]) }
}

pub(crate) fn feature(id: &str, claims: &[&str]) -> Feature {
    Feature {
        id: id.into(),
        agent: AgentName::parse("a").unwrap(),
        title: None,
        branch: None,
        merge_priority: 5,
        claims: claims.iter().map(|claim| Key::parse(claim).unwrap()).collect(),
        metadata: None,
        registered: Time::ZERO,
    }
}

fn registered(house: &mut House, id: &str, claims: &[&str]) -> (Feasibility, usize) {
    match house.tell(Command::RegisterFeature { actor: actor("a"), feature: feature(id, claims) }) {
        Answer::FeatureRegistered { feasibility, shared, .. } => (feasibility, shared.len()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_else_gets_anything_new_for_a_paused_feature_and_what_is_held_stays() {
    let mut house = House::new();
    house.tell(Command::Acquire(for_feature("worker", "src/a.rs")));
    house.granted("boss", "feature:F-1:pause");
    let refusal = house.refused(Command::Acquire(for_feature("worker", "src/b.rs")));
    assert!(matches!(refusal, Refusal::Paused { by } if by.agent.as_str() == "boss"));
    assert!(house.holders("src/b.rs").is_empty());
    // Asking again for what is held is a renewal.
    assert!(matches!(
        house.tell(Command::Acquire(for_feature("worker", "src/a.rs"))),
        Answer::Granted { fresh: 0, .. }
    ));
    house.granted("worker", "src/other.rs");
    assert!(matches!(house.tell(Command::Acquire(for_feature("boss", "src/c.rs"))), Answer::Granted { .. }));
    let renew = Command::Renew { actor: actor("worker"), which: Which::Everything, ttl: None, token: None };
    match house.tell(renew.clone()) {
        Answer::Renewed { locks, paused, .. } => assert_eq!((locks.len(), paused.len()), (2, 1)),
        other => panic!("{other:?}"),
    }
    house.release("boss", "feature:F-1:pause");
    assert!(matches!(house.tell(Command::Acquire(for_feature("worker", "src/b.rs"))), Answer::Granted { .. }));
    assert!(matches!(house.tell(renew), Answer::Renewed { paused, .. } if paused.is_empty()));
}

#[test]
fn whoever_waits_for_a_paused_feature_is_passed_over_until_it_goes_on() {
    let mut house = House::new();
    house.granted("holder", "src/a.rs");
    house.outcome(Command::Acquire(Acquire { wait: Millis(3_600_000), ..for_feature("worker", "src/a.rs") }));
    house.queue("stranger", &["src/z.rs", "src/a.rs"], 5);
    house.granted("boss", "feature:F-1:pause");
    house.release("holder", "src/a.rs");
    assert_eq!(house.holders("src/a.rs"), ["stranger"], "who came later does not wait for who is paused");
    house.release("stranger", "src/a.rs");
    assert!(house.holders("src/a.rs").is_empty());
    house.granted("boss", "src/a.rs");
    house.release("boss", "src/a.rs");
    house.release("boss", "feature:F-1:pause");
    assert_eq!(house.holders("src/a.rs"), ["worker"]);
}

#[test]
fn whoever_stands_behind_somebody_who_is_paused_gets_what_is_free_at_once() {
    let mut house = House::new();
    house.granted("holder", "b.rs");
    let wants_both =
        Acquire { wait: Millis(3_600_000), feature: Some("F-1".into()), ..wanting("worker", &["a.rs", "b.rs"]) };
    house.outcome(Command::Acquire(wants_both));
    house.queue("behind", &["a.rs"], 5);
    house.granted("boss", "feature:F-1:pause");
    assert_eq!(house.holders("a.rs"), ["behind"]);
}

#[test]
fn pauses_come_before_finishes_whoever_was_first() {
    let mut house = House::new();
    house.granted("first", "feature:F-1:pause~");
    house.queue("boss", &["feature:F-1:pause"], 0);
    let late = Acquire { priority: 10, ..wanting("late", &["feature:F-1:pause~"]) };
    assert!(matches!(house.refused(Command::Acquire(late.clone())), Refusal::Busy(_)), "whatever its priority");
    house.outcome(Command::Acquire(Acquire { wait: Millis(3_600_000), ..late }));
    house.release("first", "feature:F-1:pause");
    assert_eq!(house.holders("feature:F-1:pause"), ["boss"]);
    house.release("boss", "feature:F-1:pause");
    assert_eq!(house.holders("feature:F-1:pause"), ["late"]);
}

/// `s` holds z and waits for y, for a feature.
fn waiting_for_a_feature() -> House {
    let mut house = House::new();
    house.granted("s", "z");
    house.granted("c", "y");
    queue_for_the_feature(&mut house, &["y"]);
    house
}

fn queue_for_the_feature(house: &mut House, keys: &[&str]) {
    let wanted = Acquire { feature: Some("F-1".into()), wait: Millis(60_000), ..wanting("s", keys) };
    assert!(matches!(house.outcome(Command::Acquire(wanted)), Outcome::Queued(_)));
}

#[test]
fn who_pauses_a_feature_is_waited_for_by_those_who_wait_for_it() {
    let mut house = waiting_for_a_feature();
    house.granted("boss", "feature:F-1:pause");
    let refusal = house.refused(Command::Acquire(Acquire { wait: Millis(1000), ..wanting("boss", &["z"]) }));
    let Refusal::Deadlock { cycle } = refusal else { panic!("{refusal:?}") };
    let told: Vec<String> = cycle.iter().map(|step| format!("{} wants {}", step.session, step.wanted)).collect();
    assert_eq!(told, ["boss wants z", "s wants feature:F-1:pause"]);
}

#[test]
fn who_waits_for_those_whose_feature_it_pauses_waits_no_longer() {
    let mut house = waiting_for_a_feature();
    house.queue("boss", &["z"], 5);
    house.granted("boss", "feature:F-1:pause");
    let left: Vec<_> = house.state.waiters().map(|waiter| waiter.asked.session.to_string()).collect();
    assert_eq!(left, ["s"]);
}

#[test]
fn who_takes_what_somebody_paused_waits_for_waits_for_them_no_longer() {
    let mut house = waiting_for_a_feature();
    house.queue("b", &["z"], 5);
    house.granted("boss", "feature:F-1:pause");
    house.release("c", "y");
    house.granted("b", "y");
    let left: Vec<_> = house.state.waiters().map(|waiter| waiter.asked.session.to_string()).collect();
    assert_eq!(left, ["s"]);
}

#[test]
fn a_wait_that_becomes_a_circle_when_its_feature_goes_on_is_ended() {
    let mut house = House::new();
    house.granted("b", "x");
    house.granted("c", "y");
    queue_for_the_feature(&mut house, &["x", "y"]);
    house.granted("boss", "feature:F-1:pause");
    house.queue("b", &["y"], 5);
    house.release("boss", "feature:F-1:pause");
    let left: Vec<_> = house.state.waiters().map(|waiter| waiter.asked.session.to_string()).collect();
    assert_eq!(left, ["b"]);
}

#[test]
fn who_stands_behind_somebody_paused_may_be_in_a_circle_when_the_feature_goes_on() {
    let mut house = House::new();
    house.granted("c", "k");
    house.granted("y", "m");
    queue_for_the_feature(&mut house, &["k"]);
    house.granted("boss", "feature:F-1:pause");
    house.queue("s", &["m"], 5);
    house.queue("y", &["k"], 5);
    house.release("boss", "feature:F-1:pause");
    assert_eq!(house.state.waiter_count(), 2, "s waits for y, which waits behind s: one of the waits is ended");
    house.release("c", "k");
    assert_eq!(house.holders("k"), ["s"]);
}

#[test]
fn a_crowd_that_waits_for_the_same_feature_hides_no_circle() {
    let mut house = House::new();
    house.granted("b", "x");
    house.granted("c", "y");
    house.granted("c", "k");
    queue_for_the_feature(&mut house, &["x", "y"]);
    for n in 0..300 {
        let waits = wanting(&format!("w{n}"), &["k"]);
        let waits = Acquire { feature: Some("F-1".into()), wait: Millis(60_000), ..waits };
        assert!(matches!(house.outcome(Command::Acquire(waits)), Outcome::Queued(_)));
    }
    house.granted("boss", "feature:F-1:pause");
    house.queue("b", &["y"], 5);
    house.release("boss", "feature:F-1:pause");
    assert_eq!(house.state.waiter_count(), 301, "of b and s one is left");
}

#[test]
fn a_pause_that_overtakes_a_finish_closes_no_circle() {
    let mut house = House::new();
    house.granted("x", "z");
    house.granted("y", "q");
    house.granted("y", "r");
    house.queue("x", &["feature:F-1:pause~", "q"], 5);
    house.queue("s", &["z"], 5);
    let pausing = Acquire { wait: Millis(1000), ..wanting("s", &["feature:F-1:pause", "r"]) };
    let refusal = house.refused(Command::Acquire(pausing));
    assert!(matches!(refusal, Refusal::Deadlock { .. }), "{refusal:?}");
}

#[test]
fn a_finish_ends_by_itself_and_is_no_part_of_a_circle() {
    let mut house = House::new();
    house.granted("p", "z");
    house.granted("y", "feature:F-1:pause~");
    house.queue("y", &["z"], 5);
    house.queue("p", &["feature:F-1:pause"], 5);
}

#[test]
fn circles_that_free_the_next_pause_are_ended_one_after_the_other_however_many() {
    const COUNT: usize = 1000;
    let mut house = House::new();
    for n in 0..COUNT {
        house.granted("c", &format!("y{n}"));
        house.granted(&format!("v{n}"), &format!("z{n}"));
        let feature = Some(format!("F{n}").as_str().into());
        let waits = Acquire { feature, wait: Millis(60_000), ..wanting(&format!("v{n}"), &[&format!("y{n}")]) };
        house.outcome(Command::Acquire(waits));
        house.queue(&format!("s{n}"), &[&format!("z{n}"), &format!("q{n}")], 5);
        if n > 0 {
            house.queue(&format!("s{n}"), &[&format!("feature:F{n}:pause"), &format!("q{}", n - 1)], 5);
        }
    }
    house.granted("s0", "feature:F0:pause");
    assert_eq!(house.holders(&format!("q{}", COUNT - 2)), [format!("s{}", COUNT - 1)]);
}

#[test]
fn a_long_chain_of_pauses_is_handed_on_without_harm() {
    let mut house = House::new();
    house.granted("h", "hold");
    for n in 0..2000 {
        let (x, feature) = (format!("x{n}"), format!("F{n}"));
        let waits = Acquire {
            wait: Millis(3_600_000),
            feature: Some(feature.into()),
            ..wanting(&format!("a{n}"), &[&x, "hold"])
        };
        house.outcome(Command::Acquire(waits));
        house.queue(&format!("b{n}"), &[&x, &format!("feature:F{}:pause", n + 1)], 5);
    }
    let began = std::time::Instant::now();
    house.granted("boss", "feature:F0:pause");
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(house.holders("x1999"), ["b1999"]);
}

#[test]
fn a_pause_that_ends_by_itself_or_by_force_lets_those_who_wait_go_on() {
    for ends in 0..3 {
        let mut house = House::new();
        house.granted("holder", "a.rs");
        house.outcome(Command::Acquire(Acquire { wait: Millis(3_600_000), ..for_feature("worker", "a.rs") }));
        house.granted("boss", "feature:F-1:pause");
        house.release("holder", "a.rs");
        match ends {
            0 => {
                house.wait(15_000);
                house.beat("worker");
                house.wait(15_000);
            }
            1 => {
                let which = Which::Key(Key::parse("feature:F-1:pause").unwrap(), None);
                let by = AgentName::parse("op").unwrap();
                house.tell(Command::ForceRelease { by, reason: Intention::default(), which, request: None });
            }
            _ => {
                house.tell(Command::CloseSession { actor: actor("boss") });
            }
        }
        house.beat("worker");
        assert_eq!(house.holders("a.rs"), ["worker"], "{ends}");
    }
}

#[test]
fn a_pause_waits_for_a_finish_and_no_longer_than_it_may_take() {
    let mut house = House::new();
    let finish = wanting("worker", &["feature:F-1:pause~"]);
    let long = Acquire { ttl: Millis(30_001), ..finish.clone() };
    assert!(matches!(house.refused(Command::Acquire(long)), Refusal::LimitExceeded { what: Limit::FinishSeconds }));
    assert!(matches!(house.tell(Command::Acquire(finish.clone())), Answer::Granted { .. }));
    house.queue("boss", &["feature:F-1:pause"], 5);
    // Neither a heartbeat nor asking again lets a finish last longer.
    for _ in 0..2 {
        house.wait(10_000);
        house.beat("worker");
        house.tell(Command::Acquire(finish.clone()));
        assert_eq!(house.holders("feature:F-1:pause"), ["worker"]);
    }
    house.wait(9_999);
    house.beat("boss");
    assert_eq!(house.holders("feature:F-1:pause"), ["worker"]);
    house.wait(1);
    house.beat("boss");
    assert_eq!(house.holders("feature:F-1:pause"), ["boss"]);
    assert!(matches!(house.refused(Command::Acquire(for_feature("worker", "x"))), Refusal::Paused { .. }));
    assert_eq!(
        house.state.lost_of(&SessionId::parse("worker").unwrap()).count(),
        0,
        "a finish that ran out is no loss"
    );
}

#[test]
fn a_session_that_comes_back_gets_nothing_for_a_feature_that_is_paused() {
    let mut house = House::new();
    house.tell(Command::Acquire(for_feature("worker", "a.rs")));
    house.wait(30_000);
    house.granted("boss", "feature:F-1:pause");
    // Also when all that is known comes from a snapshot.
    house.state = State::from_snapshot(house.state.snapshot());
    let opened = |house: &mut House| match house.tell(Command::OpenSession { actor: actor("worker") }) {
        Answer::Opened { restored, skipped, .. } => (restored, skipped),
        other => panic!("{other:?}"),
    };
    let (restored, skipped) = opened(&mut house);
    assert!(restored.is_empty());
    let Skip::Refused(why) = &skipped[0].why else { panic!("{skipped:?}") };
    assert!(matches!(&**why, Refusal::Paused { by } if by.agent.as_str() == "boss"), "{why:?}");
    house.release("boss", "feature:F-1:pause");
    let (restored, _) = opened(&mut house);
    assert_eq!(restored[0].feature.as_deref(), Some("F-1"), "and it belongs to the feature as before");
}

#[test]
fn features_are_compared_by_what_they_claim() {
    let mut house = House::new();
    assert_eq!(registered(&mut house, "A", &["src/api/**", "db:schema:users"]), (Feasibility::Full, 0));
    assert_eq!(registered(&mut house, "B", &["src/web/**", "docs/a.md"]), (Feasibility::Full, 0));
    assert_eq!(
        registered(&mut house, "C", &["src/api/users.py", "src/web/x.ts", "tests/**"]),
        (Feasibility::Sequential, 2)
    );
    // Half is not more than half; and nobody is compared with themselves.
    assert_eq!(registered(&mut house, "C", &["src/api/users.py", "tests/**"]), (Feasibility::Partial, 1));
    assert_eq!(house.state.features().count(), 3);
    let end = |id: &str| Command::EndFeature { actor: actor("a"), feature: id.into(), end: FeatureEnd::Completed };
    assert!(matches!(house.tell(end("A")), Answer::FeatureEnded { .. }));
    assert!(matches!(house.refused(end("A")), Refusal::NotFound { what: NotFound::Feature(_) }));
    assert_eq!(registered(&mut house, "C", &["src/api/users.py", "tests/**"]), (Feasibility::Full, 0));
}

#[test]
fn the_features_of_others_are_left_alone() {
    let mut house = House::new();
    registered(&mut house, "A", &["x"]);
    let stranger = actor("b");
    let end = Command::EndFeature { actor: stranger.clone(), feature: "A".into(), end: FeatureEnd::Cancelled };
    assert!(matches!(house.refused(end), Refusal::ForeignFeature { .. }));
    let again = Command::RegisterFeature { actor: stranger, feature: feature("A", &["y"]) };
    assert!(matches!(house.refused(again), Refusal::ForeignFeature { .. }));
    assert_eq!(house.state.feature("A").unwrap().claims[0].as_str(), "x");
}

#[test]
fn a_pause_makes_room_for_somebody_who_holds_what_the_paused_wait_for() {
    let mut house = House::new();
    let wait = |session: &str, key: &str, feature: Option<&str>| {
        let (wait, feature) = (Millis(3_600_000), feature.map(Into::into));
        Command::Acquire(Acquire { wait, feature, ..wanting(session, &[key]) })
    };
    house.granted("reader", "f#4-7");
    house.granted("x", "f#10");
    // Somebody wants the reader's lines for one feature, and the reader wants to read all of the file for another.
    assert!(matches!(house.outcome(wait("writer", "f#4-7", Some("F1"))), Outcome::Queued(_)));
    house.granted("p", "feature:F1:pause");
    assert!(matches!(house.outcome(wait("reader", "f~", Some("F0"))), Outcome::Queued(_)));
    house.granted("p", "feature:F0:pause");
    house.release("x", "f#10");
    assert!(matches!(house.outcome(wait("q", "feature:F1:pause", None)), Outcome::Queued(_)));
    // Both features go on for a moment, until the next one pauses the first of them.
    house.tell(Command::Release { actor: actor("p"), which: Which::Everything, token: None, request: None });
    assert_eq!(house.holders("feature:F1:pause"), ["q"]);
    assert_eq!(house.holders("f"), ["reader", "reader"], "nobody else is in the way");
}

#[test]
fn features_share_what_their_keys_say_however_they_are_looked_up() {
    let keys = [
        "a",
        "a/b",
        "a/b/c",
        "a/*",
        "a/**",
        "a/b/**",
        "**",
        "ab",
        "ab/*",
        "flag:x/*",
        "flag:x/y",
        "flag:y",
        "api:GET /v1",
    ];
    for theirs in keys {
        let mut house = House::new();
        registered(&mut house, "THEIRS", &[theirs]);
        for own in keys {
            let [own, theirs] = [own, theirs].map(|key| Key::parse(key).unwrap());
            let (_, shared) = house.state.feasibility("OWN", std::slice::from_ref(&own));
            assert_eq!(!shared.is_empty(), own.overlaps(&theirs), "{own} {theirs}");
        }
        registered(&mut house, "THEIRS", &[]);
        let all = keys.map(|key| Key::parse(key).unwrap());
        assert!(house.state.feasibility("OWN", &all).1.is_empty(), "{theirs} is claimed no more");
    }
}
