//! Who gets a lock, and with what token.

use lockkeeper_core::command::{Acquire, Command};
use lockkeeper_core::outcome::{Answer, Blocker, BusyReason, Limit, Refusal};
use lockkeeper_core::span::Span;
use lockkeeper_core::time::Millis;

use crate::house::{House, busy, wanting};

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
fn the_better_part_of_what_was_wanted_is_named_first() {
    let mut house = House::new();
    house.granted("a", "f#60-66");
    house.granted("b", "f#10");
    let free = busy(house.acquire("c", &["f#1-66"])).free;
    assert_eq!(free, [Span::parse("11-59").unwrap(), Span::parse("67-132").unwrap()]);
    house.granted("c", "f#11-59");
    let free = busy(house.acquire("d", &["f#5-10"])).free;
    assert_eq!(free, [Span::parse("67-72").unwrap(), Span::parse("4-9").unwrap()], "and not lines 5-9 again");
    let own = busy(house.acquire("c", &["f#11-70"])).free;
    assert_eq!(own, [Span::parse("67-126").unwrap()], "what one has need not be told");
    let others = busy(house.acquire("d", &["f#10-14"])).free;
    assert_eq!(others, [Span::parse("67-71").unwrap(), Span::parse("5-9").unwrap()]);
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
fn asking_again_never_shortens_what_is_held() {
    let mut house = House::new();
    let hour = Millis(3_600_000);
    house.tell(Command::Acquire(Acquire { ttl: hour, ..wanting("a", &["x", "y~"]) }));
    house.wait(10_000);
    // One is held as asked, the other is new because it is to be exclusive now.
    let Answer::Granted { locks, fresh } = house.acquire("a", &["x", "y"]) else { panic!() };
    assert_eq!((fresh, locks.len()), (1, 2));
    for lock in locks {
        assert_eq!((lock.ttl, lock.expires), (hour, house.now.time.plus(hour)), "{}", lock.target);
    }
    let longer = Millis(2 * hour.0);
    let again = Command::Acquire(Acquire { ttl: longer, ..wanting("a", &["x"]) });
    assert!(matches!(house.tell(again), Answer::Granted { locks, .. } if locks[0].ttl == longer));
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
