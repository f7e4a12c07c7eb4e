//! Who holds and who waits for advisory locks in a database, as `pg_locks` has it. Looks only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_postgres::Row;

use crate::address::Address;
use crate::error::AdvisoryLockError;
use crate::key::LockNamespace;
use crate::limits::{COUNTS_AGE_MAX, COUNTS_WAIT_MAX, LOOK_TIME_MAX, NAMESPACES_SHOWN_MAX, ROWS_MAX};
use crate::namespaces::Namespaces;
use crate::session::Wire;

/// One lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockRow {
    /// The server process of the session.
    pub pid: i32,
    pub application_name: Option<String>,
    /// `active`, `idle` and so on; nothing if another user's sessions may not be looked at.
    pub state: Option<String>,
    /// When the session's last statement began.
    pub query_start: Option<String>,
    /// The name of the first integer, else the integer; nothing for a lock with one big integer.
    pub namespace: Option<String>,
    /// The second integer, or the one big integer.
    pub entity_id: i64,
    /// `two_integers` or `bigint`: which of the two kinds of advisory locks.
    pub form: String,
    pub mode: String,
    /// Held, not waited for.
    pub granted: bool,
    /// Since the lock was asked for, if the session has done nothing else since.
    pub duration_seconds: Option<f64>,
    /// The processes before which this one can't have it.
    pub waiting_for: Vec<i32>,
}

/// All locks of one database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub status: String,
    /// All, though not all may be listed.
    pub total: u64,
    pub locks: Vec<LockRow>,
}

/// How many locks are held and waited for in each namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whether the database answered.
    pub up: bool,
    /// Held and waiting, by the name of the namespace; `bigint` for locks with one integer, `other` for what is too many.
    pub by_namespace: BTreeMap<String, (u64, u64)>,
}

/// Looks at the locks of one database, over two connections that it keeps.
#[derive(Debug)]
pub struct Monitor {
    address: Address,
    names: Namespaces,
    listing: Mutex<Option<Wire>>,
    /// Apart from the listing: a list that takes long does not mean that the database is down.
    counting: Mutex<Option<Wire>>,
    counted: Mutex<Option<(Instant, Counts)>>,
    latest: std::sync::Mutex<Counts>,
}

const LOCKS: &str = "
    SELECT l.pid, a.application_name, a.state,
           to_char(a.query_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') AS query_start,
           l.classid::bigint AS class, l.objid::bigint AS object, l.objsubid, l.mode, l.granted,
           extract(epoch FROM clock_timestamp() -
               CASE WHEN l.granted AND a.state = 'idle' THEN a.state_change ELSE a.query_start END)::float8 AS duration,
           CASE WHEN l.granted THEN '{}'::int[] ELSE pg_blocking_pids(l.pid) END AS waiting_for,
           count(*) OVER () AS total
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ORDER BY l.objsubid DESC, l.classid, l.objid, l.granted DESC, a.query_start, l.pid
    LIMIT $1";

const COUNTS: &str = "
    SELECT CASE WHEN objsubid = 2 THEN classid::bigint END AS class,
           count(*) FILTER (WHERE granted) AS held, count(*) FILTER (WHERE NOT granted) AS waiting
    FROM pg_locks
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    GROUP BY 1 ORDER BY count(*) DESC, 1";

/// Nobody waits longer than this for a look, whatever the role has set.
const BOUND: &str = "SET statement_timeout = '4s'; SET default_transaction_read_only = on";

impl Monitor {
    /// Nothing is connected yet.
    pub fn new(address: Address, names: Namespaces) -> Monitor {
        Monitor {
            address: address.named("lockkeeper-monitor"),
            names,
            listing: Mutex::default(),
            counting: Mutex::default(),
            counted: Mutex::default(),
            latest: std::sync::Mutex::default(),
        }
    }

    /// All advisory locks of the database, at most 10,000 of them by row. Answers within 5 s.
    pub async fn locks(&self) -> Result<Report, AdvisoryLockError> {
        let rows = self.ask(&self.listing, LOCKS, Some(ROWS_MAX as i64)).await?;
        let total = rows.first().map_or(0, |row| u64::try_from(row.get::<_, i64>("total")).unwrap_or_default());
        let locks = rows.iter().map(|row| self.row(row)).collect();
        Ok(Report { status: "ok".to_owned(), total, locks })
    }

    fn row(&self, row: &Row) -> LockRow {
        let (class, object): (i64, i64) = (row.get("class"), row.get("object"));
        let two = row.get::<_, i16>("objsubid") == 2;
        LockRow {
            pid: row.get("pid"),
            application_name: row.get("application_name"),
            state: row.get("state"),
            query_start: row.get("query_start"),
            namespace: two.then(|| self.names.shown(LockNamespace::new(class as i32))),
            // The integers are kept without a sign there.
            entity_id: if two { i64::from(object as i32) } else { (class << 32) | object },
            form: if two { "two_integers" } else { "bigint" }.to_owned(),
            mode: row.get("mode"),
            granted: row.get("granted"),
            duration_seconds: row.get::<_, Option<f64>>("duration").map(|seconds| seconds.max(0.0)),
            waiting_for: row.get("waiting_for"),
        }
    }

    /// How many there are, not older than a second or so. Never waits longer than a quarter of a second: then it answers what was
    /// known last, and a database that is away is `up: false` with no counts.
    pub async fn counts(self: &Arc<Self>) -> Counts {
        let monitor = self.clone();
        // Goes on when nobody waits for it any more; the lock inside lets only one ask at a time.
        let asked = tokio::spawn(async move { monitor.count().await });
        match tokio::time::timeout(COUNTS_WAIT_MAX, asked).await {
            Ok(Ok(counts)) => counts,
            Ok(Err(_)) | Err(_) => self.latest.lock().map(|counts| counts.clone()).unwrap_or_default(),
        }
    }

    async fn count(&self) -> Counts {
        let Ok(mut counted) = self.counted.try_lock() else {
            // Somebody else asks right now, and so far nothing newer is known.
            drop(self.counted.lock().await);
            return self.latest.lock().map(|counts| counts.clone()).unwrap_or_default();
        };
        if let Some((when, counts)) = &*counted
            && when.elapsed() < COUNTS_AGE_MAX
        {
            return counts.clone();
        }
        let counts = match self.ask(&self.counting, COUNTS, None).await {
            Ok(rows) => self.summed(&rows),
            Err(_) => Counts::default(),
        };
        if let Ok(mut latest) = self.latest.lock() {
            *latest = counts.clone();
        }
        *counted = Some((Instant::now(), counts.clone()));
        counts
    }

    fn summed(&self, rows: &[Row]) -> Counts {
        let mut counts = Counts { up: true, by_namespace: BTreeMap::new() };
        for (at, row) in rows.iter().enumerate() {
            let name = match row.get::<_, Option<i64>>("class") {
                _ if at >= NAMESPACES_SHOWN_MAX => "other".to_owned(),
                Some(class) => self.names.shown(LockNamespace::new(class as i32)),
                None => "bigint".to_owned(),
            };
            let count = |column| u64::try_from(row.get::<_, i64>(column)).unwrap_or_default();
            let entry = counts.by_namespace.entry(name).or_default();
            *entry = (entry.0 + count("held"), entry.1 + count("waiting"));
        }
        counts
    }

    /// Asks over the connection that is kept, or over a new one, within the time.
    async fn ask(
        &self,
        wire: &Mutex<Option<Wire>>,
        question: &str,
        limit: Option<i64>,
    ) -> Result<Vec<Row>, AdvisoryLockError> {
        let asked = tokio::time::timeout(LOOK_TIME_MAX, self.ask_patiently(wire, question, limit)).await;
        asked.unwrap_or_else(|_| Err(AdvisoryLockError::Unavailable("it does not answer".to_owned())))
    }

    async fn ask_patiently(
        &self,
        wire: &Mutex<Option<Wire>>,
        question: &str,
        limit: Option<i64>,
    ) -> Result<Vec<Row>, AdvisoryLockError> {
        let mut kept = wire.lock().await;
        // Taken out while it is used: if nobody waits any more, it goes with the question.
        if let Some(wire) = kept.take().filter(|wire| !wire.is_closed()) {
            match query(&wire, question, limit).await {
                Ok(rows) => {
                    *kept = Some(wire);
                    return Ok(rows);
                }
                Err(error) if error.as_db_error().is_some_and(|db| !db.code().code().starts_with("57P")) => {
                    return Err(AdvisoryLockError::of(&error));
                }
                // It had died unnoticed; a new one is tried.
                Err(_) => {}
            }
        }
        let connected = self.address.connect(None).await.map_err(|error| AdvisoryLockError::of(&error))?;
        let wire = Wire::drive(connected, None);
        wire.client.batch_execute(BOUND).await.map_err(|error| AdvisoryLockError::of(&error))?;
        let rows = query(&wire, question, limit).await.map_err(|error| AdvisoryLockError::of(&error))?;
        *kept = Some(wire);
        Ok(rows)
    }
}

/// In one message without a name, which poolers let through.
async fn query(wire: &Wire, question: &str, limit: Option<i64>) -> Result<Vec<Row>, tokio_postgres::Error> {
    match &limit {
        Some(limit) => wire.client.query_typed(question, &[(limit, tokio_postgres::types::Type::INT8)]).await,
        None => wire.client.query_typed(question, &[]).await,
    }
}
