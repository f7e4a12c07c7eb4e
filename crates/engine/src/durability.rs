//! When an embedded append counts as safe.

use std::fmt;
use std::str::FromStr;

use crate::EngineError;

/// What an embedded engine waits for before it calls a batch durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// For the disk: grants are strict and survive power loss.
    #[default]
    Always,
    /// For nothing: the disk follows within 10 ms, and grants are best effort.
    Interval,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Always => "always",
            Durability::Interval => "interval",
        })
    }
}

impl FromStr for Durability {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Durability, EngineError> {
        match text {
            "always" => Ok(Durability::Always),
            "interval" => Ok(Durability::Interval),
            other => Err(EngineError::Invalid(format!("durability is `always` or `interval`, not `{other}`"))),
        }
    }
}
