//! A place in a ledger.

use std::fmt;

use lockkeeper_core::time::Stamp;
use uuid::Uuid;

use crate::ledger::BatchId;

/// Place in a ledger: epoch, revision, digest of all that came before. All three are compared, so that a ledger
/// which was lost, restored or rewritten is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// Drawn when the ledger is created; another ledger under the same name has another one.
    pub epoch: u64,
    /// How many batches came before: the first batch has revision 1.
    pub revision: u64,
    /// Chained over every batch: two ledgers with the same digest have the same past.
    pub digest: u64,
}

impl Position {
    /// Before everything, of any ledger: what a reader that knows nothing asks after.
    pub const ORIGIN: Position = Position { epoch: 0, revision: 0, digest: 0 };

    /// The start of a new ledger, with an epoch drawn at random.
    pub fn start() -> Position {
        Position { epoch: draw(), ..Position::ORIGIN }
    }

    /// The place after one more batch with this header and payload.
    #[must_use]
    pub fn next(self, header: &[u8], payload: &[u8]) -> Position {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.epoch.to_le_bytes());
        hasher.update(&self.digest.to_le_bytes());
        hasher.update(header);
        hasher.update(payload);
        let mut first = [0; 8];
        hasher.finalize_xof().fill(&mut first);
        Position { epoch: self.epoch, revision: self.revision + 1, digest: u64::from_le_bytes(first) }
    }

    /// The place after a batch with this name, stamp and payload: what every engine that chains by itself uses.
    #[must_use]
    pub fn following(self, batch: BatchId, stamp: Stamp, payload: &[u8]) -> Position {
        let mut header = [0; 32];
        header[..16].copy_from_slice(&batch.0.to_le_bytes());
        header[16..24].copy_from_slice(&stamp.time.0.to_le_bytes());
        header[24..].copy_from_slice(&stamp.wall.to_le_bytes());
        self.next(&header, payload)
    }

    /// Whether a writer that stands here has seen everything of a ledger that ends at `end`. Who read an empty
    /// ledger knows no epoch and stands at the origin.
    pub fn is_end(self, end: Position) -> bool {
        self == end || (self == Position::ORIGIN && end.revision == 0)
    }
}

/// A random number, never zero: zero is what nobody drew.
pub(crate) fn draw() -> u64 {
    let mut hasher = blake3::Hasher::new();
    // One identifier may hold as little as 32 random bits; the rest is time.
    for _ in 0..4 {
        hasher.update(Uuid::now_v7().as_bytes());
    }
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first).max(1)
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}.{:x}", self.epoch, self.revision, self.digest)
    }
}
