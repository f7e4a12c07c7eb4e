//! PostgreSQL advisory locks as a service inside your program: session locks on connections of their own, apart from the
//! application's transactions.
//!
//! - A lock lives through every commit and rollback of the application, and is given back when its scope ends: by a value, an
//!   error, a panic, or because nobody waits for it any more.
//! - To ask again for what one holds is an error at once, never a deadlock ([`AdvisoryLockError::Reentered`]).
//! - Who loses a lock (a terminated session, a restarted server, a dead host) is told: [`Guard::lost`], and a scope ends with
//!   [`AdvisoryLockError::Lost`].
//! - A connection on which anything went wrong is closed, never handed on. So no lock that was granted in the very moment of its
//!   timeout (PostgreSQL bug 17686) can stay behind.
//! - A pooler in transaction mode, behind which session locks mean nothing, is detected and refused.
//!
//! ```no_run
//! use lockkeeper_advisory::{LockNamespace, Pools};
//!
//! # async fn handle() -> anyhow::Result<()> {
//! let pools = Pools::open(&std::env::var("DATABASE_URL")?)?;
//! let locks = pools.locks();
//!
//! // Waits for up to 15 s. Whatever the body answers comes back; the lock is gone by then.
//! let rows = locks
//!     .lock(LockNamespace::AGENT, 42, None)
//!     .scope(async || {
//!         let mut connection = pools.connection().await?;
//!         let transaction = connection.transaction().await?;
//!         let rows = transaction.execute("UPDATE agents SET seen = now() WHERE id = 42", &[]).await?;
//!         transaction.commit().await?;
//!         anyhow::Ok(rows)
//!     })
//!     .await?;
//!
//! // In the background: whoever is busy is left for the next round.
//! locks
//!     .lock_or_skip(LockNamespace::AGENT, 42)
//!     .scope(async |acquired| {
//!         if acquired { /* reap */ }
//!         anyhow::Ok(())
//!     })
//!     .await?;
//!
//! // As a guard, where a scope does not fit.
//! let guard = locks.lock(LockNamespace::AGENT, "nightly report", None).await?;
//! guard.release().await?;
//! # let _ = rows; Ok(())
//! # }
//! ```
//!
//! # Keys
//! A lock is named by two integers, as in `pg_advisory_lock(int, int)`: a [`LockNamespace`] and a [`LockId`]. A text becomes an id
//! by its SHA-256: the first four bytes, as a big-endian signed integer. In SQL:
//!
//! ```sql
//! SELECT ('x' || left(encode(sha256(convert_to('nightly report', 'UTF8')), 'hex'), 8))::bit(32)::int;
//! ```
//!
//! Two texts may share an id (one chance in four thousand million a pair); then they exclude each other, which is safe, and one inside
//! the other is refused as a re-entry.
//!
//! # Re-entry
//! A scope marks everything that runs inside it, across every `await`. A guard marks the task that took it. A task that is spawned
//! inside is on its own, unless it is declared to be inside: `tokio::spawn(within(future))`.
//!
//! # Connections
//! [`Pools`] has at most `pool + overflow` connections, 15 + 10 by default, for the application and its locks together, and gives
//! them out so that neither can starve the other: see there.

mod address;
mod checkout;
mod connection;
mod error;
mod examine;
mod guard;
mod held;
mod key;
mod limits;
mod locks;
mod monitor;
mod namespaces;
mod pools;
mod session;
mod tls;

pub use address::Address;
pub use connection::Connection;
pub use error::AdvisoryLockError;
pub use guard::Guard;
pub use held::within;
pub use key::{InvalidId, LockId, LockKey, LockNamespace};
pub use limits::{NAMESPACES_SHOWN_MAX, POOL_OVERFLOW, POOL_SIZE, ROWS_MAX, TIMEOUT_DEFAULT, TIMEOUT_MAX};
pub use locks::{Lock, LockOrSkip, Locks};
pub use monitor::{Counts, LockRow, Monitor, Report};
pub use namespaces::{InvalidName, Namespaces};
pub use pools::{Pools, Sizes};
