//! Who waits, in which order, and what ends a wait.

use lockkeeper_core::command::{Acquire, Command, External, Which};
use lockkeeper_core::event::Event;
use lockkeeper_core::key::Key;
use lockkeeper_core::limits::CIRCLE_STEPS_MAX;
use lockkeeper_core::outcome::{Answer, Blocker, Limit, Refusal};
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::time::Millis;
use lockkeeper_core::waiter::Place;

use crate::house::{House, busy, wanting};

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
fn who_is_said_to_be_alive_keeps_its_place_however_late_it_could_be_said() {
    for by_session in [true, false] {
        let mut house = House::new();
        house.tell(Command::Acquire(Acquire { ttl: Millis(600_000), ..wanting("a", &["x"]) }));
        house.queue("dead", &["x"], 5);
        let dead = house.state.waiters().next().unwrap().id();
        house.queue("alive", &["x"], 5);
        let alive = house.state.waiters().map(|waiter| waiter.id()).find(|id| *id != dead).unwrap();
        // Nobody could write anything for so long.
        house.wait(60_000);
        let (sessions, waiters) =
            if by_session { (vec![SessionId::parse("alive").unwrap()], vec![]) } else { (vec![], vec![alive]) };
        house.tell(Command::Beat { sessions, waiters });
        assert_eq!(house.state.waiter_count(), 1, "nobody said so of the other");
        house.release("a", "x");
        assert_eq!(house.holders("x"), ["alive"]);
    }
}

#[test]
fn who_is_said_to_be_alive_waits_no_longer_than_it_wanted() {
    let mut house = House::new();
    house.tell(Command::Acquire(Acquire { ttl: Millis(600_000), ..wanting("a", &["x"]) }));
    house.outcome(Command::Acquire(Acquire { wait: Millis(50_000), ..wanting("b", &["x"]) }));
    let waiters = house.state.waiters().map(|waiter| waiter.id()).collect();
    house.wait(60_000);
    house.tell(Command::Beat { sessions: Vec::new(), waiters });
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
fn a_wait_that_becomes_a_circle_when_its_session_loses_something_is_ended_with_the_circle() {
    type Ending = fn(&mut House);
    let endings: [(&str, Ending); 4] = [
        ("released", |house| _ = house.release("a", "x")),
        ("forced", |house| {
            let (by, reason) = (AgentName::parse("boss").unwrap(), Intention::parse("mine").unwrap());
            let which = Which::Key(Key::parse("x").unwrap(), None);
            house.tell(Command::ForceRelease { by, reason, which, request: None });
        }),
        ("expired", |house| {
            house.beat("b");
            house.wait(2000);
            house.outcome(Command::Sweep);
        }),
        ("taken from outside", |house| {
            let seen = vec![External { key: Key::parse("x").unwrap(), left: Some(Millis(1)), endless: false }];
            house.outcome(Command::SeeExternal { seen });
            house.wait(1000);
            house.outcome(Command::Sweep);
        }),
    ];
    for (ended, end) in endings {
        let mut house = House::new();
        house.granted("a", "z");
        house.granted("c", "y");
        house.tell(Command::Acquire(Acquire { ttl: Millis(1000), ..wanting("a", &["x"]) }));
        house.queue("b", &["x"], 5);
        house.queue("b", &["z"], 5);
        house.queue("a", &["x", "y"], 5);
        end(&mut house);
        assert_eq!(house.holders("x"), ["b"], "{ended}");
        let broken = house.ledger.iter().filter_map(|(_, event)| match event {
            Event::Deadlocked { cycle, .. } => Some(cycle),
            _ => None,
        });
        let told: Vec<String> =
            broken.flatten().map(|step| format!("{} wants {}", step.session, step.wanted)).collect();
        assert_eq!(told, ["a wants x", "b wants z"], "{ended}");
        assert_eq!(house.state.waiter_count(), 1, "{ended}: b waits on");
        house.release("a", "z");
        assert_eq!(house.holders("z"), ["b"], "{ended}");
    }
}

#[test]
fn who_stood_behind_a_wait_that_became_a_circle_gets_what_is_free() {
    let mut house = House::new();
    house.granted("a", "x");
    house.granted("a", "z");
    house.granted("c", "y~");
    house.queue("b", &["x"], 5);
    house.queue("b", &["z"], 5);
    house.queue("a", &["x", "y"], 5);
    house.queue("d", &["y~"], 5);
    house.release("a", "x");
    assert_eq!(house.holders("y"), ["c", "d"]);
}

#[test]
fn a_crowd_on_another_key_hides_no_circle() {
    let mut house = House::new();
    house.granted("h", "k");
    for n in 0..500 {
        house.queue(&format!("w{n}"), &["k"], 5);
    }
    house.granted("a", "x");
    house.granted("c", "y");
    for session in ["q1", "q2", "a", "q3", "q4"] {
        house.granted(session, "z~");
    }
    house.queue("b", &["x"], 5);
    house.queue("b", &["z"], 5);
    house.queue("a", &["x", "y"], 5);
    house.queue("a", &["k"], 5);
    house.release("a", "x");
    let waits = house.state.waiters().filter(|waiter| waiter.asked.session.as_str() == "a").count();
    assert_eq!(waits, 1, "for k");
}

#[test]
fn a_wait_that_is_over_at_the_same_moment_closes_no_circle() {
    let mut house = House::new();
    house.granted("a", "z");
    house.granted("c", "y");
    house.tell(Command::Acquire(Acquire { ttl: Millis(1000), ..wanting("a", &["x"]) }));
    house.queue("b", &["x"], 5);
    house.outcome(Command::Acquire(Acquire { wait: Millis(1000), ..wanting("b", &["z"]) }));
    house.queue("a", &["x", "y"], 5);
    house.wait(1000);
    house.outcome(Command::Sweep);
    assert_eq!(house.holders("x"), ["b"]);
    assert_eq!(house.state.waiter_count(), 1, "b waits for nothing of a's any more, and a waits on");
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
    let Refusal::Deadlock { cycle } = house.refused(Command::Acquire(closing)) else { panic!("a circle") };
    assert_eq!(cycle.len(), CIRCLE_STEPS_MAX, "its beginning and its end");
    assert_eq!((cycle[0].session.as_str(), cycle[CIRCLE_STEPS_MAX - 1].blocker.as_str()), ("s2999", "s2999"));
}

#[test]
fn a_long_circle_that_is_ended_is_told_with_its_beginning_and_its_end() {
    const COUNT: usize = 100;
    let mut house = House::new();
    house.granted("a", "z");
    house.granted("c", "y");
    house.tell(Command::Acquire(Acquire { ttl: Millis(1000), ..wanting("a", &["x"]) }));
    for n in 0..COUNT {
        house.granted(&format!("s{n}"), &format!("k{n}"));
    }
    house.queue("b", &["x"], 5);
    house.queue("b", &["k0"], 5);
    for n in 0..COUNT - 1 {
        house.queue(&format!("s{n}"), &[&format!("k{}", n + 1)], 5);
    }
    house.queue(&format!("s{}", COUNT - 1), &["z"], 5);
    house.queue("a", &["x", "y"], 5);
    house.release("a", "x");
    let cycle = house.ledger.iter().find_map(|(_, event)| match event {
        Event::Deadlocked { cycle, .. } => Some(cycle),
        _ => None,
    });
    let cycle = cycle.expect("ended");
    assert_eq!(cycle.len(), CIRCLE_STEPS_MAX);
    assert_eq!((cycle[0].session.as_str(), cycle[CIRCLE_STEPS_MAX - 1].blocker.as_str()), ("a", "a"));
}

#[test]
fn a_search_for_circles_ends_where_its_bound_is() {
    const COUNT: usize = 9000;
    let mut house = House::new();
    for n in 0..COUNT {
        house.granted(&format!("s{n}"), &format!("k{n}"));
    }
    for n in 0..COUNT - 1 {
        house.queue(&format!("s{n}"), &[&format!("k{}", n + 1), &format!("free{n}")], 5);
    }
    // It is a circle, and too long to be seen as one.
    house.queue(&format!("s{}", COUNT - 1), &["k0"], 5);
}

/// Whoever decides knows the time only roughly; the stamp says where somebody stands.
#[test]
fn a_wait_that_would_be_a_circle_if_it_were_stamped_a_little_later_is_refused() {
    let mut house = House::new();
    house.granted("c", "y");
    house.granted("h", "x");
    house.queue("b", &["x", "y"], 4);
    // A moment before ten seconds of waiting outweigh the step in priority.
    house.wait(9900);
    house.beat("c");
    house.beat("h");
    let refusal = house.refused(Command::Acquire(Acquire { wait: Millis(60_000), ..wanting("c", &["x"]) }));
    assert!(matches!(refusal, Refusal::Deadlock { .. }), "{refusal:?}");
}

/// Neither the first nor the last place at which it may come to stand is part of a circle.
#[test]
fn a_wait_that_would_be_a_circle_only_between_two_others_is_refused() {
    let mut house = House::new();
    house.granted("h", "f");
    house.queue("b", &["f#5~"], 4);
    house.wait(500);
    house.queue("b", &["f#3-6"], 4);
    house.wait(9400);
    house.beat("h");
    house.beat("b");
    let refusal = house.refused(Command::Acquire(Acquire { wait: Millis(60_000), ..wanting("c", &["f#4-6"]) }));
    assert!(matches!(refusal, Refusal::Deadlock { .. }), "{refusal:?}");
}

#[test]
fn p11_a_session_that_waits_already_keeps_its_turn_in_another_queue_too() {
    let mut house = House::new();
    house.granted("a", "x");
    house.granted("a", "y");
    house.queue("b", &["x"], 5);
    house.queue("b", &["y"], 5);
    house.queue("later", &["y"], 5);
    house.release("a", "y");
    assert_eq!(house.holders("y"), ["b"], "whoever comes later, with no more priority, comes later");
    // Overtaking somebody who is there already would be another thing.
    house.queue("c", &["y"], 1);
    house.queue("d", &["x"], 5);
    house.queue("d", &["y"], 5);
    house.release("b", "y");
    assert_eq!(house.holders("y"), ["later"]);
    house.release("later", "y");
    assert_eq!(house.holders("y"), ["c"]);
}

#[test]
fn thousands_who_leave_together_make_room_for_the_next_once() {
    let mut house = House::new();
    house.granted("a", "x");
    for number in 0..5000 {
        house.queue(&format!("w{}", number / 60), &["x~"], 5);
    }
    house.queue("patient", &["x"], 5);
    let mut leaving: Vec<_> = house.state.waiters().map(|waiter| (waiter.rank(), waiter.place())).collect();
    leaving.sort_unstable_by_key(|(rank, _)| *rank);
    leaving.pop();
    let places = leaving.into_iter().map(|(_, place)| place).collect();
    house.tell(Command::Withdraw { places });
    assert_eq!(house.state.waiter_count(), 1);
    house.release("a", "x");
    assert_eq!(house.holders("x"), ["patient"]);
}

#[test]
fn nobody_is_withdrawn_by_a_number_that_was_another_s_before_the_past_was_rewritten() {
    let mut house = House::new();
    house.granted("a", "x");
    house.queue("b", &["x"], 5);
    let place = house.state.waiters().next().expect("somebody waits").place();
    let elsewhere = Place { queued: place.queued.plus(Millis(1)), ..place };
    house.tell(Command::Withdraw { places: vec![elsewhere] });
    assert_eq!(house.state.waiter_count(), 1);
    house.tell(Command::Withdraw { places: vec![place] });
    assert_eq!(house.state.waiter_count(), 0);
}

#[test]
fn a_refusal_counts_everybody_ahead_however_many_hold_it() {
    let mut house = House::new();
    for number in 0..20 {
        house.granted(&format!("reader{number}"), "x~");
    }
    for number in 0..40 {
        house.queue(&format!("w{number}"), &["x"], 5);
    }
    let refused = busy(house.acquire("late", &["x"]));
    assert_eq!((refused.conflicts.len(), refused.more, refused.ahead), (16, true, 40));
}

#[test]
fn lines_that_somebody_waits_for_are_not_called_free() {
    let mut house = House::new();
    house.granted("a", "f#1-10");
    house.queue("w", &["f"], 5);
    let refused = busy(house.acquire("b", &["f#5-8"]));
    assert!(refused.free.is_empty(), "{:?}", refused.free);
    house.granted("c", "g#1-10");
    house.queue("v", &["g#3", "g#11-12"], 5);
    let refused = busy(house.acquire("b", &["g#5-8"]));
    for free in &refused.free {
        house.granted("b", &format!("g#{free}"));
    }
    assert!(!refused.free.is_empty());
}

#[test]
fn whoever_holds_a_tree_gets_a_file_in_it_though_others_wait_for_that() {
    let mut house = House::new();
    house.granted("a", "src/**");
    house.queue("b", &["src/x.rs"], 5);
    house.granted("a", "src/x.rs");
    house.granted("a", "src/deep/*");
    // One level is not what lies deeper, and who only reads has less than who changes.
    let mut house = House::new();
    house.acquire("a", &["src/*", "lib/**~"]);
    for wanted in ["src/deep/x.rs", "lib/x.rs"] {
        house.queue("b", &[wanted, "src/y.rs"], 5);
        assert!(matches!(&busy(house.acquire("a", &[wanted])).conflicts[0].with, Blocker::Waiting { .. }), "{wanted}");
    }
}

#[test]
fn one_session_waits_for_so_many_keys_and_no_more_and_a_refusal_looks_at_so_many() {
    let mut house = House::new();
    house.granted("a", "big");
    let lines = |first: u32| (0..256).map(|more| format!("big#{}-90000", first + more)).collect::<Vec<_>>();
    let wants: Vec<Vec<String>> = (0..5).map(|set| lines(1 + set * 256)).collect();
    let wants: Vec<Vec<&str>> = wants.iter().map(|set| set.iter().map(String::as_str).collect()).collect();
    for set in &wants[..4] {
        house.queue("b", set, 5);
    }
    let refused = house.tell(Command::Acquire(Acquire { wait: Millis::from_secs(60), ..wanting("b", &wants[4]) }));
    let exceeded = matches!(&refused, Answer::Refused(Refusal::LimitExceeded { what: Limit::AwaitedPerSession }));
    assert!(exceeded, "{refused:?}");
    for other in 0..10 {
        wants[..4].iter().for_each(|set| house.queue(&format!("w{other}"), set, 5));
    }
    // Each of the 256 that are asked for meets thousands in the queue.
    let told = busy(house.acquire("c", &wants[0]));
    assert!(told.more && told.conflicts.len() == 16 && told.ahead == 44, "{told:?}");
}
