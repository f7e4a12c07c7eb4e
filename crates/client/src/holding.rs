//! Locks that are held: they renew themselves, and say when they are lost, no later than their deadline.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lockkeeper_wire::answer::{Changed, EventView, LockView, Refused};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AcquireRequest, AttachRequest, ReleaseRequest, RenewRequest};
use lockkeeper_wire::word::Word;

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

/// A lock that is not held any more, and why.
#[derive(Clone, Debug)]
pub struct Lost {
    pub lock: LockView,
    pub why: String,
}

/// Somebody stops, or no longer stops, the line of a feature that locks are held for. They stay held.
#[derive(Clone, Debug)]
pub enum Pause {
    Began(LockView),
    Ended(LockView),
}

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
    attached: Mutex<Option<Answers>>,
    /// Beats also while nothing is held.
    alive: AtomicBool,
}

/// What is held, and what was lost and not yet told.
#[derive(Debug, Default)]
struct Book {
    held: HashMap<String, Held>,
    lost: VecDeque<Lost>,
    /// The locks by which others pause what is held for, as the last beat told.
    paused: Vec<LockView>,
    /// What changed of that and is not yet told.
    pauses: VecDeque<Pause>,
}

#[derive(Clone, Debug)]
struct Held {
    lock: LockView,
    /// From then on, nobody may believe that it is held.
    deadline: BootTime,
    /// How often to beat for it.
    interval: Duration,
    /// The session had it before: it is not this program's to release.
    borrowed: bool,
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
    pub fn take(&self, wanted: AcquireRequest) -> Result<serde_json::Value, Error> {
        let wait = wanted.wait_ms.map_or(0, |wait| u64::try_from(wait.0).unwrap_or(0));
        let body = raw(&self.shared.identity.sign(wanted))?;
        let mut sent = BootTime::now();
        let wait = Duration::from_millis(wait);
        let (status, answer) = self.shared.client.call_raw(Operation::Acquire, &body, wait)?;
        let answer: serde_json::Value = read(status, &answer)?;
        let locks = locks_of(&answer)?;
        let shortest = locks.iter().map(|lock| lock.ttl_ms).min().unwrap_or_default();
        if sent.until(BootTime::now()) > Duration::from_millis(shortest / 10) {
            // It may have waited in the queue: its TTL counts from the grant, but only a beat proves it.
            sent = BootTime::now();
            self.shared.prove(&locks)?;
        }
        self.shared.keep(&answer, &locks, sent);
        if !self.shared.client.binds() {
            self.shared.attach(ATTACH_TIME_MAX)?;
        }
        Ok(answer)
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
        self.shared.book().held.remove(lock_id);
    }

    /// Gives back what this holding acquired.
    pub fn release(mut self) -> Result<(), Error> {
        self.end();
        let own = self.shared.own();
        for lock_id in own {
            let body = ReleaseRequest { lock_id: Some(lock_id), ..ReleaseRequest::default() };
            self.shared.client.call::<serde_json::Value>(Operation::Release, &self.shared.identity.sign(body))?;
        }
        self.shared.book().held.clear();
        Ok(())
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

impl Book {
    /// Says of some locks that they are lost, and never takes that back.
    fn lose(&mut self, why: &str, which: impl Fn(&str, &Held) -> bool) {
        let gone: Vec<String> =
            self.held.iter().filter(|(id, held)| which(id, held)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            if let Some(Held { lock, .. }) = self.held.remove(&id) {
                self.lost.push_back(Lost { lock, why: why.to_owned() });
            }
        }
    }

    fn note_pauses(&mut self, paused: Vec<LockView>) {
        let among = |lock: &LockView, locks: &[LockView]| locks.iter().any(|other| other.lock_id == lock.lock_id);
        let ended = self.paused.iter().filter(|lock| !among(lock, &paused)).cloned().map(Pause::Ended);
        let began = paused.iter().filter(|lock| !among(lock, &self.paused)).cloned().map(Pause::Began);
        self.pauses.extend(ended.chain(began));
        self.paused = paused;
    }

    fn lose_overdue(&mut self) {
        let now = BootTime::now();
        self.lose("its time ran out before a heartbeat came through", |_, held| now >= held.deadline);
    }
}

impl Shared {
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of what this holding acquired itself.
    fn own(&self) -> Vec<String> {
        self.book().held.iter().filter(|(_, held)| !held.borrowed).map(|(id, _)| id.clone()).collect()
    }

    fn keep(&self, answer: &serde_json::Value, locks: &[LockView], sent: BootTime) {
        let interval = Duration::from_millis(answer["heartbeat_interval_ms"].as_u64().unwrap_or(10_000).max(100));
        let refreshed = answer["refreshed"].as_array();
        let mut book = self.book();
        for lock in locks {
            let named = |ids: &Vec<serde_json::Value>| ids.iter().any(|id| id.as_str() == Some(&lock.lock_id));
            let had_before = answer["action"] == "refreshed" || refreshed.is_some_and(named);
            let borrowed = had_before && book.held.get(&lock.lock_id).is_none_or(|held| held.borrowed);
            // A shared lock that became an exclusive one has another id now.
            book.held.retain(|id, held| *id == lock.lock_id || !same_place(&held.lock, lock));
            let held = Held { deadline: deadline(sent, life(lock)), interval, lock: lock.clone(), borrowed };
            book.held.insert(lock.lock_id.clone(), held);
        }
    }

    /// Binds what is held to the connection.
    fn attach(&self, within: Duration) -> Result<(), Error> {
        let (holder, lock_ids) = (Some(self.holder.clone()), Some(self.own()));
        let body = self.identity.sign(AttachRequest { lock_ids, holder, ..AttachRequest::default() });
        let answers = self.client.stream(Operation::AttachSession, &body, within)?;
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner) = Some(answers);
        Ok(())
    }

    fn run(&self, stopped: &Receiver<()>) {
        let mut beaten = BootTime::now();
        loop {
            match stopped.recv_timeout(SLICE) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.hear_losses();
            self.book().lose_overdue();
            let sent = BootTime::now();
            // Looked at anew each time: a lock with a shorter life may have come since.
            if sent < beaten.plus(self.interval()) {
                continue;
            }
            match self.beat(sent) {
                Ok(()) => beaten = sent,
                // Another connection, then another beat, as long as there is time.
                Err(_) if self.client.reopen() => {
                    let _ = self.attach(self.time_left(BEAT_TIME_MAX));
                }
                Err(_) => {}
            }
        }
    }

    fn interval(&self) -> Duration {
        self.book().held.values().map(|held| held.interval).min().unwrap_or(Duration::from_secs(10))
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
            return Ok(());
        }
        let body = raw(&self.identity.sign(RenewRequest::default()))?;
        let (status, answer) = self.client.once(Operation::Renew, &body, self.time_left(BEAT_TIME_MAX))?;
        let changed: Changed = read(status, &answer)?;
        let kept: HashMap<&str, &LockView> = changed.locks.iter().map(|lock| (lock.lock_id.as_str(), lock)).collect();
        let mut book = self.book();
        // An answer that comes after the deadline brings nothing back.
        book.lose_overdue();
        book.lose("the service no longer has it", |id, _| asked.contains(id) && !kept.contains_key(id));
        for (id, held) in &mut book.held {
            if let Some(lock) = kept.get(id.as_str()).filter(|_| asked.contains(id)) {
                held.deadline = deadline(sent, life(lock));
            }
        }
        book.note_pauses(changed.paused);
        Ok(())
    }

    /// Proves that locks which took a while to come are really held.
    fn prove(&self, locks: &[LockView]) -> Result<(), Error> {
        let body = raw(&self.identity.sign(RenewRequest::default()))?;
        let (status, answer) = self.client.call_raw(Operation::Renew, &body, Duration::ZERO)?;
        let changed: Changed = read(status, &answer)?;
        let kept = |lock: &LockView| changed.locks.iter().any(|kept| kept.lock_id == lock.lock_id);
        if locks.iter().all(kept) {
            return Ok(());
        }
        Err(Error::Refused(Box::new(Refused {
            error: Word::LockLost.text().to_owned(),
            message: "The lock was lost before it could be used.".to_owned(),
            ..Refused::default()
        })))
    }

    /// What the service says about losses on its own.
    fn hear_losses(&self) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answers) = attached.as_ref() else { return };
        loop {
            match answers.next(Duration::ZERO) {
                Ok(Some(body)) => {
                    let Ok(event) = serde_json::from_slice::<EventView>(&body) else { continue };
                    let why = match &event.note {
                        Some(note) => format!("{} by {note}", event.action.replace('_', "-")),
                        None => event.action.clone(),
                    };
                    self.book().lose(&why, |id, _| event.lock_id.as_deref() == Some(id));
                }
                Ok(None) => return,
                Err(_) => {
                    *attached = None;
                    drop(attached);
                    if self.client.reopen() {
                        let _ = self.attach(self.time_left(BEAT_TIME_MAX));
                    }
                    return;
                }
            }
        }
    }
}

/// How long it lives from the answer on at least: a lock that is not renewed has less left than its TTL.
fn life(lock: &LockView) -> u64 {
    lock.ttl_ms.min(lock.expires_in_ms)
}

fn same_place(one: &LockView, other: &LockView) -> bool {
    (&one.file_path, one.start_line, one.end_line) == (&other.file_path, other.start_line, other.end_line)
}

/// Counted from when the request was sent, less one percent for clocks that drift.
fn deadline(sent: BootTime, ttl_ms: u64) -> BootTime {
    sent.plus(Duration::from_micros(ttl_ms.saturating_mul(990)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_not_renewed_is_believed_in_no_longer_than_it_lives() {
        let lock = |expires_in_ms: u64| {
            serde_json::from_value::<LockView>(serde_json::json!({
                "lock_id": "lock-000000000001", "file_path": "feature:F:pause", "start_line": null, "end_line": null,
                "mode": "shared", "intention": "", "owner": "a", "session_id": "a", "fencing_token": 1,
                "created_at": "", "expires_at": "", "ttl_ms": 30_000, "expires_in_ms": expires_in_ms,
            }))
            .expect("a lock")
        };
        assert_eq!((life(&lock(30_000)), life(&lock(9000))), (30_000, 9000));
    }
}
