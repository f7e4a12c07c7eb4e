//! One ledger in a directory: joins the log's end, its clock, its syncs and its files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use lockkeeper_core::space::Space;
use lockkeeper_core::time::{Millis, Stamp};
use tokio::sync::{OwnedMutexGuard, watch};

use super::disk;
use super::identity::Identity;
use super::owner::Owner;
use super::record::{self, Facts};
use super::recovery::Recovery;
use super::segment;
use super::snapshot::{self, Snapshot};
use super::stock::{Stock, Take};
use super::sync::{self, Awaited, Syncer};
use super::tail::{Tail, Unwritten};
use super::view::View;
use crate::clock::Clock;
use crate::crash::crash_point;
use crate::time_source::TimeSource;
use crate::{
    Append, Appended, Base, Batch, BoxFuture, Confirm, Delta, Durability, Durable, EngineError, Ledger,
    PAYLOAD_BYTES_MAX, Position, Strength,
};

/// A batch up to this size answers only a few questions.
const FEW_BYTES: usize = 1024;

/// A ledger of the embedded engine.
pub(super) struct FileLedger(Arc<Inner>);

/// What work in the background holds on to, so that the directory stays ours until it is done.
struct Inner {
    dir: PathBuf,
    durability: Durability,
    clock: Clock,
    tail: Mutex<Tail>,
    syncer: Syncer,
    stock: Stock,
    moved: watch::Sender<u64>,
    /// Held for reading while files are read, for writing while some are deleted.
    files: RwLock<()>,
    compacting: Arc<tokio::sync::Mutex<()>>,
    /// Last, so that they are given back after everything else has ended.
    _taken: OwnedMutexGuard<()>,
    _owner: Arc<Owner>,
}

/// How far an attempt to append got.
enum Attempt {
    Answered(Append),
    /// `expected` is not the end.
    Behind,
    /// A segment must be prepared first.
    NoSegment,
}

impl FileLedger {
    /// Opens the ledger in a directory that holds one. Reads all of it.
    pub(super) fn open(
        dir: PathBuf,
        space: &Space,
        durability: Durability,
        source: Arc<dyn TimeSource>,
        taken: OwnedMutexGuard<()>,
        owner: Arc<Owner>,
    ) -> Result<FileLedger, EngineError> {
        let identity = Identity::read(&dir)?;
        if identity.space != *space {
            let details = format!("it holds the ledger of {}", identity.space);
            return Err(EngineError::Corrupt { place: dir.display().to_string(), details });
        }
        let recovery = Recovery::examine(&dir, &identity)?;
        let file = recovery.mend(&dir)?;
        let capacity = file.metadata().map_err(disk::at(&dir))?.len();
        let clock = match recovery.last {
            Some((stamp, mark)) => {
                // Grants that nobody waited for may be lost with their stamps; tokens must rise beyond them.
                let lost = if durability == Durability::Interval { LOST_TIME_MAX } else { Millis(0) };
                Clock::resume(source, stamp.time, mark, lost)
            }
            None => Clock::start(source),
        };
        let syncer = Syncer::start(recovery.end.revision, &dir).map_err(disk::at(&dir))?;
        let stock = Stock::open(dir.clone(), recovery.spares(&dir)?, recovery.number_next, capacity);
        let moved = watch::Sender::new(recovery.end.revision);
        let tail = Mutex::new(Tail {
            salt: identity.salt,
            segments: recovery.segments,
            end: recovery.end,
            volume: recovery.volume,
            snapshot: recovery.snapshot,
            snapshot_volume: recovery.snapshot_volume,
            file: Arc::new(file),
            offset: recovery.offset,
            capacity,
            buffer: Vec::new(),
        });
        let files = RwLock::new(());
        let compacting = Arc::default();
        Ok(FileLedger(Arc::new(Inner {
            dir,
            durability,
            clock,
            tail,
            syncer,
            stock,
            moved,
            files,
            compacting,
            _taken: taken,
            _owner: owner,
        })))
    }
}

/// What may be lost of grants that do not wait for the disk: the interval, and a slow sync.
const LOST_TIME_MAX: Millis = Millis::from_secs(1);

impl Inner {
    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().expect("no holder panics")
    }

    fn try_append(&self, expected: Position, proposed: Stamp, batch: &Batch) -> Attempt {
        let mut tail = self.tail();
        if let Some(stopped) = self.syncer.failed() {
            return Attempt::Answered(Append::Down(stopped.clone()));
        }
        if !expected.is_end(tail.end) {
            return Attempt::Behind;
        }
        if !tail.has_room(record::size(batch.payload.len())) {
            match self.stock.take(batch.frees) {
                Take::Later => return Attempt::NoSegment,
                Take::Nothing => return Attempt::Answered(self.full()),
                Take::Taken(spare) => {
                    if let Err((spare, unwritten)) = tail.roll(spare) {
                        self.stock.put_back(spare);
                        return Attempt::Answered(self.unwritten(unwritten));
                    }
                }
            }
        } else if !batch.frees && self.stock.is_last_resort() {
            return Attempt::Answered(self.full());
        }
        crash_point("append-before-write");
        Attempt::Answered(self.write(&mut tail, proposed, batch))
    }

    /// No further segment can be made: there is no room, or nothing left to make it in.
    fn full(&self) -> Append {
        if self.dir.try_exists().unwrap_or(true) {
            Append::Full
        } else {
            Append::Down(self.syncer.fail(&sync::moved()))
        }
    }

    fn write(&self, tail: &mut Tail, proposed: Stamp, batch: &Batch) -> Append {
        let was_half_full = tail.is_half_full();
        let stamp = self.clock.stamp(proposed);
        let facts = Facts { batch: batch.id, stamp, mark: self.clock.mark(), durable: self.syncer.durable() };
        let position = match tail.write(facts, &batch.payload) {
            Ok(position) => position,
            Err(unwritten) => return self.unwritten(unwritten),
        };
        crash_point("append-after-write");
        let strict = self.durability == Durability::Always;
        let awaited = match batch.payload.len() {
            _ if !strict || !batch.awaited => Awaited::Nobody,
            ..=FEW_BYTES => Awaited::ByFew,
            _ => Awaited::ByMany,
        };
        let synced = self.syncer.written(position.revision, &tail.file, awaited);
        if tail.is_half_full() && !was_half_full {
            self.stock.expect_roll();
        }
        self.moved.send_replace(position.revision);
        Append::Appended(Appended { position, stamp, durable: !strict || synced })
    }

    fn unwritten(&self, unwritten: Unwritten) -> Append {
        match unwritten {
            Unwritten::Full => Append::Full,
            Unwritten::Failed(error) => Append::Unknown(self.syncer.fail(&error)),
        }
    }

    fn view(&self) -> View {
        let tail = self.tail();
        View {
            dir: self.dir.clone(),
            salt: tail.salt,
            segments: tail.segments.clone(),
            snapshot: tail.snapshot,
            end: tail.end,
        }
    }

    fn read(&self, after: Position) -> Result<Delta, EngineError> {
        let _kept = self.files.read().expect("no holder panics");
        if let Some(stopped) = self.syncer.failed() {
            return Err(stopped.clone());
        }
        self.view().delta(after)
    }

    /// Whether a newer snapshot than one at this place is already there.
    fn is_compacted(&self, at: Position) -> bool {
        self.tail()
            .snapshot
            .is_some_and(|snapshot| snapshot.position.epoch == at.epoch && snapshot.position.revision >= at.revision)
    }

    fn compact(&self, at: Position, bytes: &[u8]) -> Result<(), EngineError> {
        let view = self.view();
        let place = if at.epoch == view.end.epoch { view.place(at.revision)? } else { None };
        let Some(place) = place.filter(|place| place.position == at) else {
            return Err(EngineError::Invalid(format!("{at} is no place of this ledger")));
        };
        let stamp = Stamp { time: self.clock.last(), wall: self.clock.now().wall };
        let snapshot = Snapshot { position: at, stamp, mark: self.clock.mark() };
        snapshot.write(&self.dir, view.salt, bytes)?;
        let behind = {
            let mut tail = self.tail();
            tail.snapshot = Some(snapshot);
            tail.snapshot_volume = place.volume;
            // Not one that begins right there: that it does may not be durable yet, and then nothing else would lead up to it.
            let kept = tail.segments.iter().rposition(|segment| segment.base.revision < at.revision).unwrap_or(0);
            tail.segments.drain(..kept).map(|segment| segment::path(&self.dir, segment.number)).collect::<Vec<_>>()
        };
        crash_point("compact-before-delete");
        let _nobody_reads = self.files.write().expect("no holder panics");
        let older = view.snapshot.map(|older| snapshot::path(&self.dir, older.position.revision));
        for path in older.iter().chain(&behind) {
            forget(path);
            crash_point("compact-between-deletes");
        }
        disk::sync_directory(&self.dir).map_err(disk::at(&self.dir))
    }
}

/// Removes a file that means nothing any more; what stays is removed at the next opening.
fn forget(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(place = %path.display(), %error, "a file that is not needed any more stays");
    }
}

/// Runs what waits for the disk where waiting disturbs nobody.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(EngineError::Unreachable(format!("reading or writing was cut short: {error}"))))
}

impl fmt::Debug for FileLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileLedger").field("dir", &self.0.dir).field("end", &self.0.tail().end).finish_non_exhaustive()
    }
}

impl Ledger for FileLedger {
    fn now(&self) -> Stamp {
        self.0.clock.now()
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        Box::pin(async move {
            if self.0.syncer.failed().is_none() && after == self.0.tail().end {
                return Ok(Delta { base: Base::Asked, records: Vec::new() });
            }
            let inner = self.0.clone();
            beside(move || inner.read(after)).await
        })
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        Box::pin(async move {
            if batch.payload.len() > PAYLOAD_BYTES_MAX {
                return Append::Down(crate::too_large(batch.payload.len()));
            }
            loop {
                match self.0.try_append(expected, proposed, &batch) {
                    Attempt::Answered(append) => return append,
                    Attempt::NoSegment => self.0.stock.enough(batch.frees).await,
                    Attempt::Behind => {
                        return match self.read(expected).await {
                            Ok(delta) => Append::Moved(delta),
                            Err(error) => Append::Down(error),
                        };
                    }
                }
            }
        })
    }

    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm> {
        Box::pin(async move {
            if let Some(stopped) = self.0.syncer.failed() {
                return Confirm::Down(stopped.clone());
            }
            let end = self.0.tail().end;
            if expected.is_end(end) {
                return Confirm::Current;
            }
            match self.read(expected).await {
                Ok(delta) => Confirm::Moved(delta),
                Err(error) => Confirm::Down(error),
            }
        })
    }

    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            let inner = self.0.clone();
            let alone: OwnedMutexGuard<()> = inner.compacting.clone().lock_owned().await;
            if inner.is_compacted(at) {
                return Ok(());
            }
            // A snapshot must never stand for what a power loss can still take away.
            let end = inner.tail().end.revision;
            let mut durable = inner.syncer.watch();
            let reached = durable
                .wait_for(|durable| match durable {
                    Durable::Up(revision) => *revision >= at.revision.min(end),
                    Durable::Failed(_) => true,
                })
                .await
                .map(|durable| durable.clone());
            if let Ok(Durable::Failed(stopped)) = reached {
                return Err(stopped);
            }
            beside(move || {
                let _alone = alone;
                inner.compact(at, &snapshot)
            })
            .await
        })
    }

    fn durable(&self) -> watch::Receiver<Durable> {
        self.0.syncer.watch()
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.0.moved.subscribe()
    }

    fn bytes_since_snapshot(&self) -> u64 {
        let tail = self.0.tail();
        tail.volume - tail.snapshot_volume
    }

    fn has_other_writers(&self) -> bool {
        false
    }

    fn strength(&self) -> Strength {
        match self.0.durability {
            Durability::Always => Strength::Strict,
            Durability::Interval => Strength::BestEffort,
        }
    }
}
