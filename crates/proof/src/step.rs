//! Counts the changes that are made to the disk, so that a test can end the process, or make the disk fail, at any of
//! them. Nothing is left of it without the feature `crash-points`.
//!
//! `LOCKKEEPER_PROOF_CRASH_AT=n` aborts before the n-th change; `LOCKKEEPER_PROOF_FAIL_AT=n` makes that one fail.
//! Reading changes nothing: a crash while reading leaves what a crash before the next change leaves.

use std::io;

#[inline]
#[cfg_attr(not(feature = "crash-points"), expect(clippy::unnecessary_wraps, reason = "can fail with the feature"))]
pub(crate) fn step(name: &'static str) -> io::Result<()> {
    #[cfg(not(feature = "crash-points"))]
    let _ = name;
    #[cfg(feature = "crash-points")]
    {
        use std::sync::atomic::Ordering;
        armed::tell(name);
        let here = armed::COUNT.fetch_add(1, Ordering::SeqCst) + 1;
        if *armed::CRASH == Some(here) {
            std::process::abort();
        }
        if *armed::FAIL == Some(here) {
            return Err(io::Error::from(rustix::io::Errno::IO));
        }
    }
    Ok(())
}

/// Calls with the name of each change, right before this thread makes it: so a test can see their order, or do what
/// somebody else might do at that moment. What is changed by the watcher itself is not watched.
#[cfg(feature = "crash-points")]
pub fn watch_steps(watcher: Option<Box<dyn FnMut(&'static str)>>) {
    armed::WATCHER.set(watcher);
}

/// How many changes this process has made to the disk.
#[cfg(feature = "crash-points")]
pub fn steps_taken() -> u64 {
    armed::COUNT.load(std::sync::atomic::Ordering::SeqCst)
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::sync::atomic::AtomicU64;

    type Watcher = Box<dyn FnMut(&'static str)>;

    thread_local! {
        pub(super) static WATCHER: Cell<Option<Watcher>> = const { Cell::new(None) };
    }

    pub(super) fn tell(name: &'static str) {
        if let Some(mut watcher) = WATCHER.take() {
            watcher(name);
            WATCHER.set(Some(watcher));
        }
    }

    pub(super) static COUNT: AtomicU64 = AtomicU64::new(0);
    pub(super) static CRASH: LazyLock<Option<u64>> = LazyLock::new(|| number("LOCKKEEPER_PROOF_CRASH_AT"));
    pub(super) static FAIL: LazyLock<Option<u64>> = LazyLock::new(|| number("LOCKKEEPER_PROOF_FAIL_AT"));

    fn number(variable: &str) -> Option<u64> {
        std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
    }
}
