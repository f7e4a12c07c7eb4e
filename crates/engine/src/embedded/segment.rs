//! One file of the log: a header, then records. Zeros from where nothing was written yet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crc32c::crc32c_append;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::disk;
use super::field::{put, u32_at, u64_at};
use super::record;
use crate::crash::crash_point;
use crate::{PAYLOAD_BYTES_MAX, Position};

/// The usual size of a segment.
pub(super) const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// The size of a ledger's first one: a new ledger must cost little, and most stay small for long.
pub(super) const FIRST_SEGMENT_BYTES: u64 = 256 * 1024;
/// No segment is larger: a batch that would not fit one gets a fresh one and makes it longer.
pub(super) const SEGMENT_BYTES_MAX: usize = SEGMENT_BYTES as usize + HEADER_BYTES + record::size(PAYLOAD_BYTES_MAX);

pub(super) const HEADER_BYTES: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"LKSEGMT1");
const CHECKED: usize = 40;

/// A segment that holds records.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// The place before its first record.
    pub(super) base: Position,
    /// Payload bytes in all segments before this one, counted from the first that was there when the ledger was opened.
    pub(super) volume_before: u64,
}

/// A segment that holds nothing yet.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) number: u64,
    pub(super) file: File,
    pub(super) capacity: u64,
}

pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log-{number:020}"))
}

/// The number in a segment's file name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Appends the header of a segment that goes on from `base`.
pub(super) fn write_header(out: &mut Vec<u8>, salt: u32, number: u64, base: Position) {
    let start = out.len();
    put(out, [MAGIC, base.epoch, number, base.revision, base.digest]);
    let crc = crc32c_append(salt, &out[start..]);
    put(out, [u64::from(crc)]);
    assert!(out.len() - start == HEADER_BYTES, "the layout is what HEADER_BYTES says");
}

/// The place before the first record, if these bytes begin with this segment's header.
pub(super) fn read_header(bytes: &[u8], salt: u32, number: u64) -> Option<Position> {
    let bytes = bytes.get(..HEADER_BYTES)?;
    let honest = u64_at(bytes, 0) == MAGIC
        && u64_at(bytes, 16) == number
        && u32_at(bytes, CHECKED) == crc32c_append(salt, &bytes[..CHECKED]);
    honest.then(|| Position { epoch: u64_at(bytes, 8), revision: u64_at(bytes, 24), digest: u64_at(bytes, 32) })
}

/// Makes a segment of zeros and puts it into place, durably. Leaves nothing behind when it fails.
///
/// The zeros are really written: the first sync into each block that was only reserved costs a journal commit
/// (docs/decisions/0002-own-log.md).
pub(super) fn prepare(dir: &Path, number: u64, capacity: u64, go_on: impl Fn() -> bool) -> io::Result<Spare> {
    let tmp = dir.join(format!("log-{number:020}.tmp"));
    let filled = fill(&tmp, capacity, go_on);
    let placed = filled.and_then(|file| {
        crash_point("spare-before-rename");
        std::fs::rename(&tmp, path(dir, number))?;
        disk::sync_directory(dir)?;
        Ok(Spare { number, file, capacity })
    });
    if placed.is_err() {
        // What can't be removed now is removed at the next opening.
        let _ = std::fs::remove_file(&tmp);
    }
    placed
}

fn fill(tmp: &Path, capacity: u64, go_on: impl Fn() -> bool) -> io::Result<File> {
    let file = disk::private().read(true).write(true).create(true).truncate(true).open(tmp)?;
    // Asked first, so that a nearly full disk is not filled up on the way to learning that it is.
    if !has_room(tmp, capacity)? {
        return Err(io::ErrorKind::StorageFull.into());
    }
    match fallocate(&file, FallocateFlags::empty(), 0, capacity) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    write_zeros(&file, 0, capacity, go_on)?;
    file.sync_all()?;
    Ok(file)
}

/// Whether the file system that holds `path` has this much room for us.
pub(super) fn has_room(path: &Path, bytes: u64) -> io::Result<bool> {
    let room = statvfs(path)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize) >= bytes)
}

/// Overwrites a part of a file with zeros.
pub(super) fn write_zeros(file: &File, from: u64, to: u64, go_on: impl Fn() -> bool) -> io::Result<()> {
    static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];
    let mut at = from;
    while at < to {
        if !go_on() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = (to - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..length as usize], at)?;
        at += length;
    }
    Ok(())
}
