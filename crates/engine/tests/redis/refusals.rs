//! A Redis that can't keep locks is refused at once, with the reason.

use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{EngineError, Redis, Strength};

use crate::server::RedisServer;
use crate::{hasty, open, records, refusal};

/// What the document says a user needs.
fn permissions() -> Vec<&'static str> {
    let document = include_str!("../../../../docs/engines.md");
    let line = document.lines().find(|line| line.starts_with("~lockkeeper:*")).expect("a line with permissions");
    line.split(' ').collect()
}

#[tokio::test]
async fn a_replica_is_refused() {
    let master = RedisServer::start();
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", master.port)]);
    let why = refusal(&replica.url()).await.to_string();
    assert!(why.contains(&format!("is a replica of 127.0.0.1:{}", master.port)), "{why}");
    assert!(why.contains("redis+sentinel://"), "{why}");
}

#[tokio::test]
async fn a_redis_that_may_evict_locks_is_refused() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = RedisServer::with(&["--maxmemory-policy", policy]);
        let why = refusal(&server.url()).await;
        assert!(
            matches!(&why, EngineError::Invalid(why) if why.contains(policy) && why.contains("noeviction")),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_repeated() {
    let server = RedisServer::with(&["--requirepass", "r1ght"]);
    let place = format!("127.0.0.1:{}", server.port);
    for login in [":wr0ng@", "nobody:wr0ng@", ""] {
        let why = refusal(&format!("redis://{login}{place}")).await;
        assert!(matches!(&why, EngineError::Invalid(_)), "{why}");
        assert!(!format!("{why} {why:?}").contains("wr0ng"), "{why}");
        assert!(why.to_string().contains(&place), "{why}");
    }
    let engine = open(&format!("redis://:r1ght@{place}")).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append(b"x").await;
    let shown = format!("{engine:?} {:?} {}", scribe.ledger, engine.place());
    assert!(!shown.contains("r1ght"), "{shown}");
}

#[tokio::test]
async fn the_permissions_that_are_asked_for_are_enough() {
    let server = RedisServer::start();
    let engine = open(&user(&server, &permissions())).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let listener = Scribe::at_origin(&open(&server.url()).await, "a").await;
    scribe.append_numbers(1, 10).await;
    assert_eq!(records(&scribe).await, scribe.written);
    let mut moved = listener.ledger.moved();
    tokio::time::timeout(Duration::from_secs(5), moved.wait_for(|moved| *moved == 10))
        .await
        .expect("heard")
        .expect("lives");
    scribe.ledger.compact(scribe.at, vec![7; 3 << 20]).await.expect("compacts");
    assert_eq!(engine.spaces().await.expect("lists").len(), 1);
}

/// A user with these permissions, and the URL that names it.
fn user(server: &RedisServer, permissions: &[&str]) -> String {
    let user = [&["ACL", "SETUSER", "some", "reset", "on", ">pw"][..], permissions].concat();
    assert_eq!(server.ask(&user), "OK");
    format!("redis://some:pw@127.0.0.1:{}", server.port)
}

#[tokio::test]
async fn a_user_who_may_not_do_all_that_the_scripts_do_is_refused_at_once() {
    let server = RedisServer::start();
    for missing in ["-hset", "-xadd", "-xtrim", "-spublish", "-unlink", "-time", "resetchannels", "-evalsha", "-eval"] {
        let url = user(&server, &[&permissions()[..], &[missing]].concat());
        let why = refusal(&url).await;
        let told = why.to_string();
        assert!(matches!(why, EngineError::Invalid(_)), "{missing}: {told}");
        assert!(told.contains("docs/engines.md"), "{missing}: {told}");
        if missing == "-hset" {
            assert!(told.contains("HSET on lockkeeper:") && told.contains(&permissions().join(" ")), "{told}");
        }
    }
    let url = user(&server, &[&permissions()[..], &["resetkeys", "%R~lockkeeper:*"]].concat());
    let why = refusal(&url).await.to_string();
    assert!(why.contains("XADD") && !why.contains("HMGET"), "who may only read does not write: {why}");
    assert_eq!(server.ask(&["DBSIZE"]), "0", "nothing was tried");
}

#[tokio::test]
async fn who_shares_files_may_take_and_give_their_names() {
    let server = RedisServer::start();
    let share = async |more: &[&str]| {
        let url = user(&server, &[&permissions()[..], more].concat());
        let space = lockkeeper_core::space::Space::parse("shop").unwrap();
        Redis::open(&url).await.expect("allowed without").sharing(Some(space)).await.map(|_| ())
    };
    assert_eq!(share(&["~lock:file:*"]).await, Ok(()));
    for missing in [&["~lock:file:*", "-set"][..], &["~lock:file:*", "-del"], &["%R~lock:file:*"], &[]] {
        let why = share(missing).await.expect_err("refused").to_string();
        assert!(why.contains("lock:file:") && why.contains("~lock:file:*"), "{missing:?}: {why}");
    }
}

#[tokio::test]
async fn what_a_user_may_do_no_longer_is_refused_with_the_reason_and_records_nothing() {
    let server = RedisServer::start();
    let engine = open(&user(&server, &permissions())).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    // Everything but telling others: what can't be told must not be recorded either.
    assert_eq!(server.ask(&["ACL", "SETUSER", "some", "-spublish"]), "OK");
    match scribe.try_append(b"x").await {
        lockkeeper_engine::Append::Down(EngineError::Unreachable(why)) => assert!(why.contains("permissions"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(records(&scribe).await, [], "nothing was recorded");
}

#[tokio::test]
async fn a_redis_that_is_not_there_is_told_in_time() {
    let mut server = RedisServer::start();
    server.kill();
    let began = Instant::now();
    assert!(matches!(refusal(&hasty(&server.url())).await, EngineError::Unreachable(_)));
    // Nobody answers, and nobody says that nobody will.
    server.start_again();
    server.pause();
    let why = refusal(&hasty(&server.url())).await;
    assert!(why.to_string().contains("has not answered within 300 ms"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn another_kind_of_redis_is_told_how_to_be_named() {
    let single = RedisServer::start();
    let why = refusal(&single.url().replace("redis:", "redis+cluster:")).await.to_string();
    assert!(why.contains("cluster"), "{why}");
    let node = RedisServer::cluster_node();
    let why = refusal(&node.url()).await.to_string();
    assert!(why.contains("write redis+cluster://"), "{why}");
    let sentinel = RedisServer::sentinel(single.port);
    let why = refusal(&sentinel.url()).await.to_string();
    assert!(why.contains("write redis+sentinel://"), "{why}");
}

#[tokio::test]
async fn a_redis_that_is_loading_is_waited_for() {
    let mut server =
        RedisServer::with(&["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"]);
    for number in 0..700 {
        server.ask(&["SET", &format!("key-{number}"), &"x".repeat(100)]);
    }
    server.ask(&["SAVE"]);
    server.kill();
    server.start_again();
    let why = refusal(&format!("{}?timeout_ms=100", server.url())).await.to_string();
    assert!(why.contains("loading") || why.contains("has not answered"), "{why}");
    let engine = open(&format!("{}?timeout_ms=20000", server.url())).await;
    Scribe::at_origin(&engine, "a").await.append(b"x").await;
}

#[tokio::test]
async fn only_a_redis_that_always_syncs_is_strict() {
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let strength = async |options: &[&str]| {
        let server = RedisServer::with(options);
        let space = lockkeeper_core::space::Space::parse("s").unwrap();
        let engine = open(&server.url()).await;
        engine.open(&space).await.unwrap().strength()
    };
    assert_eq!(strength(&always).await, Strength::Strict);
    assert_eq!(strength(&["--appendonly", "yes", "--appendfsync", "everysec"]).await, Strength::BestEffort);
    let sometimes = [&always[..], &["--no-appendfsync-on-rewrite", "yes"]].concat();
    assert_eq!(strength(&sometimes).await, Strength::BestEffort);
}
