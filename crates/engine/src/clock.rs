//! An engine's own time: runs with the machine, survives restarts and reboots, never falls. Knows no file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkeeper_core::time::{Millis, Stamp, Time};

use crate::time_source::{Reading, TimeSource};

/// What is kept with a stamp so that a later process can go on from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The run of the machine in which the stamp was given.
    pub(crate) boot: u64,
    /// What this clock would have said when that run began; may lie before zero.
    pub(crate) base: i64,
}

/// The clock of one ledger. Starts at the wall clock and from then on ignores it.
#[derive(Debug)]
pub(crate) struct Clock {
    source: Arc<dyn TimeSource>,
    mark: Mark,
    last: AtomicU64,
}

impl Clock {
    /// The clock of a ledger that has never given a stamp.
    pub(crate) fn start(source: Arc<dyn TimeSource>) -> Clock {
        let reading = source.reading();
        Clock::at(source, reading.wall, reading)
    }

    /// The clock of a ledger whose last stamp is known. After a reboot, stamps of the `lost` time before may have
    /// been given and not kept.
    pub(crate) fn resume(source: Arc<dyn TimeSource>, last: Time, mark: Mark, lost: Millis) -> Clock {
        let reading = source.reading();
        let same_run = reading.boot != 0 && reading.boot == mark.boot;
        // A machine that was put back to an earlier moment keeps its boot id. Waiting for it to catch up would
        // hold every lock for as long, so it counts as a new run.
        if same_run && said_at(mark, reading) >= last.0 {
            return Clock { source, mark, last: AtomicU64::new(last.0) };
        }
        Clock::at(source, last.plus(lost).0, reading)
    }

    fn at(source: Arc<dyn TimeSource>, time: u64, reading: Reading) -> Clock {
        let base = time.cast_signed().wrapping_sub(reading.since_boot.cast_signed());
        Clock { source, mark: Mark { boot: reading.boot, base }, last: AtomicU64::new(time) }
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// The last stamp that was given, or the moment the clock started from.
    pub(crate) fn last(&self) -> Time {
        Time(self.last.load(Ordering::Acquire))
    }

    pub(crate) fn now(&self) -> Stamp {
        let reading = self.source.reading();
        let time = said_at(self.mark, reading).max(self.last().0);
        Stamp { time: Time(time), wall: reading.wall }
    }

    /// The stamp of a batch. What the writer proposes is taken when it lies between the last stamp and now, so that
    /// what it decided at its `now` holds as it stands.
    pub(crate) fn stamp(&self, proposed: Stamp) -> Stamp {
        let now = self.now();
        let stamp = if (self.last()..=now.time).contains(&proposed.time) { proposed } else { now };
        let before = self.last.swap(stamp.time.0, Ordering::AcqRel);
        assert!(stamp.time.0 >= before, "stamps never fall");
        stamp
    }
}

/// What a clock with this mark says; zero before its time began.
fn said_at(mark: Mark, reading: Reading) -> u64 {
    u64::try_from(mark.base.saturating_add(reading.since_boot.cast_signed())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_source::FakeTime;

    const WALL: u64 = 1_700_000_000_000_000;

    fn fake() -> Arc<FakeTime> {
        Arc::new(FakeTime::new(Reading { boot: 7, since_boot: 5_000_000, wall: WALL }))
    }

    #[test]
    fn a_new_clock_starts_at_the_wall() {
        assert_eq!(Clock::start(fake()).now(), Stamp { time: Time(WALL), wall: WALL });
    }

    #[test]
    fn a_jump_of_the_wall_moves_nothing_but_what_is_shown() {
        let time = fake();
        let clock = Clock::start(time.clone());
        time.set_wall(WALL - 86_400_000_000);
        time.pass(10);
        assert_eq!(clock.now(), Stamp { time: Time(WALL + 10), wall: WALL - 86_400_000_000 + 10 });
    }

    #[test]
    fn the_time_between_two_processes_of_one_boot_counts() {
        let time = fake();
        let clock = Clock::start(time.clone());
        let stamp = clock.stamp(Stamp::default());
        time.set_wall(0);
        time.pass(3_000_000);
        let later = Clock::resume(time, stamp.time, clock.mark(), Millis(0));
        assert_eq!(later.now().time, Time(WALL + 3_000_000));
    }

    #[test]
    fn after_a_reboot_time_goes_on_from_the_last_stamp() {
        let time = fake();
        let clock = Clock::start(time.clone());
        time.pass(1000);
        let stamp = clock.stamp(Stamp::default());
        time.reboot(2_000_000);
        time.set_wall(WALL + 999_000_000_000);
        let later = Clock::resume(time.clone(), stamp.time, clock.mark(), Millis(0));
        assert_eq!(later.now().time, stamp.time);
        time.pass(5);
        assert_eq!(later.now().time.0, stamp.time.0 + 5);
    }

    #[test]
    fn a_machine_put_back_to_an_earlier_moment_does_not_stop_the_clock() {
        let time = fake();
        let clock = Clock::start(time.clone());
        time.pass(60_000_000);
        let stamp = clock.stamp(Stamp::default());
        let earlier = Arc::new(FakeTime::new(Reading { boot: 7, since_boot: 5_000_000, wall: WALL }));
        let later = Clock::resume(earlier.clone(), stamp.time, clock.mark(), Millis(0));
        earlier.pass(5);
        assert_eq!(later.now().time.0, stamp.time.0 + 5);
    }

    #[test]
    fn a_proposal_counts_only_between_the_last_stamp_and_now() {
        let time = fake();
        let clock = Clock::start(time.clone());
        time.pass(100);
        let proposed = Stamp { time: Time(WALL + 40), wall: 1 };
        assert_eq!(clock.stamp(proposed), proposed);
        assert_eq!(clock.stamp(Stamp { time: Time(WALL + 39), wall: 1 }).time, Time(WALL + 100));
        assert_eq!(clock.stamp(Stamp { time: Time(WALL + 101), wall: 1 }).time, Time(WALL + 100));
    }

    #[test]
    fn an_unknown_boot_is_never_the_same() {
        let time = Arc::new(FakeTime::new(Reading { boot: 0, since_boot: 9, wall: WALL }));
        let clock = Clock::start(time.clone());
        time.pass(1_000_000);
        let later = Clock::resume(time, Time(WALL), clock.mark(), Millis(0));
        assert_eq!(later.now().time, Time(WALL));
    }
}
