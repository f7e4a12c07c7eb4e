//! One connection that holds locks: its statements, its end, and how it is closed so that nothing stays behind.
//!
//! Nothing but locking and unlocking is ever said on it, each statement in a transaction of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::address::{Address, Connected};
use crate::error::{AdvisoryLockError, described};
use crate::examine;
use crate::key::LockKey;
use crate::limits::{CLOSE_TIME_MAX, TIMEOUT_DEFAULT};
use crate::pools::Opened;

/// Why a connection ended, once it has.
pub(crate) type Ended = watch::Receiver<Option<Arc<str>>>;

/// A connection and the task that drives it.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) client: Client,
    ended: Ended,
    driver: Driver,
    /// A statement was sent and its answer has not come.
    pub(crate) busy: bool,
}

/// The task that reads and writes. Whatever becomes of the rest, it does not go on alone.
#[derive(Debug)]
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Wire {
    /// Drives a connection until it ends. `opened` is counted for exactly as long.
    pub(crate) fn drive((client, connection): Connected, opened: Option<Opened>) -> Wire {
        let (tell, ended) = watch::channel(None);
        let driver = tokio::spawn(async move {
            let why: Arc<str> = match connection.await {
                Ok(()) => "the connection was closed".into(),
                Err(error) => described(&error).into(),
            };
            drop(opened);
            tell.send_replace(Some(why));
        });
        Wire { client, ended, driver: Driver(driver.abort_handle()), busy: false }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.ended.borrow().is_some()
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.clone()
    }

    /// Closes the connection: cancels what may still run there, says goodbye, and cuts it if nobody listens.
    pub(crate) async fn close(self, address: &Address) {
        let Wire { client, mut ended, driver, busy } = self;
        let cancel = client.cancel_token();
        drop(client);
        if busy && !driver.0.is_finished() {
            // Otherwise a backend that waits for a lock would do so until its timeout, and might yet get it.
            let _ = tokio::time::timeout(CLOSE_TIME_MAX, cancel.cancel_query(address.tls())).await;
        }
        let _ = tokio::time::timeout(CLOSE_TIME_MAX, why_ended(&mut ended)).await;
        drop(driver);
    }
}

/// Waits for the end of a connection, and says why it came.
pub(crate) async fn why_ended(ended: &mut Ended) -> Arc<str> {
    match ended.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_else(|| "the connection was closed".into()),
        Err(_) => "the connection was cut".into(),
    }
}

/// A connection that is fit to hold locks.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) wire: Wire,
    pub(crate) pid: i32,
    lock: Statement,
    try_lock: Statement,
    unlock: Statement,
    set_timeout: Statement,
    /// What the server has been told about waiting.
    timeout: Duration,
}

impl Session {
    /// Connects, makes sure that the session is one's own, and prepares all that will be said.
    pub(crate) async fn open(address: &Address, opened: Opened) -> Result<Session, AdvisoryLockError> {
        let (wire, pid) = examine::connect(address, opened).await?;
        // In any other session it does nothing, and answers no row: a pooler may have passed for the server so far.
        let only_here = |function: &str| {
            format!("SELECT pg_catalog.{function}($1::int, $2::int) WHERE pg_catalog.pg_backend_pid() = $3::int")
        };
        let [lock, try_lock, unlock] =
            ["pg_advisory_lock", "pg_try_advisory_lock", "pg_advisory_unlock"].map(only_here);
        let client = &wire.client;
        let prepared = tokio::try_join!(
            client.prepare(&lock),
            client.prepare(&try_lock),
            client.prepare(&unlock),
            client.prepare("SELECT pg_catalog.set_config('lock_timeout', $1::text, false)"),
        );
        let (lock, try_lock, unlock, set_timeout) = prepared.map_err(|error| AdvisoryLockError::of(&error))?;
        Ok(Session { wire, pid, lock, try_lock, unlock, set_timeout, timeout: TIMEOUT_DEFAULT })
    }

    /// Waits for a lock. After an error the session must be closed: the lock may be held all the same.
    pub(crate) async fn lock(&mut self, key: LockKey, timeout: Duration) -> Result<Told, tokio_postgres::Error> {
        self.wire.busy = true;
        let client = &self.wire.client;
        let (namespace, id) = (key.namespace.number(), key.id.number());
        let parameters: [&(dyn ToSql + Sync); 3] = [&namespace, &id, &self.pid];
        let answer = if timeout == self.timeout {
            client.execute(&self.lock, &parameters).await
        } else {
            // One behind the other on the same way: a new timeout costs no round trip of its own. Zero would be for ever.
            let text = format!("{}ms", timeout.as_millis().max(1));
            let set_parameters: [&(dyn ToSql + Sync); 1] = [&text];
            let set = client.execute(&self.set_timeout, &set_parameters);
            let (set, locked) = tokio::join!(biased; set, client.execute(&self.lock, &parameters));
            self.timeout = timeout;
            set.and(locked)
        };
        self.wire.busy = false;
        answer.map(|rows| if rows == 1 { Told::Yes } else { Told::Elsewhere })
    }

    /// Takes a lock if it is free. After an error, or when told elsewhere, the session must be closed.
    pub(crate) async fn try_lock(&mut self, key: LockKey) -> Result<Told, tokio_postgres::Error> {
        told(&mut self.wire, &self.try_lock, key, self.pid).await
    }

    /// Gives a lock back; says whether it was held. After anything but a yes the session must be closed.
    pub(crate) async fn unlock(&mut self, key: LockKey) -> Result<Told, tokio_postgres::Error> {
        told(&mut self.wire, &self.unlock, key, self.pid).await
    }
}

/// What the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Yes,
    No,
    /// By another session, in which nothing was done: a pooler stands in between.
    Elsewhere,
}

async fn told(wire: &mut Wire, statement: &Statement, key: LockKey, pid: i32) -> Result<Told, tokio_postgres::Error> {
    wire.busy = true;
    let answer = wire.client.query_opt(statement, &[&key.namespace.number(), &key.id.number(), &pid]).await;
    wire.busy = false;
    let Some(row) = answer? else { return Ok(Told::Elsewhere) };
    Ok(if row.try_get(0)? { Told::Yes } else { Told::No })
}

/// How much of a wait is left.
pub(crate) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
