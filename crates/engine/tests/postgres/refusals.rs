//! A PostgreSQL that can't keep locks is refused at once, with the reason.

use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{EngineError, Strength};
use lockkeeper_postgres_fixture::{Options, PgBouncer, Postgres};

use crate::{hasty, open, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_is_refused_without_a_word_about_the_password() {
    let server = Postgres::start_with(&Options::quick());
    let right = server.url();
    let wrong = right.replace(server.password(), "wr0ng");
    for url in [wrong, server.url_of("nowhere")] {
        let why = refusal(&url).await;
        assert!(matches!(&why, EngineError::Invalid(_)), "{why}");
        let shown = format!("{why} {why:?}");
        assert!(!shown.contains("wr0ng") && !shown.contains(server.password()), "{shown}");
        assert!(shown.contains(&server.port().to_string()), "{shown}");
    }
    let engine = open(&right).await;
    let scribe = Scribe::at_origin(&engine, "a").await;
    let shown = format!("{engine:?} {:?} {}", scribe.ledger, engine.place());
    assert!(!shown.contains(server.password()), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_only_reads_is_refused() {
    let server = Postgres::start_with(&Options::quick().set("default_transaction_read_only", "on"));
    let why = refusal(&server.url()).await.to_string();
    assert!(why.contains("default_transaction_read_only"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_long_for_one_that_is_not_there() {
    let mut server = Postgres::start_with(&Options::quick());
    let url = hasty(&server.url());
    server.pause();
    let began = Instant::now();
    let why = refusal(&url).await;
    assert!(matches!(why, EngineError::Unreachable(_)), "{why}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.resume();
    server.kill();
    let why = refusal(&url).await;
    assert!(matches!(why, EngineError::Unreachable(_)), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_much_a_grant_is_worth_depends_on_the_disk() {
    let quick = Postgres::start_with(&Options::quick());
    let scribe = Scribe::at_origin(&open(&quick.url()).await, "a").await;
    assert_eq!(scribe.ledger.strength(), Strength::BestEffort);
    // What the server would not wait for, we do.
    let lazy = Postgres::start_with(&Options::default().set("synchronous_commit", "off"));
    let scribe = Scribe::at_origin(&open(&lazy.url()).await, "a").await;
    assert_eq!(scribe.ledger.strength(), Strength::Strict);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_without_tls_is_not_spoken_to_in_the_clear_by_mistake() {
    let server = Postgres::start_with(&Options::quick());
    let why = refusal(&format!("{}?sslmode=require", server.url())).await.to_string();
    assert!(why.contains("sslmode=disable"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_can_not_hold_every_letter_is_refused() {
    let server = Postgres::start_with(&Options::quick());
    server.sql("create database latin template template0 encoding 'LATIN1' locale 'C'");
    let why = refusal(&server.url_of("latin")).await;
    assert!(matches!(&why, EngineError::Invalid(why) if why.contains("UTF8")), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_refused() {
    let server = Postgres::start_with(&Options::quick());
    for more in ["", "ignore_startup_parameters = options"] {
        let pooler = PgBouncer::start(&server, "transaction", more);
        let why = refusal(&pooler.url()).await;
        assert!(matches!(&why, EngineError::Invalid(why) if why.contains("pooler")), "{more}: {why}");
    }
}
