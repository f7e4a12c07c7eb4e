//! Every bound of this crate, with its unit and its reason.

use std::time::Duration;

/// How long a lock is waited for, unless somebody says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);
/// How long the form that skips waits for a place in the pool, before it skips.
pub(crate) const SKIP_WAIT_MAX: Duration = Duration::from_secs(1);
/// The longest wait for a lock.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Connections that are kept, and the most that the application has outside of locks.
pub const POOL_SIZE: usize = 15;
/// Connections beyond those, which are closed when they come back.
pub const POOL_OVERFLOW: usize = 10;

/// The server ends a wait by itself; this much later nobody believes any more that it will.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// Shorter than this, a wait for a connection does not shorten the wait for the lock: the server's timeout, which is set for a
/// connection and not for a question, can stay as it is.
pub(crate) const POOL_WAIT_IGNORED: Duration = Duration::from_millis(50);
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
pub(crate) const UNLOCK_TIME_MAX: Duration = Duration::from_secs(5);
/// How long each step of closing a connection may take: to cancel what runs, and to say goodbye.
pub(crate) const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
/// How long the cleaning of an application's connection may take before it is closed instead.
pub(crate) const CLEAN_TIME_MAX: Duration = Duration::from_secs(5);
/// How long one question to a suspected pooler may take.
pub(crate) const PROBE_TIME_MAX: Duration = Duration::from_secs(2);
pub(crate) const PROBES: usize = 4;

// A host that is gone must be noticed by the holder before the server gives its lock to somebody else: this side asks after 5 s of
// silence, once a second, five times; the server after 15 s, every 5 s, three times.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
pub(crate) const KEEPALIVE_RETRIES: u32 = 5;
pub(crate) const USER_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const SERVER_KEEPALIVE_IDLE_S: u32 = 15;
pub(crate) const SERVER_KEEPALIVE_INTERVAL_S: u32 = 5;
pub(crate) const SERVER_KEEPALIVE_COUNT: u32 = 3;
pub(crate) const SERVER_USER_TIMEOUT_MS: u32 = 30_000;
/// How often a server that waits for a lock looks whether its client is still there.
pub(crate) const SERVER_CHECK_INTERVAL_MS: u32 = 2_000;

/// The most locks that are listed; all are counted.
pub const ROWS_MAX: usize = 10_000;
/// How long a look at the locks may take.
pub(crate) const LOOK_TIME_MAX: Duration = Duration::from_secs(5);
/// How old the counts may be.
pub(crate) const COUNTS_AGE_MAX: Duration = Duration::from_secs(1);
/// How long a reader of the counts waits for newer ones.
pub(crate) const COUNTS_WAIT_MAX: Duration = Duration::from_millis(250);
/// Namespaces that are counted apart; the rest is counted together.
pub const NAMESPACES_SHOWN_MAX: usize = 64;
/// Names that a user may give, and their length in bytes.
pub(crate) const NAMES_MAX: usize = 1024;
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// The longest text that names a lock, in bytes.
pub(crate) const ID_BYTES_MAX: usize = 4096;
