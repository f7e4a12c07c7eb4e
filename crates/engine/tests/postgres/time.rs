//! The time of a ledger runs on whatever happens to the wall clock of PostgreSQL.

use std::time::Duration;

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_postgres_fixture::{Options, Postgres, slow_way};

use crate::ledgers::{
    a_distant_lease_begins_when_it_was_asked_for, small_steps_gain_nothing, time_runs_on, writers_agree_on_the_time,
};
use crate::open;

/// Moves what the functions take for the wall clock, as setting it would.
fn clock(server: &Postgres) -> impl FnMut(i64) {
    let mut ahead = 0;
    move |micros| {
        ahead += micros;
        server.sql(&format!(
            "create or replace function lockkeeper_wall() returns bigint language sql volatile as $$ select \
             (extract(epoch from clock_timestamp()) * 1000000)::bigint + {ahead}::bigint $$"
        ));
    }
}

async fn scribe(server: &Postgres) -> Scribe {
    Scribe::at_origin(&open(&server.url()).await, "a").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_ends_no_lock_early_or_late() {
    let server = Postgres::start_with(&Options::quick());
    time_runs_on(scribe(&server).await, async || scribe(&server).await, clock(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_clock_that_is_set_by_little_again_and_again_ends_no_lock_early() {
    let server = Postgres::start_with(&Options::quick());
    small_steps_gain_nothing(scribe(&server).await, clock(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_different_memories_agree() {
    let server = Postgres::start_with(&Options::quick());
    writers_agree_on_the_time(scribe(&server).await, scribe(&server).await, clock(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_lease_of_a_distant_server_does_not_begin_before_it_was_asked_for() {
    let server = Postgres::start_with(&Options::quick());
    let port = slow_way(server.port(), Duration::from_millis(40));
    let far = Scribe::at_origin(&open(&server.url_by(port)).await, "a").await;
    a_distant_lease_begins_when_it_was_asked_for(scribe(&server).await, far).await;
}
