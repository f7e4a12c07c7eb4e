//! The bytes of one record: a header of fixed size, the payload, zeros up to the next multiple of eight.
//!
//! Every checksum starts from a salt that only the ledger's own directory holds, so that no payload, whoever wrote
//! it, can pass for a record. The layout is described in docs/ledger-format.md.

use crc32c::crc32c_append;
use lockkeeper_core::planted::{self, Bug};
use lockkeeper_core::time::{Stamp, Time};

use super::field::{put, u32_at, u64_at, u128_at};
use crate::clock::Mark;
use crate::{BatchId, PAYLOAD_BYTES_MAX, Position};

pub(super) const HEADER_BYTES: usize = 88;
const MAGIC: u32 = u32::from_le_bytes(*b"LKR1");
const CHECKED: usize = HEADER_BYTES - 4;

/// What a record says about its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) length: u32,
    pub(super) revision: u64,
    /// Of the place right after this record.
    pub(super) digest: u64,
    pub(super) stamp: Stamp,
    pub(super) mark: Mark,
    /// The last revision that was known to be durable when this record was written.
    pub(super) durable: u64,
    pub(super) batch: BatchId,
    payload_crc: u32,
}

/// What a writer knows besides position and payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) batch: BatchId,
    pub(super) stamp: Stamp,
    pub(super) mark: Mark,
    pub(super) durable: u64,
}

/// How many bytes a record with such a payload takes.
pub(super) const fn size(payload: usize) -> usize {
    HEADER_BYTES + payload.next_multiple_of(8)
}

/// Appends the record that leads to `position`.
pub(super) fn write(out: &mut Vec<u8>, salt: u32, position: Position, facts: Facts, payload: &[u8]) {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "the ledger refuses larger ones");
    let start = out.len();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    put(out, [position.revision, position.digest, facts.stamp.time.0, facts.stamp.wall, facts.mark.boot]);
    put(out, [facts.mark.base.cast_unsigned(), facts.durable]);
    out.extend_from_slice(&facts.batch.0.to_le_bytes());
    let padding = [0; 8];
    let padding = &padding[..payload.len().next_multiple_of(8) - payload.len()];
    let payload_crc = crc32c_append(crc32c_append(salt, payload), padding);
    out.extend_from_slice(&payload_crc.to_le_bytes());
    let header_crc = crc32c_append(salt, &out[start..]);
    out.extend_from_slice(&header_crc.to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(padding);
    assert!(out.len() - start == size(payload.len()), "the layout is what size() says");
}

/// The header at the beginning of these bytes, if a whole and honest one is there. Says nothing about its payload.
pub(super) fn header(bytes: &[u8], salt: u32) -> Option<Header> {
    let bytes = bytes.get(..HEADER_BYTES)?;
    if u32_at(bytes, 0) != MAGIC || u32_at(bytes, CHECKED) != crc32c_append(salt, &bytes[..CHECKED]) {
        return None;
    }
    let length = u32_at(bytes, 4);
    if length as usize > PAYLOAD_BYTES_MAX {
        return None;
    }
    Some(Header {
        length,
        revision: u64_at(bytes, 8),
        digest: u64_at(bytes, 16),
        stamp: Stamp { time: Time(u64_at(bytes, 24)), wall: u64_at(bytes, 32) },
        mark: Mark { boot: u64_at(bytes, 40), base: u64_at(bytes, 48).cast_signed() },
        durable: u64_at(bytes, 56),
        batch: BatchId(u128_at(bytes, 64)),
        payload_crc: u32_at(bytes, 80),
    })
}

/// The whole record at the beginning of these bytes, if header and payload are as they were written.
pub(super) fn read(bytes: &[u8], salt: u32) -> Option<(Header, &[u8])> {
    let header = header(bytes, salt)?;
    let padded = bytes.get(HEADER_BYTES..size(header.length as usize))?;
    let is_whole = crc32c_append(salt, padded) == header.payload_crc || planted::is(Bug::TornTaken);
    is_whole.then(|| (header, &padded[..header.length as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_no_flipped_bit_is() {
        let position = Position { epoch: 1, revision: 2, digest: 3 };
        let facts = Facts {
            batch: BatchId(4),
            stamp: Stamp { time: Time(5), wall: 6 },
            mark: Mark { boot: 7, base: -8 },
            durable: 1,
        };
        let mut bytes = Vec::new();
        write(&mut bytes, 99, position, facts, b"payload of 20 bytes.");
        let (header, payload) = read(&bytes, 99).expect("whole");
        assert_eq!(payload, b"payload of 20 bytes.");
        assert_eq!((header.revision, header.digest, header.durable), (2, 3, 1));
        assert_eq!((header.stamp, header.mark, header.batch), (facts.stamp, facts.mark, facts.batch));
        assert_eq!(read(&bytes, 98), None, "another salt");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bytes, 99), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length], 99), None, "cut at {length}");
        }
    }
}
