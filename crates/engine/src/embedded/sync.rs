//! The thread that makes records durable: one sync for all that was written since the last.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::crash::{crash_point, fault_point};
use crate::{Durable, EngineError};

/// How long a batch that nobody waits for may stay unsynced.
const PATIENCE: Duration = Duration::from_millis(10);

/// Syncs what it is told was written; dropping it syncs the rest.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    pending: Mutex<Pending>,
    wake: Condvar,
    durable: AtomicU64,
    told: watch::Sender<Durable>,
    failed: OnceLock<EngineError>,
}

/// What is written and not yet synced.
#[derive(Debug, Default)]
struct Pending {
    revision: u64,
    /// In the order in which they were written to.
    files: Vec<Arc<File>>,
    due: Option<Instant>,
    sleep: Sleep,
    closing: bool,
}

/// What the thread waits for, so that it is woken only when that helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    Awake,
    Until(Instant),
    Forever,
}

impl Syncer {
    /// Starts the thread of a ledger that is durable up to `revision`.
    pub(super) fn start(revision: u64) -> io::Result<Syncer> {
        let shared = Arc::new(Shared {
            pending: Mutex::default(),
            wake: Condvar::new(),
            durable: AtomicU64::new(revision),
            told: watch::Sender::new(Durable::Up(revision)),
            failed: OnceLock::new(),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("ledger-sync".to_owned()).spawn(move || own.run())?;
        Ok(Syncer { shared, thread: Some(thread) })
    }

    /// Takes note that everything up to `revision` is written. When nobody waits for it, the disk may take a while.
    pub(super) fn written(&self, revision: u64, file: &Arc<File>, awaited: bool) {
        let wanted = Instant::now() + if awaited { Duration::ZERO } else { PATIENCE };
        let mut pending = self.shared.pending();
        assert!(revision > pending.revision || pending.revision == 0, "revisions only rise");
        pending.revision = revision;
        if pending.files.last().is_none_or(|last| !Arc::ptr_eq(last, file)) {
            pending.files.push(file.clone());
        }
        let due = pending.due.map_or(wanted, |due| due.min(wanted));
        pending.due = Some(due);
        let wake = match pending.sleep {
            Sleep::Awake => false,
            Sleep::Until(end) => due < end,
            Sleep::Forever => true,
        };
        if wake {
            pending.sleep = Sleep::Awake;
            drop(pending);
            self.shared.wake.notify_one();
        }
    }

    /// The last revision that is known to be durable.
    pub(super) fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    pub(super) fn watch(&self) -> watch::Receiver<Durable> {
        self.shared.told.subscribe()
    }

    /// Why the ledger has stopped, if it has.
    pub(super) fn failed(&self) -> Option<&EngineError> {
        self.shared.failed.get()
    }

    /// Stops the ledger for good: after a failed write nobody knows what is on the disk.
    pub(super) fn fail(&self, error: &io::Error) -> EngineError {
        self.shared.fail(error)
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.pending().closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread of a ledger panicked");
        }
    }
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no holder panics")
    }

    fn run(&self) {
        while let Some((revision, files)) = self.next() {
            crash_point("append-before-sync");
            let synced = fault_point("sync").and_then(|()| files.iter().try_for_each(|file| file.sync_data()));
            crash_point("append-after-sync");
            match synced {
                Ok(()) => self.rise(revision),
                // Never tried again: the kernel may have dropped the pages, and a second sync would succeed without them.
                Err(error) => {
                    self.fail(&error);
                    return;
                }
            }
        }
    }

    fn rise(&self, revision: u64) {
        self.durable.store(revision, Ordering::Release);
        self.told.send_if_modified(|told| match told {
            Durable::Up(before) => {
                assert!(*before <= revision, "durable only rises");
                *before = revision;
                true
            }
            // A write failed while this sync was under way: that is the last word.
            Durable::Failed(_) => false,
        });
    }

    /// Waits for the next thing to sync; none when the ledger closes.
    fn next(&self) -> Option<(u64, Vec<Arc<File>>)> {
        let mut pending = self.pending();
        loop {
            if self.failed.get().is_some() {
                return None;
            }
            let now = Instant::now();
            match pending.due {
                Some(due) if due <= now || pending.closing => {
                    pending.due = None;
                    return Some((pending.revision, std::mem::take(&mut pending.files)));
                }
                None if pending.closing => return None,
                Some(due) => {
                    pending.sleep = Sleep::Until(due);
                    pending = self.wake.wait_timeout(pending, due - now).expect("no holder panics").0;
                }
                None => {
                    pending.sleep = Sleep::Forever;
                    pending = self.wake.wait(pending).expect("no holder panics");
                }
            }
            pending.sleep = Sleep::Awake;
        }
    }

    fn fail(&self, error: &io::Error) -> EngineError {
        let stopped = self.failed.get_or_init(|| EngineError::Stopped(format!("the disk failed: {error}")));
        tracing::error!(%stopped, "the ledger takes nothing more");
        self.told.send_replace(Durable::Failed(stopped.clone()));
        stopped.clone()
    }
}
