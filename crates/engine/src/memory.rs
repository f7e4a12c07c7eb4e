//! Ledgers in the memory of one process: for tests, simulations and throw-away fleets. Gone with the process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use lockkeeper_core::planted::{self, Bug};
use lockkeeper_core::space::Space;
use lockkeeper_core::time::Stamp;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::embedded::torn;
use crate::time_source::{Machine, TimeSource};
use crate::{
    Append, Appended, Base, Batch, BoxFuture, Confirm, Delta, Durable, Engine, EngineError, Ledger, PAYLOAD_BYTES_MAX,
    Position, Record, Strength,
};

/// The engine behind `memory:`. Whoever opens the same space here gets the same ledger.
#[derive(Debug)]
pub struct Memory {
    source: Arc<dyn TimeSource>,
    ledgers: Mutex<BTreeMap<Space, Arc<MemoryLedger>>>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory::with_time(Arc::new(Machine::new()))
    }

    /// An engine whose time a test or a simulation moves.
    pub fn with_time(source: Arc<dyn TimeSource>) -> Memory {
        Memory { source, ledgers: Mutex::default() }
    }

    /// Loses everything behind `revision`, as a store does that failed over too early. What a snapshot stands for
    /// stays.
    pub fn lose_after(&self, space: &Space, revision: u64) {
        let ledgers = self.ledgers.lock().expect("no holder panics");
        if let Some(ledger) = ledgers.get(space) {
            ledger.lose_after(revision);
        }
    }

    /// Loses what a disk loses with its power, as its log would be read again: see [`crate::Embedded`]. Everything up to
    /// `durable` was synced; of the rest, `is_lost` says for each sector whether it was not yet written.
    pub fn lose_power(&self, space: &Space, durable: u64, is_lost: &mut dyn FnMut() -> bool) {
        let ledgers = self.ledgers.lock().expect("no holder panics");
        if let Some(ledger) = ledgers.get(space) {
            let mut pages = ledger.pages();
            pages.records = torn::survivors(pages.base, &pages.records, durable, is_lost);
            pages.bytes = weigh(&pages.records);
            ledger.tell(pages.end().revision);
        }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Engine for Memory {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn place(&self) -> String {
        "memory:".to_owned()
    }

    fn open<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<Arc<dyn Ledger>, EngineError>> {
        Box::pin(async move {
            let mut ledgers = self.ledgers.lock().expect("no holder panics");
            let ledger =
                ledgers.entry(space.clone()).or_insert_with(|| Arc::new(MemoryLedger::new(self.source.clone())));
            Ok(ledger.clone() as Arc<dyn Ledger>)
        })
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<Space>, EngineError>> {
        Box::pin(async move { Ok(self.ledgers.lock().expect("no holder panics").keys().cloned().collect()) })
    }
}

/// One ledger of the memory engine.
struct MemoryLedger {
    clock: Clock,
    pages: Mutex<Pages>,
    durable: watch::Sender<Durable>,
    moved: watch::Sender<u64>,
}

/// What a ledger holds.
struct Pages {
    /// Where the kept records begin: the start, or the last snapshot.
    base: Position,
    snapshot: Option<Vec<u8>>,
    records: Vec<Record>,
    /// Payload bytes of the kept records.
    bytes: u64,
}

impl Pages {
    fn end(&self) -> Position {
        self.records.last().map_or(self.base, |record| record.position)
    }

    /// The kept place with this revision.
    fn place(&self, revision: u64) -> Option<Position> {
        let index = usize::try_from(revision.checked_sub(self.base.revision)?).ok()?;
        if index == 0 { Some(self.base) } else { self.records.get(index - 1).map(|record| record.position) }
    }

    fn delta(&self, after: Position) -> Delta {
        let all = || self.records.clone();
        let base = self.base;
        match (&self.snapshot, self.place(after.revision)) {
            (None, _) if after == Position::ORIGIN => Delta { base: Base::Asked, records: all() },
            (_, Some(place)) if place == after => {
                let seen = (after.revision - base.revision) as usize;
                let seen = seen.saturating_sub(usize::from(planted::is(Bug::DeltaRepeats)));
                Delta { base: Base::Asked, records: self.records[seen..].to_vec() }
            }
            (Some(snapshot), None)
                if after == Position::ORIGIN || (after.epoch == base.epoch && after.revision < base.revision) =>
            {
                let snapshot = snapshot.clone();
                Delta { base: Base::Snapshot { position: base, snapshot }, records: all() }
            }
            (snapshot, _) => {
                let snapshot = snapshot.as_ref().map(|snapshot| (base, snapshot.clone()));
                Delta { base: Base::Rewritten { snapshot, position: base }, records: all() }
            }
        }
    }
}

impl MemoryLedger {
    fn new(source: Arc<dyn TimeSource>) -> MemoryLedger {
        MemoryLedger {
            clock: Clock::start(source),
            pages: Mutex::new(Pages { base: Position::start(), snapshot: None, records: Vec::new(), bytes: 0 }),
            durable: watch::Sender::new(Durable::Up(0)),
            moved: watch::Sender::new(0),
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("no holder panics")
    }

    fn lose_after(&self, revision: u64) {
        let mut pages = self.pages();
        let kept = usize::try_from(revision.saturating_sub(pages.base.revision)).unwrap_or(usize::MAX);
        pages.records.truncate(kept);
        pages.bytes = weigh(&pages.records);
        self.tell(pages.end().revision);
    }

    fn tell(&self, revision: u64) {
        self.durable.send_replace(Durable::Up(revision));
        self.moved.send_replace(revision);
    }

    fn append_now(&self, expected: Position, proposed: Stamp, batch: Batch) -> Append {
        if batch.payload.len() > PAYLOAD_BYTES_MAX {
            return Append::Down(crate::too_large(batch.payload.len()));
        }
        let mut pages = self.pages();
        let end = pages.end();
        if !expected.is_end(end) && !planted::is(Bug::NoCompare) {
            return Append::Moved(pages.delta(expected));
        }
        let stamp = self.clock.stamp(proposed);
        let position = end.following(batch.id, stamp, &batch.payload);
        pages.bytes += batch.payload.len() as u64;
        pages.records.push(Record { position, batch: batch.id, stamp, payload: batch.payload });
        self.tell(position.revision);
        Append::Appended(Appended { position, stamp, durable: true })
    }

    fn compact_now(&self, at: Position, snapshot: Vec<u8>) -> Result<(), EngineError> {
        let mut pages = self.pages();
        if pages.snapshot.is_some() && at.epoch == pages.base.epoch && at.revision <= pages.base.revision {
            return Ok(());
        }
        if pages.place(at.revision) != Some(at) {
            return Err(EngineError::Invalid(format!("{at} is no place of this ledger")));
        }
        let more = usize::from(planted::is(Bug::CompactsTooMuch));
        let replaced = ((at.revision - pages.base.revision) as usize + more).min(pages.records.len());
        pages.records.drain(..replaced);
        pages.bytes = weigh(&pages.records);
        pages.base = at;
        pages.snapshot = Some(snapshot);
        Ok(())
    }
}

fn weigh(records: &[Record]) -> u64 {
    records.iter().map(|record| record.payload.len() as u64).sum()
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLedger").field("end", &self.pages().end()).finish_non_exhaustive()
    }
}

impl Ledger for MemoryLedger {
    fn now(&self) -> Stamp {
        self.clock.now()
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        Box::pin(async move { Ok(self.pages().delta(after)) })
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        Box::pin(async move { self.append_now(expected, proposed, batch) })
    }

    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm> {
        Box::pin(async move {
            let pages = self.pages();
            if expected.is_end(pages.end()) { Confirm::Current } else { Confirm::Moved(pages.delta(expected)) }
        })
    }

    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move { self.compact_now(at, snapshot) })
    }

    fn durable(&self) -> watch::Receiver<Durable> {
        self.durable.subscribe()
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    fn bytes_since_snapshot(&self) -> u64 {
        self.pages().bytes
    }

    fn strength(&self) -> Strength {
        Strength::BestEffort
    }
}
