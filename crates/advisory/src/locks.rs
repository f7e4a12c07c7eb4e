//! Asking for locks: as a scope around a body, or as a guard; waiting, or only if it is free.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::checkout::{Ask, Checkout};
use crate::error::AdvisoryLockError;
use crate::guard::{Guard, Holding};
use crate::held::{self, Hold, Marked};
use crate::key::{LockId, LockKey, LockNamespace};
use crate::limits::{SKIP_WAIT_MAX, TIMEOUT_DEFAULT, TIMEOUT_MAX};
use crate::pools::{Inner, Pools, Sizes};

/// The advisory locks of one database.
#[derive(Clone)]
pub struct Locks {
    pub(crate) pools: Arc<Inner>,
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks").field("address", &self.pools.address).finish()
    }
}

impl Locks {
    /// For a program that has no other business with the database: so many locks at a time.
    pub fn open(address: Address, locks: usize) -> Result<Locks, AdvisoryLockError> {
        Ok(Pools::new(address, Sizes::locks_only(locks))?.locks())
    }

    /// Asks for a lock and waits for it, for 15 s unless another timeout is given.
    ///
    /// `.await` gives a [`Guard`]; [`Lock::scope`] runs a body inside.
    pub fn lock(&self, namespace: LockNamespace, id: impl Into<LockId>, timeout: impl Into<Option<Duration>>) -> Lock {
        let key = LockKey { namespace, id: id.into() };
        Lock { locks: self.clone(), key, timeout: timeout.into().unwrap_or(TIMEOUT_DEFAULT) }
    }

    /// Asks for a lock if it is free. Skips as well if no connection of the pool comes free within a second.
    ///
    /// `.await` gives a [`Guard`] or nothing; [`LockOrSkip::scope`] runs a body that is told whether it has the lock.
    pub fn lock_or_skip(&self, namespace: LockNamespace, id: impl Into<LockId>) -> LockOrSkip {
        LockOrSkip { locks: self.clone(), key: LockKey { namespace, id: id.into() } }
    }

    async fn take(&self, hold: Arc<Hold>, ask: Ask, timeout: Duration) -> Result<Option<Holding>, AdvisoryLockError> {
        if timeout > TIMEOUT_MAX {
            return Err(AdvisoryLockError::Invalid(format!("a lock is waited for at most {TIMEOUT_MAX:?}")));
        }
        let began = Instant::now();
        let place = match ask {
            Ask::Wait => self.pools.lock_places(&hold, began + timeout).await?,
            Ask::Try => match self.pools.lock_places(&hold, began + SKIP_WAIT_MAX).await {
                // To ask could not be begun; whoever skips comes again.
                Err(AdvisoryLockError::PoolTimeout { .. }) => return Ok(None),
                place => place?,
            },
        };
        let taken = Checkout::take(&self.pools, place.own, hold.key, ask, began, timeout).await?;
        let Some(checkout) = taken else { return Ok(None) };
        if let Some(reserved) = place.reserved {
            drop(hold.reserve(reserved));
        }
        Ok(Some(Holding::new(checkout, hold, self.pools.runtime.clone())))
    }

    /// A hold that nobody around here has yet.
    fn new_hold(&self, key: LockKey) -> Result<Arc<Hold>, AdvisoryLockError> {
        let database = self.pools.address.identity();
        if held::current().iter().any(|hold| hold.key == key && hold.database == *database) {
            return Err(AdvisoryLockError::Reentered { key });
        }
        Ok(Hold::new(database.clone(), key))
    }

    /// Marked from the first moment: two guards that one task waits for side by side would wait for each other.
    async fn guard(&self, key: LockKey, ask: Ask, timeout: Duration) -> Result<Option<Guard>, AdvisoryLockError> {
        let hold = self.new_hold(key)?;
        let marked = Marked::new(hold.clone());
        let holding = self.take(hold, ask, timeout).await?;
        Ok(holding.map(|holding| Guard::new(holding, marked)))
    }
}

/// A lock that is asked for, and waited for.
#[must_use = "nothing is asked until it is awaited, or a scope is run"]
#[derive(Clone, Debug)]
pub struct Lock {
    locks: Locks,
    key: LockKey,
    timeout: Duration,
}

impl Lock {
    /// Runs a body that has the lock.
    ///
    /// The lock is given back when the body ends, by a value, an error or a panic, and these go on to the caller. If the lock is lost
    /// meanwhile, the body is dropped where it awaits, and the error is [`AdvisoryLockError::Lost`]; what it did since is
    /// unprotected. If the whole is dropped, the lock is given back in the background.
    pub async fn scope<T, E>(self, body: impl AsyncFnOnce() -> Result<T, E>) -> Result<T, E>
    where
        E: From<AdvisoryLockError>,
    {
        let hold = self.locks.new_hold(self.key)?;
        match self.locks.take(hold, Ask::Wait, self.timeout).await? {
            // Boxed, so that scopes inside of scopes do not grow with each.
            Some(holding) => holding.around(Box::pin(body())).await,
            None => Err(AdvisoryLockError::Timeout { key: self.key, waited: self.timeout }.into()),
        }
    }

    async fn guard(self) -> Result<Guard, AdvisoryLockError> {
        let guard = self.locks.guard(self.key, Ask::Wait, self.timeout).await?;
        guard.ok_or(AdvisoryLockError::Timeout { key: self.key, waited: self.timeout })
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard, AdvisoryLockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.guard())
    }
}

/// A lock that is asked for if it is free.
#[must_use = "nothing is asked until it is awaited, or a scope is run"]
#[derive(Clone, Debug)]
pub struct LockOrSkip {
    locks: Locks,
    key: LockKey,
}

impl LockOrSkip {
    /// Runs a body that is told whether it has the lock: not if another session holds it, not if this task does, and not if all
    /// connections of the pool were in use for a second.
    ///
    /// Otherwise as [`Lock::scope`].
    pub async fn scope<T, E>(self, body: impl AsyncFnOnce(bool) -> Result<T, E>) -> Result<T, E>
    where
        E: From<AdvisoryLockError>,
    {
        let holding = match self.locks.new_hold(self.key) {
            Ok(hold) => self.locks.take(hold, Ask::Try, TIMEOUT_DEFAULT).await?,
            Err(AdvisoryLockError::Reentered { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        match holding {
            Some(holding) => holding.around(Box::pin(body(true))).await,
            None => body(false).await,
        }
    }

    async fn guard(self) -> Result<Option<Guard>, AdvisoryLockError> {
        match self.locks.guard(self.key, Ask::Try, TIMEOUT_DEFAULT).await {
            Err(AdvisoryLockError::Reentered { .. }) => Ok(None),
            other => other,
        }
    }
}

impl IntoFuture for LockOrSkip {
    type Output = Result<Option<Guard>, AdvisoryLockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.guard())
    }
}
