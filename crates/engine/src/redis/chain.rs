//! How the positions of a ledger in Redis follow each other: computed inside Redis when a batch is recorded, and here
//! by everybody who reads it.

use lockkeeper_core::time::Stamp;

use crate::{BatchId, Position};

/// The place after a batch with this name, stamp and payload, whose hash is known.
pub(super) fn following(before: Position, batch: BatchId, stamp: Stamp, hash: &str) -> Position {
    let Position { epoch, revision, digest } = before;
    let chained = format!("{epoch:016x} {digest:016x} {:032x} {} {} {hash}", batch.0, stamp.time.0, stamp.wall);
    let sum = sha1_smol::Sha1::from(chained).digest().bytes();
    let first = *sum.first_chunk().expect("the sum has 20 bytes");
    Position { epoch, revision: revision + 1, digest: u64::from_be_bytes(first) }
}
