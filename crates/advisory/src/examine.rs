//! Looks at a new connection before it may hold locks: is the session behind it one's own, and one of a server that others use too?
//!
//! A session is marked when it is opened, by an option of its start. A server that is connected to directly has the mark. If
//! it is missing, a pooler stands in between, and a second connection finds out whether both are given the same session. A
//! pooler that passes even the options on is found out later: each statement of a session names the process that it is meant for.

use std::fmt::Write as _;

use tokio::time::timeout;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::address::Address;
use crate::error::AdvisoryLockError;
use crate::limits::{
    PROBE_TIME_MAX, PROBES, SERVER_CHECK_INTERVAL_MS, SERVER_KEEPALIVE_COUNT, SERVER_KEEPALIVE_IDLE_S,
    SERVER_KEEPALIVE_INTERVAL_S, SERVER_USER_TIMEOUT_MS, TIMEOUT_DEFAULT,
};
use crate::pools::Opened;
use crate::session::Wire;

const MARK: &str = "lockkeeper.session";

/// A connection to a session of one's own, set up for locks, and the process that serves it.
pub(crate) async fn connect(address: &Address, opened: Opened) -> Result<(Wire, i32), AdvisoryLockError> {
    let mark = format!("{:016x}", draw());
    let (connected, direct) = match address.connect(Some(&format!("-c {MARK}={mark}"))).await {
        Ok(connected) => (connected, true),
        Err(error) if refuses_options(&error) => {
            let plain = address.connect(None).await;
            (plain.map_err(|error| AdvisoryLockError::of(&error))?, false)
        }
        Err(error) => return Err(AdvisoryLockError::of(&error)),
    };
    let wire = Wire::drive(connected, Some(opened));
    let seen = ask(&wire.client).await?;
    if !direct || seen.mark != mark {
        tracing::debug!("a pooler stands before the database");
        refuse_shared_sessions(address, &wire.client, &mark).await?;
    }
    if seen.standby {
        let why = "it is a standby, whose locks the primary does not know; connect to the primary";
        return Err(AdvisoryLockError::Refused(why.to_owned()));
    }
    set_up(&wire.client, seen.version).await?;
    Ok((wire, seen.pid))
}

fn draw() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// PgBouncer takes no options, unless it is told to ignore them.
fn refuses_options(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| error.message().contains("startup parameter"))
}

struct Seen {
    mark: String,
    version: u32,
    standby: bool,
    pid: i32,
}

/// In the simple way, which every pooler understands.
async fn ask(client: &Client) -> Result<Seen, AdvisoryLockError> {
    let question = format!(
        "SELECT pg_catalog.current_setting('{MARK}', true), pg_catalog.current_setting('server_version_num'), \
         pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid()"
    );
    let answer = client.simple_query(&question).await.map_err(|error| AdvisoryLockError::of(&error))?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let column = |at: usize| row.and_then(|row| row.get(at)).unwrap_or_default().to_owned();
    let number = |at| column(at).parse::<i64>().unwrap_or_default();
    Ok(Seen { mark: column(0), version: number(1) as u32, standby: column(2) == "t", pid: number(3) as i32 })
}

/// Whether two connections at a time can be given the same session, or one connection two. What can't be told is refused.
async fn refuse_shared_sessions(address: &Address, own: &Client, mark: &str) -> Result<(), AdvisoryLockError> {
    let shared = |how: &str| Err(AdvisoryLockError::Pooler(how.to_owned()));
    let second = address.connect(None).await.map_err(|error| AdvisoryLockError::of(&error))?;
    let second = Wire::drive(second, None);
    for _ in 0..PROBES {
        let marked = say(own, &format!("SET {MARK} = '{mark}'")).await;
        let Some(first) = answered(own).await.filter(|_| marked) else {
            return shared("it keeps a session waiting for another one");
        };
        if first.mark != mark {
            return shared("what was set was not there in the next statement");
        }
        let begun = say(&second.client, "BEGIN").await;
        let Some(other) = answered(&second.client).await.filter(|_| begun) else {
            return shared("a second session was not to be had, so nobody can tell");
        };
        if other.mark == mark || other.pid == first.pid {
            return shared("two connections were given the same session");
        }
        let again = answered(own).await;
        let over = say(&second.client, "ROLLBACK").await;
        match again.filter(|_| over) {
            Some(again) if again.mark == mark && again.pid == first.pid => {}
            _ => return shared("one connection was given two sessions"),
        }
    }
    second.close(address).await;
    Ok(())
}

async fn say(client: &Client, statement: &str) -> bool {
    timeout(PROBE_TIME_MAX, client.batch_execute(statement)).await.is_ok_and(|said| said.is_ok())
}

async fn answered(client: &Client) -> Option<Seen> {
    timeout(PROBE_TIME_MAX, ask(client)).await.ok()?.ok()
}

/// What a role or a database may have set for others must not end a wait or a session that holds a lock; and a client whose
/// host is gone must not hold one for ever.
async fn set_up(client: &Client, version: u32) -> Result<(), AdvisoryLockError> {
    let mut settings = format!(
        "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
         SET lock_timeout = '{}ms'; \
         SET tcp_keepalives_idle = {SERVER_KEEPALIVE_IDLE_S}; SET tcp_keepalives_interval = {SERVER_KEEPALIVE_INTERVAL_S}; \
         SET tcp_keepalives_count = {SERVER_KEEPALIVE_COUNT}",
        TIMEOUT_DEFAULT.as_millis()
    );
    if version >= 120_000 {
        let _ = write!(settings, "; SET tcp_user_timeout = {SERVER_USER_TIMEOUT_MS}");
    }
    if version >= 140_000 {
        settings.push_str("; SET idle_session_timeout = 0");
    }
    if version >= 170_000 {
        settings.push_str("; SET transaction_timeout = 0");
    }
    // Known since 14, but not on every system: a server that can't do it holds the lock until its keepalives end.
    let check = format!("SET client_connection_check_interval = {SERVER_CHECK_INTERVAL_MS}");
    let (set, checked) = tokio::join!(client.batch_execute(&settings), async {
        if version >= 140_000 { client.batch_execute(&check).await } else { Ok(()) }
    });
    if let Err(error) = checked {
        tracing::debug!(%error, "the server can't look for its client while it waits");
    }
    set.map_err(|error| AdvisoryLockError::of(&error))
}
