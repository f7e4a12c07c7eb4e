//! A server's way to its ledger: answers late, twice, never, or with a shrug; and the disk below, if it is one.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper_core::planted::{self, Bug};
use lockkeeper_core::space::Space;
use lockkeeper_core::time::{Millis, Stamp};
use lockkeeper_engine::{
    Append, Appended, Batch, BoxFuture, Confirm, Delta, Durable, Engine, EngineError, Ledger, Memory, Position,
    Strength,
};
use tokio::sync::watch;

use crate::air::{Air, SimTime};
use crate::weather::{Kind, SYNC_QUICK};

/// The one ledger of a run, and those who are linked to it.
pub(crate) struct Store {
    air: Arc<Air>,
    memory: Memory,
    ledger: Arc<dyn Ledger>,
    space: Space,
    links: Mutex<Vec<Weak<Link>>>,
    /// Of a disk: the last revision that is safe from a power loss.
    synced: AtomicU64,
    /// The last revision that a snapshot stands for.
    compacted: AtomicU64,
    full: AtomicBool,
}

impl Store {
    pub(crate) async fn new(air: Arc<Air>) -> Arc<Store> {
        let memory = Memory::with_time(Arc::new(SimTime(air.clone())));
        let space = Space::parse("sim").expect("a name");
        let ledger = memory.open(&space).await.expect("memory opens");
        let (links, synced, compacted) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Store { air, memory, ledger, space, links, synced, compacted, full: AtomicBool::new(false) })
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    async fn end(&self) -> u64 {
        let delta = self.ledger.read(Position::ORIGIN).await.expect("memory reads");
        let base = match delta.base {
            lockkeeper_engine::Base::Snapshot { position, .. } => position.revision,
            _ => 0,
        };
        delta.records.last().map_or(base, |record| record.position.revision)
    }

    /// The power goes: of what was not synced, some sectors are on the disk and some are not, in no order. `false`: a snapshot
    /// stood for some of it.
    pub(crate) fn lose_power(&self) -> bool {
        let synced = self.synced.load(Ordering::Relaxed);
        let share = self.air.rng().u8(..=10);
        self.memory.lose_power(&self.space, synced, &mut || self.air.rng().u8(..10) < share);
        self.compacted.load(Ordering::Relaxed) <= synced
    }

    /// Another machine takes over and has not heard of the last few batches.
    pub(crate) async fn fail_over(&self) {
        let end = self.end().await;
        let lost = if self.air.rng().u8(..6) == 0 { end } else { self.air.rng().u64(..=end.min(20)) };
        self.memory.lose_after(&self.space, end - lost);
        self.tell_moved(None);
    }

    /// A new process opens the disk: what it reads, it has synced.
    pub(crate) async fn opened(&self) {
        self.synced.store(self.end().await, Ordering::Relaxed);
    }

    /// Everybody linked hears, sooner or later, that the ledger moved.
    fn tell_moved(&self, but: Option<&Link>) {
        let links = self.links.lock().expect("no holder panics").clone();
        for link in links.iter().filter_map(Weak::upgrade) {
            if but.is_some_and(|but| std::ptr::eq(but, &raw const *link)) {
                continue;
            }
            let (air, revision) = (self.air.clone(), *self.ledger.moved().borrow());
            tokio::spawn(async move {
                air.way(air.weather.notice).await;
                link.moved.send_replace(revision);
            });
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("synced", &self.synced).finish_non_exhaustive()
    }
}

/// What one run of one server has of the ledger.
#[derive(Debug)]
pub(crate) struct Link {
    store: Arc<Store>,
    own: Weak<Link>,
    dead: AtomicBool,
    /// Not before this moment does anything happen, in true microseconds.
    paused_until: AtomicU64,
    broken: AtomicBool,
    broken_at: AtomicU64,
    /// The longest way to the ledger, in milliseconds.
    way: u64,
    /// How far its idea of the time lies behind the store's, in milliseconds.
    lag: u64,
    durable: watch::Sender<Durable>,
    moved: watch::Sender<u64>,
}

impl Link {
    pub(crate) fn new(store: &Arc<Store>, way: u64) -> Arc<Link> {
        let link = Arc::new_cyclic(|own| Link {
            store: store.clone(),
            own: own.clone(),
            dead: AtomicBool::new(false),
            paused_until: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            broken_at: AtomicU64::new(0),
            way,
            lag: if store.air.weather.lag == 0 { 0 } else { store.air.rng().u64(..=store.air.weather.lag) },
            durable: watch::Sender::new(Durable::Up(store.synced.load(Ordering::Relaxed))),
            moved: watch::Sender::new(0),
        });
        store.links.lock().expect("no holder panics").push(Arc::downgrade(&link));
        link
    }

    /// The process is gone: nothing it had under way is answered any more.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    pub(crate) fn pause(&self, millis: u64) {
        self.paused_until.store(self.air().now() + millis * 1000, Ordering::Relaxed);
    }

    /// The disk has failed under it, and it must be started anew.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether its process has had the time to notice.
    pub(crate) fn is_long_broken(&self) -> bool {
        let noticed = self.broken_at.load(Ordering::Relaxed).max(self.paused_until.load(Ordering::Relaxed)) + 100_000;
        self.is_broken() && noticed < self.air().now()
    }

    fn air(&self) -> &Air {
        &self.store.air
    }

    fn on_disk(&self) -> bool {
        self.air().weather.kind == Kind::Disk
    }

    /// Nothing passes while the process is paused, and nothing ever when it is dead.
    pub(crate) async fn gate(&self) {
        loop {
            if self.dead.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let wait = self.paused_until.load(Ordering::Relaxed).saturating_sub(self.air().now());
            if wait == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_micros(wait)).await;
        }
    }

    async fn there(&self) {
        self.gate().await;
        if !self.on_disk() {
            self.air().way(self.way).await;
            self.gate().await;
        }
    }

    async fn back(&self) {
        if !self.on_disk() {
            self.air().way(self.way).await;
        }
        self.gate().await;
    }

    async fn append_to_store(self: Arc<Link>, expected: Position, proposed: Stamp, batch: Batch) -> Append {
        // A store with a clock of its own stamps as it likes; and who knows its time only roughly proposes nothing.
        let roughly = self.lag > 0 && !planted::is(Bug::StaleStamp);
        let proposed = if self.air().rng().u8(..3) == 0 || roughly { Stamp::default() } else { proposed };
        let appended = self.store.ledger.append(expected, proposed, batch).await;
        if matches!(appended, Append::Appended(_)) && !self.on_disk() {
            self.store.tell_moved(Some(&self));
        }
        appended
    }

    async fn append_over(self: Arc<Link>, expected: Position, proposed: Stamp, batch: Batch) -> Append {
        let weather = &self.air().weather;
        if self.is_broken() {
            return Append::Down(EngineError::Stopped("the disk failed".to_owned()));
        }
        if self.store.full.load(Ordering::Relaxed) && !batch.frees {
            return Append::Full;
        }
        if self.air().chance(weather.ledger_down) {
            return Append::Down(away());
        }
        if self.air().chance(weather.ledger_unknown) {
            let what = self.air().rng().u8(..3);
            match what {
                0 => {}
                1 => {
                    self.append_to_store(expected, proposed, batch).await;
                }
                _ => {
                    let late = self.clone();
                    tokio::spawn(async move {
                        late.air().way(2000).await;
                        late.append_to_store(expected, proposed, batch).await;
                    });
                }
            }
            return Append::Unknown(away());
        }
        let awaited = batch.awaited;
        match self.clone().append_to_store(expected, proposed, batch).await {
            Append::Appended(appended) if self.on_disk() => {
                // A quick disk is waited for on the spot, by those who need it.
                if awaited && weather.sync <= SYNC_QUICK && self.air().rng().bool() {
                    self.synced(appended.position.revision);
                    return Append::Appended(appended);
                }
                self.sync_later(appended.position.revision, awaited);
                Append::Appended(Appended { durable: false, ..appended })
            }
            other => other,
        }
    }

    /// The disk gets round to what was written.
    fn sync_later(self: Arc<Link>, revision: u64, awaited: bool) {
        tokio::spawn(async move {
            let sync = self.air().weather.sync;
            self.air().way(if awaited { sync } else { sync + 10 }).await;
            if self.dead.load(Ordering::Relaxed) || self.is_broken() {
                return;
            }
            if self.air().chance(self.air().weather.sync_fails) {
                self.broken.store(true, Ordering::Relaxed);
                self.broken_at.store(self.air().now(), Ordering::Relaxed);
                let stopped = EngineError::Stopped("the disk failed".to_owned());
                self.durable.send_replace(Durable::Failed(stopped));
                return;
            }
            self.synced(revision);
        });
    }

    /// Waits for the disk as its engine does: a snapshot must never stand for what a power loss can still take away.
    async fn is_durable(&self, revision: u64) -> Result<(), EngineError> {
        if !self.on_disk() || planted::is(Bug::CompactsUnsynced) {
            return Ok(());
        }
        let mut durable = self.durable.subscribe();
        let reached = durable.wait_for(|durable| match durable {
            Durable::Up(synced) => *synced >= revision,
            Durable::Failed(_) => true,
        });
        let reached = reached.await.map(|durable| durable.clone());
        self.gate().await;
        match reached {
            Ok(Durable::Failed(stopped)) => Err(stopped),
            Ok(Durable::Up(_)) | Err(_) => Ok(()),
        }
    }

    fn synced(&self, revision: u64) {
        self.store.synced.fetch_max(revision, Ordering::Relaxed);
        self.durable.send_if_modified(|durable| match durable {
            Durable::Up(before) if *before < revision => {
                *before = revision;
                true
            }
            Durable::Up(_) | Durable::Failed(_) => false,
        });
    }
}

fn away() -> EngineError {
    EngineError::Unreachable("the ledger does not answer".to_owned())
}

impl Ledger for Link {
    /// A lower bound: what was last heard from the store, and the time since.
    fn now(&self) -> Stamp {
        let Stamp { time, wall } = self.store.ledger.now();
        Stamp { time: time.minus(Millis(self.lag)), wall }
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        Box::pin(async move {
            self.there().await;
            if self.air().chance(self.air().weather.ledger_down) {
                return Err(away());
            }
            let delta = self.store.ledger.read(after).await;
            self.back().await;
            delta
        })
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        Box::pin(async move {
            self.there().await;
            let own = self.own.upgrade().expect("called through it");
            let appended = own.append_over(expected, proposed, batch).await;
            self.back().await;
            appended
        })
    }

    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm> {
        Box::pin(async move {
            self.there().await;
            if self.air().chance(self.air().weather.ledger_down) {
                return Confirm::Down(away());
            }
            let confirmed = self.store.ledger.confirm(expected).await;
            self.back().await;
            confirmed
        })
    }

    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            self.there().await;
            if self.is_broken() || self.store.full.load(Ordering::Relaxed) {
                return Err(EngineError::Unreachable("there is no room for a snapshot".to_owned()));
            }
            if self.air().chance(self.air().weather.ledger_down) {
                return Err(away());
            }
            self.is_durable(at.revision).await?;
            let compacted = self.store.ledger.compact(at, snapshot).await;
            if compacted.is_ok() {
                self.store.compacted.fetch_max(at.revision, Ordering::Relaxed);
            }
            self.back().await;
            compacted
        })
    }

    fn durable(&self) -> watch::Receiver<Durable> {
        self.durable.subscribe()
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    fn bytes_since_snapshot(&self) -> u64 {
        self.store.ledger.bytes_since_snapshot() * 8 * self.air().weather.bytes_factor
    }

    fn has_other_writers(&self) -> bool {
        !self.on_disk()
    }

    fn strength(&self) -> Strength {
        Strength::Strict
    }
}
