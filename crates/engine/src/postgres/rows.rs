//! What the functions answer, read with mistrust: whatever can be checked is.

use lockkeeper_core::time::{Stamp, Time};
use tokio_postgres::Row;

use crate::remote::{Answer, End, Kept, More, Parts, Stored, Word};
use crate::{BatchId, Position};

/// None: it is not what a function of ours answers.
pub(super) fn read(rows: &[Row]) -> Option<Answer> {
    let (first, records) = rows.split_first()?;
    let word = Word::read(first.try_get::<_, &str>("word").ok()?)?;
    let time = Time(unsigned(first, "now")?);
    let end = match first.try_get::<_, Option<i64>>("epoch").ok()? {
        None => None,
        Some(epoch) => {
            let (revision, digest) = (unsigned(first, "end_revision")?, bits(first, "end_digest")?);
            let position = Position { epoch: epoch.cast_unsigned(), revision, digest };
            Some(End { position, bytes: unsigned(first, "bytes")? })
        }
    };
    let more = match (word, end) {
        (Word::Appended, Some(_)) => More::Stamp(read_stamp(first)?),
        (Word::Asked | Word::Snapshot | Word::Rewritten, Some(end)) => {
            let kept = read_kept(first, end.position.epoch)?;
            More::Missed(kept, records.iter().map(read_record).collect::<Option<_>>()?)
        }
        (Word::Appended | Word::Asked | Word::Snapshot | Word::Rewritten, None) | (Word::Taken, _) => return None,
        (Word::Empty | Word::Full | Word::Compacted | Word::Older | Word::Foreign | Word::Incomplete, _) => {
            More::Nothing
        }
    };
    Some(Answer { word, time, end, more })
}

fn read_kept(row: &Row, epoch: u64) -> Option<Kept> {
    let base = Position { epoch, revision: unsigned(row, "base_revision")?, digest: bits(row, "base_digest")? };
    let name: String = row.try_get("snapshot").ok()?;
    let parts = || {
        let (count, bytes) = (unsigned(row, "snapshot_parts")?, unsigned(row, "snapshot_bytes")?);
        Some(Parts { name: name.clone(), count, bytes, hash: row.try_get("snapshot_hash").ok()? })
    };
    let snapshot = if name.is_empty() { None } else { Some(parts()?) };
    Some(Kept { base, snapshot })
}

fn read_stamp(row: &Row) -> Option<Stamp> {
    Some(Stamp { time: Time(unsigned(row, "stamp")?), wall: unsigned(row, "wall")? })
}

fn read_record(row: &Row) -> Option<Stored> {
    let batch: &[u8] = row.try_get("batch").ok()?;
    Some(Stored {
        revision: unsigned(row, "revision")?,
        before: bits(row, "before")?,
        batch: BatchId(u128::from_be_bytes(batch.try_into().ok()?)),
        stamp: read_stamp(row)?,
        payload: row.try_get("payload").ok()?,
    })
}

/// A number that is never negative.
fn unsigned(row: &Row, column: &str) -> Option<u64> {
    row.try_get::<_, i64>(column).ok().and_then(|number| u64::try_from(number).ok())
}

/// All 64 bits of a number: PostgreSQL has no unsigned ones.
fn bits(row: &Row, column: &str) -> Option<u64> {
    row.try_get::<_, i64>(column).ok().map(i64::cast_unsigned)
}
