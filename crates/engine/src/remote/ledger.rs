//! One ledger on a server that others write to as well: what is known of it, and what is believed of its answers.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper_core::time::Stamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::news::News;
use super::pace::Pace;
use super::standing::{Found, Standing};
use super::{Answer, Bounds, Ear, End, Entry, More, Store, Stored, Trouble, Word, hash};
use crate::time_source::TimeSource;
use crate::{
    Append, Appended, Batch, BoxFuture, Confirm, Delta, Durable, EngineError, Ledger, Outside, PAYLOAD_BYTES_MAX,
    Position, Strength, position,
};

/// How much of what was missed is handed back in one answer; a record that is larger comes alone.
pub(super) const PAGE_BYTES: usize = 1 << 20;
/// Payload bytes behind the snapshot, beyond which nothing is recorded that takes something.
const LOG_BYTES_MAX: u64 = 2 << 30;
/// Kept back for what frees something.
const LOG_BYTES_RESERVE: u64 = 256 << 20;
/// How often the end is looked at although nobody said that it moved.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often, when nobody has used the ledger for a while.
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(15);
/// How long a ledger counts as used.
const USED: Duration = Duration::from_secs(60);

/// A ledger that is open. Listens as long as it is.
pub(crate) struct RemoteLedger<S: Store> {
    inner: Arc<Inner<S>>,
    watcher: tokio::task::AbortHandle,
}

pub(crate) struct Inner<S> {
    pub(super) store: S,
    pub(super) pace: Pace,
    pub(super) standing: Standing,
    news: News,
    /// Somebody wants the end to be looked at now.
    look: Notify,
    used: Mutex<Instant>,
}

impl<S: Store> RemoteLedger<S> {
    /// Opens a ledger. What does not exist is made by the first batch.
    pub(super) async fn open(store: S, source: Arc<dyn TimeSource>) -> Result<RemoteLedger<S>, EngineError> {
        let inner = Arc::new(Inner {
            store,
            pace: Pace::new(source),
            standing: Standing::new(),
            news: News::default(),
            look: Notify::new(),
            used: Mutex::new(Instant::now()),
        });
        inner.look_around().await?;
        let watcher = tokio::spawn(watch(inner.clone())).abort_handle();
        Ok(RemoteLedger { inner, watcher })
    }
}

impl<S: Store> Drop for RemoteLedger<S> {
    fn drop(&mut self) {
        self.watcher.abort();
        self.inner.store.leave(&self.inner.ear());
    }
}

/// Listens where the ledger is, and looks at its end when it was silent for long: silence may be a lost message.
async fn watch<S: Store>(inner: Arc<Inner<S>>) {
    loop {
        inner.store.attend(inner.ear()).await;
        let idle = inner.used.lock().expect("no holder panics").elapsed() > USED;
        tokio::select! {
            () = inner.look.notified() => {}
            () = tokio::time::sleep(if idle { LOOK_EVERY_IDLE } else { LOOK_EVERY }) => {}
        }
        // What is wrong is told to whoever asks, and by the node.
        if let Err(error) = inner.look_around().await {
            tracing::debug!(place = inner.store.place(), %error, "could not be looked at");
        }
    }
}

impl<S: Store> Inner<S> {
    fn ear(self: &Arc<Self>) -> Weak<dyn Ear> {
        let ear: Weak<Self> = Arc::downgrade(self);
        ear
    }

    fn use_now(&self) {
        *self.used.lock().expect("no holder panics") = Instant::now();
    }

    /// Looks whether the end is where it is thought to be.
    async fn look_around(&self) -> Result<(), EngineError> {
        let at = self.standing.end();
        let answer = self.look_at(at, 0).await?;
        let end = answer.end.map_or(Position::ORIGIN, |end| end.position);
        let found = match answer.word {
            Word::Empty if at == Position::ORIGIN => Found::Passed,
            Word::Asked | Word::Snapshot => Found::Passed,
            Word::Empty
            | Word::Rewritten
            | Word::Appended
            | Word::Taken
            | Word::Full
            | Word::Compacted
            | Word::Older
            | Word::Foreign
            | Word::Incomplete => Found::Void,
        };
        if at == Position::ORIGIN {
            // Nothing was known that could be void.
            self.standing.heard(end);
            return Ok(());
        }
        if found == Found::Void {
            self.news.forget();
        }
        self.standing.looked(at, found, end);
        Ok(())
    }

    /// Asks what came after a place, in one answer of a certain size.
    pub(super) async fn look_at(&self, at: Position, budget: usize) -> Result<Answer, EngineError> {
        let mut asked = self.heed(|bounds| self.store.look(at, bounds, budget)).await;
        // A question that changes nothing may be asked twice.
        if let Err(Trouble::Lost(_)) = asked {
            asked = self.heed(|bounds| self.store.look(at, bounds, budget)).await;
        }
        asked.map_err(Trouble::into_error)
    }

    /// Asks with the bounds of time, and takes note of what every answer says.
    pub(super) async fn heed<F>(&self, ask: impl FnOnce(Bounds) -> F) -> Result<Answer, Trouble>
    where
        F: Future<Output = Result<Answer, Trouble>>,
    {
        let bounds = self.pace.bounds();
        let answer = ask(bounds).await?;
        self.pace.told(bounds, answer.time);
        if let Some(end) = &answer.end {
            self.standing.weigh(end.bytes);
        }
        Ok(answer)
    }

    pub(super) fn damaged(&self, details: &str) -> EngineError {
        EngineError::Corrupt { place: self.store.place().to_owned(), details: details.to_owned() }
    }

    async fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> Append {
        let Batch { id, payload, frees, awaited: _, shown, posted } = batch;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Append::Down(crate::too_large(payload.len()));
        }
        self.use_now();
        let hash = hash(&payload);
        let entry = Entry {
            id,
            payload: &payload,
            hash: &hash,
            proposed: self.pace.proposal(proposed),
            frees,
            log_bytes_max: LOG_BYTES_MAX + if frees { LOG_BYTES_RESERVE } else { 0 },
            epoch: (expected == Position::ORIGIN).then(position::draw),
            shown: &shown,
            posted: &posted,
            page_bytes: PAGE_BYTES,
        };
        let answer = match self.heed(|bounds| self.store.append(expected, bounds, entry)).await {
            Ok(answer) => answer,
            Err(Trouble::Lost(error) | Trouble::Late(error)) => return Append::Unknown(error),
            Err(Trouble::Unchanged(error)) => return Append::Down(error),
            Err(Trouble::Full) => return Append::Full,
        };
        match (answer.word, &answer.more, answer.end) {
            (Word::Full, _, _) => Append::Full,
            (Word::Taken, More::Outside(outside), _) => Append::Taken(outside.clone()),
            (Word::Appended, More::Stamp(stamp), Some(End { position, .. })) => {
                let start = Position { epoch: position.epoch, ..Position::ORIGIN };
                let before = if expected == Position::ORIGIN { start } else { expected };
                if position != S::following(before, id, *stamp, &hash) {
                    return Append::Unknown(self.damaged("it was recorded at a place where it does not belong"));
                }
                self.pace.stamped(stamp.time);
                self.standing.answered(position, false);
                self.store.announce(position);
                Append::Appended(Appended { position, stamp: *stamp, durable: true })
            }
            (_, _, _) => match self.delta(expected, answer).await {
                Ok(delta) => Append::Moved(delta),
                Err(error) => Append::Down(error),
            },
        }
    }

    async fn read(&self, after: Position) -> Result<Delta, EngineError> {
        self.use_now();
        // Also for whoever looks for a batch of unknown outcome: it comes right after this place, or never.
        if let Some(records) = self.news.take(after, self.standing.end()) {
            let last = records.last().expect("something was told").clone();
            self.pace.stamped(last.stamp.time);
            self.standing.answered(last.position, false);
            return Ok(Delta { base: crate::Base::Asked, records });
        }
        let answer = self.look_at(after, PAGE_BYTES).await?;
        self.delta(after, answer).await
    }

    async fn confirm(&self, expected: Position) -> Confirm {
        self.use_now();
        let answer = match self.look_at(expected, PAGE_BYTES).await {
            Ok(answer) => answer,
            Err(error) => return Confirm::Down(error),
        };
        let end = answer.end.map_or(Position::ORIGIN, |end| end.position);
        if expected == end {
            self.standing.answered(end, false);
            return Confirm::Current;
        }
        match self.delta(expected, answer).await {
            Ok(delta) => Confirm::Moved(delta),
            Err(error) => Confirm::Down(error),
        }
    }
}

impl<S: Store> Ear for Inner<S> {
    fn hear(&self, end: Position, record: Option<Stored>) {
        self.use_now();
        // What is known already, such as what was written from here, need not be kept.
        if let Some(record) = record.filter(|_| end.revision > self.standing.end().revision) {
            let before = record.before(end.epoch);
            if let Some(record) = record.after::<S>(before).filter(|record| record.position == end) {
                self.news.hear(before, record);
            }
        }
        if !self.standing.heard(end) {
            self.look();
        }
    }

    fn look(&self) {
        self.look.notify_one();
    }
}

impl<S: Store> fmt::Debug for Inner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteLedger")
            .field("place", &self.store.place())
            .field("end", &self.standing.end())
            .finish_non_exhaustive()
    }
}

impl<S: Store> fmt::Debug for RemoteLedger<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<S: Store> Ledger for RemoteLedger<S> {
    fn now(&self) -> Stamp {
        self.inner.pace.now()
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        Box::pin(self.inner.read(after))
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        Box::pin(self.inner.append(expected, proposed, batch))
    }

    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm> {
        Box::pin(self.inner.confirm(expected))
    }

    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.inner.compact(at, snapshot))
    }

    fn durable(&self) -> watch::Receiver<Durable> {
        self.inner.standing.durable()
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.inner.standing.moved()
    }

    fn bytes_since_snapshot(&self) -> u64 {
        self.inner.standing.bytes()
    }

    fn shows(&self) -> bool {
        self.inner.store.shows()
    }

    fn posts(&self) -> bool {
        self.inner.store.posts()
    }

    fn look_outside(&self, names: Vec<String>) -> BoxFuture<'_, Result<Vec<Outside>, EngineError>> {
        Box::pin(async move { self.inner.store.look_outside(&names).await })
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(self.inner.store.time_limit())
    }

    fn strength(&self) -> Strength {
        if self.inner.store.is_durable() { Strength::Strict } else { Strength::BestEffort }
    }
}
