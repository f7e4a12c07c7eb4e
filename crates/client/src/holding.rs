//! Locks that are held: they renew themselves, and say when they are lost, no later than their deadline.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lockkeeper_wire::answer::{Changed, EventView, LockView, Refused};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AcquireRequest, AttachRequest, ReleaseRequest, RenewRequest};
use lockkeeper_wire::word::Word;
use serde_json::value::RawValue;

use crate::book::{Book, Held, Lost, Pause, deadline, is_same, life, same_place};
use crate::boot_clock::BootTime;
use crate::client::{Client, Identity, raw, read};
use crate::error::Error;
use crate::lines::Answers;

/// How long the thread sleeps at most: a suspended machine wakes with its timers late.
const SLICE: Duration = Duration::from_millis(200);
/// How long one beat may take before the next is tried.
const BEAT_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a connection may take to be bound to what it holds.
const ATTACH_TIME_MAX: Duration = Duration::from_secs(10);
/// What another program of the session did.
const GIVEN_BACK: &str = "its own session gave it back, or has it exclusively now";
/// What the service calls the end of a lock that its session gave back.
const RELEASED: &str = "released";
/// How soon that is tried again after it has failed.
const ATTACH_PAUSE: Duration = Duration::from_secs(1);
/// A stream over HTTP says every ten seconds that it lives; one that is silent for longer was cut where nobody noticed.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// How long a grant is tried to be made sure of, if it lives that long.
const PROOF_TIME_MAX: Duration = Duration::from_secs(10);
const PROOF_PAUSE: Duration = Duration::from_millis(100);
/// How soon something is given back after that has failed.
const GIVE_BACK_PAUSE: Duration = Duration::from_secs(1);

/// Locks of one session that are kept alive by a thread of their own.
#[derive(Debug)]
pub struct Holding {
    shared: Arc<Shared>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    identity: Identity,
    /// Names this holding to the service: a later connection of it takes the place of an earlier one.
    holder: String,
    book: Mutex<Book>,
    /// The connection is told which locks live as long as it does.
    attached: Mutex<Option<Attached>>,
    /// Whoever tells it has this: what was told last is all that is held.
    attaching: Mutex<()>,
    /// Beats also while nothing is held.
    alive: AtomicBool,
}

#[derive(Debug)]
struct Attached {
    answers: Answers,
    heard: BootTime,
}

impl Holding {
    /// Keeps nothing yet; [`Holding::take`] adds locks.
    pub fn start(client: Client, identity: Identity) -> Result<Holding, Error> {
        let holder = uuid::Uuid::now_v7().to_string();
        let shared = Arc::new(Shared {
            client,
            identity,
            holder,
            book: Mutex::default(),
            attached: Mutex::default(),
            attaching: Mutex::default(),
            alive: AtomicBool::default(),
        });
        shared.attach(ATTACH_TIME_MAX)?;
        let (stop, stopped) = channel();
        let of_thread = shared.clone();
        let spawned = std::thread::Builder::new().name("heartbeat".into()).spawn(move || of_thread.run(&stopped));
        let thread = spawned.map_err(|error| Error::Unreachable(format!("no thread for heartbeats: {error}")))?;
        Ok(Holding { shared, stop, thread: Some(thread) })
    }

    /// Beats from now on also while nothing is held: the session has something else that lives as long as it is heard.
    pub fn stay_alive(&self) {
        self.shared.alive.store(true, Ordering::Relaxed);
    }

    /// Acquires, and keeps what was acquired.
    pub fn acquire(client: Client, identity: &Identity, wanted: AcquireRequest) -> Result<Holding, Error> {
        let holding = Holding::start(client, identity.clone())?;
        holding.take(wanted)?;
        Ok(holding)
    }

    /// Acquires something more, and keeps it too. The answer is as the service gave it.
    ///
    /// A grant that can't be proved is given back; the error's word is then `outcome_unknown`.
    pub fn take(&self, wanted: AcquireRequest) -> Result<serde_json::Value, Error> {
        // Else it would be granted once more as something that the session had before.
        self.shared.again(BootTime::now().plus(BEAT_TIME_MAX), |within| self.shared.give_back_unproved(within))?;
        let wait = wanted.wait_ms.map_or(0, |wait| u64::try_from(wait.0).unwrap_or(0));
        let body = raw(&self.shared.identity.sign(wanted))?;
        let sent = BootTime::now();
        let wait = Duration::from_millis(wait);
        let answer = match self.shared.known(&body, wait) {
            Err(error) if wait.is_zero() && is_unknown(&error) => return Err(self.shared.doubt(body, &error)),
            answer => answer?,
        };
        let locks = locks_of(&answer)?;
        match self.shared.settle(&answer, &locks, sent) {
            Ok(()) => Ok(answer),
            Err(error) => Err(self.shared.give_up(&answer, &locks, &error)),
        }
    }

    /// The next lock that was lost and not yet told. Judges the deadlines itself: no later than they say, whatever the
    /// service or the network does.
    pub fn next_lost(&self) -> Option<Lost> {
        let mut book = self.shared.book();
        book.lose_overdue();
        book.lost.pop_front()
    }

    /// The next pause that began or ended and was not yet told. Heard of with each beat.
    pub fn next_pause(&self) -> Option<Pause> {
        self.shared.book().pauses.pop_front()
    }

    /// Whether everything is still held at this moment.
    pub fn is_held(&self) -> bool {
        let mut book = self.shared.book();
        book.lose_overdue();
        book.lost.is_empty() && !book.held.is_empty()
    }

    /// The locks that are held.
    pub fn locks(&self) -> Vec<LockView> {
        self.shared.book().held.values().map(|held| held.lock.clone()).collect()
    }

    /// No longer keeps what was given back.
    pub fn forget(&self, lock_id: &str) {
        let mut book = self.shared.book();
        book.held.remove(lock_id);
        book.given_back.remove(lock_id);
    }

    /// Gives back what this holding acquired.
    pub fn release(mut self) -> Result<(), Error> {
        self.end();
        let mut released = Ok(());
        // All of them, whatever became of one.
        for lock_id in self.shared.own() {
            // Another program of the session may use it as well.
            let body = ReleaseRequest { lock_id: Some(lock_id), unless_used: Some(true), ..ReleaseRequest::default() };
            let body = self.shared.identity.sign(body);
            let one = self.shared.client.call::<serde_json::Value>(Operation::Release, &body);
            released = released.and(match one {
                Err(error) if error.word() == Word::NotFound => Err(lost_already()),
                one => one.map(drop),
            });
        }
        self.shared.book().held.clear();
        let again = BootTime::now().plus(BEAT_TIME_MAX);
        released.and(self.shared.again(again, |within| self.shared.give_back_unproved(within)))
    }

    fn end(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.end();
    }
}

fn locks_of(answer: &serde_json::Value) -> Result<Vec<LockView>, Error> {
    let strange = |error: serde_json::Error| Error::Strange(error.to_string());
    match answer.get("locks") {
        Some(locks) => serde_json::from_value(locks.clone()).map_err(strange),
        None => Ok(vec![serde_json::from_value(answer.clone()).map_err(strange)?]),
    }
}

impl Shared {
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of what this holding acquired itself.
    fn own(&self) -> Vec<String> {
        self.ids(|held| !held.borrowed)
    }

    fn ids(&self, which: impl Fn(&Held) -> bool) -> Vec<String> {
        self.book().held.iter().filter(|(_, held)| which(held)).map(|(id, _)| id.clone()).collect()
    }

    /// Asks to acquire, again under the same id as long as nobody knows the outcome: what may have been granted, and is not known to be,
    /// would be kept alive by every beat.
    fn known(&self, body: &RawValue, wait: Duration) -> Result<serde_json::Value, Error> {
        let give_up = BootTime::now().plus(wait + PROOF_TIME_MAX);
        loop {
            let (status, answer) = self.client.call_raw(Operation::Acquire, body, wait)?;
            match read(status, &answer) {
                Err(error) if error.word() == Word::OutcomeUnknown && BootTime::now() < give_up => {
                    std::thread::sleep(PROOF_PAUSE);
                }
                known => return known,
            }
        }
    }

    /// Makes sure that what was granted is held, and keeps it.
    fn settle(&self, answer: &serde_json::Value, locks: &[LockView], sent: BootTime) -> Result<(), Error> {
        let now = BootTime::now();
        let shortest = locks.iter().map(|lock| lock.ttl_ms).min().unwrap_or_default();
        let while_alive = Duration::from_millis(locks.iter().map(life).min().unwrap_or_default()).min(PROOF_TIME_MAX);
        let added = if sent.until(now) > Duration::from_millis(shortest / 10) {
            // It may have waited in the queue: its TTL counts from the grant, but only a beat proves it.
            let (sent, proved) = self.prove(locks, now.plus(while_alive))?;
            self.keep(answer, &proved, sent)?
        } else {
            self.keep(answer, locks, sent)?
        };
        if self.client.binds() {
            return Ok(());
        }
        let bound = self.again(BootTime::now().plus(while_alive), |within| self.attach(within));
        if bound.is_err() {
            let new = new_of(answer, locks);
            let mut book = self.book();
            book.lose("it could not be bound to this program, and is given back", |id, _| new.contains(id));
            book.held.retain(|id, _| !added.contains(id));
        }
        bound
    }

    /// Gives back what this answer brought, at once if that is possible; what to say to whoever asked.
    fn give_up(&self, answer: &serde_json::Value, locks: &[LockView], error: &Error) -> Error {
        let mut new = new_of(answer, locks);
        let mut book = self.book();
        // Somebody else in this program may have asked for the same, and have been told that it is theirs.
        new.retain(|id| !book.held.contains_key(id));
        book.unproved.extend(new);
        drop(book);
        // Else the thread does it.
        let _ = self.give_back_unproved(BEAT_TIME_MAX);
        if error.word() == Word::LockLost {
            return error.clone();
        }
        let message = format!("It was granted, but is not known to be held, and is given back: {error}");
        refused(Word::OutcomeUnknown, message)
    }

    /// Nobody knows whether this was granted. If it was, it is given back; what to say to whoever asked.
    fn doubt(&self, asked: Box<RawValue>, error: &Error) -> Error {
        self.book().unknown.push(asked);
        refused(
            Word::OutcomeUnknown,
            format!("Nobody knows whether it was granted; if it was, it is given back: {error}"),
        )
    }

    /// Finds out what was granted of what nobody knows, by its request's id.
    fn find_out(&self, give_up: BootTime) -> Result<(), Error> {
        let unknown = self.book().unknown.clone();
        for asked in unknown {
            let (status, answer) = self.client.once(Operation::Acquire, &asked, BootTime::now().until(give_up))?;
            let new = match read::<serde_json::Value>(status, &answer) {
                Ok(answer) => new_of(&answer, &locks_of(&answer)?),
                Err(error) if may_pass(&error) => return Err(error),
                Err(_) => HashSet::new(),
            };
            let mut book = self.book();
            let unheld: Vec<String> = new.into_iter().filter(|id| !book.held.contains_key(id)).collect();
            book.unproved.extend(unheld);
            book.unknown.retain(|other| other.get() != asked.get());
        }
        Ok(())
    }

    /// Gives back what was granted and could not be proved.
    fn give_back_unproved(&self, within: Duration) -> Result<(), Error> {
        let give_up = BootTime::now().plus(within);
        self.find_out(give_up)?;
        let unproved: Vec<String> = self.book().unproved.iter().cloned().collect();
        for lock_id in unproved {
            let body = ReleaseRequest { lock_id: Some(lock_id.clone()), ..ReleaseRequest::default() };
            let body = raw(&self.identity.sign(body))?;
            let (status, answer) = self.client.once(Operation::Release, &body, BootTime::now().until(give_up))?;
            if let Err(error) = read::<serde_json::Value>(status, &answer)
                && may_pass(&error)
            {
                return Err(error);
            }
            self.book().unproved.remove(&lock_id);
        }
        Ok(())
    }

    /// Writes down what is held; the ids of what was not there before.
    fn keep(&self, answer: &serde_json::Value, locks: &[LockView], sent: BootTime) -> Result<Vec<String>, Error> {
        let interval = Duration::from_millis(answer["heartbeat_interval_ms"].as_u64().unwrap_or(10_000).max(100));
        let mut book = self.book();
        if locks.iter().any(|lock| book.unproved.contains(&lock.lock_id)) {
            // Another thread is just giving it back.
            return Err(lost_already());
        }
        let mut added = Vec::new();
        for lock in locks {
            // The service lost the past in which it gave that id before.
            book.lose("the service no longer has it", |id, held| {
                id == lock.lock_id && !is_same(&held.lock, lock) && !same_place(&held.lock, lock)
            });
            let borrowed = had_before(answer, lock) && book.held.get(&lock.lock_id).is_none_or(|held| held.borrowed);
            // A shared lock that became an exclusive one has another id now.
            book.held.retain(|id, held| *id == lock.lock_id || !same_place(&held.lock, lock));
            let held = Held { deadline: deadline(sent, life(lock)), interval, lock: lock.clone(), borrowed };
            if book.held.insert(lock.lock_id.clone(), held).is_none() {
                added.push(lock.lock_id.clone());
            }
        }
        Ok(added)
    }

    /// Binds what is held to the connection.
    fn attach(&self, within: Duration) -> Result<(), Error> {
        let _alone = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        let (lock_ids, used_ids) = (Some(self.own()), Some(self.ids(|held| held.borrowed)));
        let holder = Some(self.holder.clone());
        let body = self.identity.sign(AttachRequest { lock_ids, used_ids, holder, ..AttachRequest::default() });
        let answers = self.client.stream(Operation::AttachSession, &body, within)?;
        *self.attached() = Some(Attached { answers, heard: BootTime::now() });
        Ok(())
    }

    fn attached(&self) -> std::sync::MutexGuard<'_, Option<Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds what is held to a new connection, if the one before is gone. `true`: it was, and another is there.
    fn attach_again(&self) -> bool {
        // Whoever just asks for something more does it.
        let is_free = self.attaching.try_lock().is_ok();
        is_free
            && self.attached().is_none()
            && self.client.reopen()
            && self.attach(self.time_left(BEAT_TIME_MAX)).is_ok()
    }

    fn run(&self, stopped: &Receiver<()>) {
        let mut beaten = BootTime::now();
        let mut attach_at = beaten;
        loop {
            match stopped.recv_timeout(SLICE) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.hear_losses();
            self.book().lose_overdue();
            let mut missed = false;
            if BootTime::now() >= attach_at {
                missed = self.attach_again();
                attach_at = BootTime::now().plus(ATTACH_PAUSE);
            }
            // Looked at anew each time: a lock with a shorter life may have come since. At once if something may have been said that
            // was not heard.
            missed |= !self.book().given_back.is_empty();
            if !missed && BootTime::now() < beaten.plus(self.interval()) {
                continue;
            }
            // First, because the beat would keep it alive. With half of the time, so that the beat has the other half.
            let _ = self.give_back_unproved(self.time_left(BEAT_TIME_MAX) / 2);
            let sent = BootTime::now();
            match self.beat(sent) {
                Ok(()) => beaten = sent,
                // Another connection, then another beat, as long as there is time.
                Err(_) => {
                    self.client.reopen();
                }
            }
        }
    }

    fn interval(&self) -> Duration {
        let book = self.book();
        let owes = !(book.unproved.is_empty() && book.unknown.is_empty());
        let most = if owes { GIVE_BACK_PAUSE } else { Duration::from_secs(10) };
        book.held.values().map(|held| held.interval).fold(most, Duration::min)
    }

    /// How long something may take so that the next deadline is still met.
    fn time_left(&self, most: Duration) -> Duration {
        let now = BootTime::now();
        let first = self.book().held.values().map(|held| now.until(held.deadline)).min();
        first.unwrap_or(most).clamp(Duration::from_millis(50), most)
    }

    /// Renews, and compares what the service has with what was held when it was asked.
    fn beat(&self, sent: BootTime) -> Result<(), Error> {
        let asked: HashSet<String> = self.book().held.keys().cloned().collect();
        if asked.is_empty() && !self.alive.load(Ordering::Relaxed) {
            self.book().given_back.clear();
            return Ok(());
        }
        let body = raw(&self.identity.sign(RenewRequest::default()))?;
        let (status, answer) = self.client.once(Operation::Renew, &body, self.time_left(BEAT_TIME_MAX))?;
        let changed: Changed = read(status, &answer)?;
        let kept: HashMap<&str, &LockView> = changed.locks.iter().map(|lock| (lock.lock_id.as_str(), lock)).collect();
        let mut book = self.book();
        // An answer that comes after the deadline brings nothing back.
        book.lose_overdue();
        let is_kept = |id: &str, held: &Held| kept.get(id).is_some_and(|lock| is_same(lock, &held.lock));
        let given_back = std::mem::take(&mut book.given_back);
        let is_gone = |id: &str, held: &Held| asked.contains(id) && !is_kept(id, held);
        book.lose(GIVEN_BACK, |id, held| given_back.contains(id) && is_gone(id, held));
        book.lose("the service no longer has it", is_gone);
        for (id, held) in &mut book.held {
            if let Some(lock) = kept.get(id.as_str()).filter(|_| asked.contains(id)) {
                held.deadline = deadline(sent, life(lock));
            }
        }
        book.note_pauses(changed.paused);
        Ok(())
    }

    /// Proves that locks which took a while to come are really held; since when that is known, and how they are then.
    fn prove(&self, locks: &[LockView], give_up: BootTime) -> Result<(BootTime, Vec<LockView>), Error> {
        let (sent, changed) = self.again(give_up, |within| {
            let sent = BootTime::now();
            let body = raw(&self.identity.sign(RenewRequest::default()))?;
            let (status, answer) = self.client.once(Operation::Renew, &body, within)?;
            read::<Changed>(status, &answer).map(|changed| (sent, changed))
        })?;
        let kept = |lock: &LockView| changed.locks.iter().find(|kept| is_same(kept, lock)).cloned();
        let proved: Option<Vec<LockView>> = locks.iter().map(kept).collect();
        proved.map(|proved| (sent, proved)).ok_or_else(lost_already)
    }

    /// Tries until it succeeds or the time is over: a service may be away for a moment.
    fn again<T>(&self, give_up: BootTime, attempt: impl Fn(Duration) -> Result<T, Error>) -> Result<T, Error> {
        loop {
            let tried = attempt(BootTime::now().until(give_up));
            if tried.is_ok() || BootTime::now().plus(PROOF_PAUSE) >= give_up {
                return tried;
            }
            std::thread::sleep(PROOF_PAUSE);
            self.client.reopen();
        }
    }

    /// What the service says about losses on its own.
    fn hear_losses(&self) {
        let mut attached = self.attached();
        while let Some(Attached { answers, heard }) = attached.as_mut() {
            match answers.next(Duration::ZERO) {
                Ok(Some(body)) => {
                    *heard = BootTime::now();
                    let Ok(event) = serde_json::from_slice::<EventView>(&body) else { continue };
                    let why = match &event.note {
                        Some(note) => format!("{} by {note}", event.action.replace('_', "-")),
                        None => event.action.clone(),
                    };
                    let is_meant = |id: &str, held: &Held| {
                        let another = event.fencing_token.is_some_and(|token| token != held.lock.fencing_token);
                        event.lock_id.as_deref() == Some(id) && !another
                    };
                    let mut book = self.book();
                    if event.action == RELEASED {
                        let ids = book.held.iter().filter(|(id, held)| is_meant(id, held)).map(|(id, _)| id.clone());
                        let ids: Vec<String> = ids.collect();
                        book.given_back.extend(ids);
                    } else {
                        book.lose(&why, is_meant);
                    }
                }
                Ok(None) if self.client.binds() || heard.until(BootTime::now()) < SILENCE_MAX => return,
                Ok(None) | Err(_) => *attached = None,
            }
        }
    }
}

/// Whether the session had a lock before it was granted, by the answer that granted it.
fn had_before(answer: &serde_json::Value, lock: &LockView) -> bool {
    let named = |ids: &Vec<serde_json::Value>| ids.iter().any(|id| id.as_str() == Some(&lock.lock_id));
    answer["action"] == "refreshed" || answer["refreshed"].as_array().is_some_and(named)
}

/// The ids of what an answer brought that the session did not have before.
fn new_of(answer: &serde_json::Value, locks: &[LockView]) -> HashSet<String> {
    locks.iter().filter(|lock| !had_before(answer, lock)).map(|lock| lock.lock_id.clone()).collect()
}

/// Whether what was asked for may have been granted all the same.
fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Unreachable(_)) || error.word() == Word::OutcomeUnknown
}

/// Whether asking once more may help. A lock that is gone already can't be given back, and need not be.
fn may_pass(error: &Error) -> bool {
    matches!(error.word(), Word::Unavailable | Word::OutcomeUnknown | Word::RateLimited | Word::Internal)
}

fn lost_already() -> Error {
    refused(Word::LockLost, "The lock was lost before it could be used.".to_owned())
}

fn refused(word: Word, message: String) -> Error {
    Error::Refused(Box::new(Refused { error: word.text().to_owned(), message, ..Refused::default() }))
}
