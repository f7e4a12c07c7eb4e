//! The Redis engine on a Redis of its own: the laws, and what happens when Redis does not behave.

#[path = "../certificates/mod.rs"]
mod certificates;
mod cluster;
mod conformance;
mod damage;
mod faults;
#[path = "../ledgers/mod.rs"]
mod ledgers;
mod notices;
mod refusals;
mod sentinel;
mod server;
mod shared;
mod time;
mod tls;

use std::sync::Arc;

use lockkeeper_engine::{Engine, EngineError, Redis};

use self::ledgers::{catch_up, heard, insist, records, write_while};

/// A URL with a short time limit, for tests that wait until it is over.
fn hasty(url: &str) -> String {
    format!("{url}?timeout_ms=300")
}

async fn open(url: &str) -> Arc<dyn Engine> {
    Arc::new(Redis::open(url).await.unwrap_or_else(|error| panic!("{error}")))
}

async fn refusal(url: &str) -> EngineError {
    Redis::open(url).await.map(|engine| engine.place()).expect_err(url)
}
