//! Several keepers on one ledger with many clients, in one thread and in simulated time, under every bad day that can
//! be drawn from a seed. An auditor that knows only what clients were told checks the promises.
//!
//! A seed replays exactly: all chance comes from one source, all time is simulated, and nothing depends on the order
//! of a hash table.

mod air;
mod auditor;
mod client;
mod crowd;
mod ends;
mod link;
mod server;
mod weather;
mod wishes;
mod world;

pub use auditor::Broken;
pub use crowd::{Fared, crowd};
pub use weather::{Kind, Weather};
pub use world::{Report, run};
