//! Where an engine's time comes from: the machine, or a test.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

/// What the clocks of a machine say at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Names this run of the machine; zero when it can't be told, which is never the same run.
    pub boot: u64,
    /// Microseconds since the machine was started, sleep included.
    pub since_boot: u64,
    /// Microseconds of the Unix epoch by the wall clock.
    pub wall: u64,
}

/// Something that can tell the time.
pub trait TimeSource: Send + Sync + fmt::Debug {
    fn reading(&self) -> Reading;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    boot: u64,
}

impl Machine {
    pub fn new() -> Machine {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let (high, low) = Uuid::parse_str(text.trim()).unwrap_or_default().as_u64_pair();
        // In another namespace of time the same clock of the same run says something else.
        let namespace = std::fs::metadata("/proc/self/ns/time").map_or(0, |namespace| namespace.ino());
        let boot = high ^ low;
        Machine { boot: if boot == 0 { 0 } else { boot ^ namespace.rotate_left(32) } }
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl TimeSource for Machine {
    fn reading(&self) -> Reading {
        let since_boot = clock_gettime(ClockId::Boottime);
        let micros = since_boot.tv_sec.unsigned_abs() * 1_000_000 + since_boot.tv_nsec.unsigned_abs() / 1000;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Reading { boot: self.boot, since_boot: micros, wall: wall.as_micros() as u64 }
    }
}

/// Clocks that stand still until a test moves them.
#[derive(Debug)]
pub struct FakeTime(Mutex<Reading>);

impl FakeTime {
    pub fn new(reading: Reading) -> FakeTime {
        FakeTime(Mutex::new(reading))
    }

    /// Lets this many microseconds pass on every clock.
    pub fn pass(&self, micros: u64) {
        let mut reading = self.0.lock().expect("no holder panics");
        reading.since_boot += micros;
        reading.wall += micros;
    }

    /// Sets the wall clock alone.
    pub fn set_wall(&self, wall: u64) {
        self.0.lock().expect("no holder panics").wall = wall;
    }

    /// Starts the machine anew: another boot, this long ago.
    pub fn reboot(&self, since_boot: u64) {
        let mut reading = self.0.lock().expect("no holder panics");
        reading.boot = reading.boot.wrapping_add(1).max(1);
        reading.since_boot = since_boot;
    }
}

impl TimeSource for FakeTime {
    fn reading(&self) -> Reading {
        *self.0.lock().expect("no holder panics")
    }
}
