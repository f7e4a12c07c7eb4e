//! What can go wrong with an advisory lock, and what that means for whoever asked.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::key::LockKey;

/// Why there is no lock, or no longer. None of them shows a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdvisoryLockError {
    /// Somebody else had it all the time. Nothing is held.
    #[error("{key} is held by another session and was not free within {} ms", waited.as_millis())]
    Timeout { key: LockKey, waited: Duration },
    /// This task holds it already, and keeps it. Nothing was asked of the database.
    #[error("{key} is held already by this very task: to wait for it would be to wait for ever")]
    Reentered { key: LockKey },
    /// It was held, and was gone before it was given back: somebody else may have had it since.
    #[error("the lock {key} was lost: {why}")]
    Lost { key: LockKey, why: String },
    /// All connections were in use for so long. Nothing is held.
    #[error(
        "none of {max} connections was free within {} ms; ask for fewer locks at a time, or for a larger pool", waited.as_millis()
    )]
    PoolTimeout { max: usize, waited: Duration },
    /// Locks of a session mean nothing behind it. Nothing is held.
    #[error(
        "a connection pooler in transaction mode stands before the database, and a lock would belong to a session that others \
         use too ({0}); connect to PostgreSQL itself, or to a pool with pool_mode = session"
    )]
    Pooler(String),
    /// The database can't be reached, went away, or does not answer. Nothing is held: the connection was closed.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The database answers, and says no. Nothing is held.
    #[error("the database refuses: {0}")]
    Refused(String),
    /// The question itself is wrong. Nothing was asked of the database.
    #[error("{0}")]
    Invalid(String),
}

impl AdvisoryLockError {
    /// What a failed statement or connection means, where it is not about one lock.
    pub(crate) fn of(error: &tokio_postgres::Error) -> AdvisoryLockError {
        let text = described(error);
        match error.code() {
            Some(code) if is_unavailable(code) => AdvisoryLockError::Unavailable(text),
            Some(_) => AdvisoryLockError::Refused(text),
            None => AdvisoryLockError::Unavailable(text),
        }
    }

    /// What a failed attempt to take one lock means.
    pub(crate) fn of_lock(error: &tokio_postgres::Error, key: LockKey, waited: Duration) -> AdvisoryLockError {
        match error.code() {
            Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => AdvisoryLockError::Timeout { key, waited },
            _ => AdvisoryLockError::of(error),
        }
    }
}

/// The classes of errors that pass: connections, resources, an operator's intervention.
fn is_unavailable(code: &SqlState) -> bool {
    ["08", "53", "57", "58"].iter().any(|class| code.code().starts_with(class))
}

/// An error with its cause, in one line. The client library never writes a password into one.
pub(crate) fn described(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return db.message().lines().next().unwrap_or_default().to_owned();
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
