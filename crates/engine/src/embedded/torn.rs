//! What a power loss leaves of a log, for simulations: the same bytes, and the same reader, without a file.

use super::{record, segment, walk};
use crate::clock::Mark;
use crate::{Position, Record};

/// What a disk writes as one piece.
const SECTOR_BYTES: usize = 512;
const SALT: u32 = 7;

/// The records that are read again after the power was lost. Up to `durable` everything was synced; of what was written
/// later, `is_lost` says for one sector after the other whether it never reached the disk.
pub(crate) fn survivors(
    base: Position,
    records: &[Record],
    durable: u64,
    is_lost: &mut dyn FnMut() -> bool,
) -> Vec<Record> {
    let mut bytes = Vec::new();
    segment::write_header(&mut bytes, SALT, 0, base);
    let mut durable_end = bytes.len();
    for Record { position, batch, stamp, payload } in records {
        let known = durable.min(position.revision - 1);
        let facts = record::Facts { batch: *batch, stamp: *stamp, mark: Mark::default(), durable: known };
        record::write(&mut bytes, SALT, *position, facts, payload);
        if position.revision <= durable {
            durable_end = bytes.len();
        }
    }
    let sectors = (durable_end / SECTOR_BYTES * SECTOR_BYTES..bytes.len()).step_by(SECTOR_BYTES);
    for sector in sectors {
        if is_lost() {
            // What lies before in the same sector was synced, and is written again with it or not at all.
            let end = (sector + SECTOR_BYTES).min(bytes.len());
            bytes[sector.max(durable_end)..end].fill(0);
        }
    }
    walk::Walk::new(&bytes, SALT, base).map(|found| found.to_record()).collect()
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::time::{Stamp, Time};

    use super::*;
    use crate::BatchId;

    #[test]
    fn what_was_synced_survives_and_what_was_torn_does_not() {
        let base = Position { epoch: 3, revision: 10, digest: 4 };
        let (mut records, mut at) = (Vec::new(), base);
        for revision in 11..=20_u64 {
            let (batch, stamp) = (BatchId(revision.into()), Stamp { time: Time(revision), wall: 0 });
            let payload = vec![revision as u8; 300];
            at = at.following(batch, stamp, &payload);
            records.push(Record { position: at, batch, stamp, payload });
        }
        assert_eq!(survivors(base, &records, 10, &mut || false), records);
        assert_eq!(survivors(base, &records, 10, &mut || true), []);
        assert_eq!(survivors(base, &records, 14, &mut || true), records[..4]);
        let mut lost = 0;
        let second = &mut || {
            lost += 1;
            lost == 3
        };
        let kept = survivors(base, &records, 14, second);
        assert!(kept.len() > 4 && kept.len() < 10 && kept == records[..kept.len()], "{}", kept.len());
    }
}
