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
use std::sync::{Arc, Weak};

use lockkeeper_core::space::Space;
use tokio::sync::Mutex;

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

/// The ledgers of an engine that somebody has open.
#[derive(Debug)]
pub(crate) struct Open<S: Store> {
    source: Arc<dyn TimeSource>,
    ledgers: Mutex<HashMap<Space, Weak<RemoteLedger<S>>>>,
}

impl<S: Store> Open<S> {
    pub(crate) fn new(source: Arc<dyn TimeSource>) -> Open<S> {
        Open { source, ledgers: Mutex::default() }
    }

    /// The ledger of a space; opened, if nobody has it.
    pub(crate) async fn ledger(
        &self,
        space: &Space,
        store: impl FnOnce() -> S,
    ) -> Result<Arc<dyn Ledger>, EngineError> {
        // Held while one is opened: whoever comes meanwhile gets the same.
        let mut ledgers = self.ledgers.lock().await;
        if let Some(ledger) = ledgers.get(space).and_then(Weak::upgrade) {
            return Ok(ledger);
        }
        ledgers.retain(|_, ledger| ledger.strong_count() > 0);
        if ledgers.len() >= LEDGERS_OPEN_MAX {
            return Err(EngineError::Invalid(format!("{LEDGERS_OPEN_MAX} spaces are open, which is the limit")));
        }
        let ledger = Arc::new(RemoteLedger::open(store(), self.source.clone()).await?);
        ledgers.insert(space.clone(), Arc::downgrade(&ledger));
        Ok(ledger)
    }
}
