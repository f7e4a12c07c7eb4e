//! The file that stands for everything up to a place.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crc32c::crc32c_append;
use lockkeeper_core::time::{Stamp, Time};

use super::disk;
use super::field::{put, u32_at, u64_at};
use crate::clock::Mark;
use crate::crash::{crash_point, fault_point};
use crate::{EngineError, Position};

const HEADER_BYTES: usize = 80;
const MAGIC: u64 = u64::from_le_bytes(*b"LKSNAPS1");
const CHECKED: usize = HEADER_BYTES - 4;

/// What is known about a snapshot without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) position: Position,
    /// The last stamp when it was taken, and the clock's mark: the records that held them may be gone.
    pub(super) stamp: Stamp,
    pub(super) mark: Mark,
}

pub(super) fn path(dir: &Path, revision: u64) -> PathBuf {
    dir.join(format!("snapshot-{revision:020}"))
}

/// The revision in a snapshot's file name.
pub(super) fn revision(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("snapshot-")?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

impl Snapshot {
    /// Puts the snapshot into its place, durably. What was there before is still there.
    pub(super) fn write(&self, dir: &Path, salt: u32, bytes: &[u8]) -> Result<(), EngineError> {
        let tmp = dir.join(format!("snapshot-{:020}.tmp", self.position.revision));
        let written = self.write_to(dir, &tmp, salt, bytes);
        if written.is_err() {
            // What can't be removed now is removed at the next opening.
            let _ = std::fs::remove_file(&tmp);
        }
        written.map_err(disk::at(&tmp))
    }

    fn write_to(&self, dir: &Path, tmp: &Path, salt: u32, bytes: &[u8]) -> io::Result<()> {
        let mut file = disk::private().write(true).create(true).truncate(true).open(tmp)?;
        file.write_all(&self.header(salt, bytes))?;
        file.write_all(bytes)?;
        crash_point("snapshot-before-sync");
        fault_point("snapshot-sync")?;
        file.sync_all()?;
        crash_point("snapshot-before-rename");
        std::fs::rename(tmp, path(dir, self.position.revision))?;
        crash_point("snapshot-before-directory-sync");
        disk::sync_directory(dir)
    }

    fn header(&self, salt: u32, bytes: &[u8]) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        let Position { epoch, revision, digest } = self.position;
        put(&mut header, [MAGIC, epoch, revision, digest, self.stamp.time.0, self.stamp.wall]);
        put(&mut header, [self.mark.boot, self.mark.base.cast_unsigned(), bytes.len() as u64]);
        header.extend_from_slice(&crc32c_append(salt, bytes).to_le_bytes());
        let crc = crc32c_append(salt, &header);
        header.extend_from_slice(&crc.to_le_bytes());
        assert!(header.len() == HEADER_BYTES, "the layout is what HEADER_BYTES says");
        header
    }

    /// Reads the snapshot of this revision, with its bytes.
    pub(super) fn read(dir: &Path, revision: u64, salt: u32) -> Result<(Snapshot, Vec<u8>), EngineError> {
        let path = path(dir, revision);
        let mut file = File::open(&path).map_err(disk::at(&path))?;
        let length = file.metadata().map_err(disk::at(&path))?.len();
        let mut whole = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.read_to_end(&mut whole).map_err(disk::at(&path))?;
        let snapshot = Snapshot::parse(&whole, salt).filter(|snapshot| snapshot.position.revision == revision);
        let Some(snapshot) = snapshot else {
            let details = "its checksum does not match what it holds".to_owned();
            return Err(EngineError::Corrupt { place: path.display().to_string(), details });
        };
        whole.drain(..HEADER_BYTES);
        Ok((snapshot, whole))
    }

    fn parse(whole: &[u8], salt: u32) -> Option<Snapshot> {
        let (header, bytes) = whole.split_at_checked(HEADER_BYTES)?;
        let honest = u64_at(header, 0) == MAGIC
            && u32_at(header, CHECKED) == crc32c_append(salt, &header[..CHECKED])
            && u64_at(header, 64) == bytes.len() as u64
            && u32_at(header, 72) == crc32c_append(salt, bytes);
        honest.then(|| Snapshot {
            position: Position { epoch: u64_at(header, 8), revision: u64_at(header, 16), digest: u64_at(header, 24) },
            stamp: Stamp { time: Time(u64_at(header, 32)), wall: u64_at(header, 40) },
            mark: Mark { boot: u64_at(header, 48), base: u64_at(header, 56).cast_signed() },
        })
    }
}
