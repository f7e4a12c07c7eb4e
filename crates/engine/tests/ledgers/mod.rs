//! Ledgers on a server that does not always answer, for the tests of every such engine.

use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Base, Position};
use tokio::sync::watch;

const MICROS: i64 = 1_000_000;

/// Waits until a ledger says that it is so long.
pub(crate) async fn heard(moved: &mut watch::Receiver<u64>, revision: u64) -> Duration {
    let began = Instant::now();
    let heard = moved.wait_for(|moved| *moved == revision);
    tokio::time::timeout(Duration::from_secs(20), heard).await.expect("within a moment").expect("the engine lives");
    began.elapsed()
}

/// Writes 300 batches while something cuts connections, and finds each of them once.
pub(crate) async fn write_while(mut scribe: Scribe, cuts: impl Future<Output = ()>) {
    let writes = async {
        for number in 0..300_u64 {
            insist(&mut scribe, &number.to_le_bytes()).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::join!(cuts, writes);
    let kept = records(&scribe).await;
    assert_eq!(kept, scribe.written);
    let numbers: Vec<_> = kept.iter().map(|record| record.payload.clone()).collect();
    assert_eq!(numbers, (0..300_u64).map(|number| number.to_le_bytes().to_vec()).collect::<Vec<_>>());
}

/// Brings a scribe to the end, wherever that is.
pub(crate) async fn catch_up(scribe: &mut Scribe) {
    let delta = scribe.read(scribe.at).await;
    if let Base::Rewritten { position, .. } = delta.base {
        scribe.at = position;
    }
    scribe.at = delta.records.last().map_or(scribe.at, |record| record.position);
}

/// Appends whatever it takes, as a keeper does: what may have been recorded is looked for.
pub(crate) async fn insist(scribe: &mut Scribe, payload: &[u8]) {
    for _ in 0..200 {
        match scribe.try_append(payload).await {
            Append::Appended(_) => return,
            Append::Moved(_) => panic!("nobody else writes"),
            Append::Full => panic!("there is room"),
            Append::Taken(_) => panic!("nothing is shown"),
            Append::Unknown(_) | Append::Down(_) => {}
        }
        if let Ok(delta) = scribe.ledger.read(scribe.at).await
            && let Some(record) = delta.records.first()
        {
            assert_eq!((delta.base, record.payload.as_slice()), (Base::Asked, payload));
            scribe.at = record.position;
            scribe.written.push(record.clone());
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it was not recorded");
}

/// Everything that the ledger of a scribe holds.
pub(crate) async fn records(scribe: &Scribe) -> Vec<lockkeeper_engine::Record> {
    let delta = scribe.read(Position::ORIGIN).await;
    assert_eq!(delta.base, Base::Asked);
    delta.records
}

const SECOND: u64 = 1_000_000;

/// Time goes on while `jump` sets the server's clock by so many microseconds; for whoever remembers, and for whoever does not.
pub(crate) async fn time_runs_on(mut scribe: Scribe, fresh: impl AsyncFn() -> Scribe, mut jump: impl FnMut(i64)) {
    let mut last = scribe.append(b"first").await.stamp.time.0;
    for seconds in [3700, -3700, -3700, 86_400] {
        jump(seconds * MICROS);
        scribe.ledger.confirm(scribe.at).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = scribe.ledger.now().time.0;
        let stamp = scribe.append(b"after the jump").await.stamp.time.0;
        assert!(stamp >= now && now >= last + SECOND / 10, "time runs on: {last} {now} {stamp}");
        assert!(stamp < last + 5 * SECOND, "and not ahead: {last} {stamp}");
        last = stamp;
        // Whoever remembers nothing goes on from there as well.
        let mut fresh = fresh().await;
        fresh.at = scribe.at;
        let stamp = fresh.append(b"of another").await.stamp.time.0;
        assert!(stamp >= last && stamp < last + 5 * SECOND, "{last} {stamp}");
        (scribe.at, last) = (fresh.at, stamp);
        // Also when nothing but a snapshot is left of the past.
        fresh.ledger.compact(fresh.at, b"all".to_vec()).await.expect("compacts");
    }
}

/// `jump` sets the server's clock by so many microseconds: little enough that nobody would call it a jump.
pub(crate) async fn small_steps_gain_nothing(mut scribe: Scribe, mut jump: impl FnMut(i64)) {
    const STEP: i64 = 400_000;
    // A tenth of one step, however many there are.
    const MOMENT: u64 = 40_000;
    let (begin, first) = (Instant::now(), scribe.append(b"first").await.stamp.time.0);
    for _ in 0..10 {
        jump(STEP);
        scribe.ledger.confirm(scribe.at).await;
        let last = scribe.append(b"after a step").await.stamp.time.0;
        let passed = begin.elapsed().as_micros() as u64;
        assert!(last - first < passed + passed / 100 + MOMENT, "{} µs in {passed}", last - first);
    }
    // And none is lost by steps back.
    for _ in 0..10 {
        jump(-STEP);
        let before = Instant::now();
        let last = scribe.append(b"after a step back").await.stamp.time.0;
        let passed = (before - begin).as_micros() as u64;
        assert!(last - first + passed / 100 + MOMENT >= passed, "{} µs in {passed}", last - first);
    }
}

/// Two writers take turns while `jump` sets the server's clock by so many microseconds.
pub(crate) async fn writers_agree_on_the_time(mut one: Scribe, mut two: Scribe, mut jump: impl FnMut(i64)) {
    let mut last = 0;
    for round in 0..50_i64 {
        if round % 10 == 5 {
            jump((round - 25) * 100 * MICROS);
        }
        for scribe in [&mut one, &mut two] {
            catch_up(scribe).await;
            let now = scribe.ledger.now().time.0;
            let stamp = scribe.append(b"x").await.stamp.time.0;
            assert!(stamp >= last && stamp >= now, "{last} {now} {stamp}");
            assert!(last == 0 || stamp < last + 5 * SECOND, "{last} {stamp}");
            last = stamp;
        }
    }
}

/// `far` is a ledger of the same server as `near`, whose answers take long.
pub(crate) async fn a_distant_lease_begins_when_it_was_asked_for(mut near: Scribe, mut far: Scribe) {
    near.append(b"first").await;
    for _ in 0..5 {
        catch_up(&mut near).await;
        near.append(b"so that its time is exact").await;
        catch_up(&mut far).await;
        // A lower bound: it is not earlier than this.
        let asked = near.ledger.now().time;
        let stamp = far.append(b"asked for now").await.stamp.time;
        assert!(stamp >= asked, "{} µs too early", asked.0 - stamp.0);
    }
}
