//! The Redis engine on a Redis of its own: the laws, and what happens when Redis does not behave.

#[path = "../certificates/mod.rs"]
mod certificates;
mod cluster;
mod conformance;
mod damage;
mod faults;
mod refusals;
mod sentinel;
mod server;
mod shared;
mod time;
mod tls;

use std::sync::Arc;

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Base, Engine, EngineError, Position, Redis};

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

/// Brings a scribe to the end, wherever that is.
async fn catch_up(scribe: &mut Scribe) {
    let delta = scribe.read(scribe.at).await;
    if let Base::Rewritten { position, .. } = delta.base {
        scribe.at = position;
    }
    scribe.at = delta.records.last().map_or(scribe.at, |record| record.position);
}

/// Appends whatever it takes, as a keeper does: what may have been recorded is looked for.
async fn insist(scribe: &mut Scribe, payload: &[u8]) {
    for _ in 0..100 {
        match scribe.try_append(payload).await {
            Append::Appended(_) => return,
            Append::Moved(_) => panic!("nobody else writes"),
            Append::Full => panic!("there is room"),
            Append::Taken(_) => panic!("nothing is shown"),
            Append::Unknown(_) | Append::Down(_) => {}
        }
        if let Ok(delta) = scribe.ledger.read(scribe.at).await
            && let Some(record) = delta.records.first()
        {
            assert_eq!((delta.base, record.payload.as_slice()), (Base::Asked, payload));
            scribe.at = record.position;
            scribe.written.push(record.clone());
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it was not recorded");
}

/// Everything that the ledger of a scribe holds.
async fn records(scribe: &Scribe) -> Vec<lockkeeper_engine::Record> {
    let delta = scribe.read(Position::ORIGIN).await;
    assert_eq!(delta.base, Base::Asked);
    delta.records
}
