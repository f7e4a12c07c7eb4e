//! Who looks sees what is there: all locks of this database, and of no other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_advisory::{Address, AdvisoryLockError, LockNamespace, LockRow, Monitor, Namespaces, Report};
use lockkeeper_postgres_fixture::{Options, Postgres};

use crate::ground::{counted, eventually, in_time, locks, namespace, server};

fn monitor(url: &str, names: Namespaces) -> Monitor {
    Monitor::new(Address::parse(url).expect("a URL"), names)
}

fn of<'a>(report: &'a Report, name: &str) -> Vec<&'a LockRow> {
    report.locks.iter().filter(|row| row.namespace.as_deref() == Some(name)).collect()
}

#[tokio::test]
async fn query_advisory_locks() {
    let server = server();
    let (locks, namespace) = (locks(&server, 3), namespace());
    let mut names = Namespaces::default();
    names.name("REPORT", namespace).expect("a name");
    let monitor = monitor(&server.url(), names);
    let guard = in_time(locks.lock(namespace, -5, None).into_future()).await.expect("locked");
    let other = locks.clone();
    let waiting = tokio::spawn(async move { other.lock(namespace, -5, None).await });
    eventually("one waits", || counted(&server, namespace, false) == 1).await;

    let report = in_time(monitor.locks()).await.expect("listed");
    assert_eq!(report.status, "ok");
    assert!(report.total >= 2 && report.total == report.locks.len() as u64);
    let [held, waits] = of(&report, "REPORT")[..] else { panic!("{report:?}") };
    assert_eq!((held.pid, held.granted, held.entity_id), (guard.pid(), true, -5));
    assert_eq!((held.mode.as_str(), held.form.as_str()), ("ExclusiveLock", "two_integers"));
    assert_eq!((held.application_name.as_deref(), held.state.as_deref()), (Some("lockkeeper-advisory"), Some("idle")));
    assert!(held.query_start.as_ref().is_some_and(|at| at.starts_with("20") && at.ends_with('Z')), "{held:?}");
    assert!(held.duration_seconds.is_some_and(|seconds| (0.0..60.0).contains(&seconds)));
    assert_eq!(held.waiting_for, [0; 0]);
    assert_eq!((waits.granted, waits.waiting_for.as_slice()), (false, &[guard.pid()][..]));
    assert_eq!(waits.state.as_deref(), Some("active"));

    let json = serde_json_keys(&report);
    for field in [
        "status",
        "total",
        "locks",
        "pid",
        "application_name",
        "state",
        "query_start",
        "namespace",
        "entity_id",
        "mode",
        "granted",
        "duration_seconds",
        "waiting_for",
    ] {
        assert!(json.contains(&format!("{field}:")), "{field}");
    }
    in_time(guard.release()).await.expect("released");
    in_time(in_time(waiting).await.expect("no panic").expect("granted").release()).await.expect("released");
}

/// The names of the fields, as they are written down.
fn serde_json_keys(report: &Report) -> String {
    format!("{report:?}").replace(' ', "")
}

#[tokio::test]
async fn locks_of_another_database_are_not_shown() {
    let server = server();
    server.create_database("neighbour");
    let namespace = namespace();
    let there = lockkeeper_advisory::Locks::open(Address::parse(&server.url_of("neighbour")).expect("a URL"), 1)
        .expect("locks");
    let _guard = in_time(there.lock(namespace, 1, None).into_future()).await.expect("locked");
    let name = namespace.number().to_string();
    let here = in_time(monitor(&server.url(), Namespaces::default()).locks()).await.expect("listed");
    assert!(of(&here, &name).is_empty());
    let there = in_time(monitor(&server.url_of("neighbour"), Namespaces::default()).locks()).await.expect("listed");
    assert_eq!((of(&there, &name).len(), there.total), (1, 1));
}

#[tokio::test]
async fn locks_with_one_big_integer_are_shown_too() {
    let server = server();
    let (client, connection) =
        tokio_postgres::connect(&server.socket_url(), tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    let big = [i64::MIN, -1, 7_000_000_000_123, i64::MAX];
    for key in big {
        client.query_one("SELECT pg_advisory_lock_shared($1)", &[&key]).await.expect("locked");
    }
    let report = in_time(monitor(&server.url(), Namespaces::default()).locks()).await.expect("listed");
    let rows: Vec<_> = report.locks.iter().filter(|row| row.form == "bigint").collect();
    let mut seen: Vec<i64> = rows.iter().map(|row| row.entity_id).collect();
    seen.sort_unstable();
    assert_eq!(seen, big);
    assert!(rows.iter().all(|row| row.namespace.is_none() && row.mode == "ShareLock" && row.granted));
}

#[tokio::test]
async fn counts_are_by_namespace_and_cost_at_most_one_question_a_second() {
    let server = Postgres::start_with(&Options::quick().set("log_statement", "all"));
    let locks = locks(&server, 2);
    let guard = in_time(locks.lock(LockNamespace::AGENT, 1, None).into_future()).await.expect("locked");
    server.sql("SELECT 1");
    let monitor = Arc::new(monitor(&server.url(), Namespaces::default()));
    let asked = || server.log().matches("FILTER (WHERE granted) AS held").count();
    eventually("counted", || {
        asked() > 0 || {
            futures_now(&monitor);
            false
        }
    })
    .await;
    let began = Instant::now();
    let before = asked();
    while began.elapsed() < Duration::from_millis(500) {
        let counts = monitor.counts().await;
        assert!(!counts.up || counts.by_namespace.get("AGENT") == Some(&(1, 0)), "{counts:?}");
    }
    let most = began.elapsed().as_secs() as usize + 1;
    assert!(asked() - before <= most, "{} questions in {:?}", asked() - before, began.elapsed());
    in_time(guard.release()).await.expect("released");
}

/// Begins to count, and does not wait for it.
fn futures_now(monitor: &Arc<Monitor>) {
    let monitor = monitor.clone();
    tokio::spawn(async move { monitor.counts().await });
}

#[tokio::test]
async fn a_database_that_is_away_slows_nobody_down() {
    let server = Postgres::start_with(&Options::quick());
    let monitor = Arc::new(monitor(&server.url(), Namespaces::default()));
    eventually("up", || {
        futures_now(&monitor);
        true
    })
    .await;
    in_time(monitor.locks()).await.expect("listed");
    server.pause();
    let began = Instant::now();
    let listed = in_time(monitor.locks()).await;
    assert!(matches!(listed, Err(AdvisoryLockError::Unavailable(_))), "{listed:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let began = Instant::now();
    for _ in 0..4 {
        in_time(monitor.counts()).await;
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    server.resume();
    in_time(monitor.locks()).await.expect("it comes back");
}

#[tokio::test]
async fn lists_that_take_long_do_not_mean_that_the_database_is_down() {
    let server = Postgres::start_with(&Options::quick());
    // A list takes two seconds more than a count.
    server.sql("CREATE SCHEMA slow");
    for (view, seconds) in [("pg_stat_activity", 2.0), ("pg_locks", 0.3)] {
        server.sql(&format!(
            "CREATE VIEW slow.{view} AS SELECT * FROM pg_catalog.{view} WHERE (SELECT pg_sleep({seconds})) IS NOT NULL"
        ));
    }
    server.sql("ALTER DATABASE postgres SET search_path = slow, pg_catalog");
    let locks = locks(&server, 1);
    let _guard = in_time(locks.lock(LockNamespace::AGENT, 1, None).into_future()).await.expect("locked");
    let monitor = Arc::new(monitor(&server.url(), Namespaces::default()));
    let began = Instant::now();
    while !in_time(monitor.counts()).await.up {
        assert!(began.elapsed() < Duration::from_secs(20), "never up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let began = Instant::now();
    let mut lists = Vec::new();
    while began.elapsed() < Duration::from_secs(8) {
        let lister = monitor.clone();
        lists.push(tokio::spawn(async move { lister.locks().await }));
        let counts = in_time(monitor.counts()).await;
        assert!(counts.up && counts.by_namespace["AGENT"] == (1, 0), "{counts:?} after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut listed = 0;
    for list in lists {
        listed += usize::from(in_time(list).await.expect("no panic").is_ok_and(|report| report.total == 1));
    }
    assert!(listed >= 1, "the list was slow, and nothing else");
}
