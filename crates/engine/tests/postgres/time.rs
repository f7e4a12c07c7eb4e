//! The time of a ledger runs on whatever happens to the wall clock of PostgreSQL.

use std::time::Duration;

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_postgres_fixture::{Options, Postgres};

use crate::open;

const SECOND: u64 = 1_000_000;

/// Moves what the functions take for the wall clock, as setting it would.
fn set_clock(server: &Postgres, seconds: i64) {
    server.sql(&format!(
        "create or replace function lockkeeper_wall() returns bigint language sql volatile as $$ select \
         (extract(epoch from clock_timestamp()) * 1000000)::bigint + {seconds}::bigint * 1000000 $$"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_ends_no_lock_early_or_late() {
    let server = Postgres::start_with(&Options::quick());
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let mut last = scribe.append(b"first").await.stamp.time.0;
    for clock in [3700_i64, 0, -3700, 86_400] {
        set_clock(&server, clock);
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
        // Also when nothing but a snapshot is left of the past.
        fresh.ledger.compact(fresh.at, b"all".to_vec()).await.expect("compacts");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_different_memories_agree() {
    let server = Postgres::start_with(&Options::quick());
    let mut one = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut two = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut last = 0;
    for round in 0..50_i64 {
        if round % 10 == 5 {
            set_clock(&server, (round - 25) * 100);
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
