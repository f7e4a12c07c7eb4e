//! Tables make themselves, whoever comes first; and people may look into them.

use lockkeeper_core::time::{Millis, Stamp};
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Batch, BatchId, EngineError, Posted, Posting};
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
    dropped_and_made_anew("drop schema public cascade; create schema public").await;
}

/// Functions take no part in that: they stay.
#[tokio::test(flavor = "multi_thread")]
async fn tables_that_were_dropped_without_their_functions_are_made_anew() {
    let tables = ["schema", "ledgers", "records", "snapshots", "documents"].map(|name| format!("lockkeeper_{name}"));
    dropped_and_made_anew(&format!("drop table {} cascade", tables.join(", "))).await;
}

async fn dropped_and_made_anew(drop: &str) {
    let server = Postgres::start_with(&Options::quick());
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 10).await;
    server.sql(drop);
    let mut tries = 0;
    let delta = loop {
        match scribe.ledger.read(scribe.at).await {
            Ok(delta) => break delta,
            Err(error) => {
                tries += 1;
                assert!(!error.to_string().contains("damaged"), "{error}");
                assert!(tries < 100, "they are made anew: {error}");
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(matches!(delta.base, lockkeeper_engine::Base::Rewritten { snapshot: None, .. }), "{:?}", delta.base);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_another_search_path_does_not_get_a_world_of_its_own_by_mistake() {
    let server = Postgres::start_with(&Options::quick());
    Scribe::at_origin(&open(&server.url()).await, "a").await.append(b"x").await;
    server.sql("create schema other");
    server.sql("alter role postgres set search_path = other");
    let why = refusal(&server.url()).await;
    assert!(matches!(&why, EngineError::Invalid(why) if why.contains("schema public")), "{why}");
    let named = |schema: &str| format!("{}?options=-c%20search_path%3D{schema}", server.url());
    let public = Scribe::at_origin(&open(&named("public")).await, "a").await;
    assert_eq!(records(&public).await.len(), 1);
    let other = Scribe::at_origin(&open(&named("other")).await, "a").await;
    assert_eq!(records(&other).await.len(), 0, "who says so gets one");
}

#[tokio::test(flavor = "multi_thread")]
async fn people_who_may_only_look_see_the_view() {
    let server = Postgres::start_with(&Options::quick());
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    post(&mut scribe, vec![granted("one", r#"{"key": "x"}"#, Millis::from_secs(3600))]).await;
    server.sql("create role people; grant select on lockkeeper_locks to people");
    assert_eq!(
        server.sql("set role people; set search_path = ''; select key from public.lockkeeper_locks").lines().last(),
        Some("x")
    );
}

fn granted(id: &str, document: &str, left: Millis) -> Posted {
    let change = Posting::Granted { document: document.to_owned(), fencing_token: 5, place: 3, left };
    Posted { id: id.to_owned(), change }
}

async fn post(scribe: &mut Scribe, posted: Vec<Posted>) -> Stamp {
    let batch = Batch { id: BatchId(7), payload: Vec::new(), frees: false, awaited: true, shown: Vec::new(), posted };
    let Append::Appended(appended) = scribe.ledger.append(scribe.at, scribe.ledger.now(), batch).await else {
        panic!("not recorded")
    };
    scribe.at = appended.position;
    appended.stamp
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_posted_is_seen_as_long_as_it_counts() {
    let server = Postgres::start_with(&Options::quick());
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    assert!(scribe.ledger.posts());
    scribe.append(b"first").await;
    let written = |id: &str, seconds: u64| {
        granted(id, r#"{"key": "src/a.rs", "start_line": 3, "mode": "exclusive"}"#, Millis::from_secs(seconds))
    };
    let stamp = post(&mut scribe, vec![written("one", 60), written("two", 1)]).await;
    let token = server.sql("select fencing_token from lockkeeper_locks where lock_id = 'one'");
    assert_eq!(token, (stamp.time.0 + 3).to_string(), "a token is as great as the stamp and the grants before it");
    let seen = || {
        let row = "lock_id || ' ' || key || ' ' || start_line";
        server.sql(&format!("select string_agg({row}, ',' order by lock_id) from lockkeeper_locks"))
    };
    assert_eq!(seen(), "one src/a.rs 3,two src/a.rs 3");
    let left = || -> i32 {
        let left = "extract(epoch from expires_at - clock_timestamp())::int";
        server.sql(&format!("select {left} from lockkeeper_locks where lock_id = 'one'")).parse().expect("a number")
    };
    assert!((45..=60).contains(&left()), "{}", left());
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    assert_eq!(seen(), "one src/a.rs 3", "what is over is not shown");
    let lasts = Posting::Lasts { document: None, left: Millis::from_secs(600) };
    let nobody = Posted { id: "nobody".to_owned(), change: lasts.clone() };
    post(&mut scribe, vec![Posted { id: "one".to_owned(), change: lasts }, nobody]).await;
    assert!((585..=600).contains(&left()), "{}", left());
    assert_eq!(server.sql("select fencing_token from lockkeeper_locks"), token, "who lasts keeps its token");
    let document = Some(r#"{"key": "src/a.rs", "start_line": 4}"#.to_owned());
    let says_more = Posting::Lasts { document, left: Millis::from_secs(600) };
    post(&mut scribe, vec![Posted { id: "one".to_owned(), change: says_more }]).await;
    assert_eq!(seen(), "one src/a.rs 4");
    post(&mut scribe, vec![Posted { id: "one".to_owned(), change: Posting::Gone }, written("two", 60)]).await;
    assert_eq!(seen(), "two src/a.rs 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_posted_is_found_by_its_key_however_much_was_posted_before() {
    const ROUNDS: u64 = 60;
    const AT_ONCE: u64 = 64;
    let server = Postgres::start_with(&Options::quick());
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    for round in 0..ROUNDS {
        let id = |number: u64| format!("{round}-{number}");
        let granted = (0..AT_ONCE).map(|number| granted(&id(number), r#"{"key": "x"}"#, Millis::from_secs(60)));
        post(&mut scribe, granted.collect()).await;
        let gone = (0..AT_ONCE).map(|number| Posted { id: id(number), change: Posting::Gone });
        post(&mut scribe, gone.collect()).await;
    }
    // What a connection has read, it tells when it has something to do a second later.
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    scribe.append(b"last").await;
    let read =
        server.sql("select idx_tup_read from pg_stat_user_indexes where indexrelname = 'lockkeeper_documents_pkey'");
    let read: u64 = read.parse().expect("a number");
    let changed = ROUNDS * AT_ONCE * 2;
    assert!((1..changed * 4).contains(&read), "{read} entries were read for {changed} changes");
}
