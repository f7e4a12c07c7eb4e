//! Sentinels say which Redis is the master, also after it was replaced.

use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{EngineError, Strength};

use crate::server::RedisServer;
use crate::{insist, open, records, refusal};

fn info(server: &RedisServer, section: &str, line: &str) -> bool {
    server.ask(&["INFO", section]).lines().any(|told| told.trim() == line)
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < give_up, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_goes_on_at_the_next_master() {
    let mut master = RedisServer::durable();
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", master.port)]);
    let sentinel = RedisServer::sentinel(master.port);
    until("a replica follows", || info(&replica, "replication", "master_link_status:up")).await;
    until("the Sentinel knows it", || sentinel.ask(&["SENTINEL", "REPLICAS", "mymaster"]).contains("slave")).await;
    // One Sentinel is away: the other one is asked.
    let url = format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{}/mymaster?timeout_ms=1000", sentinel.port);
    let engine = open(&url).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    assert_eq!(scribe.ledger.strength(), Strength::BestEffort, "what a master knew alone goes with it");
    scribe.append_numbers(1, 20).await;
    let kept = master.ask(&["XLEN", "lockkeeper:{a}:log"]);
    until("the replica has all", || replica.ask(&["XLEN", "lockkeeper:{a}:log"]) == kept).await;
    master.kill();
    until("it is the master", || info(&replica, "replication", "role:master")).await;
    insist(&mut scribe, b"at the next one").await;
    assert_eq!(records(&scribe).await, scribe.written);
    // And its changes are heard.
    let mut writer = Scribe::at_origin(&open(&replica.url()).await, "a").await;
    writer.at = scribe.at;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut moved = scribe.ledger.moved();
    let began = Instant::now();
    writer.append(b"news").await;
    moved.wait_for(|moved| *moved == 22).await.expect("lives");
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_master_that_no_sentinel_knows_is_refused() {
    let master = RedisServer::start();
    let sentinel = RedisServer::sentinel(master.port);
    let why = refusal(&format!("redis+sentinel://127.0.0.1:{}/other", sentinel.port)).await;
    assert!(matches!(&why, EngineError::Unreachable(why) if why.contains("knows no master named other")), "{why}");
    let why = refusal(&format!("redis+sentinel://127.0.0.1:{}/mymaster", master.port)).await;
    assert!(matches!(why, EngineError::Unreachable(_)), "{why}");
}
