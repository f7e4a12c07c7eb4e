//! Whatever is asked, in whatever order: the promises hold.

use std::collections::HashMap;

use lockkeeper_core::command::{Acquire, Command, Request, Which};
use lockkeeper_core::decide::Context;
use lockkeeper_core::event::Event;
use lockkeeper_core::feature::FeatureEnd;
use lockkeeper_core::key::Key;
use lockkeeper_core::lock::LockId;
use lockkeeper_core::session::{AgentName, Intention, RequestId, SessionId};
use lockkeeper_core::state::State;
use lockkeeper_core::time::{Millis, Time};
use proptest::prelude::*;

use crate::features::feature;
use crate::house::{House, actor, want, wanting};

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
        Just("feature:F:pause"),
        Just("feature:F:pause~"),
    ];
    let for_feature = prop_oneof![3 => Just(None), 1 => Just(Some("F".into()))];
    let request = prop_oneof![3 => Just(None), 1 => (0..3u64).prop_map(|n| {
        Some(Request { id: RequestId::parse(&format!("r{n}")).unwrap(), digest: n })
    })];
    let waits = prop_oneof![Just(0u64), Just(0), Just(8_000), Just(60_000)];
    let acquire =
        (session(), prop::collection::vec(key.clone(), 1..3), waits, 0..=10u8, request, 1..40u64, for_feature)
            .prop_map(|(session, keys, wait, priority, request, ttl, feature)| {
                let (base, wait, ttl) = (wanting(session, &keys), Millis(wait), Millis(ttl * 1000));
                Command::Acquire(Acquire { wait, priority, request, ttl, feature, ..base })
            });
    let release = (session(), key.clone()).prop_map(|(session, key)| Command::Release {
        actor: actor(session),
        which: Which::Key(want(key).target.key, None),
        token: None,
        request: None,
    });
    let others = (session(), 0..11u8).prop_map(|(session, which)| {
        let key = Key::parse("f").unwrap();
        match which {
            0 => Command::CloseSession { actor: actor(session) },
            1 => Command::OpenSession { actor: actor(session) },
            2 => Command::OpenRoom { actor: actor(session), key, busy: Millis(5000) },
            3 => Command::CloseRoom { actor: actor(session), key },
            4 => Command::ForceRelease {
                by: AgentName::parse("op").unwrap(),
                reason: Intention::parse("r").unwrap(),
                which: Which::Key(if session == "a" { Key::parse("feature:F:pause").unwrap() } else { key }, None),
                request: None,
            },
            5 => Command::Beat { sessions: vec![SessionId::parse(session).unwrap()], waiters: Vec::new() },
            6 => Command::AllocatePorts { actor: actor(session), taken: vec![10_001] },
            7 => Command::ReleasePorts { actor: actor(session) },
            8 => Command::RegisterFeature { actor: actor(session), feature: feature(session, &["d/**"]) },
            9 => Command::EndFeature { actor: actor(session), feature: session.into(), end: FeatureEnd::Completed },
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
        let paused = state.pause_of(waiter.asked.feature.as_ref(), &waiter.asked.session).is_some();
        assert!(paused || !blocked.conflicts.is_empty(), "nobody waits for nothing: {waiter:?}");
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
            house.state.decide(&Context { rules: &house.rules, now, refused_lately: &[] }, command, &mut events);
        }
        house.state.roll_back();
        prop_assert_eq!(house.state.snapshot(), clean.clone());
        // And the indexes are those of a fresh state: both decide the same from here.
        let mut fresh = State::from_snapshot(clean);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for (ms, command) in &tried {
            house.now.time = house.now.time.plus(Millis(*ms));
            let cx = Context { rules: &house.rules, now: house.now, refused_lately: &[] };
            house.state.decide(&cx, command, &mut one);
            fresh.decide(&cx, command, &mut other);
        }
        prop_assert_eq!(one, other);
    }
}
