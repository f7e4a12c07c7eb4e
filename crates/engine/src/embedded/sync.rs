//! Makes records durable: one sync for all that was written since the last, by a thread of its own, or, as long as the
//! disk is quick and few wait for it, by whoever wrote them: then nobody has to be woken.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use tokio::sync::watch;

use crate::crash::{crash_point, fault_point};
use crate::{Durable, EngineError};

/// How long a batch that nobody waits for may stay unsynced.
const PATIENCE: Duration = Duration::from_millis(10);
/// A disk that takes no longer than this is waited for on the spot.
const QUICK: Duration = Duration::from_millis(1);

/// Who waits until something is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The disk may take a while.
    Nobody,
    /// Waking a thread and being woken by it would take as long as the sync.
    ByFew,
    /// As many questions are likely to come meanwhile: they are served beside the sync.
    ByMany,
}

type Sync = Box<dyn FnMut(&File) -> io::Result<()> + Send>;

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
    /// Whoever syncs holds it from before it takes what is pending: durable only rises.
    disk: Mutex<Disk>,
    /// The last sync was quick.
    quick: AtomicBool,
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

/// Where files are synced.
struct Disk {
    sync: Sync,
    /// How long a sync may take and still be called quick.
    quick: Duration,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("quick", &self.quick).finish_non_exhaustive()
    }
}

/// Syncs a file that is still there. What is written into one that was removed is gone with this process, and another may have
/// begun a new one in its place.
fn sync_kept(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // Asked for nothing but this: since Linux 6.13, whoever is told when a file was changed makes the next write note that anew,
    // and on some file systems the next sync then writes the inode as well.
    let links = match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK) {
        Ok(found) => u64::from(found.stx_nlink),
        // Some sandboxes know the older way only.
        Err(Errno::NOSYS) => file.metadata()?.nlink(),
        Err(error) => return Err(error.into()),
    };
    match links {
        0 => Err(io::Error::other("somebody removed the files of the ledger")),
        _ => Ok(()),
    }
}

/// The folder of a ledger, by its name and as it was found there. If it is moved, another service may begin a new one under that name.
struct Home {
    dir: PathBuf,
    identity: (u64, u64),
}

impl Home {
    fn find(dir: &Path) -> io::Result<Home> {
        Ok(Home { dir: dir.to_owned(), identity: identity(dir)? })
    }

    /// Looked at after each sync, which takes a hundred times as long.
    fn is_still_there(&self) -> io::Result<()> {
        match identity(&self.dir) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(moved()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(moved()),
            // Not to be told apart from a moment in which nothing can be opened.
            Err(_) => Ok(()),
        }
    }
}

pub(super) fn moved() -> io::Error {
    io::Error::other("somebody moved the files of the ledger")
}

fn identity(dir: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::metadata(dir)?;
    Ok((found.dev(), found.ino()))
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
    pub(super) fn start(revision: u64, dir: &Path) -> io::Result<Syncer> {
        let home = Home::find(dir)?;
        let sync = move |file: &File| sync_kept(file).and_then(|()| home.is_still_there());
        Syncer::start_with(revision, Disk { sync: Box::new(sync), quick: QUICK })
    }

    fn start_with(revision: u64, disk: Disk) -> io::Result<Syncer> {
        let shared = Arc::new(Shared {
            pending: Mutex::default(),
            wake: Condvar::new(),
            disk: Mutex::new(disk),
            quick: AtomicBool::new(false),
            durable: AtomicU64::new(revision),
            told: watch::Sender::new(Durable::Up(revision)),
            failed: OnceLock::new(),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("ledger-sync".to_owned()).spawn(move || own.run())?;
        Ok(Syncer { shared, thread: Some(thread) })
    }

    /// Takes note that everything up to `revision` is written. `true`: it is durable already.
    pub(super) fn written(&self, revision: u64, file: &Arc<File>, awaited: Awaited) -> bool {
        let wanted = Instant::now() + if awaited == Awaited::Nobody { PATIENCE } else { Duration::ZERO };
        let mut pending = self.shared.pending();
        assert!(revision > pending.revision || pending.revision == 0, "revisions only rise");
        pending.revision = revision;
        if pending.files.last().is_none_or(|last| !Arc::ptr_eq(last, file)) {
            pending.files.push(file.clone());
        }
        let due = pending.due.map_or(wanted, |due| due.min(wanted));
        pending.due = Some(due);
        if awaited == Awaited::ByFew
            && self.shared.quick.load(Ordering::Relaxed)
            && let Ok(disk) = self.shared.disk.try_lock()
        {
            drop(pending);
            self.shared.sync(disk);
            return self.durable() >= revision;
        }
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
        false
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
        while self.wait_until_due() {
            self.sync(self.disk.lock().expect("no holder panics"));
        }
    }

    /// Syncs what is pending, if somebody else has not done so meanwhile.
    fn sync(&self, mut disk: MutexGuard<'_, Disk>) {
        let Some((revision, files)) = self.take() else { return };
        crash_point("append-before-sync");
        let began = Instant::now();
        let synced = fault_point("sync").and_then(|()| files.iter().try_for_each(|file| (disk.sync)(file)));
        self.quick.store(began.elapsed() < disk.quick, Ordering::Relaxed);
        crash_point("append-after-sync");
        match synced {
            Ok(()) => self.rise(revision),
            // Never tried again: the kernel may have dropped the pages, and a second sync would succeed without them.
            Err(error) => {
                self.fail(&error);
            }
        }
    }

    /// What is to be synced now, if anything.
    fn take(&self) -> Option<(u64, Vec<Arc<File>>)> {
        let mut pending = self.pending();
        pending.due.take().filter(|_| self.failed.get().is_none())?;
        Some((pending.revision, std::mem::take(&mut pending.files)))
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

    /// Waits until something is to be synced; `false` when the ledger closes or has failed.
    fn wait_until_due(&self) -> bool {
        let mut pending = self.pending();
        // Where something was written, more is soon: whoever writes that need not wake this thread.
        let mut lingers = true;
        loop {
            if self.failed.get().is_some() {
                return false;
            }
            let now = Instant::now();
            match pending.due {
                Some(due) if due <= now || pending.closing => return true,
                None if pending.closing => return false,
                Some(due) => {
                    pending.sleep = Sleep::Until(due);
                    pending = self.wake.wait_timeout(pending, due - now).expect("no holder panics").0;
                }
                None if std::mem::take(&mut lingers) => {
                    pending.sleep = Sleep::Until(now + PATIENCE);
                    pending = self.wake.wait_timeout(pending, PATIENCE).expect("no holder panics").0;
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A syncer whose disk tells which files it synced, and fails when the test says so.
    struct Bench {
        syncer: Syncer,
        synced: Receiver<i32>,
        answers: Sender<io::Result<()>>,
    }

    /// A disk that is never called quick.
    fn bench() -> Bench {
        bench_with(Duration::ZERO)
    }

    fn bench_with(quick: Duration) -> Bench {
        let (told, synced) = channel();
        let (answers, answer) = channel();
        let disk = move |file: &File| {
            told.send(file.as_raw_fd()).expect("the test listens");
            answer.recv().unwrap_or(Ok(()))
        };
        let disk = Disk { sync: Box::new(disk), quick };
        Bench { syncer: Syncer::start_with(0, disk).expect("starts"), synced, answers }
    }

    fn file() -> Arc<File> {
        Arc::new(tempfile::tempfile().expect("a file"))
    }

    const MOMENT: Duration = Duration::from_secs(10);

    #[test]
    fn every_file_is_synced_in_the_order_of_writing_before_anything_is_called_durable() {
        let Bench { syncer, synced, answers } = bench();
        let (first, old, new) = (file(), file(), file());
        syncer.written(1, &first, Awaited::ByFew);
        assert_eq!(synced.recv_timeout(MOMENT), Ok(first.as_raw_fd()), "at once");
        syncer.written(2, &old, Awaited::ByFew);
        syncer.written(3, &old, Awaited::ByFew);
        syncer.written(4, &new, Awaited::ByFew);
        assert_eq!(syncer.durable(), 0, "the disk has not answered");
        answers.send(Ok(())).expect("listens");
        assert_eq!(synced.recv_timeout(MOMENT), Ok(old.as_raw_fd()));
        assert_eq!(syncer.durable(), 1);
        answers.send(Ok(())).expect("listens");
        assert_eq!(synced.recv_timeout(MOMENT), Ok(new.as_raw_fd()));
        assert_eq!(*syncer.watch().borrow(), Durable::Up(1), "one of two files is not enough");
        answers.send(Ok(())).expect("listens");
        drop(syncer);
        assert!(synced.recv().is_err(), "three writes, one sync a file");
    }

    #[test]
    fn what_nobody_waits_for_is_synced_after_a_while_and_at_once_when_somebody_does() {
        let Bench { syncer, synced, answers } = bench();
        drop(answers);
        let (patient, begin) = (file(), Instant::now());
        syncer.written(1, &patient, Awaited::Nobody);
        synced.recv_timeout(MOMENT).expect("without another write");
        assert!(begin.elapsed() >= PATIENCE);
        let mut sooner = 0;
        for revision in 1..=20 {
            let begin = Instant::now();
            syncer.written(2 * revision, &patient, Awaited::Nobody);
            syncer.written(2 * revision + 1, &patient, Awaited::ByFew);
            synced.recv_timeout(MOMENT).expect("syncs");
            sooner += u32::from(begin.elapsed() < PATIENCE);
        }
        assert!(sooner > 10, "{sooner} of 20: the machine may be busy now and then, not always");
    }

    #[test]
    fn what_few_wait_for_is_synced_on_the_spot_by_a_quick_disk_and_takes_along_what_is_pending() {
        let Bench { syncer, synced, answers } = bench_with(MOMENT);
        let (first, second) = (file(), file());
        answers.send(Ok(())).expect("listens");
        assert!(!syncer.written(1, &first, Awaited::ByFew), "nobody knows yet how quick the disk is");
        synced.recv_timeout(MOMENT).expect("the thread syncs");
        let mut durable = syncer.watch();
        while *durable.borrow_and_update() != Durable::Up(1) {
            std::thread::yield_now();
        }
        assert!(!syncer.written(2, &first, Awaited::ByMany), "others are served meanwhile");
        synced.recv_timeout(MOMENT).expect("the thread syncs");
        drop(answers);
        while *durable.borrow_and_update() != Durable::Up(2) {
            std::thread::yield_now();
        }
        assert!(!syncer.written(3, &first, Awaited::Nobody), "nobody waits");
        assert!(syncer.written(4, &second, Awaited::ByFew));
        assert_eq!(*syncer.watch().borrow(), Durable::Up(4));
        assert_eq!(synced.try_iter().collect::<Vec<_>>(), [first.as_raw_fd(), second.as_raw_fd()]);
        drop(syncer);
        assert!(synced.recv().is_err(), "nothing is left to sync");
    }

    #[test]
    fn closing_syncs_the_rest() {
        let Bench { syncer, synced, answers } = bench();
        drop(answers);
        let mut durable = syncer.watch();
        syncer.written(1, &file(), Awaited::Nobody);
        drop(syncer);
        assert_eq!(synced.iter().count(), 1);
        assert_eq!(*durable.borrow_and_update(), Durable::Up(1));
    }

    #[test]
    fn a_failed_sync_is_told_and_never_tried_again() {
        let Bench { syncer, synced, answers } = bench();
        answers.send(Err(io::ErrorKind::Other.into())).expect("listens");
        answers.send(Ok(())).expect("listens");
        let file = file();
        syncer.written(1, &file, Awaited::ByFew);
        synced.recv_timeout(MOMENT).expect("syncs");
        let begin = Instant::now();
        while syncer.failed().is_none() {
            assert!(begin.elapsed() < MOMENT, "is told");
            std::thread::yield_now();
        }
        syncer.written(2, &file, Awaited::ByFew);
        let durable = syncer.watch();
        drop(syncer);
        assert!(synced.recv().is_err(), "no second attempt");
        assert!(matches!(*durable.borrow(), Durable::Failed(EngineError::Stopped(_))));
    }

    #[test]
    fn a_sync_that_was_under_way_when_a_write_failed_does_not_take_that_back() {
        let Bench { syncer, synced, answers } = bench();
        syncer.written(1, &file(), Awaited::ByFew);
        synced.recv_timeout(MOMENT).expect("syncs");
        syncer.fail(&io::ErrorKind::Other.into());
        answers.send(Ok(())).expect("listens");
        let durable = syncer.watch();
        drop(syncer);
        assert!(matches!(*durable.borrow(), Durable::Failed(EngineError::Stopped(_))));
    }
}
