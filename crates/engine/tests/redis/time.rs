//! The time of a ledger runs on whatever happens to the wall clock of Redis.

use std::time::Duration;

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_postgres_fixture::slow_way;

use crate::ledgers::{
    a_distant_lease_begins_when_it_was_asked_for, small_steps_gain_nothing, time_runs_on, writers_agree_on_the_time,
};
use crate::open;
use crate::server::RedisServer;

const HEAD: &str = "lockkeeper:{a}:head";
const SECOND: u64 = 1_000_000;

/// Moves what a script takes for the wall clock, as setting it would.
fn clock(server: &RedisServer) -> impl FnMut(i64) {
    |micros| {
        server.ask(&["HINCRBY", HEAD, "offset", &micros.to_string()]);
    }
}

async fn scribe(server: &RedisServer) -> Scribe {
    Scribe::at_origin(&open(&server.url()).await, "a").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_ends_no_lock_early_or_late() {
    let server = RedisServer::start();
    time_runs_on(scribe(&server).await, async || scribe(&server).await, clock(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_clock_that_is_set_by_little_again_and_again_ends_no_lock_early() {
    let server = RedisServer::start();
    small_steps_gain_nothing(scribe(&server).await, clock(&server)).await;
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
    writers_agree_on_the_time(scribe(&server).await, scribe(&server).await, clock(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_lease_of_a_distant_server_does_not_begin_before_it_was_asked_for() {
    let server = RedisServer::start();
    let port = slow_way(server.port, Duration::from_millis(40));
    let far = Scribe::at_origin(&open(&format!("redis://127.0.0.1:{port}")).await, "a").await;
    a_distant_lease_begins_when_it_was_asked_for(scribe(&server).await, far).await;
}
