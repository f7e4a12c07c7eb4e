//! A ledger: opened, read, and appended to. What its events mean for claims is told elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::claims::Claims;
use crate::error::{Error, Result};
use crate::event::{self, Event, Kind, NewEvent, parse_event};
use crate::limits::{
    BACKOFF_FIRST, BACKOFF_MAX, CLAIM_TIMEOUT_DEFAULT, EVENT_BYTES_MAX, LEFTOVER_AGE, LOCK_TIMEOUT_DEFAULT,
    LOCK_TIMEOUT_MAX, TRIES_DEFAULT, TRIES_MAX,
};
use crate::lock::{self, Guard, LOCK_FILE, LedgerLock, LockState, Recovery};
use crate::meta::{META_FILE, Meta, checked_timeout};
use crate::name::{Owner, Sequence};
use crate::place::{Folder, Unread, is_file, temporary};
use crate::profile::Profile;
use crate::scan::Scan;

/// How a ledger is opened and worked on.
#[derive(Clone, Debug)]
pub struct Options {
    /// The profile that it must have; for an empty ledger, the one that it gets.
    pub profile: Option<Profile>,
    /// What `ledger.lock` calls us.
    pub agent_id: String,
    /// How long to wait for `ledger.lock`.
    pub lock_timeout: Duration,
    /// How often an optimistic append is tried.
    pub tries: u32,
    /// Whether claims get a file in `locks/` besides their event; in the program's ledgers they never do.
    pub claim_files: bool,
    /// The wall clock. Claims are judged by it while the ledger is locked.
    pub clock: fn() -> Timestamp,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            profile: None,
            agent_id: "lockkeeper".to_owned(),
            lock_timeout: LOCK_TIMEOUT_DEFAULT,
            tries: TRIES_DEFAULT,
            claim_files: false,
            clock: Timestamp::now,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        Owner::parse(&self.agent_id)?;
        if self.lock_timeout > LOCK_TIMEOUT_MAX {
            let most = LOCK_TIMEOUT_MAX.as_secs();
            return Err(Error::Invalid(format!("the lock is waited for up to {most} s, not longer")));
        }
        if !(1..=TRIES_MAX).contains(&self.tries) {
            return Err(Error::Invalid(format!("an append is tried 1 to {TRIES_MAX} times")));
        }
        Ok(())
    }

    /// Opens the ledger of a proof that is there.
    pub fn open(self, proof: &Path) -> Result<Ledger> {
        self.check()?;
        let failed = |path: &Path| Error::io(path.display().to_string());
        let folder = match Folder::open(proof) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NotAProof(proof.to_owned()));
            }
            folder => folder.map_err(failed(proof))?,
        };
        let ledger = folder.below("ledger").map_err(failed(&proof.join("ledger")))?;
        let ledger = ledger.ok_or_else(|| Error::NotAProof(proof.to_owned()))?;
        let scan = Scan::of(&ledger)?;
        let profile = profile_of(&scan, &folder, self.profile)?;
        Ok(Ledger {
            last: AtomicU64::new(scan.numbers(profile).highest.0),
            cut: AtomicBool::new(false),
            miscounted: AtomicBool::new(!scan.numbers(profile).are_counted_right()),
            odd: Mutex::new(scan.numbers(profile).odd.clone()),
            claims: Mutex::new(Claims::new(profile)),
            guard: Guard::default(),
            proof: folder,
            events: ledger,
            profile,
            options: self,
        })
    }

    /// Makes a proof, or opens one that is there: the folders, and a `meta.json` that says its profile.
    pub fn init(self, proof: &Path, claim_timeout: Option<Duration>) -> Result<Ledger> {
        self.check()?;
        let timeout = checked_timeout(claim_timeout.unwrap_or(CLAIM_TIMEOUT_DEFAULT))?;
        let profile = self.profile.ok_or_else(|| Error::ProfileUnknown(proof.to_owned()))?;
        let failed = || Error::io(format!("{} can't be made", proof.display()));
        std::fs::create_dir_all(proof).map_err(failed())?;
        let folder = Folder::open(proof).map_err(failed())?;
        if let Some(ledger) = folder.below("ledger").map_err(failed())? {
            profile_of(&Scan::of(&ledger)?, &folder, Some(profile))?;
        }
        folder.make_folder("ledger").map_err(failed())?;
        if self.claim_files {
            folder.make_folder("locks").map_err(failed())?;
        }
        if folder.stat(META_FILE).map_err(failed())?.is_none() {
            let name = temporary(".meta-", ".tmp").map_err(failed())?;
            folder.write_synced(&name, Meta::initial(profile, timeout).as_bytes(), 0o644).map_err(failed())?;
            match folder.rename_new(&name, META_FILE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    folder.remove(&name).map_err(failed())?;
                }
                done => done.map_err(failed())?,
            }
        }
        folder.sync().map_err(failed())?;
        self.open(proof)
    }
}

/// What the files say comes first; what was asked for must not contradict it.
fn profile_of(scan: &Scan, proof: &Folder, asked: Option<Profile>) -> Result<Profile> {
    let path = || proof.path.clone();
    let found = match scan.found() {
        // The program does not see the document's events, so it goes on beside them. The reverse would destroy its proof.
        (true, true) if asked == Some(Profile::Af) => Some(Profile::Af),
        (true, true) => return Err(Error::ProfileMixed(path())),
        (true, false) => Some(Profile::Doc),
        (false, true) => Some(Profile::Af),
        (false, false) => match Meta::read(proof) {
            Ok(meta) => meta.spelling,
            Err(error) if asked.is_none() => return Err(error),
            Err(_) => None,
        },
    };
    match (found, asked) {
        (Some(found), Some(asked)) if found != asked => Err(Error::ProfileMismatch { path: path(), found, asked }),
        (Some(found), _) => Ok(found),
        (None, Some(asked)) => Ok(asked),
        (None, None) => Err(Error::ProfileUnknown(path())),
    }
}

/// The ledger of a proof, opened.
#[derive(Debug)]
pub struct Ledger {
    pub(crate) proof: Folder,
    pub(crate) events: Folder,
    profile: Profile,
    pub(crate) options: Options,
    guard: Guard,
    /// The highest number that was seen. Numbers only rise, so the search goes on from here.
    last: AtomicU64,
    /// The ledger ended before where it had been seen, so what is kept of it may not be true any more.
    cut: AtomicBool,
    /// There were more or fewer files than the highest number when it was looked at.
    miscounted: AtomicBool,
    /// Events whose names have another number of digits, as they were when the ledger was opened.
    odd: Mutex<BTreeMap<u64, Vec<String>>>,
    /// All claims, as far as they have been read.
    claims: Mutex<Claims>,
}

/// An event that is written and synced, and has no number yet. It is removed if it gets none.
struct Staged<'a> {
    folder: &'a Folder,
    name: Option<String>,
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.folder.remove(name);
        }
    }
}

impl Ledger {
    /// Opens the ledger of a proof; its profile is seen from its files.
    pub fn open(proof: impl AsRef<Path>) -> Result<Ledger> {
        Options::default().open(proof.as_ref())
    }

    pub fn profile(&self) -> Profile {
        self.profile
    }

    pub fn path(&self) -> &Path {
        &self.proof.path
    }

    /// The time by which claims are judged.
    pub fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    /// How long a claim lasts, as `meta.json` says.
    pub fn claim_timeout(&self) -> Result<Duration> {
        Ok(Meta::read(&self.proof)?.claim_timeout)
    }

    /// The highest number that there is now.
    pub fn sequence(&self) -> Result<Sequence> {
        let mut last = Sequence(self.last.load(Ordering::Acquire));
        if last > Sequence(0) && !self.is_there(last)? {
            last = self.look_again()?;
        }
        loop {
            let next = last.next()?;
            let name = self.profile.file_name(next);
            if self.events.stat(&name).map_err(Error::io(name))?.is_none() {
                break;
            }
            last = next;
        }
        self.last.fetch_max(last.0, Ordering::AcqRel);
        Ok(last)
    }

    fn is_there(&self, sequence: Sequence) -> Result<bool> {
        let name = self.profile.file_name(sequence);
        if self.events.stat(&name).map_err(Error::io(name))?.is_some() {
            return Ok(true);
        }
        let odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(name) = odd.get(&sequence.0).and_then(|names| names.first()) else { return Ok(false) };
        Ok(self.events.stat(name).map_err(Error::io(name.clone()))?.is_some())
    }

    /// Numbers only rise. If the last one is gone, the ledger was cut or replaced, and all is looked at anew.
    fn look_again(&self) -> Result<Sequence> {
        let scan = Scan::of(&self.events)?;
        let numbers = scan.numbers(self.profile);
        self.miscounted.store(!numbers.are_counted_right(), Ordering::Release);
        *self.odd.lock().unwrap_or_else(PoisonError::into_inner) = numbers.odd.clone();
        self.last.store(numbers.highest.0, Ordering::Release);
        self.cut.store(true, Ordering::Release);
        Ok(numbers.highest)
    }

    /// Whether everybody gets the same next number. The document lets others count files: where one is missing, they would
    /// put their event over ours.
    fn is_counted_alike(&self) -> Result<()> {
        if self.profile == Profile::Af || !self.miscounted.load(Ordering::Acquire) {
            return Ok(());
        }
        // It may have been looked at while somebody wrote.
        let scan = Scan::of(&self.events)?;
        let numbers = scan.numbers(self.profile);
        if numbers.are_counted_right() {
            self.miscounted.store(false, Ordering::Release);
            return Ok(());
        }
        let (files, highest) = (numbers.files, numbers.highest);
        Err(Error::damaged(
            "ledger",
            format!("it has {files} events up to number {highest}: nothing can be appended safely"),
        ))
    }

    /// What lies where the ledger's lock is.
    pub fn lock_state(&self) -> Result<LockState> {
        lock::look(&self.events)
    }

    /// Takes the ledger's lock. Appending does so by itself; this is for whoever does something else meanwhile.
    pub fn lock(&self) -> Result<LedgerLock<'_>> {
        self.lock_if(|| Ok(()))
    }

    fn lock_if(&self, wanted: impl FnMut() -> Result<()>) -> Result<LedgerLock<'_>> {
        let Options { agent_id, lock_timeout, .. } = &self.options;
        LedgerLock::acquire(&self.events, &self.guard, agent_id, *lock_timeout, wanted)
    }

    /// Removes a lock whose holder is proved dead. A lock that proves nothing is removed only if it is older than
    /// `called_dead_after`: give it when you know that its holder is gone. A lock whose holder lives stays in any case.
    pub fn recover(&self, called_dead_after: Option<Duration>) -> Result<Recovery> {
        lock::recover(&self.events, &self.guard, called_dead_after)
    }

    /// Removes temporary files that no writer can still be at work on; says which.
    pub fn remove_leftovers(&self) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for name in Scan::of(&self.events)?.temporary {
            let stat = self.events.stat(&name).map_err(Error::io(name.clone()))?;
            // What is no file was left by no writer.
            if stat.is_some_and(|stat| is_file(&stat) && lock::age(&stat) > LEFTOVER_AGE) {
                match self.events.remove(&name) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    done => {
                        done.map_err(Error::io(name.clone()))?;
                        removed.push(name);
                    }
                }
            }
        }
        Ok(removed)
    }

    /// The event with this number; `None` if there is none yet.
    pub fn event(&self, sequence: Sequence) -> Result<Option<Event>> {
        let mut content = Vec::new();
        if !self.read_next(sequence, &mut content)? {
            return Ok(None);
        }
        parse_event(sequence, &content, self.profile).map(Some)
    }

    /// All events behind a place, in their order, as long as there are any. It takes no lock: events never change.
    pub fn events_after(&self, after: Sequence) -> impl Iterator<Item = Result<Event>> + '_ {
        let mut at = after;
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let next = at.next().and_then(|next| {
                at = next;
                self.event(next)
            });
            match next {
                Ok(Some(event)) => Some(Ok(event)),
                Ok(None) => {
                    // Not there yet: whoever asks again looks again.
                    at = Sequence(at.0 - 1);
                    None
                }
                Err(error) => {
                    failed = true;
                    Some(Err(error))
                }
            }
        })
    }

    /// Waits until the ledger is beyond a place, for so long at most; says where it is.
    pub fn wait_beyond(&self, after: Sequence, patience: Duration) -> Result<Sequence> {
        let give_up = Instant::now() + patience;
        loop {
            let now = self.sequence()?;
            if now > after || Instant::now() >= give_up {
                return Ok(now);
            }
            thread::sleep(Duration::from_millis(20).min(give_up.saturating_duration_since(Instant::now())));
        }
    }

    /// All claims as of now, from all events.
    pub fn claims(&self) -> Result<Claims> {
        Ok(self.caught_up()?.clone())
    }

    /// The kept claims, with all that has been appended since.
    pub(crate) fn caught_up(&self) -> Result<MutexGuard<'_, Claims>> {
        self.sequence()?;
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cut.swap(false, Ordering::AcqRel) {
            *claims = Claims::new(self.profile);
        }
        let mut content = Vec::new();
        loop {
            let next = claims.at().next()?;
            if !self.read_next(next, &mut content)? {
                self.last.fetch_max(claims.at().0, Ordering::AcqRel);
                return Ok(claims);
            }
            let reading = event::read(&content, self.profile)
                .map_err(|what| Error::damaged(self.profile.file_name(next), what))?;
            claims.apply(next, reading.timestamp, reading.kind);
        }
    }

    /// Reads an event; `false` if the ledger ends before it. Events are written in the order of their numbers, so one that
    /// is missing below another was lost.
    fn read_next(&self, sequence: Sequence, content: &mut Vec<u8>) -> Result<bool> {
        // Looked up before it is read: an event below a number that was seen has been there since.
        let beyond = Sequence(self.last.load(Ordering::Acquire));
        if self.read_into(sequence, content)? {
            return Ok(true);
        }
        if beyond < sequence {
            return Ok(false);
        }
        let name = self.profile.file_name(sequence);
        Err(Error::damaged(name, format!("it is missing, and there are events up to {beyond}")))
    }

    fn read_into(&self, sequence: Sequence, content: &mut Vec<u8>) -> Result<bool> {
        let usual = self.profile.file_name(sequence);
        let read = match self.events.read(&usual, EVENT_BYTES_MAX, content) {
            Err(Unread::Missing) => {
                let odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
                match odd.get(&sequence.0).and_then(|names| names.first()) {
                    Some(name) => self.events.read(name, EVENT_BYTES_MAX, content),
                    None => return Ok(false),
                }
            }
            read => read,
        };
        match read {
            Ok(()) => Ok(true),
            Err(Unread::Missing) => Ok(false),
            Err(Unread::NotAFile(what)) => Err(Error::damaged(usual, format!("it is {what} and no file"))),
            Err(Unread::TooLarge(bytes)) => {
                Err(Error::damaged(usual, format!("it has {bytes} bytes, and {EVENT_BYTES_MAX} are the limit")))
            }
            Err(Unread::Failed(error)) => Err(Error::io(usual)(error)),
        }
    }

    /// Appends an event behind whatever there is.
    ///
    /// An event about claims is held against the claims while the ledger is locked: one that may not follow is refused.
    pub fn append(&self, event: &NewEvent) -> Result<Sequence> {
        self.append_at(event, None)
    }

    /// Appends an event if the ledger is where the caller saw it; else [`Error::SequenceMismatch`].
    pub fn append_if_sequence(&self, event: &NewEvent, expected: Sequence) -> Result<Sequence> {
        self.append_at(event, Some(expected))
    }

    /// Reads, lets the caller decide, and appends if nobody came in between; else again, with a growing pause.
    pub fn append_optimistic(&self, mut decide: impl FnMut(Sequence) -> Result<NewEvent>) -> Result<Sequence> {
        let mut pause = BACKOFF_FIRST;
        for tried in 1..=self.options.tries {
            let seen = self.sequence()?;
            match self.append_if_sequence(&decide(seen)?, seen) {
                Err(Error::SequenceMismatch { .. }) if tried < self.options.tries => {}
                Err(Error::SequenceMismatch { .. }) => break,
                done => return done,
            }
            thread::sleep(spread(pause));
            pause = (pause * 2).min(BACKOFF_MAX);
        }
        Err(Error::RetriesExceeded { tries: self.options.tries })
    }

    fn append_at(&self, event: &NewEvent, expected: Option<Sequence>) -> Result<Sequence> {
        if event.profile() != self.profile {
            let (found, asked) = (self.profile, event.profile());
            return Err(Error::ProfileMismatch { path: self.proof.path.clone(), found, asked });
        }
        // The content does not depend on the number, so its sync is nobody else's wait. But where a compare may fail, most
        // of a crowd would sync in vain.
        let early = if expected.is_none() { Some(self.stage(event)?) } else { None };
        let is_about_claims = !matches!(event.kind(), Kind::Other | Kind::NodeCreated(_));
        if is_about_claims {
            // All but what comes in between is read while nobody waits for us.
            drop(self.caught_up()?);
        }
        let lock = self.lock_if(|| self.compare(expected).map(|_| ()))?;
        self.compare(expected)?;
        let mut staged = early.map_or_else(|| self.stage(event), Ok)?;
        let sequence = if is_about_claims {
            self.until_unmoved(expected.is_some(), || {
                let seen = {
                    let claims = self.caught_up()?;
                    let now = self.now();
                    claims.admits(event.kind(), now)?;
                    if let Kind::Claimed { nodes, owner, .. } = event.kind() {
                        let is_free = |node| self.no_file_says_otherwise(&claims, node, owner, now);
                        nodes.iter().try_for_each(is_free)?;
                    }
                    claims.at()
                };
                self.publish(&mut staged, expected.or(Some(seen)), &lock)
            })?
        } else {
            self.publish(&mut staged, expected, &lock)?
        };
        self.finish(lock, sequence)
    }

    /// Judges and appends, and judges again if somebody wrote in between: without the lock, or with one that is ours no
    /// more. Whoever wants it at one place only is told at once that the ledger moved.
    pub(crate) fn until_unmoved<T>(&self, once: bool, mut judge: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..self.options.tries {
            match judge() {
                Err(Error::SequenceMismatch { .. }) if !once => {}
                done => return done,
            }
        }
        Err(Error::RetriesExceeded { tries: self.options.tries })
    }

    /// The ledger's end, if it is where it is expected to be.
    fn compare(&self, expected: Option<Sequence>) -> Result<Sequence> {
        let actual = self.sequence()?;
        match expected.filter(|expected| *expected != actual) {
            Some(expected) => Err(Error::SequenceMismatch { expected, actual }),
            None => Ok(actual),
        }
    }

    /// Works while the ledger is locked; what it appends is durable when this returns.
    pub(crate) fn locked<T>(
        &self,
        work: impl FnOnce(&LedgerLock<'_>) -> Result<(T, Option<Sequence>)>,
    ) -> Result<(T, Sequence)> {
        // All but what comes in between is read while nobody waits for us.
        drop(self.caught_up()?);
        let lock = self.lock()?;
        let (done, appended) = work(&lock)?;
        let at = match appended {
            Some(sequence) => self.finish(lock, sequence)?,
            None => {
                lock.release().map_err(Error::io("ledger.lock can't be removed"))?;
                self.sequence()?
            }
        };
        Ok((done, at))
    }

    /// Appends what is judged from the claims to be right, while the ledger is locked by the caller. What was judged is
    /// what is written behind: if somebody wrote in between all the same, it is judged again.
    pub(crate) fn append_judged<T>(
        &self,
        lock: &LedgerLock<'_>,
        mut judge: impl FnMut(&Claims, Timestamp) -> Result<(T, NewEvent)>,
    ) -> Result<(T, Sequence)> {
        self.until_unmoved(false, || {
            let (seen, judged, event) = {
                let claims = self.caught_up()?;
                let (judged, event) = judge(&claims, self.now())?;
                (claims.at(), judged, event)
            };
            Ok((judged, self.append_behind(lock, &event, seen)?))
        })
    }

    /// Appends while the ledger is locked by the caller, if it is where the caller saw it.
    pub(crate) fn append_behind(&self, lock: &LedgerLock<'_>, event: &NewEvent, seen: Sequence) -> Result<Sequence> {
        self.publish(&mut self.stage(event)?, Some(seen), lock)
    }

    fn stage(&self, event: &NewEvent) -> Result<Staged<'_>> {
        let failed = || Error::io("the event can't be written");
        let name = temporary(".event-", ".tmp").map_err(failed())?;
        self.events.write_synced(&name, event.as_str().as_bytes(), 0o644).map_err(failed())?;
        Ok(Staged { folder: &self.events, name: Some(name) })
    }

    /// Gives a staged event its number. It replaces nothing, whoever else may be writing; and whoever has lost the lock
    /// writes nothing.
    fn publish(&self, staged: &mut Staged<'_>, expected: Option<Sequence>, lock: &LedgerLock<'_>) -> Result<Sequence> {
        let name = staged.name.clone().expect("staged with a name");
        self.is_counted_alike()?;
        loop {
            let next = self.compare(expected)?.next()?;
            if !lock.is_ours().map_err(Error::io(LOCK_FILE))? {
                return Err(Error::LockLost);
            }
            match self.events.rename_new(&name, &self.profile.file_name(next)) {
                Ok(()) => {
                    staged.name = None;
                    self.last.fetch_max(next.0, Ordering::AcqRel);
                    return Ok(next);
                }
                // Somebody writes without the lock. Their event stays; the search for the end goes on behind it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("the event can't be published")(error)),
            }
        }
    }

    /// Frees the lock, and makes the name durable. In this order the next one need not wait for the disk: whatever it
    /// syncs then, it syncs the names before its own, too.
    fn finish(&self, lock: LedgerLock<'_>, sequence: Sequence) -> Result<Sequence> {
        let released = lock.release();
        self.events.sync().map_err(|source| Error::Unsynced { sequence, source })?;
        if released.map_err(|source| Error::Unreleased { sequence, source })? {
            Ok(sequence)
        } else {
            Err(Error::Overtaken { sequence })
        }
    }
}

/// Half of it, and up to as much again: those who met once should not meet again.
fn spread(pause: Duration) -> Duration {
    let mut random = [0_u8; 4];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    pause / 2 + pause.mul_f64(f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX))
}
