//! How the positions of a ledger in Redis follow each other: computed inside Redis when a batch is recorded, and here
//! by everybody who reads it.

use lockkeeper_core::time::Stamp;
use sha1::{Digest, Sha1};

use crate::{BatchId, Position};

/// The place after a batch with this name, stamp and payload, whose hash is known.
pub(super) fn following(before: Position, batch: BatchId, stamp: Stamp, hash: &str) -> Position {
    let Position { epoch, revision, digest } = before;
    let mut decimal = [itoa::Buffer::new(), itoa::Buffer::new()];
    let [time, wall] = &mut decimal;
    // By hand: every server makes one of every record.
    let sum = Sha1::new()
        .chain_update(hex(epoch))
        .chain_update(b" ")
        .chain_update(hex(digest))
        .chain_update(b" ")
        .chain_update(hex((batch.0 >> 64) as u64))
        .chain_update(hex(batch.0 as u64))
        .chain_update(b" ")
        .chain_update(time.format(stamp.time.0))
        .chain_update(b" ")
        .chain_update(wall.format(stamp.wall))
        .chain_update(b" ")
        .chain_update(hash)
        .finalize();
    let first = *sum.first_chunk().expect("the sum has 20 bytes");
    Position { epoch, revision: revision + 1, digest: u64::from_be_bytes(first) }
}

fn hex(number: u64) -> [u8; 16] {
    std::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 0xf])
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::time::Time;

    use super::*;

    #[test]
    fn a_place_follows_from_the_text_that_redis_hashes() {
        for (epoch, batch) in [(0, 0), (0xab, 0x12), (u64::MAX, u128::MAX), (1 << 63, 1 << 127 | 7)] {
            let before = Position { epoch, revision: 7, digest: epoch.rotate_left(9) };
            let stamp = Stamp { time: Time(1_763_460_000_123_456), wall: epoch };
            let text = format!("{epoch:016x} {:016x} {batch:032x} 1763460000123456 {epoch} h", before.digest);
            let after = following(before, BatchId(batch), stamp, "h");
            let sum = format!("{:x}", Sha1::digest(text));
            assert_eq!(
                (after.epoch, after.revision, format!("{:016x}", after.digest)),
                (epoch, 8, sum[..16].to_owned())
            );
        }
    }
}
