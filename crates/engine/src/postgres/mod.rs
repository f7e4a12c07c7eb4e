//! Ledgers in a PostgreSQL that several services share: a table whose primary key is the compare.
//!
//! What lies where, and what is promised, is described in docs/engines.md. No rule about locks is in any function.

mod address;
mod dial;
mod lines;
mod notices;
mod rows;
mod schema;
mod store;
mod trouble;

use std::sync::Arc;

use lockkeeper_core::space::Space;

use self::address::Address;
use self::dial::Dial;
use self::lines::Lines;
use self::notices::Notices;
use self::store::PostgresStore;
use crate::remote::{self, Open, Trouble};
use crate::time_source::{Machine, TimeSource};
use crate::{BoxFuture, Engine, EngineError, Ledger, Position, Record};

/// How many spaces are listed.
const SPACES_LISTED_MAX: i64 = 100_000;

/// As much time as it would be given for so many bytes: a space may have many records.
const REMOVED_BYTES: usize = 30 << 20;

/// The engine behind `postgres://`.
#[derive(Debug)]
pub struct Postgres {
    lines: Arc<Lines>,
    notices: Arc<Notices>,
    ledgers: Open<PostgresStore>,
}

impl Postgres {
    /// Connects, refuses a PostgreSQL that can't keep locks, and makes the tables if there are none.
    pub async fn open(url: &str) -> Result<Postgres, EngineError> {
        Postgres::with_time(url, Arc::new(Machine::new())).await
    }

    /// An engine whose own clock a test moves; that of the PostgreSQL runs on.
    pub async fn with_time(url: &str, source: Arc<dyn TimeSource>) -> Result<Postgres, EngineError> {
        let dial = Arc::new(Dial::new(Address::parse(url)?)?);
        let lines = Arc::new(Lines::new(dial.clone()));
        lines.ask(0, async |_| Ok(())).await.map_err(Trouble::into_error)?;
        let notices = Arc::new(Notices::start(dial));
        Ok(Postgres { lines, notices, ledgers: Open::new(source) })
    }

    /// What [`Engine::place`] would say. Opens nothing.
    pub(crate) fn place_of(url: &str) -> Result<String, EngineError> {
        Ok(Address::parse(url)?.to_string())
    }

    /// The place after a record: PostgreSQL computes it, and everybody who reads checks it.
    #[must_use]
    pub fn following(before: Position, record: &Record) -> Position {
        store::following(before, record.batch, record.stamp, &remote::hash(&record.payload))
    }

    async fn list(&self) -> Result<Vec<Space>, EngineError> {
        let sql = "select space from lockkeeper_ledgers order by space limit $1";
        let rows = self.lines.ask(0, async |line| line.client.query(sql, &[&SPACES_LISTED_MAX]).await).await;
        let rows = rows.map_err(Trouble::into_error)?;
        Ok(rows.iter().filter_map(|row| Space::parse(row.get(0)).ok()).collect())
    }
}

/// All rows of a space, the ledger's own last.
const REMOVE: &str = "with ledger as (select id from lockkeeper_ledgers where space = $1),
     records as (delete from lockkeeper_records where ledger in (select id from ledger)),
     snapshots as (delete from lockkeeper_snapshots where ledger in (select id from ledger)),
     documents as (delete from lockkeeper_documents where ledger in (select id from ledger))
     delete from lockkeeper_ledgers where space = $1";

impl Engine for Postgres {
    fn scheme(&self) -> &'static str {
        "postgres"
    }

    fn place(&self) -> String {
        self.lines.dial.address.to_string()
    }

    fn open<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<Arc<dyn Ledger>, EngineError>> {
        let store = move || PostgresStore::new(self.lines.clone(), self.notices.clone(), space);
        Box::pin(self.ledgers.ledger(space, store))
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<Space>, EngineError>> {
        Box::pin(self.list())
    }

    fn remove<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(async {
            let removed = async |line: &dial::Line| line.client.execute(REMOVE, &[&space.as_str()]).await;
            self.lines.ask(REMOVED_BYTES, removed).await.map(drop).map_err(Trouble::into_error)
        })
    }
}

/// Reads bytes as what others tell through a PostgreSQL.
#[cfg(feature = "fuzzing")]
pub fn read_anything(bytes: &[u8]) {
    if let Ok(note) = std::str::from_utf8(bytes) {
        let _ = notices::read_note(note);
    }
}
