//! Prepared segments, made beside the ledger: one is always kept back for batches that free something.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::segment::{self, FIRST_SEGMENT_BYTES, SEGMENT_BYTES, Spare};

/// How long a ledger that was just opened is left alone, so that its first batches find a quiet disk.
const LEAD: Duration = Duration::from_millis(100);
/// How often a full disk is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// The answer to a wish for a segment.
#[derive(Debug)]
pub(super) enum Take {
    Taken(Spare),
    /// One is being prepared: see [`Stock::enough`].
    Later,
    /// The disk is full.
    Nothing,
}

/// How many segments are ready, and whether more can be had.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    ready: usize,
    starved: bool,
}

/// The spare segments of one ledger, and the thread that makes them.
#[derive(Debug)]
pub(super) struct Stock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    rack: Mutex<Rack>,
    wake: Condvar,
    level: watch::Sender<Level>,
    closing: AtomicBool,
}

#[derive(Debug)]
struct Rack {
    ready: VecDeque<Spare>,
    number_next: u64,
    wanted: usize,
    /// How large the one is that is kept back: as small as a small ledger, and most stay small for good.
    kept_bytes: u64,
    /// None was made since the ledger was opened.
    fresh: bool,
    /// The last attempt to make one failed.
    starved: bool,
    working: bool,
    worker: Option<JoinHandle<()>>,
}

impl Rack {
    /// How large the next one is to be. When a second one is wanted, the ledger grows.
    fn capacity(&self) -> u64 {
        if self.ready.is_empty() { self.kept_bytes } else { SEGMENT_BYTES }
    }
}

impl Stock {
    /// `used`: how large the segment is that is in use.
    pub(super) fn open(dir: PathBuf, ready: VecDeque<Spare>, number_next: u64, used: u64) -> Stock {
        let kept_bytes = if used > FIRST_SEGMENT_BYTES { SEGMENT_BYTES } else { FIRST_SEGMENT_BYTES };
        let (fresh, starved, working, worker) = (true, false, false, None);
        let mut rack = Rack { ready, number_next, wanted: 1, kept_bytes, fresh, starved, working, worker };
        // Asked at once: on a full disk the first batches must not use up what is kept back.
        let has_none = rack.ready.is_empty();
        rack.starved = has_none && segment::has_room(&dir, rack.capacity()).is_ok_and(|has_room| !has_room);
        let level = watch::Sender::new(Level { ready: rack.ready.len(), starved: rack.starved });
        let shared =
            Shared { dir, rack: Mutex::new(rack), wake: Condvar::new(), level, closing: AtomicBool::new(false) };
        let stock = Stock { shared: Arc::new(shared) };
        stock.shared.clone().refill(&mut stock.shared.rack());
        stock
    }

    /// How many segments must be ready before such a batch may begin a new one.
    fn needed(frees: bool) -> usize {
        if frees { 1 } else { 2 }
    }

    /// A segment to go on in. A batch that takes something must leave one behind.
    pub(super) fn take(&self, frees: bool) -> Take {
        let mut rack = self.shared.rack();
        if rack.ready.len() >= Stock::needed(frees)
            && let Some(spare) = rack.ready.pop_front()
        {
            rack.wanted = 1;
            rack.kept_bytes = SEGMENT_BYTES;
            self.shared.clone().refill(&mut rack);
            self.shared.tell(&rack);
            return Take::Taken(spare);
        }
        self.shared.want_two(&mut rack);
        if rack.starved { Take::Nothing } else { Take::Later }
    }

    /// Takes back a segment that could not be begun.
    pub(super) fn put_back(&self, spare: Spare) {
        let mut rack = self.shared.rack();
        rack.ready.push_front(spare);
        self.shared.tell(&rack);
    }

    /// Whether the segment in use is all that is left, so that only batches that free something may go on in it.
    pub(super) fn is_last_resort(&self) -> bool {
        let rack = self.shared.rack();
        rack.starved && rack.ready.is_empty()
    }

    /// Asks for a second segment in time, because the one in use is half full.
    pub(super) fn expect_roll(&self) {
        let mut rack = self.shared.rack();
        self.shared.want_two(&mut rack);
    }

    /// Waits until such a batch can take a segment, or none can be had.
    pub(super) async fn enough(&self, frees: bool) {
        let needed = Stock::needed(frees);
        let mut level = self.shared.level.subscribe();
        level.wait_for(|level| level.starved || level.ready >= needed).await.expect("the sender is ours");
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        // Under the lock, so that the worker either sees it or is already waiting to be woken.
        let worker = {
            let mut rack = self.shared.rack();
            self.shared.closing.store(true, Ordering::Release);
            rack.worker.take()
        };
        self.shared.wake.notify_one();
        if let Some(worker) = worker
            && worker.join().is_err()
        {
            tracing::error!("the thread that prepares segments panicked");
        }
    }
}

impl Shared {
    fn rack(&self) -> MutexGuard<'_, Rack> {
        self.rack.lock().expect("no holder panics")
    }

    fn tell(&self, rack: &Rack) {
        self.level.send_replace(Level { ready: rack.ready.len(), starved: rack.starved });
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn want_two(self: &Arc<Self>, rack: &mut Rack) {
        rack.wanted = 2;
        self.clone().refill(rack);
        self.wake.notify_one();
    }

    /// Starts the worker if there is something to make and nobody makes it.
    fn refill(self: Arc<Self>, rack: &mut Rack) {
        if rack.working || rack.ready.len() >= rack.wanted {
            return;
        }
        let own = self.clone();
        match std::thread::Builder::new().name("ledger-spare".to_owned()).spawn(move || own.work()) {
            Ok(worker) => {
                rack.working = true;
                rack.worker = Some(worker);
            }
            Err(error) => {
                tracing::warn!(%error, "no thread to prepare a segment");
                rack.starved = true;
                self.tell(rack);
            }
        }
    }

    fn work(&self) {
        let mut rack = self.rack();
        let quiet = |rack: &mut Rack| rack.fresh && rack.wanted < 2 && !self.is_closing();
        rack = self.wake.wait_timeout_while(rack, LEAD, quiet).expect("no holder panics").0;
        rack.fresh = false;
        while rack.ready.len() < rack.wanted && !self.is_closing() {
            let (number, capacity) = (rack.number_next, rack.capacity());
            drop(rack);
            let made = segment::prepare(&self.dir, number, capacity, || !self.is_closing());
            rack = self.rack();
            match made {
                Ok(spare) => {
                    rack.ready.push_back(spare);
                    rack.number_next += 1;
                    rack.starved = false;
                    self.tell(&rack);
                }
                Err(_) if self.is_closing() => {}
                Err(error) => {
                    if !rack.starved {
                        tracing::warn!(%error, "no spare segment can be made: only batches that free something go on");
                    }
                    rack.starved = true;
                    self.tell(&rack);
                    rack = self.wake.wait_timeout(rack, RETRY).expect("no holder panics").0;
                }
            }
        }
        rack.working = false;
    }
}
