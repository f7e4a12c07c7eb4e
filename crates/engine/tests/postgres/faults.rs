//! PostgreSQL stands still, ends, comes back, comes back with an old past, and cuts connections.

use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Base, Confirm, Position};
use lockkeeper_postgres_fixture::{Options, Postgres, Stop};

use crate::{catch_up, hasty, heard, insist, open, records, write_while};

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_stands_still_is_told_in_time_and_nothing_is_lost() {
    let server = Postgres::start();
    let engine = open(&hasty(&server.url())).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let mut doubtful = 0;
    // A statement of the background may have the connection at that moment: then nothing is sent, and there is no doubt.
    for _ in 0..5 {
        insist(&mut scribe, b"before").await;
        doubtful += append_while_it_stands_still(&server, &mut scribe).await;
        if doubtful > 0 {
            break;
        }
    }
    assert!(doubtful > 0, "none of five was on its way when the server stood still");
    let seen = scribe.written.len();
    insist(&mut scribe, b"after").await;
    assert_eq!(records(&scribe).await[..seen], scribe.written[..seen]);
}

/// Nobody is kept waiting, and what is said not to be recorded is not: how many appends may have been recorded.
async fn append_while_it_stands_still(server: &Postgres, scribe: &mut Scribe) -> usize {
    server.pause();
    let began = Instant::now();
    let mut may_be_there: Vec<&[u8]> = Vec::new();
    for payload in [b"first".as_slice(), b"second"] {
        match scribe.try_append(payload).await {
            Append::Unknown(_) => may_be_there.push(payload),
            Append::Down(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(scribe.ledger.read(scribe.at).await.is_err());
    assert!(matches!(scribe.ledger.confirm(scribe.at).await, Confirm::Down(_)));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.resume();
    // What waited in the socket may be taken after all, until the server learns that nobody waits for it.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let delta = loop {
        match scribe.ledger.read(scribe.at).await {
            Ok(delta) => break delta,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(delta.records.iter().all(|record| may_be_there.contains(&&*record.payload)), "{delta:?}");
    assert!(delta.records.len() <= 1);
    catch_up(scribe).await;
    may_be_there.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_was_killed_comes_back_with_all_that_it_acknowledged() {
    let mut server = Postgres::start();
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    for round in 0..3 {
        scribe.append_numbers(1, 20).await;
        let at = scribe.written[round * 21 + 10].position;
        scribe.ledger.compact(at, vec![round as u8; 100_000]).await.expect("compacts");
        if round == 1 {
            server.stop(Stop::Immediate);
        } else {
            server.kill();
        }
        match scribe.try_append(b"away").await {
            Append::Down(_) | Append::Unknown(_) => {}
            other => panic!("{other:?}"),
        }
        server.run();
        insist(&mut scribe, b"again").await;
        let delta = scribe.read(at).await;
        assert_eq!((delta.base, delta.records.as_slice()), (Base::Asked, &scribe.written[round * 21 + 11..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_loses_the_last_second_is_noticed_even_when_the_ledger_is_as_long_as_before() {
    let server = Postgres::start_with(&Options::quick());
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    scribe.append_numbers(1, 10).await;
    let kept = scribe.at;
    scribe.append_numbers(11, 20).await;
    // The state that a replica has which lags behind.
    server.sql("delete from lockkeeper_records where revision > 10");
    let mut other = Scribe::at_origin(&open(&server.url()).await, "a").await;
    catch_up(&mut other).await;
    assert_eq!(other.at, kept);
    other.append_numbers(111, 120).await;
    assert_eq!((other.at.epoch, other.at.revision), (scribe.at.epoch, scribe.at.revision));
    let mut moved = scribe.ledger.moved();
    heard(&mut moved, 0).await;
    match scribe.try_append(b"stale").await {
        Append::Moved(delta) => assert!(matches!(delta.base, Base::Rewritten { .. })),
        other => panic!("{other:?}"),
    }
    let delta = scribe.read(scribe.at).await;
    let start = Position { epoch: kept.epoch, ..Position::ORIGIN };
    assert_eq!(delta.base, Base::Rewritten { snapshot: None, position: start });
    let payloads: Vec<_> = delta.records.iter().map(|record| record.payload.clone()).collect();
    let expected = (1..=10).chain(111..=120).map(|number: u64| number.to_le_bytes().to_vec());
    assert_eq!(payloads, expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_gone_is_noticed_though_nobody_asks() {
    let server = Postgres::start_with(&Options::quick());
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    scribe.append_numbers(1, 50).await;
    let mut moved = scribe.ledger.moved();
    server.sql("truncate lockkeeper_ledgers, lockkeeper_records, lockkeeper_snapshots, lockkeeper_documents");
    heard(&mut moved, 0).await;
    let Confirm::Moved(delta) = scribe.ledger.confirm(scribe.at).await else { panic!("confirmed what is gone") };
    assert_eq!(delta.base, Base::Rewritten { snapshot: None, position: Position::ORIGIN });
    let before = scribe.written.last().expect("something was written").stamp.time;
    let old = scribe.at;
    scribe.at = Position::ORIGIN;
    let first = scribe.append(b"anew").await;
    assert!(first.stamp.time >= before, "time does not fall with the ledger");
    assert_ne!(first.position.epoch, old.epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_cost_no_batch_and_double_none() {
    let server = Postgres::start_with(&Options::quick());
    let scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let cuts = async {
        for _ in 0..20 {
            server.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'lockkeeper'");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    write_while(scribe, cuts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_the_connection_hears_again_and_learns_what_was_missed() {
    let server = Postgres::start_with(&Options::quick());
    let mut writer = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut listener = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut moved = listener.ledger.moved();
    for round in 1..=5 {
        server.sql("select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%'");
        writer.append(b"news").await;
        heard(&mut moved, round).await;
        catch_up(&mut listener).await;
        assert_eq!(listener.at, writer.at);
    }
    // Told by PostgreSQL itself again: far quicker than anybody looks.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let mut quickest = Duration::MAX;
    for round in 6..=10 {
        writer.append(b"news").await;
        quickest = quickest.min(heard(&mut moved, round).await);
        catch_up(&mut listener).await;
    }
    assert!(quickest < Duration::from_millis(200), "{quickest:?}");
}

/// Six writers, who write fifty batches each.
async fn write_at_once(url: &str) {
    let mut writers = Vec::new();
    for writer in 0..6_u8 {
        let url = url.to_owned();
        writers.push(tokio::spawn(async move {
            let mut scribe = Scribe::at_origin(&open(&url).await, "a").await;
            let mut done = 0_u8;
            while done < 50 {
                match scribe.try_append(&[writer, done]).await {
                    Append::Appended(_) => done += 1,
                    Append::Moved(delta) => {
                        scribe.at = delta.records.last().expect("something was missed").position;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_at_once_take_turns_and_nothing_is_lost_or_doubled() {
    let server = Postgres::start_with(&Options::quick());
    write_at_once(&server.url()).await;
    let scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut payloads: Vec<_> = records(&scribe).await.into_iter().map(|record| record.payload).collect();
    payloads.sort();
    let expected = (0..6_u8).flat_map(|writer| (0..50_u8).map(move |number| vec![writer, number]));
    assert_eq!(payloads, expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_slept_through_a_compaction_writes_nothing_into_the_past() {
    let server = Postgres::start_with(&Options::quick());
    let mut sleeper = Scribe::at_origin(&open(&format!("{}?timeout_ms=30000", server.url())).await, "a").await;
    sleeper.append(b"first").await;
    // Somebody stands in its way for a moment, so that it can be caught in the middle of its statement.
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    let block =
        "begin; insert into lockkeeper_records select ledger, 2, 0, 0, '', 0, 0, 0, 0, '' from lockkeeper_records";
    client.batch_execute(block).await.expect("blocks");
    let sleeping = tokio::spawn(async move {
        let append = sleeper.try_append(b"of the sleeper").await;
        (sleeper, append)
    });
    let backend = loop {
        let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock'";
        let pid = server.sql(waiting);
        if !pid.is_empty() {
            break pid;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args([name, &backend]).status().expect("kill runs").success());
    };
    signal("-STOP");
    client.batch_execute("rollback").await.expect("unblocks");
    let mut other = Scribe::at_origin(&open(&server.url()).await, "a").await;
    catch_up(&mut other).await;
    other.append_numbers(2, 3).await;
    other.ledger.compact(other.at, b"all".to_vec()).await.expect("compacts");
    signal("-CONT");
    let (mut sleeper, append) = sleeping.await.expect("ends");
    match append {
        Append::Moved(delta) => assert!(matches!(delta.base, Base::Snapshot { .. }), "{:?}", delta.base),
        other => panic!("{other:?}"),
    }
    sleeper.at = other.at;
    sleeper.append(b"awake").await;
    let fresh = Scribe::at_origin(&open(&server.url()).await, "a").await;
    assert_eq!(fresh.read(Position::ORIGIN).await.records.len(), 1, "the ledger is whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_other_habits_is_used_as_if_it_had_none() {
    let server = Postgres::start_with(
        &Options::default().set("default_transaction_isolation", "serializable").set("idle_session_timeout", "300ms"),
    );
    write_at_once(&server.url()).await;
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    catch_up(&mut scribe).await;
    scribe.append(b"after a rest").await;
}
