//! The time of a ledger runs on whatever happens to the wall clock of Redis.

use std::time::Duration;

use lockkeeper_engine::conformance::Scribe;

use crate::open;
use crate::server::RedisServer;

const HEAD: &str = "lockkeeper:{a}:head";
const SECOND: u64 = 1_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_ends_no_lock_early_or_late() {
    let server = RedisServer::start();
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let mut last = scribe.append(b"first").await.stamp.time.0;
    for jump in [3700, -3700, -3700, 86_400] {
        // Moves what a script takes for the wall clock, as setting it would.
        server.ask(&["HINCRBY", HEAD, "offset", &(jump * 1_000_000_i64).to_string()]);
        scribe.ledger.confirm(scribe.at).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = scribe.ledger.now().time.0;
        let stamp = scribe.append(b"after the jump").await.stamp.time.0;
        assert!(stamp >= now && now >= last + SECOND / 10, "time runs on: {last} {now} {stamp}");
        assert!(stamp < last + 5 * SECOND, "and not ahead: {last} {stamp}");
        last = stamp;
        // Whoever remembers nothing goes on from there as well.
        let mut fresh = Scribe::at_origin(&open(&server.url()).await, "a").await;
        fresh.at = scribe.at;
        let stamp = fresh.append(b"of another").await.stamp.time.0;
        assert!(stamp >= last && stamp < last + 5 * SECOND, "{last} {stamp}");
        (scribe.at, last) = (fresh.at, stamp);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_correction_outlives_those_who_made_it() {
    let server = RedisServer::start();
    Scribe::at_origin(&open(&server.url()).await, "a").await.append(b"first").await;
    // The ledger is an hour ahead of the wall clock, or behind it: nobody is left who remembers why.
    for jump in [3600, -7200] {
        server.ask(&["HINCRBY", HEAD, "offset", &(jump * 1_000_000_i64).to_string()]);
        server.ask(&["HSET", HEAD, "time", "0"]);
        let mut last = 0;
        for _ in 0..3 {
            let mut fresh = Scribe::at_origin(&open(&server.url()).await, "a").await;
            crate::catch_up(&mut fresh).await;
            let stamp = fresh.append(b"of one who remembers nothing").await.stamp.time.0;
            assert!(last == 0 || (last + SECOND / 10..last + 5 * SECOND).contains(&stamp), "{last} {stamp}");
            last = stamp;
            drop(fresh);
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_different_memories_agree() {
    let server = RedisServer::start();
    let mut one = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut two = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut last = 0;
    for round in 0..50_i64 {
        if round % 10 == 5 {
            server.ask(&["HINCRBY", HEAD, "offset", &((round - 25) * 100_000_000).to_string()]);
        }
        for scribe in [&mut one, &mut two] {
            crate::catch_up(scribe).await;
            let now = scribe.ledger.now().time.0;
            let stamp = scribe.append(b"x").await.stamp.time.0;
            assert!(stamp >= last && stamp >= now, "{last} {now} {stamp}");
            assert!(last == 0 || stamp < last + 5 * SECOND, "{last} {stamp}");
            last = stamp;
        }
    }
}
