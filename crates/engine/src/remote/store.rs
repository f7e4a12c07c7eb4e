//! The server that keeps a ledger, as far as a ledger needs it. No rule about locks is behind it.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use lockkeeper_core::time::Stamp;

use super::{Answer, Bounds, Parts, Trouble};
use crate::{BatchId, EngineError, Outside, Position, Posted, Shown};

/// Whoever listens to what a server tells about a ledger.
pub(crate) trait Ear: Send + Sync + fmt::Debug {
    /// The ledger has come so far; with the last record, if it was told. Must not wait.
    fn hear(&self, end: Position, record: Option<super::Stored>);

    /// Something may have been said that was not heard.
    fn look(&self);
}

/// A batch on its way into a ledger.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) id: BatchId,
    pub(crate) payload: &'a [u8],
    /// Of the payload.
    pub(crate) hash: &'a str,
    pub(crate) proposed: Stamp,
    pub(crate) frees: bool,
    /// Payload bytes behind the snapshot, beyond which it is not recorded.
    pub(crate) log_bytes_max: u64,
    /// The epoch of a ledger that this batch makes; only the first one needs it.
    pub(crate) epoch: Option<u64>,
    pub(crate) shown: &'a [Shown],
    pub(crate) posted: &'a [Posted],
    /// How much of what was missed is handed back in one answer; a record that is larger comes alone.
    pub(crate) page_bytes: usize,
}

/// One ledger on a server. Every question is one round trip.
pub(crate) trait Store: Send + Sync + fmt::Debug + 'static {
    /// For people.
    fn place(&self) -> &str;

    /// The place after a batch: the server computes it, and everybody who reads checks it.
    fn following(before: Position, batch: BatchId, stamp: Stamp, hash: &str) -> Position;

    /// What came after a place, as much as the budget allows.
    fn look(&self, at: Position, bounds: Bounds, budget: usize)
    -> impl Future<Output = Result<Answer, Trouble>> + Send;

    /// Records a batch if the ledger ends at this place, else says what was missed.
    fn append(
        &self,
        at: Position,
        bounds: Bounds,
        entry: Entry<'_>,
    ) -> impl Future<Output = Result<Answer, Trouble>> + Send;

    /// One part of a snapshot. None: it is not there any more.
    fn part(&self, name: &str, index: u64) -> impl Future<Output = Result<Option<Vec<u8>>, Trouble>> + Send;

    /// Keeps one part of a snapshot that does not count yet. Abandoned ones go by themselves.
    fn store_part(&self, name: &str, index: u64, part: &[u8]) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Puts a snapshot whose parts are all there in the place of what it stands for.
    fn switch(
        &self,
        at: Position,
        bounds: Bounds,
        snapshot: &Parts,
    ) -> impl Future<Output = Result<Answer, Trouble>> + Send;

    /// Removes the parts of a snapshot that never counted.
    fn discard(&self, name: &str) -> impl Future<Output = ()> + Send;

    /// Listens where the ledger is now; whoever listens already goes on.
    fn attend(&self, ear: Weak<dyn Ear>) -> impl Future<Output = ()> + Send;

    /// Listens no more.
    fn leave(&self, ear: &Weak<dyn Ear>);

    /// The ledger has come so far: others are told, if the server does not by itself. Must not wait.
    fn announce(&self, end: Position) {
        let _ = end;
    }

    /// How long one small question may take, at most.
    fn time_limit(&self) -> Duration;

    /// What it acknowledged survives kill -9 and power loss.
    fn is_durable(&self) -> bool;

    /// Whether what is taken is shown outside of the ledger.
    fn shows(&self) -> bool {
        false
    }

    /// Whether documents are kept beside the ledger.
    fn posts(&self) -> bool {
        false
    }

    fn look_outside(&self, names: &[String]) -> impl Future<Output = Result<Vec<Outside>, EngineError>> + Send {
        let _ = names;
        async { Ok(Vec::new()) }
    }
}
