//! Connections: how many, for whom, and that nobody starves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_advisory::{AdvisoryLockError, POOL_OVERFLOW, POOL_SIZE, Pools, Sizes};
use tokio::sync::Barrier;

use crate::ground::{eventually, held, in_time, locks, namespace, pools, pools_of, server};

#[tokio::test]
async fn pool_configuration() {
    let sizes = Sizes::default();
    assert_eq!((sizes.pool, sizes.overflow), (15, 10));
    assert_eq!((POOL_SIZE, POOL_OVERFLOW), (15, 10));
    let server = server();
    let pools = pools(&server);
    assert_eq!(pools.free_places(), 25);
    // Fifteen outside of locks, and the rest for locks: their own connections and those of their holders.
    let mut connections = Vec::new();
    for _ in 0..15 {
        connections.push(in_time(pools.connection()).await.expect("a connection"));
    }
    let namespace = namespace();
    let mut guards = Vec::new();
    for id in 0..10 {
        // This task has connections already, so a lock takes one place.
        guards.push(in_time(pools.locks().lock(namespace, id, None).into_future()).await.expect("locked"));
    }
    assert_eq!((pools.open_connections(), pools.free_places()), (25, 0));
    drop((connections, guards));
    eventually("all places are free", || pools.free_places() == 25).await;
    eventually("the overflow is closed", || pools.open_connections() == 15).await;
    assert_eq!(pools.idle_connections(), 15);
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn at_the_limit_there_is_a_clear_timeout() {
    let server = server();
    let sizes = Sizes { pool: 1, overflow: 2, timeout: Duration::from_millis(300), pairs: true };
    let pools = pools_of(&server, sizes);
    let namespace = namespace();
    let one = in_time(pools.connection()).await.expect("a connection");
    let began = Instant::now();
    let other = pools.clone();
    let second = in_time(tokio::spawn(async move { other.connection().await.map(drop) })).await.expect("no panic");
    assert!(matches!(second, Err(AdvisoryLockError::PoolTimeout { max: 3, .. })), "{second:?}");
    assert!(second.expect_err("none").to_string().contains("none of 3 connections was free"));
    assert!(began.elapsed() >= Duration::from_millis(290));
    let other = pools.clone();
    let lock = tokio::spawn(async move { other.locks().lock(namespace, 1, None).await });
    let guard = in_time(lock).await.expect("no panic").expect("a lock and its holder's place");
    let other = pools.clone();
    let third =
        tokio::spawn(async move { other.locks().lock(namespace, 2, Duration::from_millis(300)).await.map(drop) });
    let third = in_time(third).await.expect("no panic");
    assert!(matches!(third, Err(AdvisoryLockError::PoolTimeout { .. })), "{third:?}");
    drop((one, guard));
    eventually("all places are free", || pools.free_places() == 3).await;
}

#[tokio::test]
async fn pools_that_could_never_lend_a_lock_are_refused() {
    let server = server();
    let address = lockkeeper_advisory::Address::parse(&server.socket_url()).expect("a URL");
    for sizes in [
        Sizes { pool: 0, overflow: 1, ..Sizes::default() },
        Sizes { pool: 25, overflow: 0, ..Sizes::default() },
        // Twenty-four with a connection would wait behind one who has the last place and wants two.
        Sizes { pool: 24, overflow: 1, ..Sizes::default() },
        Sizes::locks_only(0),
    ] {
        let made = Pools::new(address.clone(), sizes);
        assert!(matches!(made, Err(AdvisoryLockError::Invalid(_))), "{sizes:?}");
    }
}

#[tokio::test]
async fn who_skips_skips_when_no_connection_comes_free() {
    let server = server();
    let (locks, namespace) = (locks(&server, 1), namespace());
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    // Another lock, which is free: only the connection is missing.
    let began = Instant::now();
    let other = locks.clone();
    let skipped = tokio::spawn(async move { other.lock_or_skip(namespace, 2).await });
    let skipped = in_time(skipped).await.expect("no panic").expect("no error");
    assert!(skipped.is_none(), "{skipped:?}");
    let told = in_time(locks.lock_or_skip(namespace, 2).scope(async |acquired| anyhow::Ok(acquired))).await;
    assert!(!told.expect("no error"));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    in_time(guard.release()).await.expect("released");
    let told = in_time(locks.lock_or_skip(namespace, 2).scope(async |acquired| anyhow::Ok(acquired))).await;
    assert!(told.expect("no error"), "the next round has it");
}

/// Everybody first takes one thing, then, when all have it or wait for it, the other.
async fn all_at_once(first_connection: bool) {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    let start = Arc::new(Barrier::new(25));
    let tasks: Vec<_> = (0..25)
        .map(|id| {
            let (pools, start) = (pools.clone(), start.clone());
            tokio::spawn(async move {
                start.wait().await;
                if first_connection {
                    let connection = pools.connection().await?;
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    let work = async || Ok(connection.batch_execute("SELECT 1").await?);
                    pools.locks().lock(namespace, id, None).scope(work).await
                } else {
                    let work = async || {
                        tokio::time::sleep(Duration::from_millis(30)).await;
                        Ok(pools.connection().await?.batch_execute("SELECT 1").await?)
                    };
                    pools.locks().lock(namespace, id, None).scope(work).await
                }
            })
        })
        .collect();
    for task in tasks {
        let ended: anyhow::Result<()> = in_time(task).await.expect("no panic");
        ended.expect("everybody has both in the end");
    }
    eventually("all places are free", || pools.free_places() == 25).await;
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn twenty_five_who_have_a_connection_and_want_a_lock_all_come_through() {
    all_at_once(true).await;
}

#[tokio::test]
async fn twenty_five_who_have_a_lock_and_want_a_connection_all_come_through() {
    all_at_once(false).await;
}

#[tokio::test]
async fn a_connection_comes_back_clean() {
    let server = server();
    let sizes = Sizes { pool: 1, overflow: 2, ..Sizes::default() };
    let pools = pools_of(&server, sizes);
    let connection = in_time(pools.connection()).await.expect("a connection");
    let pid = |row: tokio_postgres::Row| row.get::<_, i32>(0);
    let first = pid(connection.query_one("SELECT pg_backend_pid()", &[]).await.expect("answered"));
    connection.batch_execute("SET search_path = nowhere; BEGIN; SELECT pg_advisory_lock(998, 1)").await.expect("said");
    drop(connection);
    let connection = in_time(pools.connection()).await.expect("a connection");
    let second = pid(connection.query_one("SELECT pg_backend_pid()", &[]).await.expect("answered"));
    assert_eq!(first, second, "the same one");
    let path: String = connection.query_one("SHOW search_path", &[]).await.expect("answered").get(0);
    assert!(path.contains("public"), "{path}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_locks WHERE classid = 998"), "0");
}
