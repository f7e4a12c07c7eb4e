//! Locks that are held: they renew themselves, and say when they are lost, no later than their deadline.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lockkeeper_wire::answer::{Changed, EventView, LockView};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AcquireRequest, AttachRequest, ReleaseRequest, RenewRequest};

use crate::boot_clock::BootTime;
use crate::client::{Client, Identity, raw, read};
use crate::error::Error;
use crate::lines::Answers;

/// How long the thread sleeps at most: a suspended machine wakes with its timers late.
const SLICE: Duration = Duration::from_millis(200);
/// How long one beat may take before the next is tried.
const BEAT_TIME_MAX: Duration = Duration::from_secs(5);

/// A lock that is not held any more, and why.
#[derive(Clone, Debug)]
pub struct Lost {
    pub lock: LockView,
    pub why: String,
}

/// Locks of one session that are kept alive by a thread of their own.
#[derive(Debug)]
pub struct Holding {
    shared: Arc<Shared>,
    lost: Mutex<Receiver<Lost>>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    identity: Identity,
    held: Mutex<HashMap<String, Held>>,
    /// The connection is told which locks live as long as it does.
    attached: Mutex<Option<Answers>>,
}

#[derive(Clone, Debug)]
struct Held {
    lock: LockView,
    /// From then on, nobody may believe that it is held.
    deadline: BootTime,
    /// The session had it before: it is not this program's to release.
    borrowed: bool,
}

impl Holding {
    /// Keeps nothing yet; [`Holding::take`] adds locks.
    pub fn start(client: Client, identity: Identity) -> Result<Holding, Error> {
        let shared = Arc::new(Shared { client, identity, held: Mutex::default(), attached: Mutex::default() });
        shared.attach()?;
        let (lost_sender, lost) = channel();
        let (stop, stopped) = channel();
        let of_thread = shared.clone();
        let run = move || of_thread.run(&lost_sender, &stopped);
        let spawned = std::thread::Builder::new().name("heartbeat".into()).spawn(run);
        let thread = spawned.map_err(|error| Error::Unreachable(format!("no thread for heartbeats: {error}")))?;
        Ok(Holding { shared, lost: Mutex::new(lost), stop, thread: Some(thread) })
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
            self.shared.beat_once(&locks)?;
        }
        let borrowed = answer["action"] == "refreshed";
        self.shared.keep(&locks, sent, borrowed);
        if !self.shared.client.binds() {
            self.shared.attach()?;
        }
        Ok(answer)
    }

    /// The next lock that was lost and not yet told, as soon as it is known.
    pub fn next_lost(&self) -> Option<Lost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }

    /// Whether everything is still held at this moment.
    pub fn is_held(&self) -> bool {
        let now = BootTime::now();
        let held = self.shared.held();
        !held.is_empty() && held.values().all(|held| now < held.deadline)
    }

    /// The locks that are held.
    pub fn locks(&self) -> Vec<LockView> {
        self.shared.held().values().map(|held| held.lock.clone()).collect()
    }

    /// No longer keeps what was given back or lost elsewhere.
    pub fn forget(&self, lock_id: &str) {
        self.shared.held().remove(lock_id);
    }

    /// Gives back what this holding acquired.
    pub fn release(mut self) -> Result<(), Error> {
        self.end();
        let own: Vec<String> =
            self.shared.held().iter().filter(|(_, held)| !held.borrowed).map(|(id, _)| id.clone()).collect();
        for lock_id in own {
            let body = ReleaseRequest { lock_id: Some(lock_id), ..ReleaseRequest::default() };
            self.shared.client.call::<serde_json::Value>(Operation::Release, &self.shared.identity.sign(body))?;
        }
        self.shared.held().clear();
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

impl Shared {
    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, locks: &[LockView], sent: BootTime, borrowed: bool) {
        let mut held = self.held();
        for lock in locks {
            let borrowed = borrowed && held.get(&lock.lock_id).is_none_or(|held| held.borrowed);
            held.insert(lock.lock_id.clone(), Held { deadline: deadline(sent, lock), lock: lock.clone(), borrowed });
        }
    }

    /// Binds what is held to the connection.
    fn attach(&self) -> Result<(), Error> {
        let own = self.held().iter().filter(|(_, held)| !held.borrowed).map(|(id, _)| id.clone()).collect();
        let body = self.identity.sign(AttachRequest { lock_ids: Some(own), ..AttachRequest::default() });
        let answers = self.client.stream(Operation::AttachSession, &body)?;
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner) = Some(answers);
        Ok(())
    }

    fn run(&self, lost: &Sender<Lost>, stopped: &Receiver<()>) {
        let mut beaten = BootTime::now();
        loop {
            match stopped.recv_timeout(SLICE) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.hear_losses(lost);
            self.lose(lost, "its time ran out before a heartbeat came through", |_, held| {
                BootTime::now() >= held.deadline
            });
            let sent = BootTime::now();
            // Looked at anew each time: a lock with a shorter life may have come since.
            if sent >= beaten.plus(self.interval()) {
                match self.beat() {
                    Ok(kept) => {
                        beaten = sent;
                        self.lose(lost, "the service no longer has it", |id, _| !kept.contains_key(id));
                        for held in self.held().values_mut() {
                            held.deadline = deadline(sent, &held.lock);
                        }
                    }
                    Err(_) => {
                        // Another connection, then another beat, as long as there is time.
                        if self.client.reopen() {
                            let _ = self.attach();
                        }
                    }
                }
            }
        }
    }

    /// A third of the shortest TTL, so that two lost beats do no harm; ten seconds at most.
    fn interval(&self) -> Duration {
        let shortest = self.held().values().map(|held| held.lock.ttl_ms).min().unwrap_or(30_000);
        Duration::from_millis((shortest / 3).clamp(100, 10_000))
    }

    fn beat(&self) -> Result<HashMap<String, LockView>, Error> {
        if self.held().is_empty() {
            return Ok(HashMap::new());
        }
        let body = raw(&self.identity.sign(RenewRequest::default()))?;
        let (status, answer) = self.client.once(Operation::Renew, &body, BEAT_TIME_MAX)?;
        let changed: Changed = read(status, &answer)?;
        Ok(changed.locks.into_iter().map(|lock| (lock.lock_id.clone(), lock)).collect())
    }

    /// Proves that locks which took a while to come are really held.
    fn beat_once(&self, locks: &[LockView]) -> Result<(), Error> {
        let body = raw(&self.identity.sign(RenewRequest::default()))?;
        let (status, answer) = self.client.call_raw(Operation::Renew, &body, Duration::ZERO)?;
        let changed: Changed = read(status, &answer)?;
        let kept = |lock: &LockView| changed.locks.iter().any(|kept| kept.lock_id == lock.lock_id);
        if locks.iter().all(kept) {
            return Ok(());
        }
        let word = lockkeeper_wire::word::Word::LockLost;
        Err(Error::Refused(Box::new(lockkeeper_wire::answer::Refused {
            error: word.text().to_owned(),
            message: "The lock was lost before it could be used.".to_owned(),
            ..Default::default()
        })))
    }

    /// What the service says about losses on its own.
    fn hear_losses(&self, lost: &Sender<Lost>) {
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
                    self.lose(lost, &why, |id, _| event.lock_id.as_deref() == Some(id));
                }
                Ok(None) => return,
                Err(_) => {
                    *attached = None;
                    drop(attached);
                    if self.client.reopen() {
                        let _ = self.attach();
                    }
                    return;
                }
            }
        }
    }

    /// Says of some locks that they are lost, and never takes that back.
    fn lose(&self, lost: &Sender<Lost>, why: &str, which: impl Fn(&str, &Held) -> bool) {
        let mut held = self.held();
        let gone: Vec<String> = held.iter().filter(|(id, held)| which(id, held)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            if let Some(Held { lock, .. }) = held.remove(&id) {
                let _ = lost.send(Lost { lock, why: why.to_owned() });
            }
        }
    }
}

/// Counted from when the request was sent, less one percent for clocks that drift.
fn deadline(sent: BootTime, lock: &LockView) -> BootTime {
    sent.plus(Duration::from_micros(lock.ttl_ms.saturating_mul(990)))
}
