//! A state at its limits: one decision looks at each of thousands once, not at each of them for each of them.
//!
//! Counted is what the processor worked here, whatever else the machine does: seconds are many times what it takes, and a
//! fraction of what looking at all for each would.

use lockkeeper_core::command::{Acquire, Command, Which};
use lockkeeper_core::event::Event;
use lockkeeper_core::outcome::{Blocker, Outcome, Refusal};
use lockkeeper_core::time::Millis;

use crate::house::{House, actor, wanting};

const CROWD: usize = 9_000;
const WORK_MAX_S: f64 = 5.0;

/// What this thread has worked so far, in seconds.
fn worked() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanos: f64 = told.split(' ').next().and_then(|first| first.parse().ok()).expect("a number");
    nanos / 1e9
}

fn within_bounds(what: &str, work: impl FnOnce()) {
    let before = worked();
    work();
    let took = worked() - before;
    assert!(took < WORK_MAX_S, "{what}: {took} s");
}

/// Stands in the queue for so long.
fn queue_for(house: &mut House, session: &str, keys: &[&str], ms: u64) {
    let outcome = house.outcome(Command::Acquire(Acquire { wait: Millis(ms), ..wanting(session, keys) }));
    assert!(matches!(outcome, Outcome::Queued(_)), "{session}: {outcome:?}");
}

#[test]
fn whoever_has_something_that_nobody_wants_joins_a_long_queue_quickly() {
    let mut house = House::new();
    house.granted("holder", "hot");
    for n in 0..CROWD {
        house.granted(&format!("s{n}"), &format!("own/{n}"));
    }
    within_bounds("queueing", || {
        for n in 0..CROWD {
            house.queue(&format!("s{n}"), &["hot"], 5);
        }
    });
}

#[test]
fn thousands_whose_wait_is_over_make_room_once() {
    let mut house = House::new();
    house.granted("holder", "src/**");
    for n in 0..CROWD / 2 {
        queue_for(&mut house, &format!("s{n}"), &[&format!("src/{n}")], 15_000);
    }
    for n in 0..CROWD / 2 {
        queue_for(&mut house, &format!("t{n}"), &["src/**"], 600_000);
    }
    house.wait(16_000);
    within_bounds("waits run out", || {
        house.outcome(Command::Sweep);
    });
    assert_eq!(house.state.waiter_count(), CROWD / 2);
}

#[test]
fn thousands_of_files_that_come_free_look_at_each_waiter_a_few_times() {
    let mut house = House::new();
    for n in 0..CROWD {
        house.granted("holder", &format!("src/{n}"));
    }
    for n in 0..CROWD {
        house.queue(&format!("t{n}"), &["src/**"], 5);
    }
    within_bounds("a release of everything", || {
        let which = Which::Everything;
        house.tell(Command::Release { actor: actor("holder"), which, token: None, request: None });
    });
    assert_eq!(house.holders("src/1"), ["t0"]);
}

#[test]
fn thousands_of_rooms_that_are_left_look_at_each_waiter_a_few_times() {
    let mut house = House::new();
    for n in 0..CROWD {
        let key = lockkeeper_core::key::Key::parse(&format!("src/{n}")).unwrap();
        house.tell(Command::OpenRoom { actor: actor("person"), key, busy: Millis(3_600_000) });
    }
    for n in 0..CROWD {
        house.queue(&format!("t{n}"), &["src/**"], 5);
    }
    within_bounds("a session that is closed", || {
        house.tell(Command::CloseSession { actor: actor("person") });
    });
    assert_eq!(house.holders("src/1"), ["t0"]);
}

/// How many locks each renewal since then names.
fn renewed_since(house: &House, records: usize) -> Vec<usize> {
    let renewed = |event: &Event| match event {
        Event::Renewed { locks, .. } => Some(locks.len()),
        _ => None,
    };
    house.ledger[records..].iter().filter_map(|(_, event)| renewed(event)).collect()
}

#[test]
fn hundreds_who_renew_the_same_together_write_it_down_once() {
    let mut house = House::new();
    for n in 0..1000 {
        house.granted("holder", &format!("src/{n}"));
    }
    house.wait(1000);
    let before = house.ledger.len();
    let renew =
        |ttl| Command::Renew { actor: actor("holder"), which: Which::Everything, ttl: Some(Millis(ttl)), token: None };
    let outcomes = house.batch(&[renew(40_000), renew(40_000), renew(50_000), renew(50_000)]);
    for outcome in &outcomes {
        assert!(matches!(outcome, Outcome::Renewed { locks, .. } if locks.len() == 1000), "{outcome:?}");
    }
    assert_eq!(renewed_since(&house, before), [1000, 0, 1000, 0]);
}

/// The ledger may stamp the later record later than it was decided.
#[test]
fn what_was_touched_by_an_earlier_record_is_renewed_though_no_time_has_passed() {
    let mut house = House::new();
    house.granted("holder", "src/a");
    let before = house.ledger.len();
    let renew = Command::Renew { actor: actor("holder"), which: Which::Everything, ttl: None, token: None };
    for _ in 0..2 {
        house.outcome(renew.clone());
    }
    assert_eq!(renewed_since(&house, before), [1, 1]);
}

#[test]
fn another_wait_behind_thousands_looks_at_each_of_them_a_few_times() {
    const LATE: usize = 64;
    let mut house = House::new();
    house.granted("holder", "src/**");
    house.granted("holder", "elsewhere");
    house.queue("calm", &["elsewhere"], 0);
    for n in 0..CROWD {
        house.queue(&format!("t{n}"), &["src/**"], 5);
    }
    house.granted("holder", "hot");
    for n in 0..LATE {
        house.queue(&format!("late{n}"), &["hot"], 5);
    }
    let wants: Vec<String> = (0..255).map(|n| format!("src/{n}")).collect();
    let wants: Vec<&str> = wants.iter().map(String::as_str).collect();
    within_bounds("second waits", || {
        for n in 0..4 * LATE {
            queue_for(&mut house, &format!("late{}", n % LATE), &wants, 60_000);
        }
    });
}

/// Spans of one file that nearly all overlap each other.
fn staggered(more: &[&str]) -> Vec<String> {
    let spans = (1..=255 - more.len()).map(|line| format!("f#{line}-{}", 10_000 + line));
    spans.chain(more.iter().map(|key| (*key).to_owned())).collect()
}

fn set<'a>(session: &str, keys: &'a [String]) -> Acquire {
    wanting(session, &keys.iter().map(String::as_str).collect::<Vec<&'a str>>())
}

/// The holder has `x` and `y`; one waits for `y` before everybody, and hundreds behind for all the spans and for `x`.
fn crowd_of_sets(house: &mut House, count: usize, feature: Option<&str>) {
    house.granted("holder", "x");
    house.granted("holder", "y");
    house.queue("lone", &["y"], 10);
    let spans = staggered(&["x"]);
    for n in 0..count {
        let acquire = Acquire { wait: Millis(600_000), priority: 0, ..set(&format!("crowd{}", n / 4), &spans) };
        let outcome = house.outcome(Command::Acquire(Acquire { feature: feature.map(Into::into), ..acquire }));
        assert!(matches!(outcome, Outcome::Queued(_)), "{outcome:?}");
    }
}

#[test]
fn a_set_that_overlaps_hundreds_of_sets_is_refused_or_granted_quickly() {
    let mut house = House::new();
    within_bounds("queueing", || crowd_of_sets(&mut house, 400, None));
    within_bounds("a refusal", || {
        let refusal = house.refused(Command::Acquire(Acquire { priority: 9, ..set("late", &staggered(&["x"])) }));
        let Refusal::Busy(busy) = refusal else { panic!("{refusal:?}") };
        assert!(matches!(&busy.conflicts[0].with, Blocker::Held(lock) if lock.session.as_str() == "holder"));
        assert_eq!(busy.conflicts[0].wanted.key.as_str(), "x");
    });
    within_bounds("a refusal of lines that do not touch", || {
        let lines = (0..255).map(|line| format!("f#{}", 300 + 2 * line)).chain(["x".to_owned()]);
        let refusal =
            house.refused(Command::Acquire(Acquire { priority: 9, ..set("later", &lines.collect::<Vec<_>>()) }));
        assert!(matches!(refusal, Refusal::Busy(_)), "{refusal:?}");
    });
    within_bounds("a grant", || {
        let outcome = house.outcome(Command::Acquire(Acquire { priority: 9, ..set("late", &staggered(&[])) }));
        assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    });
}

#[test]
fn a_release_looks_at_each_set_that_waits_for_it_once() {
    let mut house = House::new();
    house.granted("innocent", "g");
    house.granted("holder", "x");
    house.granted("holder", "y");
    house.queue("lone", &["y"], 10);
    let spans = staggered(&["g", "x"]);
    for n in 0..400 {
        let acquire = Acquire { wait: Millis(600_000), ..set(&format!("crowd{}", n / 4), &spans) };
        assert!(matches!(house.outcome(Command::Acquire(acquire)), Outcome::Queued(_)));
    }
    within_bounds("a release", || {
        house.release("innocent", "g");
    });
}

#[test]
fn sets_for_a_paused_feature_keep_nobody_waiting() {
    let mut house = House::new();
    crowd_of_sets(&mut house, 400, Some("F"));
    within_bounds("a pause", || {
        house.granted("boss", "feature:F:pause");
    });
    let spans = staggered(&[]);
    within_bounds("a check", || {
        let session = lockkeeper_core::session::SessionId::parse("looker").unwrap();
        let busy = house.state.conflicts(&session, &set("looker", &spans).wants);
        assert!(busy.conflicts.is_empty() && !busy.more, "{busy:?}");
    });
    within_bounds("a grant", || {
        let outcome = house.outcome(Command::Acquire(set("taker", &spans)));
        assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    });
}

#[test]
fn a_pause_looks_through_what_its_feature_waits_for_in_bounded_time() {
    let mut house = House::new();
    let own: Vec<String> = (1..=1024).map(|line| format!("f#{line}-{}", 10_000 + line)).collect();
    for part in own.chunks(256) {
        assert!(matches!(house.outcome(Command::Acquire(set("greedy", part))), Outcome::Granted { .. }));
    }
    house.granted("holder", "x");
    for n in 0..4 {
        let more = [format!("f#{}", 5000 + n), "x".to_owned()];
        let wants: Vec<String> = (1..=254).map(|line| format!("g{n}#{line}")).chain(more).collect();
        let acquire = Acquire { wait: Millis(600_000), ..set("greedy", &wants) };
        assert!(matches!(house.outcome(Command::Acquire(acquire)), Outcome::Queued(_)));
    }
    within_bounds("queueing and a pause", || {
        for n in 0..300 {
            let wants: Vec<String> = (1..=255).map(|line| format!("f#{}-{}", line + 2 * n, 10_000 + line)).collect();
            let acquire = Acquire { wait: Millis(600_000), feature: Some("F".into()), ..set(&format!("w{n}"), &wants) };
            assert!(matches!(house.outcome(Command::Acquire(acquire)), Outcome::Queued(_)));
        }
        house.granted("boss", "feature:F:pause");
    });
}

#[test]
fn a_feature_is_compared_with_a_thousand_others_in_bounded_time() {
    let mut house = House::new();
    let claims = |n: usize| (0..100).map(|claim| format!("{}{n}/{claim}", "a/".repeat(100))).collect::<Vec<_>>();
    let register = |house: &mut House, id: &str, claims: &[String]| {
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        let feature = crate::features::feature(id, &claims);
        house.tell(Command::RegisterFeature { actor: actor("a"), feature })
    };
    for n in 0..999 {
        register(&mut house, &format!("F-{n}"), &claims(n));
    }
    let nested: Vec<String> = (1..=100).map(|deep| format!("{}**", "a/".repeat(deep))).collect();
    within_bounds("a comparison", || {
        for _ in 0..10 {
            let claims: Vec<_> = nested.iter().map(|claim| lockkeeper_core::key::Key::parse(claim).unwrap()).collect();
            let (_, shared) = house.state.feasibility("new", &claims);
            assert_eq!(shared.len(), 1000);
        }
    });
}
