//! What is not whole any more is refused, and never taken for something else.

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Confirm, EngineError, Position};

use crate::open;
use crate::server::RedisServer;

const HEAD: &str = "lockkeeper:{a}:head";
const LOG: &str = "lockkeeper:{a}:log";

async fn written() -> (RedisServer, Scribe) {
    let server = RedisServer::start();
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    scribe.append_numbers(1, 10).await;
    scribe.ledger.compact(scribe.written[3].position, vec![5; 3 << 20]).await.expect("compacts");
    (server, scribe)
}

fn assert_damaged(error: EngineError, what: &str) {
    match error {
        EngineError::Corrupt { place, .. } => assert!(place.contains("the ledger of a"), "{what}: {place}"),
        other => panic!("{what}: {other}"),
    }
}

/// Whoever reads or writes is refused, and whoever opens anew.
async fn is_refused(server: &RedisServer, scribe: &mut Scribe, what: &str) {
    assert_damaged(scribe.ledger.read(Position::ORIGIN).await.expect_err(what), what);
    match scribe.try_append(b"x").await {
        Append::Down(error) => assert_damaged(error, what),
        other => panic!("{what}: {other:?}"),
    }
    match scribe.ledger.confirm(scribe.at).await {
        Confirm::Down(error) => assert_damaged(error, what),
        other => panic!("{what}: {other:?}"),
    }
    let space = lockkeeper_core::space::Space::parse("a").expect("a name");
    assert_damaged(open(&server.url()).await.open(&space).await.expect_err(what), what);
}

#[tokio::test]
async fn a_ledger_that_is_not_whole_is_refused() {
    let damages: [&[&str]; 7] = [
        &["DEL", HEAD],
        &["DEL", LOG],
        &["XDEL", LOG, "7-0"],
        &["XTRIM", LOG, "MAXLEN", "2"],
        &["XADD", LOG, "99-0", "h", "x", "p", "y"],
        &["HDEL", HEAD, "digest"],
        &["HSET", HEAD, "format", "2"],
    ];
    for damage in damages {
        let (server, mut scribe) = written().await;
        server.ask(damage);
        is_refused(&server, &mut scribe, &damage.join(" ")).await;
    }
}

#[tokio::test]
async fn keys_that_something_else_has_taken_are_refused() {
    let (server, mut scribe) = written().await;
    server.ask(&["DEL", LOG]);
    server.ask(&["SET", LOG, "mine"]);
    is_refused(&server, &mut scribe, "another type").await;
}

#[tokio::test]
async fn a_snapshot_that_is_not_whole_is_refused() {
    let (server, scribe) = written().await;
    let key = server.ask(&["KEYS", "lockkeeper:{a}:snapshot:*"]);
    server.ask(&["LSET", &key, "1", "another part"]);
    assert_damaged(scribe.ledger.read(Position::ORIGIN).await.expect_err("changed"), "changed");
    server.ask(&["LTRIM", &key, "0", "0"]);
    assert_damaged(scribe.ledger.read(Position::ORIGIN).await.expect_err("cut"), "cut");
    server.ask(&["DEL", &key]);
    assert_damaged(scribe.ledger.read(Position::ORIGIN).await.expect_err("gone"), "gone");
}

#[tokio::test]
async fn a_record_that_was_changed_is_refused() {
    let server = RedisServer::start();
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    scribe.append(b"one").await;
    scribe.append(b"two").await;
    let header = server.ask(&["XRANGE", LOG, "2-0", "2-0"]).lines().nth(2).expect("a header").to_owned();
    server.ask(&["XDEL", LOG, "2-0"]);
    server.ask(&["XSETID", LOG, "1-0"]);
    server.ask(&["XADD", LOG, "2-0", "h", &header, "p", "tw0"]);
    assert_damaged(scribe.ledger.read(Position::ORIGIN).await.expect_err("changed"), "changed");
}

#[tokio::test]
async fn uploads_that_nobody_finished_go_by_themselves() {
    let (server, scribe) = written().await;
    let keys = || server.ask(&["KEYS", "lockkeeper:{a}:snapshot:*"]).lines().count();
    assert_eq!(keys(), 1);
    assert_eq!(server.ask(&["TTL", &server.ask(&["KEYS", "lockkeeper:{a}:snapshot:*"])]), "-1", "what counts stays");
    let other = Position { digest: scribe.at.digest ^ 1, ..scribe.at };
    scribe.ledger.compact(other, vec![1; 2 << 20]).await.expect_err("no place of this ledger");
    scribe.ledger.compact(scribe.written[2].position, vec![1; 2 << 20]).await.expect("an older one is not needed");
    assert_eq!(keys(), 1);
    scribe.ledger.compact(scribe.at, vec![1; 2 << 20]).await.expect("compacts");
    assert_eq!(keys(), 1, "the older snapshot is gone");
    assert_eq!(server.ask(&["XLEN", LOG]), "0");
}
