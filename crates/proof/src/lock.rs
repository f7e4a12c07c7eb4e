//! `ledger.lock`: taken by creating it, freed by removing it, and recovered when its holder is proved dead.
//!
//! Removing is done under a guard that is never removed itself, and only after the file was seen to be the same one under
//! the guard. Knows no event.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use rustix::fs::{FileType, FlockOperation, Stat, flock};
use rustix::io::Errno;
use serde::Serialize;

use crate::error::{Error, Result, shown};
use crate::holder::{Holder, Life, Process};
use crate::limits::{
    EMPTY_LOCK_PATIENCE, GUARD_PATIENCE, GUARD_POLL, LOCK_POLL, PAUSE_LOOK, PAUSES_MAX, RUN_MAX, RUN_PAUSE,
    SMALL_FILE_BYTES_MAX,
};
use crate::place::{Folder, Unread, write_all};
use crate::step::step;
use crate::turnstile::{Asked, Turn};

pub(crate) const LOCK_FILE: &str = "ledger.lock";
pub(crate) const GUARD_FILE: &str = ".lockkeeper.guard";

/// What lies where the ledger's lock is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LockState {
    /// Nothing: whoever comes may take it.
    Free,
    /// Somebody holds it and says who.
    Held { holder: Holder, life: Verdict, age_ms: u64 },
    /// Created, and nothing written into it yet, or ever.
    Empty { age_ms: u64 },
    /// `mkdir` excludes as well as a file does, and says nothing about its holder.
    Directory { age_ms: u64 },
    /// Something that is no lock of this protocol, and excludes all the same.
    Foreign { what: String, age_ms: u64 },
}

/// Whether the holder of a lock lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Alive,
    Dead,
    /// Nothing in the lock proves it: age alone does not.
    Unknown,
}

impl LockState {
    /// For people: who has it.
    pub fn describe(&self) -> String {
        let ago = |age_ms: u64| format!("{} s ago", age_ms / 1000);
        match self {
            LockState::Free => "ledger.lock is free".to_owned(),
            LockState::Held { holder, life, age_ms } => {
                let process = holder.process.as_ref().map(|process| format!(" (process {})", process.pid));
                let life = match life {
                    Verdict::Alive => "which lives",
                    Verdict::Dead => "which has ended",
                    Verdict::Unknown => "of which nothing more is known",
                };
                let process = process.unwrap_or_default();
                format!("ledger.lock was taken by {}{process}, {life}, {}", shown(&holder.agent_id), ago(*age_ms))
            }
            LockState::Empty { age_ms } => format!("ledger.lock was created {} and is empty", ago(*age_ms)),
            LockState::Directory { age_ms } => {
                format!("ledger.lock is a folder made {}, which says nothing about its holder", ago(*age_ms))
            }
            LockState::Foreign { what, age_ms } => format!("ledger.lock is {what}, made {}", ago(*age_ms)),
        }
    }

    fn age(&self) -> Duration {
        match self {
            LockState::Free => Duration::ZERO,
            LockState::Held { age_ms, .. }
            | LockState::Empty { age_ms }
            | LockState::Directory { age_ms }
            | LockState::Foreign { age_ms, .. } => Duration::from_millis(*age_ms),
        }
    }
}

/// What a recovery came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "recovery", rename_all = "snake_case")]
pub enum Recovery {
    /// There was no lock.
    Free,
    /// The lock of a holder that is dead, or was called so, is gone.
    Removed { was: LockState },
    /// The lock was left alone.
    Kept { is: LockState, why: String },
}

/// A lock as it was seen. The file is kept open, so that no later one can have its inode.
struct Sight {
    state: LockState,
    stat: Option<Stat>,
    _file: Option<File>,
}

impl Sight {
    fn of(folder: &Folder) -> io::Result<Sight> {
        let mut content = Vec::new();
        match folder.read_open(LOCK_FILE, SMALL_FILE_BYTES_MAX, &mut content) {
            Ok((file, stat)) => {
                let written = age(&stat);
                let state = if content.is_empty() {
                    LockState::Empty { age_ms: written.as_millis() as u64 }
                } else {
                    match Holder::parse(&content) {
                        Ok(holder) => {
                            let life = match holder.life(folder, written_at(&stat)) {
                                Life::Alive => Verdict::Alive,
                                Life::Dead => Verdict::Dead,
                                Life::Unknown => Verdict::Unknown,
                            };
                            // Whichever says that it is younger: a clock may have been set.
                            let said = Timestamp::now().duration_since(holder.acquired_at).as_millis();
                            let age_ms = u64::try_from(said).unwrap_or(0).min(written.as_millis() as u64);
                            LockState::Held { holder, life, age_ms }
                        }
                        Err(why) => LockState::Foreign {
                            what: format!("a file that is no lock of this protocol: {why}"),
                            age_ms: written.as_millis() as u64,
                        },
                    }
                };
                Ok(Sight { state, stat: Some(stat), _file: Some(file) })
            }
            Err(Unread::Missing) => Ok(Sight { state: LockState::Free, stat: None, _file: None }),
            Err(Unread::Failed(error)) if Errno::from_io_error(&error) != Some(Errno::ACCESS) => Err(error),
            Err(unread) => {
                let Some(stat) = folder.stat(LOCK_FILE)? else {
                    return Ok(Sight { state: LockState::Free, stat: None, _file: None });
                };
                let age_ms = age(&stat).as_millis() as u64;
                let state = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    LockState::Directory { age_ms }
                } else {
                    let what = match unread {
                        Unread::NotAFile(what) => what.to_owned(),
                        Unread::TooLarge(bytes) => format!("a file of {bytes} bytes"),
                        Unread::Missing | Unread::Failed(_) => "a file that may not be read".to_owned(),
                    };
                    LockState::Foreign { what, age_ms }
                };
                Ok(Sight { state, stat: Some(stat), _file: None })
            }
        }
    }

    fn is_still_there(&self, folder: &Folder) -> io::Result<bool> {
        let now = folder.stat(LOCK_FILE)?;
        Ok(self.stat.as_ref().zip(now.as_ref()).is_some_and(|(then, now)| {
            let moment = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
            (then.st_dev, then.st_ino, moment(then)) == (now.st_dev, now.st_ino, moment(now))
        }))
    }
}

/// Since the file was last written; none for one from the future.
pub(crate) fn age(stat: &Stat) -> Duration {
    SystemTime::now().duration_since(written_at(stat)).unwrap_or_default()
}

fn written_at(stat: &Stat) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(stat.st_mtime.max(0) as u64, stat.st_mtime_nsec as u32)
}

/// The guard of all removals.
#[derive(Debug, Default)]
pub(crate) struct Guard(Mutex<Option<File>>);

impl Guard {
    /// Opens it, so that whoever takes a lock knows that it can free it.
    fn open(&self, folder: &Folder) -> io::Result<()> {
        self.opened(folder).map(drop)
    }

    fn opened(&self, folder: &Folder) -> io::Result<MutexGuard<'_, Option<File>>> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = Some(folder.open_lasting(GUARD_FILE)?);
        }
        Ok(file)
    }

    /// Works while nobody else who knows the guard removes a lock.
    fn during<T>(&self, folder: &Folder, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // Threads of one process share the file, so they take turns here first.
        let opened = self.opened(folder)?;
        let Some(file) = &*opened else { return Err(io::ErrorKind::NotFound.into()) };
        step("guard")?;
        let deadline = Instant::now() + GUARD_PATIENCE;
        while let Err(error) = flock(file, FlockOperation::NonBlockingLockExclusive) {
            match error {
                Errno::INTR => {}
                // It is held for moments, unless somebody was stopped in it.
                Errno::WOULDBLOCK if Instant::now() < deadline => thread::sleep(GUARD_POLL),
                Errno::WOULDBLOCK => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the guard of removals is held"));
                }
                error => return Err(error.into()),
            }
        }
        let done = work();
        flock(file, FlockOperation::Unlock)?;
        done
    }
}

/// The ledger's lock, held. It is freed by [`LedgerLock::release`], or when it is dropped.
#[derive(Debug)]
pub struct LedgerLock<'a> {
    folder: &'a Folder,
    guard: &'a Guard,
    /// Open as long as the lock is held: so no other file can have its inode.
    file: Option<File>,
    turn: Option<Turn>,
}

impl<'a> LedgerLock<'a> {
    /// Waits for its turn and then for the lock. It gives up as soon as the lock is not wanted any more.
    pub(crate) fn acquire(
        folder: &'a Folder,
        guard: &'a Guard,
        agent_id: &str,
        timeout: Duration,
        mut wanted: impl FnMut() -> Result<()>,
    ) -> Result<LedgerLock<'a>> {
        let began = Instant::now();
        let deadline = began + timeout;
        let failed = || Error::io(format!("{}", folder.path.join(LOCK_FILE).display()));
        let timed_out = || {
            let holder = Sight::of(folder).map_or_else(|error| error.to_string(), |sight| sight.state.describe());
            Error::LockTimeout { waited: began.elapsed(), holder }
        };
        let Some(mut turn) = Turn::take(folder, deadline).map_err(failed())? else { return Err(timed_out()) };
        // Whatever is wrong with it, nobody should find a lock of ours that we can't remove.
        guard.open(folder).map_err(failed())?;
        if turn.is_long_run() {
            let_others_in(folder, deadline).map_err(failed())?;
            turn.has_let_in();
        }
        let mut empty = None;
        loop {
            // Whoever waited in vain hands on at once.
            wanted()?;
            if let Some(file) = create(folder, agent_id, &mut turn).map_err(failed())? {
                return Ok(LedgerLock { folder, guard, file: Some(file), turn: Some(turn) });
            }
            if recover_dead(folder, guard, &mut turn, &mut empty).map_err(failed())? {
                continue;
            }
            if Instant::now() >= deadline {
                return Err(timed_out());
            }
            thread::sleep(LOCK_POLL.min(deadline.saturating_duration_since(Instant::now())));
        }
    }

    /// Removes the lock, if it is still this one; says whether it was.
    pub fn release(mut self) -> io::Result<bool> {
        self.free()
    }

    /// Whether what lies there is still this lock: others may break one that they take for old.
    pub(crate) fn is_ours(&self) -> io::Result<bool> {
        self.file.as_ref().map_or(Ok(false), |file| is_at_its_place(self.folder, file))
    }

    fn free(&mut self) -> io::Result<bool> {
        let Some(file) = self.file.take() else { return Ok(false) };
        if let Some(turn) = &mut self.turn {
            turn.ending();
        }
        let freed = self.guard.during(self.folder, || {
            let ours = is_at_its_place(self.folder, &file)?;
            // If not, somebody called us dead, and what is there now is theirs.
            if ours {
                self.folder.remove(LOCK_FILE)?;
            }
            Ok(ours)
        });
        match &freed {
            // Tried once more when this is dropped.
            Err(_) => self.file = Some(file),
            Ok(_) => self.turn = None,
        }
        freed
    }
}

impl Drop for LedgerLock<'_> {
    fn drop(&mut self) {
        // Whoever wants to know calls `release`.
        let _ = self.free();
    }
}

fn is_at_its_place(folder: &Folder, file: &File) -> io::Result<bool> {
    let own = rustix::fs::fstat(file)?;
    Ok(folder.stat(LOCK_FILE)?.is_some_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)))
}

/// Leaves the lock to those who poll for it. If one of them got in, the next may be waiting, too, and gets a pause of its own;
/// but all of them together get no more time than ours had.
fn let_others_in(folder: &Folder, deadline: Instant) -> io::Result<()> {
    let end = deadline.min(Instant::now() + RUN_MAX);
    for _ in 0..PAUSES_MAX {
        let began = Instant::now();
        let (mut came, mut is_in) = (false, false);
        // A pause, and as long as somebody is in.
        while began.elapsed() < RUN_PAUSE || is_in {
            if Instant::now() + RUN_PAUSE >= end {
                // Whoever stays is waited for, or recovered, as any other.
                return Ok(());
            }
            thread::sleep(PAUSE_LOOK);
            is_in = folder.stat(LOCK_FILE)?.is_some();
            came |= is_in;
        }
        if !came {
            break;
        }
    }
    Ok(())
}

/// Creates the lock and says in it who has it; `None` if there is one.
fn create(folder: &Folder, agent_id: &str, turn: &mut Turn) -> io::Result<Option<File>> {
    if folder.stat(LOCK_FILE)?.is_some() {
        return Ok(None);
    }
    turn.creating()?;
    let mut file = match folder.create_new(LOCK_FILE, 0o600) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            turn.created(None)?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let process = Process::own().cloned();
    let holder = Holder { agent_id: agent_id.to_owned(), acquired_at: Timestamp::now(), process };
    let written = write_all(&mut file, holder.to_line().as_bytes())
        .and_then(|()| turn.created(Some(rustix::fs::fstat(&file)?.st_ino)));
    if let Err(error) = written {
        // A full disk still lets the name be removed. Nobody who knows the guard removes a lock of somebody who lives.
        if is_at_its_place(folder, &file)? {
            let _ = folder.remove(LOCK_FILE);
        }
        return Err(error);
    }
    Ok(Some(file))
}

/// Removes a lock whose holder is proved dead. One without a word in it is ours if the one whose turn it was died while
/// it created it, and nothing has been written into it for a while.
fn recover_dead(
    folder: &Folder,
    guard: &Guard,
    turn: &mut Turn,
    empty: &mut Option<(u64, Instant)>,
) -> io::Result<bool> {
    let sight = Sight::of(folder)?;
    let dead = match &sight.state {
        LockState::Free => return Ok(true),
        LockState::Held { life: Verdict::Dead, .. } => true,
        LockState::Empty { .. }
            if sight.stat.as_ref().is_some_and(|stat| turn.left_by_the_dead(folder, written_at(stat))) =>
        {
            let inode = sight.stat.as_ref().map_or(0, |stat| stat.st_ino);
            let (_, since) = *empty.insert(empty.filter(|(seen, _)| *seen == inode).unwrap_or((inode, Instant::now())));
            since.elapsed() >= EMPTY_LOCK_PATIENCE
        }
        _ => false,
    };
    let removed = dead && remove_seen(folder, guard, &sight)?;
    if removed {
        // Whatever comes there next was not left by that one.
        turn.created(None)?;
    }
    Ok(removed)
}

/// Removes what was seen, if it is still that; `false` if it is not.
fn remove_seen(folder: &Folder, guard: &Guard, sight: &Sight) -> io::Result<bool> {
    guard.during(folder, || {
        if !sight.is_still_there(folder)? {
            return Ok(false);
        }
        let removed = match sight.state {
            LockState::Directory { .. } => folder.remove_folder(LOCK_FILE),
            _ => folder.remove(LOCK_FILE),
        };
        match removed {
            // Its holder was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    })
}

pub(crate) fn look(folder: &Folder) -> Result<LockState> {
    let sight = Sight::of(folder).map_err(Error::io(folder.path.join(LOCK_FILE).display().to_string()))?;
    Ok(sight.state)
}

/// Removes the lock if its holder is proved dead; or if nothing proves that it lives, it is so old, and somebody says
/// that it is dead.
pub(crate) fn recover(folder: &Folder, guard: &Guard, called_dead_after: Option<Duration>) -> Result<Recovery> {
    let failed = || Error::io(folder.path.join(LOCK_FILE).display().to_string());
    // Ours keep their turn as long as they hold the lock, wherever they run.
    let (turn, holding) = match Turn::ask(folder).map_err(failed())? {
        Asked::Got(turn) => (Some(turn), None),
        Asked::Taken { holding } => (None, holding),
    };
    let sight = Sight::of(folder).map_err(failed())?;
    let in_turn = holding.is_some() && holding == sight.stat.as_ref().map(|stat| stat.st_ino);
    let why = match (&sight.state, called_dead_after) {
        (LockState::Free, _) => return Ok(Recovery::Free),
        _ if in_turn => Some("its holder lives".to_owned()),
        (LockState::Held { life: Verdict::Alive, .. }, _) => Some("its holder lives".to_owned()),
        (LockState::Held { life: Verdict::Dead, .. }, _) => None,
        (_, None) => Some("nothing proves that its holder is dead".to_owned()),
        (state, Some(age)) if state.age() <= age => Some(format!("it is not older than {} s", age.as_secs_f64())),
        (_, Some(_)) => None,
    };
    if let Some(why) = why {
        return Ok(Recovery::Kept { is: sight.state, why });
    }
    let removed = match remove_seen(folder, guard, &sight) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            return Ok(Recovery::Kept { is: sight.state, why: full(folder) });
        }
        removed => removed.map_err(failed())?,
    };
    if removed {
        if let Some(mut turn) = turn {
            turn.created(None).map_err(failed())?;
        }
        return Ok(Recovery::Removed { was: sight.state });
    }
    if matches!(look(folder)?, LockState::Free) {
        return Ok(Recovery::Free);
    }
    Ok(Recovery::Kept { is: look(folder)?, why: "it changed while it was looked at".to_owned() })
}

/// Why a folder in place of the lock is not removed: the first thing in it.
fn full(folder: &Folder) -> String {
    let mut first = None;
    if let Ok(Some(inside)) = folder.below(LOCK_FILE) {
        // The first one is enough to find out who made it.
        let _ = inside.each(|name| {
            first = Some(name.map_or_else(|| "a name that is no text".to_owned(), |name| format!("'{}'", shown(name))));
            Err(())
        });
    }
    format!("it is a folder that is not empty: it holds {}", first.unwrap_or_else(|| "something".to_owned()))
}
