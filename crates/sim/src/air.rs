//! What everything in a run breathes: its one source of chance, its time, and whether anything may go wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_engine::{Reading, TimeSource};
use tokio::time::Instant;

use crate::weather::Weather;

/// The engine's time at the beginning of a run, in microseconds.
pub(crate) const BEGIN: u64 = 1_700_000_000_000_000;

#[derive(Debug)]
pub(crate) struct Air {
    pub weather: Weather,
    rng: Mutex<Rng>,
    began: Instant,
    /// Off when the run is being brought to its end.
    faults: AtomicBool,
    wall_jump: AtomicU64,
    /// The last millisecond in which the clock was read, and how often.
    read: Mutex<(u64, u64)>,
}

impl Air {
    pub(crate) fn new(weather: Weather, rng: Rng) -> Air {
        Air {
            weather,
            rng: Mutex::new(rng),
            began: Instant::now(),
            faults: AtomicBool::new(true),
            wall_jump: AtomicU64::new(0),
            read: Mutex::default(),
        }
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().expect("no holder panics")
    }

    /// True time since the beginning, in microseconds.
    pub(crate) fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Whether something that goes wrong this often, in thousandths, goes wrong now.
    pub(crate) fn chance(&self, thousandths: u64) -> bool {
        thousandths > 0 && self.faults.load(Ordering::Relaxed) && self.rng().u64(..1000) < thousandths
    }

    /// Takes a random while, at most this many milliseconds.
    pub(crate) async fn way(&self, most: u64) {
        let micros = self.rng().u64(..=most * 1000);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    pub(crate) fn clear_up(&self) {
        self.faults.store(false, Ordering::Relaxed);
    }

    pub(crate) fn jump_wall(&self) {
        let to = self.rng().u64(..200_000_000_000);
        self.wall_jump.store(to, Ordering::Relaxed);
    }
}

/// The engine's clock. True, but for its step; what the wall shows jumps.
#[derive(Debug)]
pub(crate) struct SimTime(pub std::sync::Arc<Air>);

impl TimeSource for SimTime {
    fn reading(&self) -> Reading {
        let now = self.0.now();
        let mut read = self.0.read.lock().expect("no holder panics");
        *read = if read.0 == now { (now, read.1 + 1) } else { (now, 0) };
        // Simulated time moves in milliseconds; in between, each look takes a microsecond.
        let now = (now + read.1.min(999)) / self.0.weather.clock_step * self.0.weather.clock_step;
        let jump = self.0.wall_jump.load(Ordering::Relaxed);
        Reading { boot: 1, since_boot: now, wall: BEGIN + now + jump }
    }
}
