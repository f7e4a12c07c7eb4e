//! Ledgers that several services share on a server: what is the same for all of them, whatever the server is.
//!
//! A server is a [`Store`]: it compares, appends, stamps the time, and hands back what was missed, in one round trip.

mod answer;
mod ledger;
mod news;
mod pace;
mod patience;
mod reading;
mod snapshots;
mod standing;
mod store;
mod trouble;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use lockkeeper_core::space::Space;

pub(crate) use self::answer::{Answer, End, Kept, More, Parts, Stored, Word};
pub(crate) use self::ledger::RemoteLedger;
pub(crate) use self::pace::Bounds;
pub(crate) use self::patience::Patience;
pub(crate) use self::store::{Ear, Entry, Store};
pub(crate) use self::trouble::Trouble;
use crate::time_source::TimeSource;
use crate::{EngineError, Ledger};

/// How many ledgers one engine opens: each is looked at now and then.
const LEDGERS_OPEN_MAX: usize = 1024;

/// Stands for a payload or a snapshot, so that no server need hash all of it.
pub(crate) fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

/// A ledger that somebody has open, or is opening.
type Place<S> = Arc<tokio::sync::Mutex<Weak<RemoteLedger<S>>>>;

/// The ledgers of an engine that somebody has open.
#[derive(Debug)]
pub(crate) struct Open<S: Store> {
    source: Arc<dyn TimeSource>,
    /// Never held while one is opened: that may take as long as a server does not answer.
    places: Mutex<HashMap<Space, Place<S>>>,
}

impl<S: Store> Open<S> {
    pub(crate) fn new(source: Arc<dyn TimeSource>) -> Open<S> {
        Open { source, places: Mutex::default() }
    }

    /// The ledger of a space; opened, if nobody has it.
    pub(crate) async fn ledger(
        &self,
        space: &Space,
        store: impl FnOnce() -> S,
    ) -> Result<Arc<dyn Ledger>, EngineError> {
        let place = self.place(space)?;
        // Held while it is opened: whoever comes meanwhile gets the same.
        let mut open = place.lock().await;
        if let Some(ledger) = open.upgrade() {
            return Ok(ledger);
        }
        let ledger = Arc::new(RemoteLedger::open(store(), self.source.clone()).await?);
        *open = Arc::downgrade(&ledger);
        Ok(ledger)
    }

    fn place(&self, space: &Space) -> Result<Place<S>, EngineError> {
        let mut places = self.places.lock().expect("no holder panics");
        if let Some(place) = places.get(space) {
            return Ok(place.clone());
        }
        // Nobody opens what only this table knows, and nobody has what is gone.
        let used = |place: &Place<S>| Arc::strong_count(place) > 1;
        let has = |place: &Place<S>| place.try_lock().map_or(true, |open| open.strong_count() > 0);
        places.retain(|_, place| used(place) || has(place));
        if places.len() >= LEDGERS_OPEN_MAX {
            return Err(EngineError::Invalid(format!("{LEDGERS_OPEN_MAX} spaces are open, which is the limit")));
        }
        Ok(places.entry(space.clone()).or_default().clone())
    }
}
