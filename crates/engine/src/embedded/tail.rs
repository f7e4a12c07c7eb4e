//! The end of a log: where the next record goes. Knows nothing of threads and syncs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::record::{self, Facts};
use super::segment::{self, Segment, Spare};
use super::snapshot::Snapshot;
use crate::Position;
use crate::crash::fault_point;

/// A buffer that one large batch has blown up is not kept.
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// The mutable end of one ledger, and what is known about all before it.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) salt: u32,
    /// The kept segments, the oldest first; the last is the one in use.
    pub(super) segments: Vec<Segment>,
    pub(super) end: Position,
    /// Payload bytes up to the end, counted from the first segment that was there when the ledger was opened.
    pub(super) volume: u64,
    pub(super) snapshot: Option<Snapshot>,
    /// The volume up to the snapshot.
    pub(super) snapshot_volume: u64,
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) capacity: u64,
    pub(super) buffer: Vec<u8>,
}

/// Why a record was not written.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The disk is full, and nothing of the record is left on it.
    Full,
    /// Nobody knows what is on the disk now.
    Failed(io::Error),
}

impl Tail {
    /// Whether a record of this size goes into the segment in use. A fresh one takes any, and grows if it must.
    pub(super) fn has_room(&self, size: usize) -> bool {
        self.offset == segment::HEADER_BYTES as u64 || self.offset + size as u64 <= self.capacity
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.offset > self.capacity / 2
    }

    /// Goes on in a fresh segment; hands it back when even its header can't be written.
    pub(super) fn roll(&mut self, spare: Spare) -> Result<(), (Spare, Unwritten)> {
        self.buffer.clear();
        segment::write_header(&mut self.buffer, self.salt, spare.number, self.end);
        if let Err(unwritten) = write_whole(&spare.file, &self.buffer, 0, spare.capacity) {
            return Err((spare, unwritten));
        }
        self.segments.push(Segment { number: spare.number, base: self.end, volume_before: self.volume });
        self.file = Arc::new(spare.file);
        self.offset = segment::HEADER_BYTES as u64;
        self.capacity = spare.capacity;
        Ok(())
    }

    /// Writes one record at the end, whole or not at all.
    pub(super) fn write(&mut self, facts: Facts, payload: &[u8]) -> Result<Position, Unwritten> {
        let position = self.end.following(facts.batch, facts.stamp, payload);
        self.buffer.clear();
        record::write(&mut self.buffer, self.salt, position, facts, payload);
        let written = write_whole(&self.file, &self.buffer, self.offset, self.capacity);
        let size = self.buffer.len() as u64;
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        written?;
        self.offset += size;
        self.capacity = self.capacity.max(self.offset);
        self.end = position;
        self.volume += payload.len() as u64;
        Ok(position)
    }
}

/// Writes all bytes, or takes back what of them was written.
fn write_whole(file: &File, bytes: &[u8], offset: u64, capacity: u64) -> Result<(), Unwritten> {
    let mut written = 0;
    while written < bytes.len() {
        match fault_point("write").and_then(|()| file.write_at(&bytes[written..], offset + written as u64)) {
            Ok(count) if count > 0 => written += count,
            Ok(_) => return Err(Unwritten::Failed(io::ErrorKind::WriteZero.into())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if super::disk::is_full(&error) => {
                take_back(file, offset, offset + written as u64, capacity).map_err(Unwritten::Failed)?;
                return Err(Unwritten::Full);
            }
            Err(error) => return Err(Unwritten::Failed(error)),
        }
    }
    Ok(())
}

/// Leaves the file as it was before `from..to` was written behind its last record.
fn take_back(file: &File, from: u64, to: u64, capacity: u64) -> io::Result<()> {
    segment::write_zeros(file, from, to.min(capacity), || true)?;
    if to > capacity { file.set_len(capacity) } else { Ok(()) }
}
