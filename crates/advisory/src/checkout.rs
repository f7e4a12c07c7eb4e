//! A session in somebody's hands: it goes back only if all went well, and is closed otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{timeout, timeout_at};

use crate::error::AdvisoryLockError;
use crate::key::LockKey;
use crate::limits::{CLOSE_TIME_MAX, GRACE, POOL_WAIT_IGNORED, SKIP_WAIT_MAX, UNLOCK_TIME_MAX};
use crate::pools::{Idle, Inner, Room};
use crate::session::{Ended, Session, Told, left};

/// How a lock is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Wait,
    Try,
}

/// A session and its place in the pool. Dropped before it is known to be clean, it is closed.
#[derive(Debug)]
pub(crate) struct Checkout {
    session: Option<Session>,
    place: Option<OwnedSemaphorePermit>,
    pools: Arc<Inner>,
}

/// What came of asking.
enum Asked {
    Held(bool),
    /// The connection had died while it was kept. Nothing is held.
    Stale,
    Failed(AdvisoryLockError),
}

impl Checkout {
    /// Takes a lock on a session of its own; `None` if somebody else has it and it was only tried.
    pub(crate) async fn take(
        pools: &Arc<Inner>,
        mut place: OwnedSemaphorePermit,
        key: LockKey,
        ask: Ask,
        began: Instant,
        patience: Duration,
    ) -> Result<Option<Checkout>, AdvisoryLockError> {
        let deadline = began + patience;
        // Whoever skips does not wait long for a connection that is being cleaned, either.
        let room = match ask {
            Ask::Wait => deadline,
            Ask::Try => Instant::now() + SKIP_WAIT_MAX,
        };
        loop {
            let kept = pools.idle().session();
            let (session, was_kept) = match kept {
                Some(session) => (session, true),
                // Boxed, like all that is rare here, so that a scope is small.
                None => match (Box::pin(connect(pools, room, deadline)).await, ask) {
                    (Err(AdvisoryLockError::PoolTimeout { .. }), Ask::Try) => return Ok(None),
                    (connected, _) => connected?,
                },
            };
            let mut checkout = Checkout { session: Some(session), place: Some(place), pools: pools.clone() };
            match checkout.ask(key, ask, began, patience).await {
                Asked::Held(true) => return Ok(Some(checkout)),
                Asked::Held(false) => {
                    checkout.give_back();
                    return Ok(None);
                }
                Asked::Stale if was_kept => place = Box::pin(checkout.close()).await,
                Asked::Stale => {
                    let why = "the connection was closed as soon as it was made".to_owned();
                    return Err(AdvisoryLockError::Unavailable(why));
                }
                Asked::Failed(error) => {
                    Box::pin(checkout.unlock_whatever(key)).await;
                    return Err(error);
                }
            }
        }
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("there until it is given back")
    }

    pub(crate) fn pid(&self) -> i32 {
        self.session.as_ref().expect("there until it is given back").pid
    }

    pub(crate) fn ended(&self) -> Ended {
        self.session.as_ref().expect("there until it is given back").wire.ended()
    }

    async fn ask(&mut self, key: LockKey, ask: Ask, began: Instant, patience: Duration) -> Asked {
        // The wait for a connection counts, too; but a moment is not worth another setting of the server.
        let waited = began.elapsed();
        let server = if waited < POOL_WAIT_IGNORED { patience } else { patience.saturating_sub(waited) };
        let server = Duration::from_millis(u64::try_from(server.as_millis()).unwrap_or(u64::MAX).max(1));
        let session = self.session();
        let asked = async {
            match ask {
                Ask::Wait => session.lock(key, server).await,
                Ask::Try => session.try_lock(key).await,
            }
        };
        match timeout_at((began + patience + GRACE).into(), asked).await {
            Ok(Ok(Told::Yes)) => Asked::Held(true),
            Ok(Ok(Told::No)) => Asked::Held(false),
            Ok(Ok(Told::Elsewhere)) => {
                Asked::Failed(AdvisoryLockError::Pooler("one connection was given two sessions".to_owned()))
            }
            Ok(Err(error)) if error.is_closed() || error.as_db_error().is_none() => Asked::Stale,
            Ok(Err(error)) => {
                // A server that goes away says so first.
                let gone = error.code().is_some_and(|code| code.code().starts_with("57P"));
                if gone {
                    Asked::Stale
                } else {
                    Asked::Failed(AdvisoryLockError::of_lock(&error, key, began.elapsed()))
                }
            }
            Err(_) => Asked::Failed(AdvisoryLockError::Unavailable("it did not answer in time".to_owned())),
        }
    }

    /// After a failure the lock may be held all the same (bug 17686): it is unlocked, and whatever comes of that the session is
    /// closed, since locks are counted and nobody knows how often it is held. Done before the caller hears of the failure.
    async fn unlock_whatever(mut self, key: LockKey) {
        let session = self.session();
        // Where the server does not answer, one more statement would only wait as well.
        if !session.wire.busy {
            let _ = timeout(CLOSE_TIME_MAX, session.unlock(key)).await;
            drop(self.close().await);
        }
    }

    /// Gives the lock back, and the session if that went well.
    pub(crate) async fn unlock(mut self, key: LockKey) -> Result<(), AdvisoryLockError> {
        let lost = |why: String| AdvisoryLockError::Lost { key, why };
        match timeout(UNLOCK_TIME_MAX, self.session().unlock(key)).await {
            Ok(Ok(Told::Yes)) => {
                self.give_back();
                Ok(())
            }
            Ok(Ok(Told::No)) => Err(lost("the session did not have it any more".to_owned())),
            Ok(Ok(Told::Elsewhere)) => Err(lost(
                AdvisoryLockError::Pooler("it was to be given back in another session".to_owned()).to_string(),
            )),
            Ok(Err(error)) => Err(lost(crate::error::described(&error))),
            Err(_) => Err(lost("the database did not answer when it was to be given back".to_owned())),
        }
    }

    fn give_back(mut self) {
        let Some(session) = self.session.take() else { return };
        // One too many is closed like one that went wrong, by the drop of what is left.
        self.session = self.pools.keep_session(session);
    }

    /// Closes the session, and keeps its place for another one.
    async fn close(mut self) -> OwnedSemaphorePermit {
        if let Some(session) = self.session.take() {
            session.wire.close(&self.pools.address).await;
        }
        self.place.take().expect("there until it is given back")
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (pools, place) = (self.pools.clone(), self.place.take());
        self.pools.runtime.spawn(async move {
            session.wire.close(&pools.address).await;
            drop(place);
        });
    }
}

/// A session, and whether it had been kept.
async fn connect(pools: &Inner, room: Instant, deadline: Instant) -> Result<(Session, bool), AdvisoryLockError> {
    let opened = match pools.room(room, Idle::session).await? {
        Room::Kept(session) => return Ok((session, true)),
        Room::New(opened) => opened,
    };
    // Whoever waited long for a place still gets a fair chance to use it.
    match timeout(left(deadline) + GRACE, Session::open(&pools.address, opened)).await {
        Ok(opened) => Ok((opened?, false)),
        Err(_) => Err(AdvisoryLockError::Unavailable("it does not answer".to_owned())),
    }
}
