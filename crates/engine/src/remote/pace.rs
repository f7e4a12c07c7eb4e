//! The time of a ledger on a server, as far as it is known here: between two bounds that run with this machine's clock.
//!
//! The server has only a wall clock, which people and daemons set. Each answer was true at some moment between its question
//! and its arrival; what all of them allow, and no more than clocks drift, is what can be true now. A wall clock that says
//! otherwise was set, by however little, and is not believed: what it would gain, leases would lose.

use std::sync::{Arc, Mutex, MutexGuard};

use lockkeeper_core::time::{Stamp, Time};

use crate::time_source::TimeSource;

/// One part in so many is how fast two clocks may drift apart. A holder gives up ten times as much of its time.
const DRIFT_PART: u64 = 1000;
/// How much later than the last ones a question may arrive and still be answered with the server's own time. Whether it was the
/// question that was late or the clock that was set, its answer shows: what the clock gains is taken off, once and for all.
const TOLERANCE_MICROS: i64 = 20_000;
/// How far the lower bound may lie behind, and how long ago the time may have been told, if a stamp is to be proposed: a lease
/// that began before it was asked for would end before its holder thinks.
const PROPOSED_LAG_MAX: u64 = 1000;
const PROPOSED_TOLD_MAX: u64 = 2_000_000;
/// Lua counts exactly up to here.
const MICROS_MAX: u64 = (1 << 53) - 1;

#[derive(Debug)]
pub(crate) struct Pace {
    source: Arc<dyn TimeSource>,
    seen: Mutex<Seen>,
}

/// What was told so far.
#[derive(Debug, Default)]
struct Seen {
    /// The latest time that was told.
    last: u64,
    anchor: Option<Anchor>,
}

/// The ledger's time when this machine started, if it had run then: at least, and at most.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    low: i64,
    high: i64,
    /// When the time was last told, since this machine started.
    told: u64,
    /// What the time gained lately that no delay explains.
    gained: i64,
}

impl Anchor {
    /// How far clocks may have drifted apart since.
    fn drift(&self, since_boot: u64) -> i64 {
        (since_boot.saturating_sub(self.told) / DRIFT_PART).cast_signed()
    }

    /// What both this and a newer answer allow. What the ledger says counts even if they do not agree: others may remember more
    /// than we do, or this machine was stopped meanwhile.
    fn narrowed(self, newer: Anchor) -> Anchor {
        let drift = self.drift(newer.told);
        let ceiling = self.high + drift;
        let low = newer.low.max(self.low);
        let high = if newer.low > ceiling { newer.high } else { newer.high.min(ceiling) }.max(low);
        let gained = (self.gained - drift).max(0) + (high - ceiling).max(0);
        Anchor { low, high, told: newer.told, gained: gained.min(TOLERANCE_MICROS) }
    }
}

/// Goes along with a question: what its answer can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    sent: u64,
    pub(crate) lower: u64,
    /// Zero: none.
    pub(crate) upper: u64,
}

impl Pace {
    pub(crate) fn new(source: Arc<dyn TimeSource>) -> Pace {
        Pace { source, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder panics")
    }

    /// A lower bound of the ledger's time, and this machine's wall clock.
    pub(crate) fn now(&self) -> Stamp {
        let reading = self.source.reading();
        let time = self.seen().lower(reading.since_boot);
        Stamp { time: Time(time), wall: reading.wall.min(MICROS_MAX) }
    }

    /// What a writer proposes as the stamp of a batch: its own now, if that is as good as the ledger's; if not, a time that
    /// is never taken, so that the ledger stamps by its own clock.
    pub(crate) fn proposal(&self, now: Stamp) -> Stamp {
        let since_boot = self.source.reading().since_boot;
        let is_exact = self.seen().anchor.is_some_and(|anchor| {
            let lag = anchor.high.saturating_sub(anchor.low).cast_unsigned();
            lag <= PROPOSED_LAG_MAX && since_boot.saturating_sub(anchor.told) <= PROPOSED_TOLD_MAX
        });
        if is_exact { now } else { Stamp { time: Time(MICROS_MAX), ..now } }
    }

    /// What can be true now.
    pub(crate) fn bounds(&self) -> Bounds {
        let sent = self.source.reading().since_boot;
        let seen = self.seen();
        let upper = seen
            .anchor
            .map_or(0, |anchor| at(anchor.high + anchor.drift(sent) + (TOLERANCE_MICROS - anchor.gained).max(0), sent));
        Bounds { sent, lower: seen.lower(sent), upper: upper.min(MICROS_MAX) }
    }

    /// The answer to a question that went out with these bounds told the time.
    pub(crate) fn told(&self, bounds: Bounds, time: Time) {
        let received = self.source.reading().since_boot;
        let mut seen = self.seen();
        seen.last = seen.last.max(time.0);
        let told = Anchor { low: base(time, received), high: base(time, bounds.sent), told: received, gained: 0 };
        seen.anchor = Some(seen.anchor.map_or(told, |before| before.narrowed(told)));
    }

    /// Somebody was given this stamp.
    pub(crate) fn stamped(&self, time: Time) {
        let mut seen = self.seen();
        seen.last = seen.last.max(time.0);
    }
}

impl Seen {
    fn lower(&self, since_boot: u64) -> u64 {
        self.anchor.map_or(0, |anchor| at(anchor.low, since_boot)).max(self.last).min(MICROS_MAX)
    }
}

fn base(time: Time, since_boot: u64) -> i64 {
    time.0.cast_signed().wrapping_sub(since_boot.cast_signed())
}

fn at(base: i64, since_boot: u64) -> u64 {
    u64::try_from(base.saturating_add(since_boot.cast_signed())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_source::{FakeTime, Reading};

    const WALL: u64 = 1_700_000_000_000_000;
    const SECOND: u64 = 1_000_000;
    const TOLERANCE: u64 = TOLERANCE_MICROS as u64;

    fn pace() -> (Arc<FakeTime>, Pace) {
        let time = Arc::new(FakeTime::new(Reading { boot: 7, since_boot: 5 * SECOND, wall: WALL }));
        (time.clone(), Pace::new(time))
    }

    /// Asks, and is told the time after a while.
    fn ask(time: &FakeTime, pace: &Pace, took: u64, told: u64) -> Bounds {
        let bounds = pace.bounds();
        time.pass(took);
        pace.told(bounds, Time(told));
        bounds
    }

    #[test]
    fn a_lease_does_not_begin_before_it_was_asked_for() {
        let (time, pace) = pace();
        assert_ne!(pace.proposal(pace.now()), pace.now(), "nothing was told");
        // Thirty milliseconds each way: what is known of the time lies thirty behind.
        ask(&time, &pace, 60_000, WALL + 30_000);
        assert_eq!(pace.now().time, Time(WALL + 30_000), "thirty less than is true");
        assert_ne!(pace.proposal(pace.now()), pace.now());
        ask(&time, &pace, 800, WALL + 60_400);
        assert_eq!(pace.proposal(pace.now()), pace.now(), "less than a millisecond behind");
        time.pass(3 * SECOND);
        assert_ne!(pace.proposal(pace.now()), pace.now(), "clocks drift");
    }

    #[test]
    fn who_was_told_nothing_bounds_nothing() {
        let (_, pace) = pace();
        let bounds = pace.bounds();
        assert_eq!((bounds.lower, bounds.upper), (0, 0));
    }

    #[test]
    fn time_runs_on_from_what_was_told_and_never_ahead_of_it() {
        let (time, pace) = pace();
        ask(&time, &pace, 1000, WALL);
        assert_eq!(pace.now().time, Time(WALL), "the answer may be as old as the question, or as new as its arrival");
        time.pass(10 * SECOND);
        assert_eq!(pace.now().time, Time(WALL + 10 * SECOND));
        let bounds = pace.bounds();
        assert_eq!(bounds.lower, WALL + 10 * SECOND);
        assert_eq!(bounds.upper, WALL + 10 * SECOND + 1000 + 10 * SECOND / DRIFT_PART + TOLERANCE);
    }

    #[test]
    fn a_slow_answer_does_not_set_time_back() {
        let (time, pace) = pace();
        ask(&time, &pace, 0, WALL);
        ask(&time, &pace, 3 * SECOND, WALL);
        assert_eq!(pace.now().time, Time(WALL + 3 * SECOND));
    }

    #[test]
    fn what_the_ledger_says_counts_even_beyond_the_bounds() {
        let (time, pace) = pace();
        ask(&time, &pace, 0, WALL);
        // Another writer remembers more than we do: this machine may have been stopped meanwhile.
        ask(&time, &pace, 0, WALL + 60 * SECOND);
        let bounds = pace.bounds();
        assert_eq!(bounds.lower, WALL + 60 * SECOND);
        assert_eq!(bounds.upper, WALL + 60 * SECOND, "and it gains no more by that");
    }

    #[test]
    fn a_quick_answer_narrows_what_a_slow_one_left_open() {
        let (time, pace) = pace();
        ask(&time, &pace, 2 * SECOND, WALL + SECOND);
        let open = pace.bounds();
        assert_eq!(
            (open.lower, open.upper),
            (WALL + SECOND, WALL + 3 * SECOND + TOLERANCE),
            "one each way, or two one way"
        );
        ask(&time, &pace, 100, WALL + 2 * SECOND + 50);
        let narrow = pace.bounds();
        assert_eq!((narrow.lower, narrow.upper), (WALL + 2 * SECOND + 50, WALL + 2 * SECOND + 150 + TOLERANCE));
        // A slow one widens nothing again.
        ask(&time, &pace, 2 * SECOND, WALL + 3 * SECOND);
        let narrow = pace.bounds();
        assert!(narrow.upper - narrow.lower <= 100 + TOLERANCE + 2 * SECOND / DRIFT_PART);
    }

    #[test]
    fn a_clock_that_is_set_again_and_again_gains_no_more_than_clocks_drift() {
        let (time, pace) = pace();
        ask(&time, &pace, 200, WALL + 100);
        for second in 1..=1000 {
            time.pass(SECOND - 200);
            // The server's clock runs ahead; what it says is kept within the bounds, as the scripts do.
            let told = pace.bounds().upper;
            ask(&time, &pace, 200, told);
            let gained = pace.now().time.0 - (WALL + 200 + second * SECOND);
            assert!(gained <= SECOND / 1000 + TOLERANCE + 2 * second * SECOND / DRIFT_PART, "{gained} in {second} s");
        }
    }
}
