//! What a ledger held at one moment, read from its files while it goes on.

use std::path::PathBuf;

use super::disk;
use super::segment::{self, SEGMENT_BYTES_MAX, Segment};
use super::snapshot::Snapshot;
use super::walk::{Found, Walk};
use crate::{Base, Delta, EngineError, Position, Record};

/// A ledger up to an end; its files must not be deleted while it is in use.
#[derive(Debug)]
pub(super) struct View {
    pub(super) dir: PathBuf,
    pub(super) salt: u32,
    pub(super) segments: Vec<Segment>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) end: Position,
}

/// A place in a view, and the payload bytes up to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) position: Position,
    pub(super) volume: u64,
}

impl View {
    /// What came after a place.
    pub(super) fn delta(&self, after: Position) -> Result<Delta, EngineError> {
        let oldest = self.segments[0].base;
        if after == Position::ORIGIN {
            return self.since_the_beginning(|snapshot| match snapshot {
                Some((position, snapshot)) => Base::Snapshot { position, snapshot },
                None => Base::Asked,
            });
        }
        if after.epoch == self.end.epoch && after.revision < oldest.revision {
            return self.since_the_beginning(|snapshot| match snapshot {
                Some((position, snapshot)) => Base::Snapshot { position, snapshot },
                None => Base::Rewritten { snapshot: None, position: oldest },
            });
        }
        if after.epoch == self.end.epoch && after.revision <= self.end.revision {
            let (place, records) = self.records_after(after.revision)?;
            if place == after {
                return Ok(Delta { base: Base::Asked, records });
            }
        }
        self.since_the_beginning(|snapshot| {
            let position = snapshot.as_ref().map_or(oldest, |(position, _)| *position);
            Base::Rewritten { snapshot, position }
        })
    }

    /// The last snapshot, if there is one, and all that came after it.
    fn since_the_beginning(
        &self,
        base: impl FnOnce(Option<(Position, Vec<u8>)>) -> Base,
    ) -> Result<Delta, EngineError> {
        let (snapshot, from) = match self.snapshot {
            Some(Snapshot { position, .. }) => {
                let (_, bytes) = Snapshot::read(&self.dir, position.revision, self.salt)?;
                (Some((position, bytes)), position.revision)
            }
            None => (None, 0),
        };
        Ok(Delta { base: base(snapshot), records: self.records_after(from)?.1 })
    }

    /// The place with this revision, which must be kept, and the records behind it.
    fn records_after(&self, revision: u64) -> Result<(Position, Vec<Record>), EngineError> {
        let mut place = None;
        let mut records = Vec::new();
        if revision == self.end.revision {
            return Ok((self.end, records));
        }
        self.walk_from(revision, |at, found| {
            if at.position.revision == revision {
                place = Some(at.position);
            } else if at.position.revision > revision {
                records.extend(found.map(Found::to_record));
            }
        })?;
        place.map(|place| (place, records)).ok_or_else(|| self.lost(revision))
    }

    /// Finds the kept place with this revision.
    pub(super) fn place(&self, revision: u64) -> Result<Option<Place>, EngineError> {
        if revision < self.segments[0].base.revision || revision > self.end.revision {
            return Ok(None);
        }
        let mut found = None;
        self.walk_from(revision, |at, _| {
            if at.position.revision == revision {
                found = Some(at);
            }
        })?;
        found.map(Some).ok_or_else(|| self.lost(revision))
    }

    /// Visits every place from the segment that holds `revision` to the end; the record is the one that led there.
    fn walk_from(&self, revision: u64, mut visit: impl FnMut(Place, Option<&Found<'_>>)) -> Result<(), EngineError> {
        let first = self.segments.iter().rposition(|segment| segment.base.revision <= revision).unwrap_or(0);
        let mut end = self.segments[first].base;
        for segment in &self.segments[first..] {
            if segment.base != end {
                return Err(self.lost(end.revision + 1));
            }
            let mut volume = segment.volume_before;
            visit(Place { position: end, volume }, None);
            let bytes = disk::read_bounded(&segment::path(&self.dir, segment.number), SEGMENT_BYTES_MAX)?;
            let last = self.end.revision;
            for found in
                Walk::again(&bytes, self.salt, segment.base).take_while(|found| found.position.revision <= last)
            {
                volume += found.payload.len() as u64;
                end = found.position;
                visit(Place { position: end, volume }, Some(&found));
            }
        }
        if end == self.end { Ok(()) } else { Err(self.lost(end.revision + 1)) }
    }

    fn lost(&self, revision: u64) -> EngineError {
        let details = format!("revision {revision} can't be read any more");
        EngineError::Corrupt { place: self.dir.display().to_string(), details }
    }
}
