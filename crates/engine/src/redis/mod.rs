//! Ledgers in a Redis that several services share: one script compares, appends, stamps and hands back what was missed.
//!
//! What lies where, and what is promised, is described in docs/engines.md. No rule about locks is in any script.

mod address;
mod chain;
mod connection;
mod dial;
mod examine;
mod keys;
mod ledger;
mod news;
mod node;
mod nodes;
mod notices;
mod pace;
mod patience;
mod reading;
mod reply;
mod script;
mod snapshots;
mod standing;
mod tls;
mod trouble;
mod wire;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use lockkeeper_core::space::Space;
use redis::Value;
use tokio::sync::Mutex;

use self::address::Address;
use self::dial::Dial;
use self::ledger::RedisLedger;
use self::node::Node;
use self::nodes::Nodes;
use crate::time_source::{Machine, TimeSource};
use crate::{BoxFuture, Engine, EngineError, Ledger, Position, Record};

/// How many ledgers one engine opens: each is looked at now and then.
const LEDGERS_OPEN_MAX: usize = 1024;
/// How many spaces are listed.
const SPACES_LISTED_MAX: usize = 100_000;
/// How many keys are looked at in one step while spaces are listed.
const SCAN_STEP: u32 = 1000;

/// The engine behind `redis://` and its relatives.
#[derive(Debug)]
pub struct Redis {
    nodes: Arc<Nodes>,
    source: Arc<dyn TimeSource>,
    shared_space: Option<Space>,
    ledgers: Mutex<HashMap<Space, Weak<RedisLedger>>>,
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
        for node in nodes.all().await.map_err(|trouble| trouble.into_error(&place))? {
            node.connection().await.map_err(|trouble| trouble.into_error(&place))?;
        }
        Ok(Redis { nodes: Arc::new(nodes), source, shared_space: None, ledgers: Mutex::default() })
    }

    /// Shows the locked files of one space to clients that know nothing of Lockkeeper, and respects theirs.
    pub fn sharing(mut self, space: Option<Space>) -> Result<Redis, EngineError> {
        if space.is_some() && self.nodes.are_many() {
            let why =
                "files are shared with other clients on one Redis, not on a cluster: `redis.shared_space` must go";
            return Err(EngineError::Invalid(why.to_owned()));
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
        chain::following(before, record.batch, record.stamp, &chain::hash(&record.payload))
    }

    async fn open_ledger(&self, space: &Space) -> Result<Arc<RedisLedger>, EngineError> {
        // Held while one is opened: whoever comes meanwhile gets the same.
        let mut ledgers = self.ledgers.lock().await;
        if let Some(ledger) = ledgers.get(space).and_then(Weak::upgrade) {
            return Ok(ledger);
        }
        ledgers.retain(|_, ledger| ledger.strong_count() > 0);
        if ledgers.len() >= LEDGERS_OPEN_MAX {
            return Err(EngineError::Invalid(format!("{LEDGERS_OPEN_MAX} spaces are open, which is the limit")));
        }
        let shows = self.shared_space.as_ref() == Some(space);
        let ledger = Arc::new(RedisLedger::open(self.nodes.clone(), space, shows, self.source.clone()).await?);
        ledgers.insert(space.clone(), Arc::downgrade(&ledger));
        Ok(ledger)
    }

    async fn list(&self) -> Result<Vec<Space>, EngineError> {
        let place = self.nodes.place();
        let mut spaces = BTreeSet::new();
        for node in self.nodes.all().await.map_err(|trouble| trouble.into_error(&place))? {
            list_node(&node, &place, &mut spaces).await?;
        }
        Ok(spaces.into_iter().collect())
    }
}

/// Adds the spaces of one node.
async fn list_node(node: &Node, place: &str, spaces: &mut BTreeSet<Space>) -> Result<(), EngineError> {
    let mut cursor = b"0".to_vec();
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(keys::HEADS).arg("COUNT").arg(SCAN_STEP);
        let answer = node.ask(&command, 0).await.map_err(|trouble| trouble.into_error(place))?;
        let Value::Array(parts) = answer else { return Err(not_understood(place)) };
        let Ok([Value::BulkString(next), Value::Array(found)]) = <[Value; 2]>::try_from(parts) else {
            return Err(not_understood(place));
        };
        for key in found {
            if let Value::BulkString(key) = key {
                spaces.extend(keys::space_of(&key));
            }
        }
        if next == b"0" || spaces.len() >= SPACES_LISTED_MAX {
            return Ok(());
        }
        cursor = next;
    }
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
        Box::pin(async move { Ok(self.open_ledger(space).await? as Arc<dyn Ledger>) })
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<Space>, EngineError>> {
        Box::pin(self.list())
    }
}
