//! A walk over the records of one segment, as far as each is the honest successor of the one before.

use lockkeeper_core::planted::{self, Bug};

use super::record::{self, Header};
use super::segment;
use crate::{Position, Record};

/// A record in the bytes of its segment.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
    /// The place right after it.
    pub(super) position: Position,
}

impl Found<'_> {
    pub(super) fn to_record(&self) -> Record {
        let Header { batch, stamp, .. } = self.header;
        Record { position: self.position, batch, stamp, payload: self.payload.to_vec() }
    }
}

/// Yields records until one is missing, damaged or no successor.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    salt: u32,
    offset: usize,
    position: Position,
    /// Every digest is computed again, not only read.
    doubts: bool,
}

impl<'a> Walk<'a> {
    /// Begins right behind the header of a segment whose base is known, and believes nothing.
    pub(super) fn new(bytes: &'a [u8], salt: u32, base: Position) -> Walk<'a> {
        Walk { bytes, salt, offset: segment::HEADER_BYTES, position: base, doubts: !planted::is(Bug::TornTaken) }
    }

    /// A walk over records that were doubted before, or written, by this process: their checksums are enough.
    pub(super) fn again(bytes: &'a [u8], salt: u32, base: Position) -> Walk<'a> {
        Walk { doubts: false, ..Walk::new(bytes, salt, base) }
    }

    /// Where the next record would begin.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        let rest = self.bytes.get(self.offset..)?;
        let (header, payload) = record::read(rest, self.salt)?;
        let position = if self.doubts {
            self.position.following(header.batch, header.stamp, payload)
        } else {
            Position { epoch: self.position.epoch, revision: self.position.revision + 1, digest: header.digest }
        };
        if (header.revision, header.digest) != (position.revision, position.digest) {
            return None;
        }
        self.offset += record::size(payload.len());
        self.position = position;
        Some(Found { header, payload, position })
    }
}

/// The greatest revision that any record in these bytes, wherever it begins, says was durable.
pub(super) fn durable_in(bytes: &[u8], salt: u32) -> Option<u64> {
    // Records begin at multiples of eight, and an honest header stands for itself: its payload may be damaged.
    let starts = (0..bytes.len()).step_by(8);
    starts.filter_map(|at| record::header(&bytes[at..], salt)).map(|header| header.durable).max()
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::time::{Stamp, Time};

    use super::*;
    use crate::BatchId;
    use crate::clock::Mark;

    const SALT: u32 = 99;

    /// A segment whose records are each honest, the later ones with digests of another past if wanted.
    fn segment(other_past_from: u64) -> (Vec<u8>, Position) {
        let base = Position { epoch: 3, revision: 10, digest: 4 };
        let mut bytes = Vec::new();
        segment::write_header(&mut bytes, SALT, 0, base);
        let mut at = base;
        for revision in 11..=14 {
            let batch = BatchId(u128::from(revision));
            let stamp = Stamp { time: Time(revision), wall: 0 };
            if revision == other_past_from {
                at.digest ^= 1;
            }
            at = at.following(batch, stamp, b"payload");
            let facts = record::Facts { batch, stamp, mark: Mark::default(), durable: revision - 2 };
            record::write(&mut bytes, SALT, at, facts, b"payload");
        }
        (bytes, base)
    }

    #[test]
    fn a_walk_ends_where_the_past_is_another_one() {
        let (bytes, base) = segment(0);
        assert_eq!(Walk::new(&bytes, SALT, base).count(), 4);
        let (bytes, base) = segment(13);
        assert_eq!(Walk::new(&bytes, SALT, base).count(), 2);
    }

    #[test]
    fn a_record_that_stands_alone_still_says_what_was_durable() {
        let (mut bytes, _) = segment(0);
        assert_eq!(durable_in(&bytes, SALT), Some(12));
        assert_eq!(durable_in(&bytes, SALT + 1), None, "no stranger's record does");
        let last = bytes.len() - 1;
        bytes[last - 7] ^= 1;
        assert_eq!(durable_in(&bytes, SALT), Some(12), "a damaged payload takes nothing from its header");
    }
}
