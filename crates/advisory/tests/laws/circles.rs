//! Nobody waits in a circle: whoever holds a lock gets a connection for its work, however many wait for that lock with one in hand.

use std::time::Duration;

use lockkeeper_advisory::{AdvisoryLockError, LockNamespace, Pools, Sizes};
use lockkeeper_postgres_fixture::Postgres;
use tokio::task::JoinSet;

use crate::ground::{PATIENCE, counted, deep, eventually, held, in_time, namespace, pools, pools_of, server};

const CONTESTED: i32 = 42;

/// Who waits for the lock with a connection in hand, and goes on when it is there.
type Crowd = JoinSet<Result<(), AdvisoryLockError>>;

/// So many that have a connection each and wait for the lock.
async fn crowd(server: &Postgres, pools: &Pools, namespace: LockNamespace, count: usize) -> Crowd {
    let mut crowd = JoinSet::new();
    let already = counted(server, namespace, false);
    for _ in 0..count {
        let pools = pools.clone();
        crowd.spawn(async move {
            let _connection = pools.connection().await?;
            pools.locks().lock(namespace, CONTESTED, PATIENCE).await?.release().await
        });
    }
    // The overflow has room for ten sessions, less those of the holder; the others wait for a place.
    eventually("they wait for the lock", || counted(server, namespace, false) >= already + count.min(8)).await;
    crowd
}

async fn all_come_through(mut crowd: Crowd) {
    while let Some(ended) = in_time(crowd.join_next()).await {
        ended.expect("no panic").expect("everybody has the lock in the end");
    }
}

/// Does some work in a connection of its own, at once.
async fn transaction(pools: &Pools) {
    let mut connection = at_once(pools.connection()).await.expect("a holder gets a connection");
    let transaction = connection.transaction().await.expect("begun");
    transaction.execute("SELECT 1", &[]).await.expect("answered");
    transaction.commit().await.expect("committed");
}

/// Far less than the timeout of a pool.
async fn at_once<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(7), future)
        .await
        .expect("a holder does not wait for those who wait for it")
}

#[tokio::test]
async fn a_holder_works_in_one_connection_after_the_other_while_others_wait_with_theirs() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    let guard = in_time(pools.locks().lock(namespace, CONTESTED, None).into_future()).await.expect("locked");
    let crowd = crowd(&server, &pools, namespace, 15).await;
    for _ in 0..5 {
        transaction(&pools).await;
    }
    in_time(guard.release()).await.expect("released");
    all_come_through(crowd).await;
    eventually("all places are free", || pools.free_places() == 25).await;
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn a_holder_that_gives_its_connection_back_gets_one_again() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    // The connection first: the lock then comes without a place of its own.
    let connection = in_time(pools.connection()).await.expect("a connection");
    let guard = in_time(pools.locks().lock(namespace, CONTESTED, None).into_future()).await.expect("locked");
    let first = crowd(&server, &pools, namespace, 14).await;
    drop(connection);
    let last = pools.clone();
    let last = tokio::spawn(async move {
        let _connection = last.connection().await?;
        last.locks().lock(namespace, CONTESTED, PATIENCE).await?.release().await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..3 {
        transaction(&pools).await;
    }
    in_time(guard.release()).await.expect("released");
    all_come_through(first).await;
    in_time(last).await.expect("no panic").expect("so has the last");
    eventually("all places are free", || pools.free_places() == 25).await;
}

#[tokio::test]
async fn a_holder_that_waits_for_a_second_connection_gets_its_first_one_again() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    let guard = in_time(pools.locks().lock(namespace, CONTESTED, None).into_future()).await.expect("locked");
    let crowd = crowd(&server, &pools, namespace, 15).await;
    let first = at_once(pools.connection()).await.expect("its own place");
    let second = async { at_once(pools.connection()).await.expect("the same place") };
    let ends = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(first);
    };
    drop(tokio::join!(second, ends));
    in_time(guard.release()).await.expect("released");
    all_come_through(crowd).await;
    eventually("all places are free", || pools.free_places() == 25).await;
}

/// A place is free before the connection that was in it is clean; still there are never more connections than places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_never_more_connections_than_places() {
    let server = server();
    let sizes = Sizes { pool: 3, overflow: 3, timeout: PATIENCE, pairs: true };
    let (pools, namespace) = (pools_of(&server, sizes), namespace());
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for number in 0..12 {
        let pools = pools.clone();
        tasks.spawn(async move {
            for round in 0..if deep() { 200 } else { 15 } {
                let outer = if number % 3 == 0 { Some(in_time(pools.connection()).await?) } else { None };
                let work = async || {
                    drop(outer);
                    for _ in 0..3 {
                        pools.connection().await?.batch_execute("SELECT 1").await?;
                    }
                    anyhow::Ok(())
                };
                // Each round by itself: all of them together may take as long as they want.
                in_time(pools.locks().lock(namespace, (number + round) % 4, PATIENCE).scope(work)).await?;
            }
            Ok(())
        });
    }
    let watched = pools.clone();
    let watch = tokio::spawn(async move {
        loop {
            assert!(watched.open_connections() <= 6, "{watched:?}");
            assert!(watched.free_places() <= 6, "{watched:?}");
            tokio::task::yield_now().await;
        }
    });
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic").expect("everybody comes through");
    }
    assert!(!watch.is_finished(), "there were more than six");
    watch.abort();
    eventually("all places are free", || pools.free_places() == 6).await;
    eventually("what is kept is clean", || pools.idle_connections() == pools.open_connections()).await;
    assert_eq!(held(&server, namespace), 0);
}
