//! One ledger in Redis: every question is one script.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper_core::space::Space;
use lockkeeper_core::time::Stamp;
use redis::{Cmd, Value};

use super::chain;
use super::keys::Keys;
use super::node::Node;
use super::nodes::Nodes;
use super::reply::{self, read_outside};
use super::script::{self, Call, Script};
use super::trouble::Trouble;
use crate::remote::{self, Answer, Bounds, Ear, Entry, Parts, Store};
use crate::{BatchId, EngineError, Outside, Position};

/// Records up to this size are told to everybody at once; for larger ones they have to ask.
const NOTE_BYTES_MAX: usize = 4096;
/// After so long an upload is removed that nobody goes on with.
const ABANDONED_SECONDS: u64 = 600;
/// How much an answer with a part of a snapshot has, about.
const PART_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct RedisStore {
    /// For people.
    place: String,
    nodes: Arc<Nodes>,
    keys: Keys,
    /// What is taken is shown to others, outside of the ledger.
    shows: bool,
    /// Nobody else listened the last time: a notice need not say what was recorded.
    alone: AtomicBool,
    /// Where it listens.
    node: Mutex<Option<Arc<Node>>>,
}

impl RedisStore {
    pub(super) fn new(nodes: Arc<Nodes>, space: &Space, shows: bool) -> RedisStore {
        RedisStore {
            place: format!("the ledger of {space} in {}", nodes.place()),
            keys: Keys::of(space, nodes.database()),
            nodes,
            shows,
            alone: AtomicBool::new(false),
            node: Mutex::default(),
        }
    }

    /// Runs a script with a position and the bounds of time, and reads its answer.
    async fn ask(
        &self,
        script: &Script,
        keys: &[&str],
        at: Position,
        bounds: Bounds,
        more: &[&[u8]],
    ) -> Result<Answer, Trouble> {
        let first = [
            format!("{:016x}", at.epoch),
            at.revision.to_string(),
            format!("{:016x}", at.digest),
            bounds.lower.to_string(),
            bounds.upper.to_string(),
        ];
        let args: Vec<&[u8]> = first.iter().map(String::as_bytes).chain(more.iter().copied()).collect();
        let value = self.run(script, &Call { keys, args: &args }).await?;
        if let Some(listening) = reply::listening(&value) {
            self.alone.store(listening <= 1, Ordering::Relaxed);
        }
        reply::read(value).ok_or_else(|| Trouble::Lost(self.not_understood()))
    }

    async fn run(&self, script: &Script, call: &Call<'_>) -> Result<Value, Trouble> {
        match self.put(&script.by_hash(call), call.bytes()).await {
            Err(trouble) if trouble.is_code("NOSCRIPT") => self.put(&script.by_text(call), call.bytes()).await,
            answer => answer,
        }
    }

    /// Asks the node that has the ledger; once more if it is another one by now.
    async fn put(&self, command: &Cmd, bytes: usize) -> Result<Value, Trouble> {
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
                self.nodes.doubt(&node);
            }
            tries += 1;
            if !misplaced || tries == 2 {
                return Err(trouble);
            }
        }
    }

    fn not_understood(&self) -> EngineError {
        let details = "its scripts answer what nobody understands".to_owned();
        EngineError::Corrupt { place: self.place.clone(), details }
    }

    fn not_sharing(&self) -> EngineError {
        let why = "other services share its files with clients outside of Lockkeeper: set redis.shared_space here, too";
        EngineError::Invalid(format!("{}: {why}", self.place))
    }

    fn told<T>(&self, answer: Result<T, Trouble>) -> Result<T, remote::Trouble> {
        answer.map_err(|trouble| match trouble {
            Trouble::Lost(error) => remote::Trouble::Lost(error),
            Trouble::Late(error) => remote::Trouble::Late(error),
            Trouble::Unsent(_) | Trouble::Refused { .. } => remote::Trouble::Unchanged(trouble.into_error(&self.place)),
        })
    }

    fn ledger_keys(&self) -> [&str; 2] {
        [&self.keys.head, &self.keys.log]
    }
}

impl Store for RedisStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn following(before: Position, batch: BatchId, stamp: Stamp, hash: &str) -> Position {
        chain::following(before, batch, stamp, hash)
    }

    async fn look(&self, at: Position, bounds: Bounds, budget: usize) -> Result<Answer, remote::Trouble> {
        let budget = budget.to_string();
        self.told(self.ask(&script::LOOK, &self.ledger_keys(), at, bounds, &[budget.as_bytes()]).await)
    }

    async fn append(&self, at: Position, bounds: Bounds, entry: Entry<'_>) -> Result<Answer, remote::Trouble> {
        let script = if entry.frees { &*script::APPEND_FREEING } else { &*script::APPEND_TAKING };
        let texts = [
            entry.page_bytes.to_string(),
            format!("{:032x}", entry.id.0),
            entry.proposed.time.0.to_string(),
            entry.proposed.wall.to_string(),
            entry.log_bytes_max.to_string(),
            entry.epoch.map(|epoch| format!("{epoch:016x}")).unwrap_or_default(),
            if self.alone.load(Ordering::Relaxed) { 0 } else { NOTE_BYTES_MAX }.to_string(),
        ];
        let [page, id, time, wall, room, epoch, note] = texts.each_ref().map(String::as_bytes);
        let channel = self.keys.channel.as_bytes();
        let mut more = vec![page, id, entry.payload, entry.hash.as_bytes(), time, wall, room, epoch, channel, note];
        let mut keys = self.ledger_keys().to_vec();
        more.push(if self.shows { b"1".as_slice() } else { b"0" });
        let left: Vec<String> =
            entry.shown.iter().map(|shown| shown.left.map_or(0, |left| left.0.max(1)).to_string()).collect();
        keys.extend(entry.shown.iter().map(|shown| shown.name.as_str()));
        more.extend(left.iter().map(String::as_bytes));
        match self.ask(script, &keys, at, bounds, &more).await {
            Err(trouble) if trouble.is_code("OOM") => Err(remote::Trouble::Full),
            Err(trouble) if trouble.is_code("SHARED") => Err(remote::Trouble::Unchanged(self.not_sharing())),
            answer => self.told(answer),
        }
    }

    async fn part(&self, name: &str, index: u64) -> Result<Option<Vec<u8>>, remote::Trouble> {
        let mut command = redis::cmd("LINDEX");
        command.arg(self.keys.snapshot(name)).arg(index);
        match self.told(self.put(&command, PART_BYTES).await)? {
            Value::BulkString(part) => Ok(Some(part)),
            _ => Ok(None),
        }
    }

    async fn store_part(&self, name: &str, index: u64, part: &[u8]) -> Result<(), remote::Trouble> {
        let (key, index, seconds) = (self.keys.snapshot(name), index.to_string(), ABANDONED_SECONDS.to_string());
        let args: [&[u8]; 3] = [index.as_bytes(), part, seconds.as_bytes()];
        self.told(self.run(&script::STORE_PART, &Call { keys: &[&key], args: &args }).await)?;
        Ok(())
    }

    async fn switch(&self, at: Position, bounds: Bounds, snapshot: &Parts) -> Result<Answer, remote::Trouble> {
        let upload = self.keys.snapshot(&snapshot.name);
        let [head, log] = self.ledger_keys();
        let (count, bytes) = (snapshot.count.to_string(), snapshot.bytes.to_string());
        let more = [&snapshot.name, &count, &bytes, &snapshot.hash, &self.keys.snapshots].map(String::as_bytes);
        self.told(self.ask(&script::SWITCH, &[head, log, &upload], at, bounds, &more).await)
    }

    async fn discard(&self, name: &str) {
        let mut command = redis::cmd("UNLINK");
        command.arg(self.keys.snapshot(name));
        let _ = self.put(&command, 0).await;
    }

    /// Listens at the node that has the ledger now.
    async fn attend(&self, ear: Weak<dyn Ear>) {
        let Ok(node) = self.nodes.of(self.keys.slot).await else { return };
        let mut listening = self.node.lock().expect("no holder panics");
        if listening.as_ref().is_some_and(|before| Arc::ptr_eq(before, &node)) {
            return;
        }
        node.notices.listen(&self.keys.channel, ear.clone());
        if let Some(before) = listening.replace(node) {
            before.notices.leave(&self.keys.channel, &ear);
        }
    }

    fn leave(&self, ear: &Weak<dyn Ear>) {
        if let Some(node) = self.node.lock().expect("no holder panics").take() {
            node.notices.leave(&self.keys.channel, ear);
        }
    }

    fn time_limit(&self) -> Duration {
        self.nodes.time_limit()
    }

    fn is_durable(&self) -> bool {
        self.nodes.is_durable()
    }

    fn shows(&self) -> bool {
        self.shows
    }

    async fn look_outside(&self, names: &[String]) -> Result<Vec<Outside>, EngineError> {
        let mark = format!("lockkeeper {}", self.keys.head);
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        let call = Call { keys: &keys, args: &[mark.as_bytes()] };
        let mut asked = self.run(&script::LOOK_OUTSIDE, &call).await;
        // A question that changes nothing may be asked twice.
        if let Err(Trouble::Lost(_)) = asked {
            asked = self.run(&script::LOOK_OUTSIDE, &call).await;
        }
        let value = asked.map_err(|trouble| trouble.into_error(&self.place))?;
        read_outside(value).ok_or_else(|| self.not_understood())
    }
}
