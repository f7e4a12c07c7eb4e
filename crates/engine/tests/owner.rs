//! One owner for a directory, and a clock that outlives it.

mod desk;

use std::sync::Arc;

use lockkeeper_core::space::Space;
use lockkeeper_core::time::Time;
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Durability, Embedded, Engine, EngineError, FakeTime, Reading};

const WALL: u64 = 1_700_000_000_000_000;
const DAY: u64 = 86_400_000_000;

#[tokio::test]
async fn a_second_owner_is_refused_and_told_who_the_first_is() {
    let root = tempfile::tempdir().expect("a directory");
    let engine = desk::open_engine(root.path()).expect("opens");
    let refusal = desk::open_engine(root.path()).expect_err("is in use");
    let holder = Some(std::process::id());
    assert_eq!(refusal, EngineError::InUse { place: root.path().display().to_string(), holder });
    assert!(refusal.to_string().contains(&format!("pid {}", std::process::id())), "{refusal}");
    let scribe = Scribe::at_origin(&engine, "a").await;
    drop(engine);
    desk::open_engine(root.path()).expect_err("a ledger is still open");
    drop(scribe);
    desk::open_engine(root.path()).expect("nobody is left");
}

#[tokio::test]
async fn who_opens_a_space_twice_gets_the_same_ledger() {
    let root = tempfile::tempdir().expect("a directory");
    let engine = desk::open_engine(root.path()).expect("opens");
    let space = Space::parse("a").expect("a name");
    let (one, two) = tokio::join!(engine.open(&space), engine.open(&space));
    assert!(Arc::ptr_eq(&one.expect("opens"), &two.expect("opens")));
}

async fn scribe_with(root: &std::path::Path, time: &Arc<FakeTime>) -> Scribe {
    let engine = Embedded::with_time(root, Durability::Always, time.clone()).expect("opens");
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let delta = scribe.read(scribe.at).await;
    scribe.at = delta.records.last().map_or(scribe.at, |record| record.position);
    scribe
}

fn fake() -> Arc<FakeTime> {
    Arc::new(FakeTime::new(Reading { boot: 5, since_boot: 1_000_000, wall: WALL }))
}

#[tokio::test]
async fn time_runs_on_over_a_restart_whatever_the_wall_clock_does() {
    let root = tempfile::tempdir().expect("a directory");
    let time = fake();
    let mut scribe = scribe_with(root.path(), &time).await;
    assert_eq!(scribe.append(b"one").await.stamp.time, Time(WALL));
    time.pass(100);
    scribe.append(b"two").await;
    drop(scribe);
    time.pass(5_000_000);
    for wall in [0, WALL - DAY, WALL + DAY] {
        time.set_wall(wall);
        let scribe = scribe_with(root.path(), &time).await;
        assert_eq!((scribe.ledger.now().time, scribe.ledger.now().wall), (Time(WALL + 5_000_100), wall));
    }
}

#[tokio::test]
async fn time_goes_on_from_the_last_stamp_after_a_reboot() {
    let root = tempfile::tempdir().expect("a directory");
    let time = fake();
    let mut last = Time(0);
    for round in 0..4 {
        let mut scribe = scribe_with(root.path(), &time).await;
        if round > 0 {
            assert_eq!(scribe.ledger.now().time, last, "time stood still while the machine was off");
        }
        time.pass(700);
        last = scribe.append(b"stamped").await.stamp.time;
        assert_eq!(last, Time(WALL + 700 * (round + 1)));
        drop(scribe);
        time.reboot(round * 1_000_000);
        time.set_wall(WALL + DAY * (round % 2));
    }
}

#[tokio::test]
async fn the_clock_survives_when_only_a_snapshot_is_left() {
    let root = tempfile::tempdir().expect("a directory");
    let time = fake();
    let mut scribe = scribe_with(root.path(), &time).await;
    let kept = scribe.append(&vec![1; 200_000]).await;
    time.pass(DAY);
    let last = scribe.append(&vec![2; 200_000]).await;
    assert_eq!(desk::logs(root.path()).len(), 2, "the second record is in a segment of its own");
    scribe.ledger.compact(kept.position, b"state".to_vec()).await.expect("compacts");
    drop(scribe);
    // The end of the first is what the snapshot stands for; the second is lost.
    let log = &desk::logs(root.path())[1];
    let mut bytes = std::fs::read(log).expect("readable");
    bytes[desk::SEGMENT_HEADER as usize..].fill(0);
    std::fs::write(log, bytes).expect("written");
    time.set_wall(0);
    let scribe = scribe_with(root.path(), &time).await;
    assert_eq!(scribe.read(kept.position).await.records, []);
    assert_eq!(scribe.ledger.now().time, last.stamp.time, "the same boot");
    drop(scribe);
    time.reboot(0);
    assert_eq!(scribe_with(root.path(), &time).await.ledger.now().time, last.stamp.time, "another one");
}
