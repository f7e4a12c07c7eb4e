//! Named places where a test can end the process or make the disk fail. Nothing is left of them without the
//! feature `crash-points`.
//!
//! `LOCKKEEPER_CRASH_AT=name[:nth]` aborts there, at the nth visit; `LOCKKEEPER_FAIL_AT=name[:nth]` makes that visit
//! and every later one return an input/output error.

use std::io;

/// Aborts the process when a test named this place.
#[inline]
pub(crate) fn crash_point(name: &str) {
    #[cfg(feature = "crash-points")]
    if armed::CRASH.is_reached(name) {
        std::process::abort();
    }
    #[cfg(not(feature = "crash-points"))]
    let _ = name;
}

/// Fails when a test named this place, as a broken disk would.
#[inline]
#[cfg_attr(not(feature = "crash-points"), expect(clippy::unnecessary_wraps, reason = "can fail with the feature"))]
pub(crate) fn fault_point(name: &str) -> io::Result<()> {
    #[cfg(feature = "crash-points")]
    if armed::FAIL.is_reached(name) {
        return Err(io::Error::from(rustix::io::Errno::IO));
    }
    #[cfg(not(feature = "crash-points"))]
    let _ = name;
    Ok(())
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) static CRASH: LazyLock<Trap> = LazyLock::new(|| Trap::from_environment("LOCKKEEPER_CRASH_AT"));
    pub(super) static FAIL: LazyLock<Trap> = LazyLock::new(|| Trap::from_environment("LOCKKEEPER_FAIL_AT"));

    /// A place and the visit from which on it snaps.
    pub(super) struct Trap {
        name: Option<String>,
        nth: u64,
        visits: AtomicU64,
    }

    impl Trap {
        fn from_environment(variable: &str) -> Trap {
            let text = std::env::var(variable).ok();
            let (name, nth) = match text.as_deref().map(|text| text.split_once(':').unwrap_or((text, "1"))) {
                Some((name, nth)) => (Some(name.to_owned()), nth.parse().expect("name[:nth] with a number")),
                None => (None, 1),
            };
            Trap { name, nth, visits: AtomicU64::new(0) }
        }

        pub(super) fn is_reached(&self, name: &str) -> bool {
            self.name.as_deref() == Some(name) && self.visits.fetch_add(1, Ordering::SeqCst) + 1 >= self.nth
        }
    }
}
