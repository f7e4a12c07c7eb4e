//! Ledgers in a Redis that several services share: one script compares, appends, stamps and hands back what was missed.
//!
//! What lies where, and what is promised, is described in docs/engines.md. No rule about locks is in any script.

mod address;
mod chain;
mod connection;
mod dial;
mod examine;
mod keys;
mod node;
mod nodes;
mod notices;
mod permissions;
mod reply;
mod script;
mod store;
mod trouble;
mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;

use lockkeeper_core::space::Space;
use redis::Value;

use self::address::Address;
use self::dial::Dial;
use self::keys::Keys;
use self::node::Node;
use self::nodes::Nodes;
use self::store::RedisStore;
use self::trouble::Trouble;
use crate::remote::{self, Open};
use crate::time_source::{Machine, TimeSource};
use crate::{BoxFuture, Engine, EngineError, Ledger, Position, Record};

/// How many spaces are listed.
const SPACES_LISTED_MAX: usize = 100_000;
/// How many keys are looked at in one step while spaces are listed.
const SCAN_STEP: u32 = 1000;

/// The engine behind `redis://` and its relatives.
#[derive(Debug)]
pub struct Redis {
    nodes: Arc<Nodes>,
    shared_space: Option<Space>,
    ledgers: Open<RedisStore>,
}

impl Redis {
    /// Connects, and refuses a Redis that can't keep locks.
    pub async fn open(url: &str) -> Result<Redis, EngineError> {
        Redis::with_time(url, Arc::new(Machine::new())).await
    }

    /// An engine whose own clock a test moves; that of the Redis runs on.
    pub async fn with_time(url: &str, source: Arc<dyn TimeSource>) -> Result<Redis, EngineError> {
        let nodes = Nodes::new(Dial::new(Address::parse(url)?)?);
        let place = nodes.place();
        let all = nodes.all().await.map_err(|trouble| trouble.into_error(&place))?;
        let (mut reached, mut away) = (0, None);
        for (node, connection) in connect(all).await {
            match connection.map_err(|trouble| trouble.into_error(&place)) {
                Ok(()) => reached += 1,
                // Spaces on other nodes are served without it.
                Err(error @ EngineError::Unreachable(_)) => {
                    let host = node.host().map(ToString::to_string);
                    tracing::warn!(place, host, %error, "a node can't be reached: what lies there is unavailable");
                    nodes.doubt(&node);
                    away = Some(error);
                }
                Err(unfit) => return Err(unfit),
            }
        }
        if let Some(error) = away.filter(|_| reached == 0) {
            return Err(error);
        }
        Ok(Redis { nodes: Arc::new(nodes), shared_space: None, ledgers: Open::new(source) })
    }

    /// Shows the locked files of one space to clients that know nothing of Lockkeeper, and respects theirs.
    pub async fn sharing(mut self, space: Option<Space>) -> Result<Redis, EngineError> {
        if space.is_some() && self.nodes.are_many() {
            let why =
                "files are shared with other clients on one Redis, not on a cluster: `redis.shared_space` must go";
            return Err(EngineError::Invalid(why.to_owned()));
        }
        if space.is_some() {
            self.nodes.share().await.map_err(|trouble| trouble.into_error(&self.nodes.place()))?;
        }
        self.shared_space = space;
        Ok(self)
    }

    /// Whether a URL with this scheme names a Redis.
    pub(crate) fn is_scheme(scheme: &str) -> bool {
        Address::is_scheme(scheme)
    }

    /// What [`Engine::place`] would say. Opens nothing.
    pub(crate) fn place_of(url: &str) -> Result<String, EngineError> {
        Ok(Address::parse(url)?.to_string())
    }

    /// The place after a record: Redis computes it, and everybody who reads checks it.
    #[must_use]
    pub fn following(before: Position, record: &Record) -> Position {
        chain::following(before, record.batch, record.stamp, &remote::hash(&record.payload))
    }

    async fn list(&self) -> Result<Vec<Space>, EngineError> {
        let place = self.nodes.place();
        let mut spaces = BTreeSet::new();
        for node in self.nodes.all().await.map_err(|trouble| trouble.into_error(&place))? {
            let found = |key: &[u8]| {
                spaces.extend(keys::space_of(key));
                spaces.len() < SPACES_LISTED_MAX
            };
            scan(&node, &place, keys::HEADS, found).await?;
        }
        Ok(spaces.into_iter().collect())
    }

    /// Removes all keys of a space.
    async fn forget(&self, space: &Space) -> Result<(), EngineError> {
        let (place, keys) = (self.nodes.place(), Keys::of(space, self.nodes.database()));
        let node = self.nodes.of(keys.slot).await.map_err(|trouble| trouble.into_error(&place))?;
        // In one command: nobody finds half of a ledger.
        let mut all = vec![keys.head.clone().into_bytes(), keys.log.clone().into_bytes()];
        let snapshots = |key: &[u8]| {
            if key.starts_with(keys.snapshots.as_bytes()) {
                all.push(key.to_vec());
            }
            true
        };
        scan(&node, &place, &format!("{}*", keys::escaped(&keys.snapshots)), snapshots).await?;
        let mut command = redis::cmd("UNLINK");
        command.arg(all);
        node.ask(&command, 0).await.map(drop).map_err(|trouble| trouble.into_error(&place))
    }
}

/// All keys of a node that match, step by step.
async fn scan(
    node: &Node,
    place: &str,
    pattern: &str,
    mut found: impl FnMut(&[u8]) -> bool,
) -> Result<(), EngineError> {
    let mut cursor = b"0".to_vec();
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_STEP);
        let answer = node.ask(&command, 0).await.map_err(|trouble| trouble.into_error(place))?;
        let Value::Array(parts) = answer else { return Err(not_understood(place)) };
        let Ok([Value::BulkString(next), Value::Array(keys)]) = <[Value; 2]>::try_from(parts) else {
            return Err(not_understood(place));
        };
        let keys = keys.iter().filter_map(|key| if let Value::BulkString(key) = key { Some(key) } else { None });
        let goes_on = keys.into_iter().all(|key| found(key));
        if next == b"0" || !goes_on {
            return Ok(());
        }
        cursor = next;
    }
}

/// Connects to all of them side by side: one that does not answer takes its time.
async fn connect(nodes: Vec<Arc<Node>>) -> Vec<(Arc<Node>, Result<(), Trouble>)> {
    let mut connecting = tokio::task::JoinSet::new();
    for node in nodes {
        connecting.spawn(async move {
            let connected = node.connect().await;
            (node, connected)
        });
    }
    connecting.join_all().await
}

fn not_understood(place: &str) -> EngineError {
    EngineError::Unreachable(format!("{place} does not answer as a Redis does"))
}

impl Engine for Redis {
    fn scheme(&self) -> &'static str {
        "redis"
    }

    fn place(&self) -> String {
        self.nodes.place()
    }

    fn open<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<Arc<dyn Ledger>, EngineError>> {
        let shows = self.shared_space.as_ref() == Some(space);
        Box::pin(self.ledgers.ledger(space, move || RedisStore::new(self.nodes.clone(), space, shows)))
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<Space>, EngineError>> {
        Box::pin(self.list())
    }

    fn remove<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(self.forget(space))
    }
}

/// Reads bytes as everything that a Redis sends: as an answer, and as a notice.
#[cfg(feature = "fuzzing")]
pub fn read_anything(bytes: &[u8]) {
    if let Ok(value) = redis::parse_redis_value(bytes) {
        let _ = reply::listening(&value);
        let _ = reply::read_outside(value.clone());
        let _ = reply::read(value);
    }
    let _ = notices::read_note(bytes);
}
