//! The queue in front of `ledger.lock`, for those who know it: whoever stands in it is woken by the kernel and does
//! not poll.
//!
//! Two files, locked with `flock` and never removed. Whoever comes waits for the first; whoever has the first waits for
//! the second, lets go of the first when it has it, and keeps the second while it takes, holds and frees `ledger.lock`.
//! So the one who has just been in can't be in again before the next. The end of a process lets go of both.
//! Others see nothing but `ledger.lock`; they get a pause now and then, because whoever polls needs time to see a gap.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::holder::{Life, Process};
use crate::limits::{CREATION_MAX, LOCK_POLL, RUN_MAX, RUN_PAUSE, WAITING_THREADS_MAX};
use crate::place::Folder;
use crate::step::step;

pub(crate) const QUEUE_FILE: &str = ".lockkeeper.queue";
pub(crate) const TURN_FILE: &str = ".lockkeeper.turn";

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// It is this process's turn at `ledger.lock`, among those who queue.
#[derive(Debug)]
pub(crate) struct Turn {
    file: Flocked,
    note: Note,
}

/// A file that may be locked. It is let go by word, not only by closing it: a process that was forked meanwhile may
/// still have it open.
#[derive(Debug)]
struct Flocked(File);

impl Drop for Flocked {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// What came of asking for the turn without waiting.
pub(crate) enum Asked {
    Got(Turn),
    /// Somebody has it; and if they hold a `ledger.lock`, this is its inode.
    Taken {
        holding: Option<u64>,
    },
}

impl Turn {
    /// Waits in the queue; `None` if the deadline came first.
    pub(crate) fn take(folder: &Folder, deadline: Instant) -> io::Result<Option<Turn>> {
        let (queue, turn) = (Flocked(folder.open_lasting(QUEUE_FILE)?), Flocked(folder.open_lasting(TURN_FILE)?));
        let first = try_lock(&queue)?;
        let file = if first && try_lock(&turn)? { Some(turn) } else { wait(queue, turn, first, deadline)? };
        let Some(file) = file else { return Ok(None) };
        Turn::with(file).map(Some)
    }

    /// Takes the turn if nobody has it.
    pub(crate) fn ask(folder: &Folder) -> io::Result<Asked> {
        let file = Flocked(folder.open_lasting(TURN_FILE)?);
        if try_lock(&file)? {
            return Ok(Asked::Got(Turn::with(file)?));
        }
        Ok(Asked::Taken { holding: Note::read(&file.0)?.holding })
    }

    fn with(file: Flocked) -> io::Result<Turn> {
        let mut turn = Turn { note: Note::read(&file.0)?, file };
        // Whoever held one is not in any more: it let go, or ended.
        if turn.note.holding.take().is_some() {
            turn.note.write(&turn.file.0)?;
        }
        Ok(turn)
    }

    /// Whether others have to be let in now: ours that follow each other leave no gap that somebody who looks every 10 ms
    /// would see. So they make one.
    pub(crate) fn is_long_run(&mut self) -> bool {
        let now = now_ns();
        let idle = now.checked_sub(self.note.ended_ns).is_none_or(|idle| idle > RUN_PAUSE.as_nanos() as u64);
        let run = now.checked_sub(self.note.began_ns);
        if idle || run.is_none() {
            self.note.began_ns = now;
        }
        run.is_some_and(|run| !idle && run > RUN_MAX.as_nanos() as u64)
    }

    /// Notes that others had their time.
    pub(crate) fn has_let_in(&mut self) {
        self.note.began_ns = now_ns();
    }

    /// Whether the one who had this turn before died while it created `ledger.lock`, and it is this one: written at the
    /// same time.
    pub(crate) fn left_by_the_dead(&self, folder: &Folder, written: SystemTime) -> bool {
        let (Some(process), noted) = (&self.note.creating, self.note.noted_at()) else { return false };
        let apart = written.duration_since(noted).unwrap_or_else(|error| error.duration());
        apart <= CREATION_MAX && process.life(folder, noted) == Life::Dead
    }

    /// Notes that this process is about to create `ledger.lock`: until it has written into it, nothing else says whose it is.
    pub(crate) fn creating(&mut self) -> io::Result<()> {
        self.note.creating = Process::own().cloned();
        let noted = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.note.noted_ns = noted.as_nanos() as u64;
        self.note.write(&self.file.0)
    }

    /// Notes that no `ledger.lock` is being created here any more, and which one is held.
    pub(crate) fn created(&mut self, holding: Option<u64>) -> io::Result<()> {
        self.note.creating = None;
        self.note.holding = holding;
        self.note.write(&self.file.0)
    }

    /// Notes that this turn is about to end; it is handed on when it is dropped.
    pub(crate) fn ending(&mut self) {
        self.note.ended_ns = now_ns();
        self.note.creating = None;
        self.note.holding = None;
        // Only a pause depends on it: of what is held, the lock that goes with the turn says more.
        let _ = self.note.write(&self.file.0);
    }
}

fn try_lock(file: &Flocked) -> io::Result<bool> {
    step("queue")?;
    match flock(&file.0, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn lock(file: &Flocked) -> io::Result<()> {
    loop {
        match flock(&file.0, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Waits for the first file, unless it is held, and then for the second. A call that waits for `flock` can't be ended, so
/// a thread does it; one that nobody waits for any more lets go as soon as it has what it came for.
fn wait(queue: Flocked, turn: Flocked, first: bool, deadline: Instant) -> io::Result<Option<Flocked>> {
    if WAITING.fetch_add(1, Ordering::Relaxed) >= WAITING_THREADS_MAX {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        return poll(&queue, turn, first, deadline);
    }
    let given_up = Arc::new(AtomicBool::new(false));
    let (send, receive) = sync_channel(1);
    let stop = given_up.clone();
    let work = move || {
        let got = (|| {
            if !first {
                lock(&queue)?;
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            lock(&turn)?;
            drop(queue);
            Ok(Some(turn))
        })();
        WAITING.fetch_sub(1, Ordering::Relaxed);
        let _ = send.send(got);
    };
    if let Err(error) = thread::Builder::new().name("proof-queue".to_owned()).stack_size(64 * 1024).spawn(work) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        return Err(error);
    }
    match receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(got) => got,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            given_up.store(true, Ordering::Relaxed);
            Ok(None)
        }
    }
}

fn poll(queue: &Flocked, turn: Flocked, mut first: bool, deadline: Instant) -> io::Result<Option<Flocked>> {
    loop {
        first = first || try_lock(queue)?;
        if first && try_lock(&turn)? {
            return Ok(Some(turn));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(LOCK_POLL);
    }
}

/// What one turn tells the next, in the second file. Nobody needs it after a reboot.
#[derive(Debug, Default)]
struct Note {
    /// Since when ours have followed each other without a pause.
    began_ns: u64,
    ended_ns: u64,
    creating: Option<Process>,
    /// When the creation was noted, by the wall clock.
    noted_ns: u64,
    /// The inode of the lock that goes with this turn.
    holding: Option<u64>,
}

const NOTE_BYTES: usize = 64;
const BOOT_BYTES: usize = 36;
/// What stands before the boot id in the file is this long; the id of a boot is 36 characters.
const NOTE_FIXED: usize = 40;
/// And behind the boot id stand the namespace of time, the moment, and the inode.
const NOTE_REST: usize = NOTE_FIXED + BOOT_BYTES;

impl Note {
    fn read(file: &File) -> io::Result<Note> {
        let mut bytes = [0; NOTE_BYTES + BOOT_BYTES];
        // A note that is not whole is none.
        if file.read_at(&mut bytes, 0)? < bytes.len() {
            return Ok(Note::default());
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let pid = i32::try_from(number(16)).unwrap_or(0);
        let boot_id = String::from_utf8_lossy(&bytes[NOTE_FIXED..NOTE_FIXED + BOOT_BYTES]).into_owned();
        let some = |number: u64| Some(number).filter(|number| *number != 0);
        let creating = Process {
            pid,
            pid_start: number(24),
            pid_namespace: number(32),
            boot_id,
            // A note is of no use on another boot.
            machine: None,
            time_namespace: some(number(NOTE_REST)),
        };
        Ok(Note {
            began_ns: number(0),
            ended_ns: number(8),
            creating: (pid > 0).then_some(creating),
            noted_ns: number(NOTE_REST + 8),
            holding: some(number(NOTE_REST + 16)),
        })
    }

    fn noted_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.noted_ns)
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let mut bytes = [0; NOTE_BYTES + BOOT_BYTES];
        let mut put = |at: usize, number: u64| bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        put(0, self.began_ns);
        put(8, self.ended_ns);
        put(NOTE_REST + 8, self.noted_ns);
        put(NOTE_REST + 16, self.holding.unwrap_or(0));
        if let Some(process) = self.creating.as_ref().filter(|process| process.boot_id.len() == BOOT_BYTES) {
            put(16, process.pid as u64);
            put(24, process.pid_start);
            put(32, process.pid_namespace);
            put(NOTE_REST, process.time_namespace.unwrap_or(0));
            bytes[NOTE_FIXED..NOTE_FIXED + BOOT_BYTES].copy_from_slice(process.boot_id.as_bytes());
        }
        step("note")?;
        file.write_all_at(&bytes, 0)
    }
}

/// Nanoseconds since the boot, the same for every process of the machine.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos() as u64
}
