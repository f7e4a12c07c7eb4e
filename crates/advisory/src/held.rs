//! Who holds what, inside this program: so that nobody waits for themselves.
//!
//! A scope marks the future that runs inside it. A guard has no inside, so it marks the task that took it (or, outside of any
//! task, the thread). Knows no connection.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::key::LockKey;

tokio::task_local! {
    static INSIDE: Vec<Arc<Hold>>;
}

/// A lock that this program holds, or is about to.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) database: Arc<str>,
    pub(crate) key: LockKey,
    /// It may still be held.
    live: AtomicBool,
    /// It came with a place for its holder's connection.
    paired: AtomicBool,
    /// The place of the application's connection that the holder may need.
    reserved: Mutex<Option<OwnedSemaphorePermit>>,
    /// That place has come back.
    pub(crate) returned: Notify,
}

impl Hold {
    pub(crate) fn new(database: Arc<str>, key: LockKey) -> Arc<Hold> {
        Arc::new(Hold {
            database,
            key,
            live: AtomicBool::new(true),
            paired: AtomicBool::new(false),
            reserved: Mutex::default(),
            returned: Notify::new(),
        })
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// It is held no longer, and needs no place any more.
    pub(crate) fn end(&self) {
        let mut reserved = locked(&self.reserved);
        self.live.store(false, Ordering::Release);
        *reserved = None;
    }

    /// Whether its holder has a place for a connection, in use or not.
    pub(crate) fn is_paired(&self) -> bool {
        self.paired.load(Ordering::Acquire)
    }

    /// Keeps a place for the holder's connection; gives it back if nothing is held any more.
    pub(crate) fn reserve(&self, place: OwnedSemaphorePermit) -> Option<OwnedSemaphorePermit> {
        let mut reserved = locked(&self.reserved);
        if !self.is_live() {
            return Some(place);
        }
        self.paired.store(true, Ordering::Release);
        *reserved = Some(place);
        drop(reserved);
        self.returned.notify_waiters();
        None
    }

    pub(crate) fn take_reserved(&self) -> Option<OwnedSemaphorePermit> {
        locked(&self.reserved).take()
    }
}

/// Nothing here can be left half done, so a panic elsewhere does no harm.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who runs: a task, or a thread outside of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Task(tokio::task::Id),
    Thread(std::thread::ThreadId),
}

impl Owner {
    pub(crate) fn current() -> Owner {
        tokio::task::try_id().map_or_else(|| Owner::Thread(std::thread::current().id()), Owner::Task)
    }
}

static GUARDS: Mutex<Option<HashMap<Owner, Vec<Arc<Hold>>>>> = Mutex::new(None);

/// The mark of a guard on the task that took it.
#[derive(Debug)]
pub(crate) struct Marked {
    owner: Owner,
    hold: Arc<Hold>,
}

impl Marked {
    pub(crate) fn new(hold: Arc<Hold>) -> Marked {
        let owner = Owner::current();
        locked(&GUARDS).get_or_insert_default().entry(owner).or_default().push(hold.clone());
        Marked { owner, hold }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let mut guards = locked(&GUARDS);
        let Some(guards) = guards.as_mut() else { return };
        if let Some(holds) = guards.get_mut(&self.owner) {
            holds.retain(|hold| !Arc::ptr_eq(hold, &self.hold));
            if holds.is_empty() {
                guards.remove(&self.owner);
            }
        }
    }
}

/// All that whoever runs now holds, the innermost last.
pub(crate) fn current() -> Vec<Arc<Hold>> {
    let mut holds = INSIDE.try_with(Clone::clone).unwrap_or_default();
    if let Some(own) = locked(&GUARDS).as_ref().and_then(|guards| guards.get(&Owner::current())) {
        holds.extend(own.iter().cloned());
    }
    holds.retain(|hold| hold.is_live());
    holds
}

/// Runs a future as one inside of these.
pub(crate) async fn inside<F: Future>(holds: Vec<Arc<Hold>>, future: F) -> F::Output {
    INSIDE.scope(holds, future).await
}

/// Declares that a future runs inside of all that is held here: `tokio::spawn(within(future))`.
///
/// A task that is spawned holds nothing by itself. If whoever spawned it waits for it, and it asks for a lock that is held here, both
/// would wait for each other until the timeout. Declared so, it is told at once. What is given back meanwhile is free for it.
pub fn within<F: Future>(future: F) -> impl Future<Output = F::Output> {
    inside(current(), future)
}
