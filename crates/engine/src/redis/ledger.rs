//! One ledger in Redis: every question is one script, and one round trip.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper_core::space::Space;
use lockkeeper_core::time::Stamp;
use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::chain;
use super::keys::Keys;
use super::news::News;
use super::node::Node;
use super::nodes::Nodes;
use super::notices::Ear;
use super::pace::Pace;
use super::reply::{End, More, Reply, Stored, Word, hex, number, read_outside};
use super::script::{self, Call, Script};
use super::standing::{Found, Standing};
use super::trouble::Trouble;
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
/// Records up to this size are told to everybody at once; for larger ones they have to ask.
const NOTE_BYTES_MAX: usize = 4096;
/// How often the end is looked at although nobody said that it moved.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often, when nobody has used the ledger for a while.
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(15);
/// How long a ledger counts as used.
const USED: Duration = Duration::from_secs(60);

/// A ledger of the Redis engine. Listens as long as it is open.
pub(super) struct RedisLedger {
    inner: Arc<Inner>,
    watcher: tokio::task::AbortHandle,
}

pub(super) struct Inner {
    /// For people.
    pub(super) place: String,
    nodes: Arc<Nodes>,
    pub(super) keys: Keys,
    pace: Pace,
    pub(super) standing: Standing,
    news: News,
    /// Somebody wants the end to be looked at now.
    look: Notify,
    used: Mutex<Instant>,
    /// What is taken is shown to others, outside of the ledger.
    shows: bool,
    /// Where it listens.
    node: Mutex<Option<Arc<Node>>>,
}

impl RedisLedger {
    /// Opens the ledger of a space. What does not exist is made by the first batch.
    pub(super) async fn open(
        nodes: Arc<Nodes>,
        space: &Space,
        shows: bool,
        source: Arc<dyn TimeSource>,
    ) -> Result<RedisLedger, EngineError> {
        let inner = Arc::new(Inner {
            place: format!("the ledger of {space} in {}", nodes.place()),
            keys: Keys::of(space, nodes.database()),
            nodes,
            pace: Pace::new(source),
            standing: Standing::new(),
            news: News::default(),
            look: Notify::new(),
            used: Mutex::new(Instant::now()),
            shows,
            node: Mutex::default(),
        });
        inner.look_around().await?;
        let watcher = tokio::spawn(watch(inner.clone())).abort_handle();
        Ok(RedisLedger { inner, watcher })
    }
}

impl Drop for RedisLedger {
    fn drop(&mut self) {
        self.watcher.abort();
        if let Some(node) = self.inner.node.lock().expect("no holder panics").take() {
            node.notices.leave(&self.inner.keys.channel, &self.inner.ear());
        }
    }
}

/// Listens where the ledger is, and looks at its end when it was silent for long: silence may be a lost message.
async fn watch(inner: Arc<Inner>) {
    loop {
        inner.attend().await;
        let idle = inner.used.lock().expect("no holder panics").elapsed() > USED;
        tokio::select! {
            () = inner.look.notified() => {}
            () = tokio::time::sleep(if idle { LOOK_EVERY_IDLE } else { LOOK_EVERY }) => {}
        }
        // What is wrong is told to whoever asks, and by the node.
        if let Err(error) = inner.look_around().await {
            tracing::debug!(place = inner.place, %error, "could not be looked at");
        }
    }
}

impl Inner {
    fn ear(self: &Arc<Inner>) -> Weak<dyn Ear> {
        let ear: Weak<Inner> = Arc::downgrade(self);
        ear
    }

    fn use_now(&self) {
        *self.used.lock().expect("no holder panics") = Instant::now();
    }

    /// Listens at the node that has the ledger now.
    async fn attend(self: &Arc<Inner>) {
        let Ok(node) = self.nodes.of(self.keys.slot).await else { return };
        let mut listening = self.node.lock().expect("no holder panics");
        if listening.as_ref().is_some_and(|before| Arc::ptr_eq(before, &node)) {
            return;
        }
        node.notices.listen(&self.keys.channel, self.ear());
        if let Some(before) = listening.replace(node) {
            before.notices.leave(&self.keys.channel, &self.ear());
        }
    }

    /// Looks whether the end is where it is thought to be.
    async fn look_around(&self) -> Result<(), EngineError> {
        let at = self.standing.end();
        let reply = self.look_at(at, 0).await?;
        let end = reply.end.map_or(Position::ORIGIN, |end| end.position);
        let found = match reply.word {
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
    pub(super) async fn look_at(&self, at: Position, budget: usize) -> Result<Reply, EngineError> {
        let budget = budget.to_string();
        let keys = [self.keys.head.as_str(), self.keys.log.as_str()];
        let mut asked = self.ask(&script::LOOK, &keys, at, &[budget.as_bytes()]).await;
        // A question that changes nothing may be asked twice.
        if let Err(Trouble::Lost(_)) = asked {
            asked = self.ask(&script::LOOK, &keys, at, &[budget.as_bytes()]).await;
        }
        asked.map_err(|trouble| trouble.into_error(&self.place))
    }

    /// Runs a script with a position and the bounds of time, and reads its answer.
    pub(super) async fn ask(
        &self,
        script: &Script,
        keys: &[&str],
        at: Position,
        more: &[&[u8]],
    ) -> Result<Reply, Trouble> {
        let bounds = self.pace.bounds();
        let first = [
            format!("{:016x}", at.epoch),
            at.revision.to_string(),
            format!("{:016x}", at.digest),
            bounds.lower.to_string(),
            bounds.upper.to_string(),
        ];
        let args: Vec<&[u8]> = first.iter().map(String::as_bytes).chain(more.iter().copied()).collect();
        let value = self.run(script, &Call { keys, args: &args }).await?;
        let Some(reply) = Reply::read(value) else {
            return Err(Trouble::Lost(self.damaged("its scripts answer what nobody understands")));
        };
        self.pace.told(bounds, reply.time);
        if let Some(end) = &reply.end {
            self.standing.weigh(end.bytes);
        }
        Ok(reply)
    }

    pub(super) async fn run(&self, script: &Script, call: &Call<'_>) -> Result<Value, Trouble> {
        match self.put(&script.by_hash(call), call.bytes()).await {
            Err(trouble) if trouble.is_code("NOSCRIPT") => self.put(&script.by_text(call), call.bytes()).await,
            answer => answer,
        }
    }

    /// Asks the node that has the ledger; once more if it is another one by now.
    pub(super) async fn put(&self, command: &Cmd, bytes: usize) -> Result<Value, Trouble> {
        let mut tries = 0;
        loop {
            let node = self.nodes.of(self.keys.slot).await?;
            let answer = node.ask(command, bytes).await;
            let Err(trouble) = answer else { return answer };
            let misplaced = trouble.is_wrong_place();
            if misplaced {
                node.hang_up().await;
            }
            if misplaced || !matches!(trouble, Trouble::Refused { .. }) {
                self.nodes.doubt().await;
            }
            tries += 1;
            if !misplaced || tries == 2 {
                return Err(trouble);
            }
        }
    }

    pub(super) fn damaged(&self, details: &str) -> EngineError {
        EngineError::Corrupt { place: self.place.clone(), details: details.to_owned() }
    }

    async fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> Append {
        let Batch { id, payload, frees, awaited: _, shown } = batch;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Append::Down(crate::too_large(payload.len()));
        }
        self.use_now();
        let hash = chain::hash(&payload);
        let script = if frees { &*script::APPEND_FREEING } else { &*script::APPEND_TAKING };
        let log_bytes_max = LOG_BYTES_MAX + if frees { LOG_BYTES_RESERVE } else { 0 };
        let texts = [
            PAGE_BYTES.to_string(),
            format!("{:032x}", id.0),
            proposed.time.0.to_string(),
            proposed.wall.to_string(),
            log_bytes_max.to_string(),
            // Only the first batch of a ledger needs one.
            if expected == Position::ORIGIN { format!("{:016x}", position::draw()) } else { String::new() },
            NOTE_BYTES_MAX.to_string(),
        ];
        let [page, id_text, time, wall, room, epoch, note] = texts.each_ref().map(String::as_bytes);
        let mut more = vec![page, id_text, &payload, hash.as_bytes(), time, wall, room, epoch, self.channel(), note];
        let mut keys = vec![self.keys.head.as_str(), self.keys.log.as_str()];
        more.push(if self.shows { b"1".as_slice() } else { b"0" });
        let left: Vec<String> =
            shown.iter().map(|shown| shown.left.map_or(0, |left| left.0.max(1)).to_string()).collect();
        keys.extend(shown.iter().map(|shown| shown.name.as_str()));
        more.extend(left.iter().map(String::as_bytes));
        let reply = match self.ask(script, &keys, expected, &more).await {
            Ok(reply) => reply,
            Err(trouble) if trouble.is_code("OOM") => return Append::Full,
            Err(trouble) if trouble.is_code("SHARED") => return Append::Down(self.not_sharing()),
            Err(Trouble::Lost(error) | Trouble::Late(error)) => return Append::Unknown(error),
            Err(trouble @ (Trouble::Unsent(_) | Trouble::Refused { .. })) => {
                return Append::Down(trouble.into_error(&self.place));
            }
        };
        match (reply.word, &reply.more, reply.end) {
            (Word::Full, _, _) => Append::Full,
            (Word::Taken, More::Outside(outside), _) => Append::Taken(outside.clone()),
            (Word::Appended, More::Stamp(stamp), Some(End { position, .. })) => {
                let start = Position { epoch: position.epoch, ..Position::ORIGIN };
                let before = if expected == Position::ORIGIN { start } else { expected };
                if position != chain::following(before, id, *stamp, &hash) {
                    return Append::Unknown(self.damaged("it was recorded at a place where it does not belong"));
                }
                self.pace.stamped(stamp.time);
                self.standing.answered(position, false);
                Append::Appended(Appended { position, stamp: *stamp, durable: true })
            }
            (_, _, _) => match self.delta(expected, reply).await {
                Ok(delta) => Append::Moved(delta),
                Err(error) => Append::Down(error),
            },
        }
    }

    async fn look_outside(&self, names: &[String]) -> Result<Vec<Outside>, EngineError> {
        let mark = format!("lockkeeper {}", self.keys.head);
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        let call = Call { keys: &keys, args: &[mark.as_bytes()] };
        let value = self.run(&script::LOOK_OUTSIDE, &call).await.map_err(|trouble| trouble.into_error(&self.place))?;
        read_outside(value).ok_or_else(|| self.damaged("its scripts answer what nobody understands"))
    }

    fn not_sharing(&self) -> EngineError {
        let why = "other services share its files with clients outside of Lockkeeper: set redis.shared_space here, too";
        EngineError::Invalid(format!("{}: {why}", self.place))
    }

    fn channel(&self) -> &[u8] {
        self.keys.channel.as_bytes()
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
        let reply = self.look_at(after, PAGE_BYTES).await?;
        self.delta(after, reply).await
    }

    async fn confirm(&self, expected: Position) -> Confirm {
        self.use_now();
        let reply = match self.look_at(expected, PAGE_BYTES).await {
            Ok(reply) => reply,
            Err(error) => return Confirm::Down(error),
        };
        let end = reply.end.map_or(Position::ORIGIN, |end| end.position);
        if expected == end {
            self.standing.answered(end, false);
            return Confirm::Current;
        }
        match self.delta(expected, reply).await {
            Ok(delta) => Confirm::Moved(delta),
            Err(error) => Confirm::Down(error),
        }
    }
}

impl Ear for Inner {
    fn hear(&self, note: &[u8]) {
        self.use_now();
        let Some(Note { end, record }) = Note::read(note) else { return self.look() };
        if let Some(record) = record {
            let before = record.before(end.epoch);
            if let Some(record) = record.after(before).filter(|record| record.position == end) {
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

/// What is said when a ledger moves: where its end is now, and the last record if it is small.
struct Note {
    end: Position,
    record: Option<Stored>,
}

impl Note {
    fn read(note: &[u8]) -> Option<Note> {
        let line_end = note.iter().position(|byte| *byte == b'\n').unwrap_or(note.len());
        let mut words = std::str::from_utf8(&note[..line_end]).ok()?.splitn(4, ' ');
        let (epoch, revision, digest) = (hex(words.next()?)?, number(words.next()?)?, hex(words.next()?)?);
        let record = match words.next() {
            Some(header) => Some(Stored::read(revision, header, note.get(line_end + 1..)?.to_vec())?),
            None => None,
        };
        Some(Note { end: Position { epoch, revision, digest }, record })
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLedger")
            .field("place", &self.place)
            .field("end", &self.standing.end())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Ledger for RedisLedger {
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
        self.inner.shows
    }

    fn look_outside(&self, names: Vec<String>) -> BoxFuture<'_, Result<Vec<Outside>, EngineError>> {
        Box::pin(async move { self.inner.look_outside(&names).await })
    }

    fn strength(&self) -> Strength {
        if self.inner.nodes.is_durable() { Strength::Strict } else { Strength::BestEffort }
    }
}
