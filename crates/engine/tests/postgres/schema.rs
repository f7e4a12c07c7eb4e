//! Tables make themselves, whoever comes first; and people may look into them.

use lockkeeper_core::time::Time;
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Batch, BatchId, EngineError, Posted};
use lockkeeper_postgres_fixture::{Options, Postgres};

use crate::{open, records, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn many_that_start_at_once_make_one_set_of_tables() {
    let server = Postgres::start_with(&Options::quick());
    for round in 0..5 {
        server.create_database(&format!("d{round}"));
        let url = format!("{}?timeout_ms=30000", server.url_of(&format!("d{round}")));
        let opening: Vec<_> = (0..12)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { open(&url).await })
            })
            .collect();
        let mut last = None;
        for engine in opening {
            last = Some(engine.await.expect("opens"));
        }
        Scribe::at_origin(&last.expect("twelve"), "a").await.append(b"x").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_newer_lockkeeper_are_left_alone() {
    let server = Postgres::start_with(&Options::quick());
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    scribe.append(b"x").await;
    server.sql("update lockkeeper_schema set version = 99");
    let why = refusal(&server.url()).await;
    assert!(matches!(&why, EngineError::Invalid(why) if why.contains("version 99")), "{why}");
    server.sql("update lockkeeper_schema set version = 1");
    assert_eq!(records(&Scribe::at_origin(&open(&server.url()).await, "a").await).await, scribe.written);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_make_tables_uses_those_that_are_there() {
    let server = Postgres::start_with(&Options::quick());
    server.sql("create role poor login password 'pw'");
    server.sql("revoke create on schema public from public");
    let url = server.url().replace(&url_login(&server), "poor:pw");
    let why = refusal(&url).await.to_string();
    assert!(why.contains("tables can't be made") && !why.contains("pw@"), "{why}");
    Scribe::at_origin(&open(&server.url()).await, "a").await.append(b"x").await;
    for statement in permissions() {
        server.sql(&statement.replace("ROLE", "poor"));
    }
    let mut scribe = Scribe::at_origin(&open(&url).await, "b").await;
    scribe.append_numbers(1, 10).await;
    scribe.ledger.compact(scribe.at, vec![7; 2 << 20]).await.expect("compacts");
    scribe.append(b"x").await;
}

/// What the document says a user needs.
fn permissions() -> Vec<&'static str> {
    let document = include_str!("../../../../docs/engines.md");
    document.lines().filter(|line| line.starts_with("grant ")).collect()
}

fn url_login(server: &Postgres) -> String {
    let url = server.url();
    let rest = url.split_once("://").expect("a URL").1;
    rest.split_once('@').expect("a login").0.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_were_dropped_are_made_anew_and_everybody_learns_of_the_loss() {
    let server = Postgres::start_with(&Options::quick());
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 10).await;
    server.sql("drop schema public cascade");
    server.sql("create schema public");
    let mut tries = 0;
    let delta = loop {
        match scribe.ledger.read(scribe.at).await {
            Ok(delta) => break delta,
            Err(error) => assert!(!error.to_string().contains("damaged"), "{error}"),
        }
        tries += 1;
        assert!(tries < 100, "they are made anew");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(matches!(delta.base, lockkeeper_engine::Base::Rewritten { snapshot: None, .. }), "{:?}", delta.base);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_posted_is_seen_as_long_as_it_counts() {
    let server = Postgres::start_with(&Options::quick());
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    assert!(scribe.ledger.posts());
    scribe.append(b"first").await;
    let now = scribe.ledger.now();
    let second = 1_000_000;
    let document = r#"{"key": "src/a.rs", "start_line": 3, "mode": "exclusive", "created": 1700000000000000}"#;
    let posted = |id: &str, expires: u64, document: Option<&str>| Posted {
        id: id.to_owned(),
        expires: Time(now.time.0 + expires),
        document: document.map(str::to_owned),
    };
    let batch = |scribe: &mut Scribe, posted: Vec<Posted>| {
        let batch =
            Batch { id: BatchId(7), payload: Vec::new(), frees: false, awaited: true, shown: Vec::new(), posted };
        let (ledger, at) = (scribe.ledger.clone(), scribe.at);
        async move {
            let Append::Appended(appended) = ledger.append(at, now, batch).await else { panic!("not recorded") };
            appended.position
        }
    };
    let first = vec![posted("one", 60 * second, Some(document)), posted("two", second / 2, Some(document))];
    scribe.at = batch(&mut scribe, first).await;
    let seen = || {
        server.sql(
            "select string_agg(lock_id || ' ' || key || ' ' || start_line, ',' order by lock_id) from lockkeeper_locks",
        )
    };
    assert_eq!(seen(), "one src/a.rs 3,two src/a.rs 3");
    let left = server.sql(
        "select extract(epoch from expires_at - clock_timestamp())::int from lockkeeper_locks where lock_id = 'one'",
    );
    assert!(left.parse::<i32>().is_ok_and(|left| (50..=60).contains(&left)), "{left}");
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(seen(), "one src/a.rs 3", "what is over is not shown");
    let changes = vec![posted("one", 0, None), posted("two", 60 * second, Some(document))];
    scribe.at = batch(&mut scribe, changes).await;
    assert_eq!(seen(), "two src/a.rs 3");
}
