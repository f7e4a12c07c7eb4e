//! A connection of the application, as it comes from the pool and goes back there clean.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::Client;

use crate::error::AdvisoryLockError;
use crate::held::{Hold, Owner};
use crate::limits::{CLEAN_TIME_MAX, GRACE};
use crate::pools::{Idle, Inner, Room};
use crate::session::{Wire, left};

/// All that a user may have left behind, but not what was prepared.
const CLEAN: &str = "ROLLBACK; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
                     SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES";

/// What a connection takes from the pool.
#[derive(Debug)]
pub(crate) struct Places {
    /// The lock that the place came with, and returns to.
    hold: Option<Arc<Hold>>,
    place: Option<OwnedSemaphorePermit>,
    outside: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// The place that came with a lock.
    pub(crate) fn reserved(hold: Arc<Hold>, place: OwnedSemaphorePermit) -> Places {
        Places { hold: Some(hold), place: Some(place), outside: None }
    }

    pub(crate) fn outside(place: OwnedSemaphorePermit, outside: OwnedSemaphorePermit) -> Places {
        Places { hold: None, place: Some(place), outside: Some(outside) }
    }

    /// Gives the place to the holder of its lock, or else to that of another lock; with neither it stays here.
    fn give_back(&mut self, heir: Option<Arc<Hold>>) {
        for hold in [self.hold.take(), heir].into_iter().flatten() {
            if let Some(place) = self.place.take() {
                self.place = hold.reserve(place);
            }
        }
        if self.place.is_none() {
            // It is a place of a lock now.
            self.outside = None;
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.give_back(None);
    }
}

/// A connection of the application: a [`Client`] of `tokio-postgres`. Dropping it cleans it and gives it back.
///
/// It belongs to the task that asked for it: a lock which that task asks for needs no second place.
pub struct Connection {
    wire: Option<Wire>,
    places: Option<Places>,
    owner: Owner,
    pools: Arc<Inner>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) async fn open(
        pools: Arc<Inner>,
        places: Places,
        deadline: Instant,
    ) -> Result<Connection, AdvisoryLockError> {
        let kept = pools.idle().wire();
        let wire = match kept {
            Some(wire) => wire,
            None => Box::pin(connect(&pools, deadline)).await?,
        };
        let owner = pools.note_owner();
        Ok(Connection { wire: Some(wire), places: Some(places), owner, pools })
    }
}

async fn connect(pools: &Inner, deadline: Instant) -> Result<Wire, AdvisoryLockError> {
    let opened = match pools.room(deadline, Idle::wire).await? {
        Room::Kept(wire) => return Ok(wire),
        Room::New(opened) => opened,
    };
    match tokio::time::timeout(left(deadline) + GRACE, pools.address.connect(None)).await {
        Ok(Ok(connected)) => Ok(Wire::drive(connected, Some(opened))),
        Ok(Err(error)) => Err(AdvisoryLockError::of(&error)),
        Err(_) => Err(AdvisoryLockError::Unavailable("it does not answer".to_owned())),
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.wire.as_ref().expect("there until it is dropped").client
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.wire.as_mut().expect("there until it is dropped").client
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let heir = self.pools.forget_owner(self.owner);
        let (Some(mut wire), Some(mut places)) = (self.wire.take(), self.places.take()) else { return };
        // At once, and not when it is clean: a holder that asks again would wait for a place outside of locks, where all may be
        // taken by those who wait for its lock.
        places.give_back(heir);
        let pools = self.pools.clone();
        self.pools.runtime.spawn(async move {
            let cleaned = tokio::time::timeout(CLEAN_TIME_MAX, wire.client.batch_execute(CLEAN)).await;
            let unwanted = match cleaned {
                Ok(Ok(())) => pools.keep_wire(wire),
                Ok(Err(_)) => Some(wire),
                Err(_) => {
                    wire.busy = true;
                    Some(wire)
                }
            };
            if let Some(wire) = unwanted {
                wire.close(&pools.address).await;
            }
            drop(places);
        });
    }
}
