//! A lock that is held: given back by hand, by the end of a body, or by a drop; and whoever holds it learns when it is lost.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::runtime::Handle;

use crate::checkout::Checkout;
use crate::error::AdvisoryLockError;
use crate::held::{self, Hold, Marked};
use crate::key::LockKey;
use crate::session::{Ended, why_ended};

/// A held lock without a mark on any task.
#[derive(Debug)]
pub(crate) struct Holding {
    checkout: Option<Checkout>,
    hold: Arc<Hold>,
    ended: Ended,
    runtime: Handle,
}

impl Holding {
    pub(crate) fn new(checkout: Checkout, hold: Arc<Hold>, runtime: Handle) -> Holding {
        Holding { ended: checkout.ended(), checkout: Some(checkout), hold, runtime }
    }

    /// Waits until the lock is lost, and says so.
    async fn lost(&self) -> AdvisoryLockError {
        let why = why_ended(&mut self.ended.clone()).await;
        AdvisoryLockError::Lost { key: self.hold.key, why: why.to_string() }
    }

    async fn release(mut self) -> Result<(), AdvisoryLockError> {
        self.hold.end();
        let Some(checkout) = self.checkout.take() else { return Ok(()) };
        checkout.unlock(self.hold.key).await
    }

    /// Runs a body inside.
    pub(crate) async fn around<T, E>(self, body: impl Future<Output = Result<T, E>>) -> Result<T, E>
    where
        E: From<AdvisoryLockError>,
    {
        let mut holds = held::current();
        holds.push(self.hold.clone());
        let body = AssertUnwindSafe(held::inside(holds, body)).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = body => ended,
            lost = self.lost() => return Err(lost.into()),
        };
        match ended {
            Ok(Ok(value)) => {
                self.release().await?;
                Ok(value)
            }
            // What went wrong inside is what the caller must hear.
            Ok(Err(error)) => {
                let _ = self.release().await;
                Err(error)
            }
            Err(panic) => {
                let _ = self.release().await;
                resume_unwind(panic)
            }
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.hold.end();
        if let Some(checkout) = self.checkout.take() {
            let key = self.hold.key;
            self.runtime.spawn(async move { checkout.unlock(key).await });
        }
    }
}

/// A lock that is held until it is released or dropped.
///
/// It marks the task that took it: to ask for it there again is refused. Give it back with [`Guard::release`], which says
/// whether it was held to the end; a drop does the same in the background.
///
/// A guard that is moved to another task keeps its mark with the task that took it: that one is refused the lock until the guard is
/// gone, and the other one would wait for itself. Let the other task run what it does in [`Guard::within`].
#[derive(Debug)]
pub struct Guard {
    holding: Holding,
    // Behind the lock itself: as long as that may be held, the task is marked.
    _marked: Marked,
}

impl Guard {
    pub(crate) fn new(holding: Holding, marked: Marked) -> Guard {
        Guard { holding, _marked: marked }
    }

    pub fn key(&self) -> LockKey {
        self.holding.hold.key
    }

    /// The server process that holds the lock, as in `pg_locks`.
    pub fn pid(&self) -> i32 {
        self.holding.checkout.as_ref().map_or(0, Checkout::pid)
    }

    /// Waits until the lock is lost, and says why: the session was ended, or the server or its host is gone.
    pub async fn lost(&self) -> AdvisoryLockError {
        self.holding.lost().await
    }

    pub fn is_lost(&self) -> bool {
        self.holding.ended.borrow().is_some() || self.holding.ended.has_changed().is_err()
    }

    /// Gives the lock back; an error says that it had been lost before.
    pub async fn release(self) -> Result<(), AdvisoryLockError> {
        self.holding.release().await
    }

    /// Declares that a future runs inside of this lock, wherever it is spawned; see [`crate::within`].
    pub fn within<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let mut holds = held::current();
        holds.push(self.holding.hold.clone());
        held::inside(holds, future)
    }
}
