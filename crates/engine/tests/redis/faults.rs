//! Redis stands still, ends, comes back, comes back empty or with an old past, and cuts connections.

use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Base, Batch, BatchId, Confirm, Position, Strength};
use lockkeeper_postgres_fixture::narrow_way;

use crate::server::RedisServer;
use crate::{catch_up, hasty, heard, insist, open, records, write_while};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_send_a_snapshot_the_later_one_stops() {
    const PARTS: u64 = 64;
    let server = RedisServer::start();
    let engines = [open(&server.url()).await, open(&server.url()).await];
    let mut scribe = Scribe::at_origin(&engines[0], "a").await;
    scribe.append_numbers(1, 10).await;
    let quick = Scribe::at_origin(&engines[1], "a").await;
    let (ledger, at) = (scribe.ledger.clone(), scribe.at);
    let slow = tokio::spawn(async move { ledger.compact(at, vec![7; (PARTS as usize) << 20]).await });
    let sent = || {
        let stats = server.ask(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_rpush:calls="));
        calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse::<u64>().expect("a number"))
    };
    while sent() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    quick.ledger.compact(scribe.written[4].position, b"small".to_vec()).await.expect("compacts");
    slow.await.expect("no panic").expect("nothing is wrong");
    assert!(sent() < PARTS, "{} parts were sent", sent());
    assert_eq!(server.ask(&["KEYS", "*snapshot*"]).lines().count(), 1, "what is not wanted is removed");
    let delta = scribe.read(Position::ORIGIN).await;
    assert!(matches!(&delta.base, Base::Snapshot { snapshot, .. } if snapshot == b"small"), "{:?}", delta.base);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_narrow_way_nobody_waits_behind_a_snapshot() {
    const PARTS: usize = 6;
    let server = RedisServer::start();
    let port = narrow_way(server.port, Duration::from_millis(30));
    let engine = open(&format!("redis://127.0.0.1:{port}?timeout_ms=20000")).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 10).await;
    let (ledger, at) = (scribe.ledger.clone(), scribe.at);
    let snapshot = tokio::spawn(async move { ledger.compact(at, vec![7; PARTS << 20]).await });
    let mut appended = 0;
    while !snapshot.is_finished() {
        scribe.append(b"a lock").await;
        appended += 1;
    }
    snapshot.await.expect("no panic").expect("nothing is wrong");
    // Behind the parts of a snapshot there would be room for one after each.
    assert!(appended > 5 * PARTS, "{appended} while {PARTS} parts were sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stands_still_is_told_in_time_and_nothing_is_lost() {
    let server = RedisServer::start();
    let engine = open(&hasty(&server.url())).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 5).await;
    server.pause();
    let began = Instant::now();
    assert!(matches!(scribe.try_append(b"doubtful").await, Append::Unknown(_)), "it may be recorded yet");
    assert!(matches!(scribe.try_append(b"unsent").await, Append::Down(_)), "it was never sent");
    assert!(scribe.ledger.read(scribe.at).await.is_err());
    assert!(matches!(scribe.ledger.confirm(scribe.at).await, Confirm::Down(_)));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server.resume();
    let seen = scribe.written.len();
    let delta = loop {
        match scribe.ledger.read(scribe.at).await {
            Ok(delta) => break delta,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    // What waited in the socket was taken after all: only the doubtful one can be there.
    assert!(delta.records.iter().all(|record| record.payload == b"doubtful") && delta.records.len() <= 1);
    scribe.at = delta.records.last().map_or(scribe.at, |record| record.position);
    insist(&mut scribe, b"after").await;
    assert_eq!(records(&scribe).await[..seen], scribe.written[..seen]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_killed_comes_back_with_all_that_it_acknowledged() {
    let mut server = RedisServer::durable();
    let engine = open(&hasty(&server.url())).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    assert_eq!(scribe.ledger.strength(), Strength::Strict);
    for round in 0..3 {
        scribe.append_numbers(1, 20).await;
        let at = scribe.written[round * 21 + 10].position;
        scribe.ledger.compact(at, vec![round as u8; 100_000]).await.expect("compacts");
        server.kill();
        match scribe.try_append(b"away").await {
            Append::Down(_) | Append::Unknown(_) => {}
            other => panic!("{other:?}"),
        }
        server.start_again();
        insist(&mut scribe, b"again").await;
        let delta = scribe.read(at).await;
        assert_eq!((delta.base, delta.records.as_slice()), (Base::Asked, &scribe.written[round * 21 + 11..]));
    }
}

/// Everybody who knew the ledger learns that it was rewritten, whatever they ask.
async fn learns_of_the_loss(engine_url: &str, scribe: &Scribe, other: &mut Scribe) {
    let Confirm::Moved(delta) = scribe.ledger.confirm(scribe.at).await else { panic!("confirmed what is gone") };
    let void = Base::Rewritten { snapshot: None, position: Position::ORIGIN };
    assert_eq!((delta.base, delta.records.len()), (void.clone(), 0));
    let batch = Batch {
        id: BatchId(77),
        payload: b"stale".to_vec(),
        frees: false,
        awaited: true,
        shown: Vec::new(),
        posted: Vec::new(),
    };
    match scribe.ledger.append(scribe.at, scribe.ledger.now(), batch).await {
        Append::Moved(delta) => assert_eq!(delta.base, void),
        other => panic!("{other:?}"),
    }
    assert_eq!(scribe.read(scribe.at).await.base, void);
    let before = scribe.written.last().expect("something was written").stamp.time;
    other.at = Position::ORIGIN;
    while other.ledger.read(other.at).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let first = other.append(b"anew").await;
    assert!(first.stamp.time >= before, "time does not fall with the ledger");
    assert_ne!(first.position.epoch, scribe.at.epoch);
    let delta = scribe.read(scribe.at).await;
    assert!(matches!(delta.base, Base::Rewritten { snapshot: None, .. }), "{:?}", delta.base);
    assert_eq!(delta.records.len(), 1);
    let fresh = Scribe::at_origin(&open(engine_url).await, "a").await;
    assert_eq!(records(&fresh).await, delta.records);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_redis_is_noticed_though_nobody_asks() {
    let server = RedisServer::start();
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 50).await;
    let mut other = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut moved = scribe.ledger.moved();
    server.ask(&["FLUSHALL"]);
    let took = heard(&mut moved, 0).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    learns_of_the_loss(&server.url(), &scribe, &mut other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_comes_back_empty_is_noticed_though_nobody_asks() {
    let mut server = RedisServer::start();
    let engine = open(&hasty(&server.url())).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 50).await;
    let mut other = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut moved = scribe.ledger.moved();
    server.kill();
    server.start_again();
    heard(&mut moved, 0).await;
    learns_of_the_loss(&server.url(), &scribe, &mut other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_with_an_older_past_is_noticed_even_when_it_is_as_long_as_before() {
    let mut server = RedisServer::start();
    let engine = open(&hasty(&server.url())).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 10).await;
    server.ask(&["SAVE"]);
    let kept = scribe.at;
    scribe.append_numbers(11, 20).await;
    server.kill();
    server.start_again();
    // Another writer goes on from the older past, and comes as far as the first one had.
    let mut other = Scribe::at_origin(&open(&server.url()).await, "a").await;
    catch_up(&mut other).await;
    assert_eq!(other.at, kept);
    other.append_numbers(111, 120).await;
    assert_eq!((other.at.epoch, other.at.revision), (scribe.at.epoch, scribe.at.revision));
    let mut moved = scribe.ledger.moved();
    heard(&mut moved, 0).await;
    let delta = scribe.read(scribe.at).await;
    let start = Position { epoch: kept.epoch, ..Position::ORIGIN };
    assert_eq!(delta.base, Base::Rewritten { snapshot: None, position: start });
    let payloads: Vec<_> = delta.records.iter().map(|record| record.payload.clone()).collect();
    let expected = (1..=10).chain(111..=120).map(|number: u64| number.to_le_bytes().to_vec());
    assert_eq!(payloads, expected.collect::<Vec<_>>());
    assert_eq!(*moved.borrow(), 20, "whoever was told need not be woken again");
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_cost_no_batch_and_double_none() {
    let server = RedisServer::start();
    let engine = open(&server.url()).await;
    let scribe = Scribe::at_origin(&engine, "a").await;
    let cuts = async {
        for _ in 0..60 {
            server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
    };
    write_while(scribe, cuts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_the_subscription_hears_again_and_learns_what_was_missed() {
    let server = RedisServer::start();
    let mut writer = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut listener = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut moved = listener.ledger.moved();
    for round in 1..=5 {
        server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        writer.append(b"news").await;
        heard(&mut moved, round).await;
        catch_up(&mut listener).await;
        assert_eq!(listener.at, writer.at);
    }
    // Told by Redis itself again: far quicker than anybody looks.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    writer.append(b"news").await;
    let took = heard(&mut moved, 6).await;
    assert!(took < Duration::from_millis(900), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_batches_are_told_and_large_ones_are_asked_for() {
    let server = RedisServer::start();
    let mut writer = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut listener = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut moved = listener.ledger.moved();
    writer.append(b"the first").await;
    heard(&mut moved, 1).await;
    catch_up(&mut listener).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut follow = async |length: usize| {
        server.ask(&["CONFIG", "RESETSTAT"]);
        for _ in 0..30 {
            writer.append(&vec![7; length]).await;
            heard(&mut moved, writer.at.revision).await;
            catch_up(&mut listener).await;
            assert_eq!(listener.at, writer.at);
        }
        let stats = server.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).expect("a count");
        line.split(',').next().and_then(|calls| calls.parse::<u64>().ok()).expect("a number")
    };
    // An append each, and a look now and then.
    let asked = follow(1000).await;
    assert!((30..55).contains(&asked), "{asked}");
    let asked = follow(10_000).await;
    assert!(asked >= 60, "{asked}");
    assert_eq!(records(&listener).await, writer.written);
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_are_worlds_of_their_own() {
    let server = RedisServer::start();
    let mut one = Scribe::at_origin(&open(&format!("{}/1", server.url())).await, "a").await;
    let mut two = Scribe::at_origin(&open(&format!("{}/2", server.url())).await, "a").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    one.append_numbers(1, 10).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(*two.ledger.moved().borrow(), 0, "nothing is heard of another database");
    two.append(b"of its own").await;
    assert_eq!(records(&one).await, one.written);
    assert_eq!(records(&two).await, two.written);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_were_forgotten_are_sent_again() {
    let server = RedisServer::start();
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    for number in 0..5_u8 {
        server.ask(&["SCRIPT", "FLUSH"]);
        scribe.append(&[number]).await;
        server.ask(&["SCRIPT", "FLUSH"]);
        scribe.ledger.compact(scribe.at, vec![number]).await.expect("compacts");
    }
    assert_eq!(scribe.ledger.bytes_since_snapshot(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_refuses_what_takes_and_still_takes_what_frees() {
    let server = RedisServer::with(&["--maxmemory", "64mb"]);
    let engine = open(&server.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let large = vec![7; 1 << 20];
    while let Append::Appended(_) = scribe.try_append(&large).await {
        assert!(scribe.written.len() < 100, "the memory is limited");
    }
    assert!(matches!(scribe.try_append(&large).await, Append::Full));
    assert!(matches!(scribe.ledger.confirm(scribe.at).await, Confirm::Current), "lists still work");
    let frees = Batch {
        id: BatchId(5),
        payload: b"frees".to_vec(),
        frees: true,
        awaited: false,
        shown: Vec::new(),
        posted: Vec::new(),
    };
    let Append::Appended(freed) = scribe.ledger.append(scribe.at, scribe.ledger.now(), frees).await else {
        panic!("what frees is taken");
    };
    scribe.at = freed.position;
    scribe.ledger.compact(scribe.at, vec![1; 2 << 20]).await.expect("a snapshot frees, too");
    scribe.append(&large).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_ledger_hardly_asks_anything() {
    let server = RedisServer::start();
    let engine = open(&server.url()).await;
    let scribe = Scribe::at_origin(&engine, "a").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let commands = || -> u64 {
        let info = server.ask(&["INFO", "stats"]);
        let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).expect("a count");
        line.trim().parse().expect("a number")
    };
    let before = commands();
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Our own question, a look a second with what it reads, and a ping now and then.
    let asked = commands() - before;
    assert!(asked <= 4 * 5 + 3, "{asked} in three seconds");
    drop(scribe);
}
