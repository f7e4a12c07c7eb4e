//! Ordered ledgers: read after a position, append if it is still the last one, tell when it moved.
//!
//! An engine stores opaque batches in one order and stamps the time. It must not know what a lock is.

mod clock;
pub mod conformance;
mod crash;
mod durability;
mod embedded;
mod ledger;
mod memory;
mod position;
mod postgres;
mod redis;
mod remote;
mod time_source;
mod tls;
mod url;

#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    //! What reads the answers of servers, which may lie.
    pub use crate::postgres::read_anything as read_from_postgres;
    pub use crate::redis::read_anything as read_from_redis;
}

pub use self::redis::Redis;
pub use durability::Durability;
pub use embedded::Embedded;
pub use ledger::{
    Append, Appended, Base, Batch, BatchId, Confirm, Delta, Durable, Engine, EngineError, Ledger, Outside, Posted,
    Posting, Record, Shown, Strength,
};
pub use memory::Memory;
pub use position::Position;
pub use postgres::Postgres;
pub use time_source::{FakeTime, Machine, Reading, TimeSource};
pub use url::{Options, open, place_of};

/// A boxed future, so that engines can stand behind `dyn`.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The largest payload of one batch.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why a payload of this size was not taken.
pub(crate) fn too_large(bytes: usize) -> EngineError {
    EngineError::Invalid(format!("a batch of {bytes} bytes is over the limit of {PAYLOAD_BYTES_MAX}"))
}
