//! A clock that runs through suspend: a laptop that slept for an hour has lost its locks.

use std::time::Duration;

/// A point of time since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    pub(crate) fn now() -> BootTime {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        BootTime(Duration::new(secs, u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    pub(crate) fn plus(self, length: Duration) -> BootTime {
        BootTime(self.0.saturating_add(length))
    }

    /// How long it is until then; zero when it is past.
    pub(crate) fn until(self, then: BootTime) -> Duration {
        then.0.saturating_sub(self.0)
    }
}
