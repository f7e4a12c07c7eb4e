//! The scenarios of the requirement, each under its own name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_advisory::{AdvisoryLockError, LockId, LockNamespace, TIMEOUT_DEFAULT};
use tokio::sync::oneshot;

use crate::ground::{Trouble, counted, eventually, held, in_time, locks, namespace, pools, server};

#[tokio::test]
async fn blocking_lock_acquisition_hook_routes() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    server.sql("CREATE TABLE IF NOT EXISTS hooks (n int)");
    let body = async || {
        assert_eq!(held(&server, namespace), 1);
        let mut connection = pools.connection().await?;
        for n in 0..3 {
            let transaction = connection.transaction().await?;
            transaction.execute("INSERT INTO hooks VALUES ($1)", &[&n]).await?;
            transaction.commit().await?;
            assert_eq!(held(&server, namespace), 1, "a commit does not end the lock");
        }
        let own: i32 = connection.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        let holder = server.sql(&format!("SELECT pid FROM pg_locks WHERE classid = {}", namespace.number()));
        assert_ne!(own.to_string(), holder, "the lock has a connection of its own");
        anyhow::Ok(7)
    };
    let answer = in_time(pools.locks().lock(namespace, 42, None).scope(body)).await.expect("locked");
    assert_eq!(answer, 7);
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn agent_42_is_1_and_42_in_pg_locks() {
    let server = server();
    let locks = locks(&server, 1);
    let guard = in_time(locks.lock(LockNamespace::AGENT, 42, None).into_future()).await.expect("locked");
    let row = server.sql(&format!(
        "SELECT classid, objid, objsubid, mode FROM pg_locks WHERE pid = {} AND locktype = 'advisory'",
        guard.pid()
    ));
    assert_eq!(row, "1|42|2|ExclusiveLock");
    in_time(guard.release()).await.expect("released");
}

#[tokio::test]
async fn a_text_is_hashed_as_the_server_would() {
    let server = server();
    let said =
        server.sql("SELECT ('x' || left(encode(sha256(convert_to('Grüße, agent', 'UTF8')), 'hex'), 8))::bit(32)::int");
    assert_eq!(LockId::from("Grüße, agent").number().to_string(), said);
    let (locks, namespace) = (locks(&server, 2), namespace());
    let _guard = in_time(locks.lock(namespace, "Grüße, agent", None).into_future()).await.expect("locked");
    let taken = server.sql(&format!("SELECT pg_try_advisory_lock({}, {said})", namespace.number()));
    assert_eq!(taken, "f", "both name the same lock");
}

#[tokio::test]
async fn lock_timeout() {
    assert_eq!(TIMEOUT_DEFAULT, Duration::from_secs(15));
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    let locks = pools.locks();
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    let other = locks.clone();
    let waiting = tokio::spawn(async move {
        let began = Instant::now();
        let error = other.lock(namespace, 1, Duration::from_millis(300)).await.expect_err("held");
        (error, began.elapsed())
    });
    let (error, waited) = in_time(waiting).await.expect("no panic");
    assert!(matches!(error, AdvisoryLockError::Timeout { .. }), "{error}");
    assert!(waited >= Duration::from_millis(290), "{waited:?}");
    // Its connection is closed and its place free again: one lock and its reserved place are what is left.
    eventually("the place comes back", || pools.free_places() == 23).await;
    assert_eq!(counted(&server, namespace, false), 0);
    assert_eq!(held(&server, namespace), 1);
    in_time(guard.release()).await.expect("released");
}

#[tokio::test]
async fn non_blocking_lock_background_threads() {
    let server = server();
    let (locks, namespace) = (locks(&server, 2), namespace());
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    let other = locks.clone();
    let skipped =
        tokio::spawn(
            async move { other.lock_or_skip(namespace, 1).scope(async |acquired| anyhow::Ok(acquired)).await },
        );
    assert!(!in_time(skipped).await.expect("no panic").expect("no error"));
    let other = locks.clone();
    let none = tokio::spawn(async move { other.lock_or_skip(namespace, 1).await });
    assert!(in_time(none).await.expect("no panic").expect("no error").is_none());
    in_time(guard.release()).await.expect("released");
}

#[tokio::test]
async fn non_blocking_lock_acquired() {
    let server = server();
    let (locks, namespace) = (locks(&server, 2), namespace());
    let body = async |acquired| {
        assert_eq!(held(&server, namespace), 1);
        anyhow::Ok(acquired)
    };
    assert!(in_time(locks.lock_or_skip(namespace, 1).scope(body)).await.expect("locked"));
    assert_eq!(held(&server, namespace), 0);
    let guard = in_time(locks.lock_or_skip(namespace, 1).into_future()).await.expect("asked").expect("free");
    assert_eq!(held(&server, namespace), 1);
    drop(guard);
    eventually("a dropped guard gives its lock back", || held(&server, namespace) == 0).await;
}

#[tokio::test]
async fn connection_cleanup_on_exception() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    let locks = pools.locks();
    let failed = locks.lock(namespace, 1, None).scope(async || Err::<(), anyhow::Error>(Trouble.into()));
    let error = in_time(failed).await.expect_err("the error comes through");
    assert!(error.downcast_ref::<Trouble>().is_some());
    assert_eq!(held(&server, namespace), 0);
    let unwinding = locks.clone();
    let panicked = tokio::spawn(async move {
        let body = async || -> anyhow::Result<()> { panic!("boom") };
        unwinding.lock(namespace, 1, None).scope(body).await
    });
    let panic = in_time(panicked).await.expect_err("the panic comes through").into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"boom"));
    assert_eq!(held(&server, namespace), 0);
    // Nothing went wrong with the connection itself: the same one serves again.
    assert_eq!((pools.open_connections(), pools.idle_connections()), (1, 1));
    assert_eq!(pools.free_places(), 25);
}

#[tokio::test]
async fn who_gives_up_waiting_leaves_nobody_in_the_queue() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    let other = locks.clone();
    let waiting = tokio::spawn(async move { other.lock(namespace, 1, None).await });
    eventually("one waits", || counted(&server, namespace, false) == 1).await;
    waiting.abort();
    // Long before its timeout of 15 s.
    let began = Instant::now();
    eventually("nobody waits", || counted(&server, namespace, false) == 0).await;
    assert!(began.elapsed() < Duration::from_secs(10));
    in_time(guard.release()).await.expect("released");
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn a_scope_that_is_dropped_gives_its_lock_back() {
    let server = server();
    let (locks, namespace) = (locks(&server, 1), namespace());
    let (tell, inside) = oneshot::channel();
    let scoped = locks.clone();
    let running = tokio::spawn(async move {
        let body = async || {
            let _ = tell.send(());
            std::future::pending::<anyhow::Result<()>>().await
        };
        scoped.lock(namespace, 1, None).scope(body).await
    });
    in_time(inside).await.expect("it runs");
    running.abort();
    eventually("given back", || held(&server, namespace) == 0).await;
    in_time(locks.lock(namespace, 1, None).into_future()).await.expect("and the only place with it");
}

#[tokio::test]
async fn concurrent_hooks_for_same_agent() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    server.sql("CREATE TABLE IF NOT EXISTS same_agent (state int); INSERT INTO same_agent VALUES (0)");
    let hook = |pools: lockkeeper_advisory::Pools| async move {
        let body = async || {
            let connection = pools.connection().await?;
            // Read, wait, write: two at a time would lose one.
            let state: i32 = connection.query_one("SELECT state FROM same_agent", &[]).await?.get(0);
            tokio::time::sleep(Duration::from_millis(100)).await;
            connection.execute("UPDATE same_agent SET state = $1", &[&(state + 1)]).await?;
            anyhow::Ok(state)
        };
        pools.locks().lock(namespace, 7, None).scope(body).await
    };
    let (first, second) = (tokio::spawn(hook(pools.clone())), tokio::spawn(hook(pools.clone())));
    let (first, second) = in_time(async { (first.await, second.await) }).await;
    let mut seen = [first.expect("no panic").expect("processed"), second.expect("no panic").expect("processed")];
    seen.sort_unstable();
    assert_eq!(seen, [0, 1], "the second saw what the first had written");
}

#[tokio::test]
async fn hooks_for_different_agents() {
    let server = server();
    let (locks, namespace) = (locks(&server, 4), namespace());
    let inside = Arc::new(tokio::sync::Barrier::new(4));
    // All four are inside at the same time, or nobody ever comes out.
    let agents: Vec<_> = (0..4)
        .map(|agent| {
            let (locks, inside) = (locks.clone(), inside.clone());
            let body = async move || anyhow::Ok(inside.wait().await.is_leader());
            tokio::spawn(async move { locks.lock(namespace, agent, None).scope(body).await })
        })
        .collect();
    for agent in agents {
        in_time(agent).await.expect("no panic").expect("processed");
    }
}

#[tokio::test]
async fn background_thread_encounters_locked_agent() {
    let server = server();
    let (locks, namespace) = (locks(&server, 2), namespace());
    let processed = Arc::new(AtomicUsize::new(0));
    let cycle = |locks: lockkeeper_advisory::Locks, processed: Arc<AtomicUsize>| async move {
        let body = async |acquired| {
            processed.fetch_add(usize::from(acquired), Ordering::SeqCst);
            anyhow::Ok(())
        };
        locks.lock_or_skip(namespace, 7).scope(body).await
    };
    let hook = in_time(locks.lock(namespace, 7, None).into_future()).await.expect("locked");
    in_time(tokio::spawn(cycle(locks.clone(), processed.clone()))).await.expect("no panic").expect("skipped");
    assert_eq!(processed.load(Ordering::SeqCst), 0);
    in_time(hook.release()).await.expect("released");
    in_time(tokio::spawn(cycle(locks.clone(), processed.clone()))).await.expect("no panic").expect("processed");
    assert_eq!(processed.load(Ordering::SeqCst), 1, "the next cycle does it");
}

#[tokio::test]
async fn reaper_commit_inside_lock() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    server.sql("CREATE TABLE IF NOT EXISTS reaped (agent int)");
    for agent in 0..5 {
        let body = async |acquired: bool| {
            assert!(acquired);
            let mut connection = pools.connection().await?;
            let transaction = connection.transaction().await?;
            transaction.execute("INSERT INTO reaped VALUES ($1)", &[&agent]).await?;
            transaction.commit().await?;
            assert_eq!(held(&server, namespace), 1, "committed inside the lock");
            anyhow::Ok(())
        };
        in_time(pools.locks().lock_or_skip(namespace, agent).scope(body)).await.expect("reaped");
        assert_eq!(held(&server, namespace), 0, "given back before the next agent");
    }
    assert_eq!(server.sql("SELECT count(*) FROM reaped"), "5");
    assert!(pools.open_connections() <= 2, "the same two connections for all of them");
}

#[tokio::test]
async fn two_who_want_what_the_other_has_do_not_wait_past_their_timeout() {
    let server = server();
    let (locks, namespace) = (locks(&server, 4), namespace());
    let cross = |mine: i32,
                 theirs: i32,
                 patience: Duration,
                 meet: Arc<tokio::sync::Barrier>,
                 locks: lockkeeper_advisory::Locks| async move {
        let inner = locks.clone();
        let body = async || {
            meet.wait().await;
            inner.lock(namespace, theirs, patience).scope(async || Ok(())).await
        };
        locks.lock(namespace, mine, None).scope(body).await
    };
    let meet = Arc::new(tokio::sync::Barrier::new(2));
    let one = tokio::spawn(cross(1, 2, Duration::from_millis(500), meet.clone(), locks.clone()));
    let two = tokio::spawn(cross(2, 1, Duration::from_secs(20), meet, locks.clone()));
    let ends = in_time(async { [one.await, two.await] }).await.map(|end| end.expect("no panic"));
    assert!(matches!(ends[0], Err(AdvisoryLockError::Timeout { .. })), "{ends:?}");
    assert!(ends[1].is_ok(), "{ends:?}");
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn what_a_role_has_set_for_others_does_not_end_a_wait_or_a_hold() {
    let server = server();
    let namespace = namespace();
    server.sql("CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET statement_timeout = '100ms'; ALTER ROLE hasty SET idle_session_timeout = '100ms'");
    let url = server.socket_url().replace("postgres@", "hasty@");
    let locks = lockkeeper_advisory::Locks::open(url.parse_address(), 2).expect("locks");
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    let other = locks.clone();
    let waiting = tokio::spawn(async move { other.lock(namespace, 1, Duration::from_secs(20)).await });
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!guard.is_lost() && !waiting.is_finished());
    in_time(guard.release()).await.expect("held to the end");
    in_time(in_time(waiting).await.expect("no panic").expect("granted").release()).await.expect("released");
}

trait ParseAddress {
    fn parse_address(&self) -> lockkeeper_advisory::Address;
}

impl ParseAddress for String {
    fn parse_address(&self) -> lockkeeper_advisory::Address {
        lockkeeper_advisory::Address::parse(self).expect("a URL")
    }
}
