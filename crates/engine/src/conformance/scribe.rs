//! A writer that stands at a place of a ledger, as a keeper does.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::space::Space;

use crate::{Append, Appended, Base, Batch, BatchId, Delta, Durable, Engine, Ledger, Position, Record};

/// Appends and follows.
#[derive(Debug)]
pub struct Scribe {
    pub ledger: Arc<dyn Ledger>,
    /// Where it stands: everything before is known to it.
    pub at: Position,
    /// What it appended, in order.
    pub written: Vec<Record>,
}

impl Scribe {
    /// Opens a space and stands at its origin, without reading.
    pub async fn at_origin(engine: &Arc<dyn Engine>, space: &str) -> Scribe {
        let space = Space::parse(space).expect("a valid name");
        let ledger = engine.open(&space).await.expect("the ledger opens");
        Scribe { ledger, at: Position::ORIGIN, written: Vec::new() }
    }

    pub async fn try_append(&mut self, payload: &[u8]) -> Append {
        let id = BatchId((u128::from(self.at.revision) << 64) | payload.len() as u128);
        let batch =
            Batch { id, payload: payload.to_vec(), frees: false, awaited: true, shown: Vec::new(), posted: Vec::new() };
        let append = self.ledger.append(self.at, self.ledger.now(), batch).await;
        if let Append::Appended(Appended { position, stamp, .. }) = &append {
            self.at = *position;
            self.written.push(Record { position: *position, batch: id, stamp: *stamp, payload: payload.to_vec() });
        }
        append
    }

    /// Appends what must succeed.
    pub async fn append(&mut self, payload: &[u8]) -> Appended {
        match self.try_append(payload).await {
            Append::Appended(appended) => appended,
            other => panic!("{} bytes were not appended: {other:?}", payload.len()),
        }
    }

    /// Appends batches `first..=last`, each with its number as payload.
    pub async fn append_numbers(&mut self, first: u64, last: u64) {
        for number in first..=last {
            self.append(&number.to_le_bytes()).await;
        }
    }

    pub async fn read(&self, after: Position) -> Delta {
        self.ledger.read(after).await.expect("the ledger can be read")
    }

    /// Waits until all that was appended is safe.
    pub async fn wait_durable(&self) {
        let all = Durable::Up(self.at.revision);
        let mut durable = self.ledger.durable();
        let reached = durable.wait_for(|durable| *durable == all || is_failed(durable));
        let reached = tokio::time::timeout(Duration::from_secs(10), reached).await.expect("within a moment");
        assert_eq!(*reached.expect("the engine lives"), all);
    }
}

fn is_failed(durable: &Durable) -> bool {
    match durable {
        Durable::Up(_) => false,
        Durable::Failed(_) => true,
    }
}

/// The records of a delta that builds on what the reader has.
pub(super) fn asked(delta: Delta) -> Vec<Record> {
    assert_eq!(delta.base, Base::Asked);
    delta.records
}

/// Position, bytes and records of a delta that builds on a snapshot.
pub(super) fn on_snapshot(delta: Delta) -> (Position, Vec<u8>, Vec<Record>) {
    match delta.base {
        Base::Snapshot { position, snapshot } => (position, snapshot, delta.records),
        other => panic!("expected a snapshot, got {other:?}"),
    }
}

/// A payload that no two lengths or seeds share.
pub(super) fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}
