//! The connections of one application and its locks, and the rule by which they are given out.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::address::Address;
use crate::connection::{Connection, Places};
use crate::error::AdvisoryLockError;
use crate::held::{self, Hold, Owner};
use crate::limits::{POOL_OVERFLOW, POOL_SIZE, TIMEOUT_DEFAULT};
use crate::locks::Locks;
use crate::session::{Session, Wire, left};

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Connections that are kept open, and the most that the application has outside of locks.
    pub pool: usize,
    /// Connections beyond those. Only locks, and whoever holds one, come so far. With `pairs` two at least.
    pub overflow: usize,
    /// How long somebody waits for a connection of the application.
    pub timeout: Duration,
    /// Whether each lock comes with the place of one connection for its holder. Off where the work is not done in this database.
    pub pairs: bool,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { pool: POOL_SIZE, overflow: POOL_OVERFLOW, timeout: TIMEOUT_DEFAULT, pairs: true }
    }
}

impl Sizes {
    /// For a program that only locks: so many locks at a time, all connections kept.
    pub fn locks_only(locks: usize) -> Sizes {
        Sizes { pool: locks, overflow: 0, pairs: false, ..Sizes::default() }
    }

    fn total(&self) -> usize {
        self.pool + self.overflow
    }
}

/// At most 25 connections (15 and an overflow of 10) for an application and its locks.
///
/// A lock needs a connection, and its holder usually a second one. If both were taken one by one from the same heap, 25 holders
/// would have 25 connections and wait for the second one, all of them for each other. So:
///
/// 1. Outside of locks the application has at most `pool` connections. The `overflow` is left for locks, always.
/// 2. A lock takes **two places at once**: its own connection, and one that only its holder gets from [`Pools::connection`]. Whoever
///    holds a connection of the application already, or another lock with such a place, takes one.
///
/// 3. The place of a connection that a holder gives back is the holder's again at once, before the connection is clean; also if it
///    had the connection before the lock.
///
/// So whoever holds a lock never waits for a connection to do its work, comes to its end, and gives both back; and whoever holds an
/// application's connection and waits for a lock waits for such holders only. Nobody waits in a circle. With all places taken
/// the next one waits in line, and is told [`AdvisoryLockError::PoolTimeout`] when its time is over.
///
/// What remains is left to the timeout: holders of locks who want ever more locks or connections, or who give back the outer one of
/// two locks, with its place, before the inner one.
#[derive(Clone, Debug)]
pub struct Pools {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) address: Address,
    sizes: Sizes,
    /// All connections.
    places: Arc<Semaphore>,
    /// Connections of the application outside of locks.
    outside: Arc<Semaphore>,
    idle: Mutex<Idle>,
    open: Arc<AtomicUsize>,
    /// Who has connections of the application.
    owners: Mutex<HashMap<Owner, Owned>>,
    /// Where what must be done after a drop is done.
    pub(crate) runtime: Handle,
}

/// Connections that nobody uses.
#[derive(Default)]
pub(crate) struct Idle {
    sessions: Vec<Session>,
    wires: Vec<Wire>,
}

impl Idle {
    /// A kept session that is still open, if there is one.
    pub(crate) fn session(&mut self) -> Option<Session> {
        std::iter::from_fn(|| self.sessions.pop()).find(|session| !session.wire.is_closed())
    }

    pub(crate) fn wire(&mut self) -> Option<Wire> {
        std::iter::from_fn(|| self.wires.pop()).find(|wire| !wire.is_closed())
    }
}

/// The connections of the application that one task has.
#[derive(Default)]
struct Owned {
    count: usize,
    /// Locks that came without a place for their holder, because it had these.
    leaning: Vec<Weak<Hold>>,
}

/// How one comes to a connection.
pub(crate) enum Room<T> {
    /// One that was kept.
    Kept(T),
    /// The right to open one more.
    New(Opened),
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizes { pool, overflow, .. } = self.sizes;
        let open = self.open.load(Ordering::Acquire);
        f.debug_struct("Pools")
            .field("pool", &pool)
            .field("overflow", &overflow)
            .field("open", &open)
            .finish_non_exhaustive()
    }
}

/// Counts a connection for as long as it is open.
#[derive(Debug)]
pub(crate) struct Opened(Arc<AtomicUsize>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The places of one lock.
#[derive(Debug)]
pub(crate) struct LockPlace {
    pub(crate) own: OwnedSemaphorePermit,
    /// For the holder's connection.
    pub(crate) reserved: Option<OwnedSemaphorePermit>,
}

impl Pools {
    /// Pools of the default size for the database of a URL. Nothing is connected yet. Call it inside the runtime.
    pub fn open(url: &str) -> Result<Pools, AdvisoryLockError> {
        Pools::new(Address::parse(url)?, Sizes::default())
    }

    /// Pools of a size of your own.
    pub fn new(address: Address, sizes: Sizes) -> Result<Pools, AdvisoryLockError> {
        let invalid = |message: &str| Err(AdvisoryLockError::Invalid(message.to_owned()));
        if sizes.total() < if sizes.pairs { 2 } else { 1 } || sizes.total() > Semaphore::MAX_PERMITS {
            return invalid("a pool has room for one lock and its holder's connection at least");
        }
        if sizes.pairs && sizes.overflow == 0 {
            return invalid("without an overflow an application could take every connection, and no lock could be had");
        }
        if sizes.pairs && sizes.overflow < 2 {
            // Whoever waits for two places keeps the first one that comes free, and whoever has a connection and wants one is
            // behind in the line: each would wait for the other.
            return invalid("an overflow has room for one lock and its holder's connection: two at least");
        }
        let Ok(runtime) = Handle::try_current() else { return invalid("pools are made inside a tokio runtime") };
        let inner = Inner {
            address,
            sizes,
            places: Arc::new(Semaphore::new(sizes.total())),
            outside: Arc::new(Semaphore::new(sizes.pool)),
            idle: Mutex::default(),
            open: Arc::default(),
            owners: Mutex::default(),
            runtime,
        };
        Ok(Pools { inner: Arc::new(inner) })
    }

    /// The locks of this database.
    pub fn locks(&self) -> Locks {
        Locks { pools: self.inner.clone() }
    }

    /// A connection for the application, apart from those of the locks. Dropping it gives it back.
    pub async fn connection(&self) -> Result<Connection, AdvisoryLockError> {
        let deadline = Instant::now() + self.inner.sizes.timeout;
        let places = self.inner.connection_places(deadline).await?;
        Connection::open(self.inner.clone(), places, deadline).await
    }

    /// Connections that are open now, in use or not.
    pub fn open_connections(&self) -> usize {
        self.inner.open.load(Ordering::Acquire)
    }

    /// Places that are free now.
    pub fn free_places(&self) -> usize {
        self.inner.places.available_permits()
    }

    /// Connections that are open now and not in use.
    pub fn idle_connections(&self) -> usize {
        let idle = self.inner.idle();
        idle.sessions.len() + idle.wires.len()
    }
}

impl Inner {
    pub(crate) fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<Owner, Owned>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timed_out(&self, waited: Duration) -> AdvisoryLockError {
        AdvisoryLockError::PoolTimeout { max: self.sizes.total(), waited }
    }

    async fn places(
        &self,
        of: &Arc<Semaphore>,
        count: u32,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, AdvisoryLockError> {
        let began = Instant::now();
        if let Ok(places) = of.clone().try_acquire_many_owned(count) {
            return Ok(places);
        }
        match tokio::time::timeout_at(deadline.into(), of.clone().acquire_many_owned(count)).await {
            Ok(Ok(places)) => Ok(places),
            Ok(Err(_)) => Err(AdvisoryLockError::Unavailable("the pool is closed".to_owned())),
            Err(_) => Err(self.timed_out(began.elapsed())),
        }
    }

    /// The places that a lock needs, together.
    pub(crate) async fn lock_places(
        &self,
        hold: &Arc<Hold>,
        deadline: Instant,
    ) -> Result<LockPlace, AdvisoryLockError> {
        let pair = self.sizes.pairs && !self.leans(hold) && !self.has_reserved();
        if !pair {
            return Ok(LockPlace { own: self.places(&self.places, 1, deadline).await?, reserved: None });
        }
        let mut own = self.places(&self.places, 2, deadline).await?;
        let reserved = own.split(1);
        Ok(LockPlace { own, reserved })
    }

    /// Whether whoever asks for a lock has a connection of the application already; then its place is the lock's from now on.
    fn leans(&self, hold: &Arc<Hold>) -> bool {
        let mut owners = self.owners();
        let Some(owned) = owners.get_mut(&Owner::current()) else { return false };
        owned.leaning.retain(|other| other.upgrade().is_some_and(|other| other.is_live()));
        owned.leaning.push(Arc::downgrade(hold));
        true
    }

    /// Whether an outer lock of this database already has the place for its holder.
    fn has_reserved(&self) -> bool {
        held::current().iter().any(|hold| hold.is_paired() && hold.database == *self.address.identity())
    }

    /// The place that the holder of a lock has for itself; else one outside of locks, or that place as soon as it is back.
    async fn connection_places(&self, deadline: Instant) -> Result<Places, AdvisoryLockError> {
        let mut holds = held::current();
        holds.retain(|hold| hold.database == *self.address.identity());
        if let Some(places) = reserved_of(&holds) {
            return Ok(places);
        }
        let outside = async {
            let outside = self.places(&self.outside, 1, deadline).await?;
            let place = self.places(&self.places, 1, deadline).await?;
            Ok(Places::outside(place, outside))
        };
        if holds.is_empty() {
            return outside.await;
        }
        tokio::select! {
            biased;
            places = returned(&holds) => Ok(places),
            places = outside => places,
        }
    }

    /// Notes that whoever runs now has a connection of the application.
    pub(crate) fn note_owner(&self) -> Owner {
        let owner = Owner::current();
        self.owners().entry(owner).or_default().count += 1;
        owner
    }

    /// Notes that one of them is gone. With the last one a lock that leans on it needs its place.
    pub(crate) fn forget_owner(&self, owner: Owner) -> Option<Arc<Hold>> {
        let mut owners = self.owners();
        let owned = owners.get_mut(&owner)?;
        owned.count -= 1;
        if owned.count > 0 {
            return None;
        }
        let owned = owners.remove(&owner)?;
        // The outermost: scopes end from the inside.
        owned.leaning.iter().filter_map(Weak::upgrade).find(|hold| hold.is_live())
    }

    /// Keeps a session that is as good as new; gives it back if enough are kept.
    pub(crate) fn keep_session(&self, session: Session) -> Option<Session> {
        let mut idle = self.idle();
        if idle.sessions.len() + idle.wires.len() >= self.sizes.pool {
            return Some(session);
        }
        idle.sessions.push(session);
        None
    }

    pub(crate) fn keep_wire(&self, wire: Wire) -> Option<Wire> {
        let mut idle = self.idle();
        if idle.sessions.len() + idle.wires.len() >= self.sizes.pool {
            return Some(wire);
        }
        idle.wires.push(wire);
        None
    }

    /// A connection that is kept, or the right to open one more. If all are open, one that nobody uses is closed for it.
    pub(crate) async fn room<T>(
        &self,
        deadline: Instant,
        kept: impl Fn(&mut Idle) -> Option<T>,
    ) -> Result<Room<T>, AdvisoryLockError> {
        let began = Instant::now();
        loop {
            let unused = {
                let mut idle = self.idle();
                idle.sessions.retain(|session| !session.wire.is_closed());
                idle.wires.retain(|wire| !wire.is_closed());
                if let Some(kept) = kept(&mut idle) {
                    return Ok(Room::Kept(kept));
                }
                if self.open.load(Ordering::Acquire) < self.sizes.total() {
                    self.open.fetch_add(1, Ordering::AcqRel);
                    return Ok(Room::New(Opened(self.open.clone())));
                }
                idle.wires.pop().or_else(|| idle.sessions.pop().map(|session| session.wire))
            };
            match unused {
                Some(wire) => wire.close(&self.address).await,
                // One is about to be clean, or closed: its place was given on a moment ago.
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
            if left(deadline).is_zero() {
                return Err(self.timed_out(began.elapsed()));
            }
        }
    }
}

/// The place that the innermost of these locks has for its holder.
fn reserved_of(holds: &[Arc<Hold>]) -> Option<Places> {
    holds.iter().rev().find_map(|hold| Some(Places::reserved(hold.clone(), hold.take_reserved()?)))
}

/// Waits until one of these locks has its place back.
async fn returned(holds: &[Arc<Hold>]) -> Places {
    loop {
        // Listens before it looks, so that nothing comes back in between.
        let mut coming: Vec<_> = holds.iter().map(|hold| Box::pin(hold.returned.notified())).collect();
        for one in &mut coming {
            one.as_mut().enable();
        }
        if let Some(places) = reserved_of(holds) {
            return places;
        }
        select_all(coming).await;
    }
}
