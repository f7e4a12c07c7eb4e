//! The one loop between the rules and an engine: decide a batch, append once, answer all.
//!
//! Knows no protocol: commands come in as values and answers go out as values.

pub mod audit;
mod beats;
mod contention;
pub mod desk;
pub mod json;
mod keeper;
pub mod metrics;
mod outside;
mod payload;
mod portion;
mod posting;
mod refusals;
mod running;
pub mod settings;
pub mod spans;
mod threshold;
mod told;
pub mod trace;
pub mod wall;

pub use keeper::{Failure, Keeper, Unheard};
pub use payload::PayloadError;
