//! What happens to locks when something dies: the holder, its session, or the server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_advisory::{Address, AdvisoryLockError, LockNamespace, Locks, Pools};
use lockkeeper_postgres_fixture::{Options, Postgres, Stop};
use rustix::process::{Pid, Signal, kill_process};

use crate::ground::{counted, eventually, held, in_time, locks, namespace, pools, server};

/// Another process that holds a lock, until it is ended.
struct Holder(Child);

impl Holder {
    /// One that may have to wait.
    fn spawn(server: &Postgres, namespace: LockNamespace, id: i32) -> Holder {
        let program = std::env::current_exe().expect("a path");
        let program = program.parent().and_then(|deps| deps.parent()).expect("a folder").join("examples/hold");
        let mut command = Command::new(&program);
        command.args([namespace.number().to_string(), id.to_string()]).env("DATABASE_URL", server.url());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{}: {error}; cargo build -p lockkeeper-advisory --examples makes it", program.display())
        });
        Holder(child)
    }

    fn start(server: &Postgres, namespace: LockNamespace, id: i32) -> Holder {
        let mut holder = Holder::spawn(server, namespace, id);
        let mut said = String::new();
        BufReader::new(holder.0.stdout.as_mut().expect("piped")).read_line(&mut said).expect("a line");
        assert!(said.starts_with("held by"), "{said}");
        holder
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn terminate(server: &Postgres, pid: i32) {
    assert_eq!(server.sql(&format!("SELECT pg_terminate_backend({pid})")), "t");
}

#[tokio::test]
async fn a_killed_holder_holds_no_longer() {
    let server = server();
    let (locks, namespace) = (locks(&server, 1), namespace());
    let mut holder = Holder::start(&server, namespace, 1);
    let other = locks.clone();
    let waiting = tokio::spawn(async move { other.lock(namespace, 1, None).await });
    eventually("one waits", || counted(&server, namespace, false) == 1).await;
    holder.0.kill().expect("killed");
    in_time(in_time(waiting).await.expect("no panic").expect("granted").release()).await.expect("held to the end");
}

#[tokio::test]
async fn a_stopped_holder_keeps_its_lock_and_nobody_waits_past_their_timeout() {
    let server = server();
    let (locks, namespace) = (locks(&server, 1), namespace());
    let mut holder = Holder::start(&server, namespace, 1);
    holder.signal(Signal::STOP);
    let began = Instant::now();
    let refused = in_time(locks.lock(namespace, 1, Duration::from_millis(500)).into_future()).await;
    assert!(matches!(refused, Err(AdvisoryLockError::Timeout { .. })), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    holder.signal(Signal::CONT);
    drop(holder.0.stdin.take());
    assert!(holder.0.wait().expect("it ends").success(), "it held to the end");
    in_time(locks.lock(namespace, 1, None).into_future()).await.expect("free");
}

#[tokio::test]
async fn a_killed_waiter_leaves_the_queue_long_before_its_timeout() {
    let server = server();
    let (locks, namespace) = (locks(&server, 2), namespace());
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    let mut waiter = Holder::spawn(&server, namespace, 1);
    eventually("it waits", || counted(&server, namespace, false) == 1).await;
    waiter.0.kill().expect("killed");
    // The server looks every two seconds; the wait itself would be 15 s.
    let began = Instant::now();
    eventually("nobody waits", || counted(&server, namespace, false) == 0).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    in_time(guard.release()).await.expect("held to the end");
}

#[tokio::test]
async fn who_loses_a_lock_learns_it_at_once_and_the_pool_heals() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    let locks = pools.locks();
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    assert!(!guard.is_lost());
    terminate(&server, guard.pid());
    let lost = in_time(guard.lost()).await;
    assert!(matches!(&lost, AdvisoryLockError::Lost { why, .. } if why.contains("administrator")), "{lost}");
    assert!(guard.is_lost());
    let released = in_time(guard.release()).await;
    assert!(matches!(released, Err(AdvisoryLockError::Lost { .. })), "{released:?}");
    in_time(locks.lock(namespace, 1, None).scope(async || anyhow::Ok(()))).await.expect("another connection serves");
    eventually("all places are free", || pools.free_places() == 25).await;
}

#[tokio::test]
async fn a_scope_that_loses_its_lock_is_ended_and_says_so() {
    let server = server();
    let (locks, namespace) = (locks(&server, 2), namespace());
    let body = async || {
        let pid = server.sql(&format!("SELECT pid FROM pg_locks WHERE classid = {}", namespace.number()));
        terminate(&server, pid.parse().expect("a number"));
        std::future::pending::<Result<(), AdvisoryLockError>>().await
    };
    let ended = in_time(locks.lock(namespace, 1, None).scope(body)).await;
    assert!(matches!(ended, Err(AdvisoryLockError::Lost { .. })), "{ended:?}");
    in_time(locks.lock(namespace, 1, None).scope(async || anyhow::Ok(()))).await.expect("the only place is free again");
}

#[tokio::test]
async fn a_kept_connection_that_died_is_not_noticed_by_the_next() {
    let server = server();
    let (locks, namespace) = (locks(&server, 1), namespace());
    for _ in 0..5 {
        let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
        let pid = guard.pid();
        in_time(guard.release()).await.expect("held to the end");
        terminate(&server, pid);
    }
}

#[tokio::test]
async fn a_restart_in_the_middle_ends_holds_and_waits_and_the_pool_heals() {
    let mut server = Postgres::start_with(&Options::quick());
    let (pools, namespace) = (Pools::open(&server.url()).expect("pools"), namespace());
    let locks = pools.locks();
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    let connection = in_time(pools.connection()).await.expect("a connection");
    let other = locks.clone();
    let waiting = tokio::spawn(async move { other.lock(namespace, 1, Duration::from_secs(20)).await });
    eventually("one waits", || counted(&server, namespace, false) == 1).await;
    let server = tokio::task::spawn_blocking(move || {
        server.stop(Stop::Immediate);
        server
    });
    let mut server = in_time(server).await.expect("stopped");
    let lost = in_time(guard.lost()).await;
    assert!(matches!(lost, AdvisoryLockError::Lost { .. }), "{lost}");
    let ended = in_time(waiting).await.expect("no panic");
    assert!(matches!(ended, Err(AdvisoryLockError::Unavailable(_))), "{ended:?}");
    let away = in_time(locks.lock(namespace, 2, None).into_future()).await;
    assert!(matches!(away, Err(AdvisoryLockError::Unavailable(_))), "{away:?}");
    drop((guard, connection));
    server.run();
    in_time(locks.lock(namespace, 1, None).scope(async || anyhow::Ok(()))).await.expect("healed");
    in_time(pools.connection()).await.expect("healed").execute("SELECT 1", &[]).await.expect("it answers");
    eventually("all places are free", || pools.free_places() == 25).await;
    assert!(pools.open_connections() <= 2);
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn a_server_that_does_not_answer_keeps_nobody_past_their_timeout() {
    let server = Postgres::start_with(&Options::quick());
    let url = server.url();
    let (locks, namespace) = (Locks::open(Address::parse(&url).expect("a URL"), 3).expect("locks"), namespace());
    let guard = in_time(locks.lock(namespace, 1, None).into_future()).await.expect("locked");
    in_time(locks.lock(namespace, 2, None).scope(async || anyhow::Ok(()))).await.expect("a kept connection");
    server.pause();
    for id in [2, 3] {
        // Over a kept connection, and over a new one.
        let began = Instant::now();
        let ended = in_time(locks.lock(namespace, id, Duration::from_secs(1)).into_future()).await;
        assert!(matches!(ended, Err(AdvisoryLockError::Unavailable(_))), "{ended:?}");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
    server.resume();
    assert!(!guard.is_lost(), "the server was only slow, and the lock is still held");
    in_time(guard.release()).await.expect("held to the end");
    in_time(locks.lock(namespace, 2, None).scope(async || anyhow::Ok(()))).await.expect("healed");
    eventually("nothing is left behind", || held(&server, namespace) == 0).await;
}

#[tokio::test]
async fn keepalives_are_set_on_both_sides() {
    let server = server();
    let (pools, namespace) = (Pools::open(&server.url()).expect("pools"), namespace());
    let guard = in_time(pools.locks().lock(namespace, 1, None).into_future()).await.expect("locked");
    // What a session has set is seen from inside only; the timers that come of it are seen in the kernel, at both ends.
    let place = format!("127.0.0.1:{}", server.port());
    let both_ends = || {
        let listed = Command::new("ss").args(["-t", "-n", "-o", "state", "established"]).output().expect("ss is there");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let timed = listed.lines().filter(|line| line.contains("keepalive"));
        // A timer of two hours is that of the system, and nobody's wish.
        let soon = timed.filter(|line| line.contains(&place) && !line.contains("min"));
        soon.count() >= 2
    };
    eventually("both ends of the connection have a timer", both_ends).await;
    in_time(guard.release()).await.expect("held to the end");
}
