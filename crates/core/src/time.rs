//! Time as a value that comes in: points, lengths and the engine's stamp. Nothing here reads a clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point of an engine's time, in microseconds.
///
/// Points of one ledger never fall. They look like microseconds of the Unix epoch and usually are close to them,
/// but only their order and distances mean anything: what people see comes from [`Stamp::wall`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    pub const ZERO: Time = Time(0);

    /// The point `length` later; saturates at the end of time.
    pub const fn plus(self, length: Millis) -> Time {
        Time(self.0.saturating_add(length.0.saturating_mul(1000)))
    }

    /// The point `length` earlier; saturates at zero.
    pub const fn minus(self, length: Millis) -> Time {
        Time(self.0.saturating_sub(length.0.saturating_mul(1000)))
    }

    /// How long it is from `earlier` to here, rounded up to whole milliseconds; zero when `earlier` is later.
    pub const fn since(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0).div_ceil(1000))
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Millis(pub u64);

impl Millis {
    pub const fn from_secs(secs: u64) -> Millis {
        Millis(secs.saturating_mul(1000))
    }

    pub const fn from_minutes(minutes: u64) -> Millis {
        Millis(minutes.saturating_mul(60_000))
    }

    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl fmt::Display for Millis {
    /// Writes the length as people say it: `850 ms`, `24 s`, `3 min 20 s`, `2 h 5 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0 / 1000;
        match (self.0, secs) {
            (ms @ 0..1000, _) => write!(f, "{ms} ms"),
            (_, 0..60) => write!(f, "{secs} s"),
            (_, 60..3600) if secs.is_multiple_of(60) => write!(f, "{} min", secs / 60),
            (_, 60..3600) => write!(f, "{} min {} s", secs / 60, secs % 60),
            _ if (secs / 60).is_multiple_of(60) => write!(f, "{} h", secs / 3600),
            _ => write!(f, "{} h {} min", secs / 3600, secs / 60 % 60),
        }
    }
}

/// When a batch entered its ledger: the engine's own time, and what the wall clock said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Decides: expiries and fencing tokens come from it. Never falls within one ledger.
    pub time: Time,
    /// Shows: microseconds of the Unix epoch by the wall clock. May jump; decides nothing.
    pub wall: u64,
}
