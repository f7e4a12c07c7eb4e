//! From the files of a directory to the end of its ledger. First looks at everything, then mends; what can't be
//! trusted is refused before anything is changed.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

use lockkeeper_core::time::Stamp;

use super::disk;
use super::identity::Identity;
use super::segment::{self, FIRST_SEGMENT_BYTES, SEGMENT_BYTES_MAX, Segment, Spare};
use super::snapshot::{self, Snapshot};
use super::walk::{self, Walk};
use crate::clock::Mark;
use crate::crash::crash_point;
use crate::{EngineError, Position};

/// What the files hold, and what has to be done before the ledger goes on.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The segments that are kept, the oldest first. Never empty.
    pub(super) segments: Vec<Segment>,
    pub(super) end: Position,
    /// Where the last record ends in the last segment.
    pub(super) offset: u64,
    pub(super) volume: u64,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) snapshot_volume: u64,
    /// The last stamp that was given, with the clock that gave it.
    pub(super) last: Option<(Stamp, Mark)>,
    pub(super) spares: Vec<u64>,
    pub(super) number_next: u64,
    /// Something follows the last record that is no record.
    torn: bool,
    /// Files that mean nothing any more.
    leftovers: Vec<PathBuf>,
}

/// The files of a directory by kind, each in order.
#[derive(Debug, Default)]
struct Listing {
    segments: Vec<u64>,
    snapshots: Vec<u64>,
    unfinished: Vec<PathBuf>,
}

impl Listing {
    fn read(dir: &Path) -> Result<Listing, EngineError> {
        let mut listing = Listing::default();
        for entry in std::fs::read_dir(dir).map_err(disk::at(dir))? {
            let entry = entry.map_err(disk::at(dir))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            listing.segments.extend(segment::number(&name));
            listing.snapshots.extend(snapshot::revision(&name));
            let ours = name.starts_with("log-") || name.starts_with("snapshot-");
            if ours && name.ends_with(".tmp") {
                listing.unfinished.push(entry.path());
            }
        }
        listing.segments.sort_unstable();
        listing.snapshots.sort_unstable();
        Ok(listing)
    }
}

impl Recovery {
    /// Reads everything and changes nothing.
    pub(super) fn examine(dir: &Path, identity: &Identity) -> Result<Recovery, EngineError> {
        let listing = Listing::read(dir)?;
        let snapshot = match listing.snapshots.last() {
            Some(&revision) => Some(Snapshot::read(dir, revision, identity.salt)?.0),
            None => None,
        };
        let mut scan = Scan::begin(dir, identity, snapshot, &listing.segments)?;
        while scan.step()? {}
        let mut recovery = scan.finish()?;
        let older = &listing.snapshots[..listing.snapshots.len().saturating_sub(1)];
        recovery.leftovers.extend(older.iter().map(|&revision| snapshot::path(dir, revision)));
        recovery.leftovers.extend(listing.unfinished);
        Ok(recovery)
    }

    /// Cuts a torn end and removes leftovers, durably; then opens the last segment.
    pub(super) fn mend(&self, dir: &Path) -> Result<File, EngineError> {
        let current = self.segments.last().expect("never empty");
        let path = segment::path(dir, current.number);
        let file = disk::private().read(true).write(true).open(&path).map_err(disk::at(&path))?;
        if self.torn {
            let length = file.metadata().map_err(disk::at(&path))?.len();
            tracing::warn!(place = %path.display(), offset = self.offset, "cut an unfinished end");
            crash_point("recovery-before-cut");
            segment::write_zeros(&file, self.offset, length, || true).map_err(disk::at(&path))?;
            file.sync_all().map_err(disk::at(&path))?;
            crash_point("recovery-after-cut");
        }
        for path in &self.leftovers {
            std::fs::remove_file(path).map_err(disk::at(path))?;
        }
        // What was read may be in memory only: a process that was killed had perhaps not synced it, and from here on
        // it counts as durable.
        for segment in &self.segments {
            let path = segment::path(dir, segment.number);
            let kept = disk::private().read(true).write(true).open(&path).map_err(disk::at(&path))?;
            kept.sync_all().map_err(disk::at(&path))?;
        }
        disk::sync_directory(dir).map_err(disk::at(dir))?;
        Ok(file)
    }

    /// Opens the segments that were prepared and never begun.
    pub(super) fn spares(&self, dir: &Path) -> Result<VecDeque<Spare>, EngineError> {
        let open = |&number: &u64| {
            let path = segment::path(dir, number);
            let file = disk::private().read(true).write(true).open(&path).map_err(disk::at(&path))?;
            let capacity = file.metadata().map_err(disk::at(&path))?.len();
            Ok(Spare { number, file, capacity })
        };
        self.spares.iter().map(open).collect()
    }
}

/// A walk over the segments, from the one that the snapshot ends in.
struct Scan<'a> {
    dir: &'a Path,
    identity: &'a Identity,
    snapshot: Option<Snapshot>,
    /// All numbers there are, and which of them is in `bytes`.
    numbers: &'a [u64],
    at: usize,
    bytes: Vec<u8>,
    found: Recovery,
}

impl<'a> Scan<'a> {
    fn begin(
        dir: &'a Path,
        identity: &'a Identity,
        snapshot: Option<Snapshot>,
        numbers: &'a [u64],
    ) -> Result<Scan<'a>, EngineError> {
        let covered = snapshot.map_or(0, |snapshot| snapshot.position.revision);
        let mut first = None;
        for (at, &number) in numbers.iter().enumerate() {
            let header = read_header(dir, identity, number)?;
            if let Some(base) = header.filter(|base| base.revision <= covered) {
                first = Some((at, base));
            }
        }
        let corrupt = |details| EngineError::Corrupt { place: dir.display().to_string(), details };
        let Some((at, base)) = first else {
            return Err(corrupt(format!("no part of the log begins at or before revision {covered}")));
        };
        if snapshot.is_some_and(|snapshot| snapshot.position.epoch != identity.epoch) {
            return Err(corrupt("the snapshot is of another ledger".to_owned()));
        }
        let found = Recovery {
            segments: Vec::new(),
            end: base,
            offset: 0,
            volume: 0,
            snapshot,
            snapshot_volume: 0,
            last: snapshot.map(|snapshot| (snapshot.stamp, snapshot.mark)),
            spares: Vec::new(),
            number_next: numbers.last().map_or(0, |last| last + 1),
            torn: false,
            leftovers: numbers[..at].iter().map(|&number| segment::path(dir, number)).collect(),
        };
        let mut scan = Scan { dir, identity, snapshot, numbers, at, bytes: Vec::new(), found };
        scan.bytes = scan.segment_bytes(at)?;
        scan.walk()?;
        Ok(scan)
    }

    fn segment_bytes(&self, at: usize) -> Result<Vec<u8>, EngineError> {
        disk::read_bounded(&segment::path(self.dir, self.numbers[at]), SEGMENT_BYTES_MAX)
    }

    /// Takes the records of the segment in `bytes`, which goes on from the end so far.
    fn walk(&mut self) -> Result<(), EngineError> {
        let found = &mut self.found;
        let number = self.numbers[self.at];
        found.segments.push(Segment { number, base: found.end, volume_before: found.volume });
        let mut walk = Walk::new(&self.bytes, self.identity.salt, found.end);
        let mut end = Some((walk.position(), found.volume));
        while let Some((position, volume)) = end {
            if let Some(snapshot) = self.snapshot
                && snapshot.position.revision == position.revision
            {
                found.snapshot_volume = volume;
                if snapshot.position != position {
                    return Err(self.broken("the snapshot stands for another past than the log's"));
                }
            }
            end = walk.next().map(|record| {
                let stamp = record.header.stamp;
                // A snapshot knows the last stamp of its day, which may be of a record behind its place.
                if found.last.is_none_or(|(last, _)| last.time <= stamp.time) {
                    found.last = Some((stamp, record.header.mark));
                }
                found.volume += record.payload.len() as u64;
                (record.position, found.volume)
            });
        }
        found.end = walk.position();
        found.offset = walk.offset() as u64;
        Ok(())
    }

    /// Goes on to the next segment, if it holds what comes next.
    fn step(&mut self) -> Result<bool, EngineError> {
        let rest_is_empty = is_zero(self.bytes.get(self.found.offset as usize..).unwrap_or_default());
        if !rest_is_empty || self.at + 1 >= self.numbers.len() {
            return Ok(false);
        }
        let bytes = self.segment_bytes(self.at + 1)?;
        let header = segment::read_header(&bytes, self.identity.salt, self.numbers[self.at + 1]);
        if header != Some(self.found.end) {
            return Ok(false);
        }
        self.at += 1;
        self.bytes = bytes;
        self.walk()?;
        Ok(true)
    }

    /// Judges what follows the last record: nothing, an end that a crash left, or damage.
    fn finish(mut self) -> Result<Recovery, EngineError> {
        let rest = self.bytes.get(self.found.offset as usize..).unwrap_or_default();
        let torn = !is_zero(rest);
        let mut durable = walk::durable_in(rest, self.identity.salt).unwrap_or(0);
        durable = durable.max(self.snapshot.map_or(0, |snapshot| snapshot.position.revision));
        for at in self.at + 1..self.numbers.len() {
            let bytes = self.segment_bytes(at)?;
            if is_zero(&bytes) && bytes.len() as u64 >= FIRST_SEGMENT_BYTES {
                self.found.spares.push(self.numbers[at]);
            } else {
                durable = durable.max(walk::durable_in(&bytes, self.identity.salt).unwrap_or(0));
                self.found.leftovers.push(segment::path(self.dir, self.numbers[at]));
            }
        }
        if durable > self.found.end.revision {
            return Err(self.broken("though it was durable"));
        }
        self.found.torn = torn;
        Ok(self.found)
    }

    fn broken(&self, why: &str) -> EngineError {
        let Recovery { end, offset, .. } = &self.found;
        EngineError::Corrupt {
            place: segment::path(self.dir, self.numbers[self.at]).display().to_string(),
            details: format!("revision {} at byte {offset} can't be read, {why}", end.revision + 1),
        }
    }
}

/// The base of a segment, if its header is whole and of this ledger.
fn read_header(dir: &Path, identity: &Identity, number: u64) -> Result<Option<Position>, EngineError> {
    use std::io::Read;
    let path = segment::path(dir, number);
    let file = File::open(&path).map_err(disk::at(&path))?;
    let mut bytes = Vec::with_capacity(segment::HEADER_BYTES);
    file.take(segment::HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(disk::at(&path))?;
    Ok(segment::read_header(&bytes, identity.salt, number).filter(|base| base.epoch == identity.epoch))
}

fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}
