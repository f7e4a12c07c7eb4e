//! P16: a full disk refuses what takes something, and still serves what frees something.

mod desk;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use desk::{open, open_sound, records};
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Batch, BatchId, Confirm, Record};

/// A small file system of its own. Needs root: without it the test fails, because nothing would have been tested.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(mebibytes: u32) -> SmallDisk {
        let dir = tempfile::tempdir().expect("a directory");
        let options = format!("size={mebibytes}m,mode=0700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "lockkeeper-test"]).arg(dir.path()).status();
        assert!(mounted.expect("mount runs").success(), "a small disk can't be mounted; this test must run as root");
        SmallDisk(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

async fn free(scribe: &mut Scribe, payload: Vec<u8>) -> Append {
    let batch = Batch {
        id: BatchId(77),
        payload: payload.clone(),
        frees: true,
        awaited: false,
        shown: Vec::new(),
        posted: Vec::new(),
    };
    let append = scribe.ledger.append(scribe.at, scribe.ledger.now(), batch).await;
    if let Append::Appended(done) = &append {
        scribe.at = done.position;
        let record = Record { position: done.position, batch: BatchId(77), stamp: done.stamp, payload };
        scribe.written.push(record);
    }
    append
}

/// Appends until not even a small batch is taken any more.
async fn fill_up(scribe: &mut Scribe) {
    for size in [60_000, 10] {
        let mut taken = 0_u32;
        loop {
            match scribe.try_append(&vec![taken as u8; size]).await {
                Append::Appended(_) => taken += 1,
                Append::Full => break,
                other => panic!("got {other:?}"),
            }
            assert!(taken < 10_000, "the disk never got full");
        }
    }
}

async fn waits_until_it_takes_again(scribe: &mut Scribe) {
    let begin = Instant::now();
    while !matches!(scribe.try_append(b"takes again").await, Append::Appended(_)) {
        assert!(begin.elapsed() < Duration::from_secs(10), "never recovered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_full_disk_refuses_ordinary_batches_takes_freeing_ones_and_recovers_by_itself() {
    let disk = SmallDisk::mount(100);
    let ballast = disk.path().join("ballast");
    let root = disk.path().join("ledgers");
    let mut scribe = open_sound(&root).await;
    scribe.append(b"first").await;
    fs::write(&ballast, vec![1; 72 << 20]).expect("there is room");
    fill_up(&mut scribe).await;
    for _ in 0..500 {
        assert!(matches!(scribe.try_append(b"takes").await, Append::Full), "stays full");
        assert!(matches!(free(&mut scribe, vec![5; 300]).await, Append::Appended(_)), "frees");
    }
    scribe.wait_durable().await;
    assert!(matches!(scribe.ledger.confirm(scribe.at).await, Confirm::Current), "lists are served");
    assert_eq!(records(&scribe).await, scribe.written);
    let Scribe { ledger, at, written } = scribe;
    drop(ledger);
    // A service that is started anew on the full disk must come to the same end.
    let mut scribe = open_sound(&root).await;
    (scribe.at, scribe.written) = (at, written);
    assert!(matches!(scribe.try_append(b"takes").await, Append::Full), "is full from the beginning");
    assert!(matches!(free(&mut scribe, vec![6; 300]).await, Append::Appended(_)), "frees after a restart");
    fs::remove_file(&ballast).expect("removed");
    waits_until_it_takes_again(&mut scribe).await;
    // Each needs a segment of its own, which must be waited for, not refused.
    for number in 0..3 {
        scribe.append(&vec![number; 9 << 20]).await;
    }
    assert_eq!(records(&scribe).await, scribe.written);
    drop(scribe.ledger);
    assert_eq!(records(&open_sound(&root).await).await, scribe.written);
}

#[tokio::test]
async fn a_batch_that_fits_only_in_part_leaves_nothing_behind() {
    let disk = SmallDisk::mount(40);
    let root = disk.path().join("ledgers");
    let mut scribe = open_sound(&root).await;
    scribe.append(b"first").await;
    fill_up(&mut scribe).await;
    // Larger than any segment: the spare one has to grow, and the disk ends in the middle of it.
    for _ in 0..3 {
        assert!(matches!(free(&mut scribe, vec![0xee; 16 << 20]).await, Append::Full));
    }
    assert_eq!(records(&scribe).await, scribe.written);
    let last = fs::read(desk::logs(&root).last().expect("a log")).expect("readable");
    assert_eq!(last.len(), 8 << 20, "no longer than it was");
    assert!(!last.windows(64).any(|window| window == [0xee; 64]), "nothing of it is left");
    for size in [10, 5000, 100_000] {
        assert!(matches!(free(&mut scribe, vec![1; size]).await, Append::Appended(_)), "{size} bytes still fit");
    }
    drop(scribe.ledger);
    assert_eq!(records(&open_sound(&root).await).await, scribe.written);
}

#[tokio::test]
async fn a_whole_segment_is_kept_back_for_what_frees_something() {
    let disk = SmallDisk::mount(40);
    let root = disk.path().join("ledgers");
    let mut scribe = open_sound(&root).await;
    fill_up(&mut scribe).await;
    let whole = (8 << 20) - desk::SEGMENT_HEADER - desk::RECORD_HEADER;
    assert!(matches!(free(&mut scribe, vec![1; whole as usize]).await, Append::Appended(_)));
    assert!(matches!(free(&mut scribe, vec![1; 8]).await, Append::Full), "that was all");
    drop(scribe.ledger);
    assert_eq!(records(&open_sound(&root).await).await, scribe.written);
}

#[tokio::test]
async fn a_new_space_and_a_snapshot_on_a_full_disk_are_refused_and_leave_no_trace() {
    let disk = SmallDisk::mount(40);
    let root = disk.path().join("ledgers");
    let mut scribe = open_sound(&root).await;
    fill_up(&mut scribe).await;
    let mut ballast = vec![3; 40 << 20];
    while fs::write(disk.path().join("ballast"), &ballast).is_err() {
        ballast.truncate(ballast.len() - (64 << 10));
    }
    let before = desk::files(&root, "");
    let refused = scribe.ledger.compact(scribe.at, vec![9; 1 << 20]).await;
    refused.expect_err("there is no room for it");
    assert_eq!(desk::files(&root, ""), before);
    assert_eq!(records(&scribe).await, scribe.written);
    drop(scribe.ledger);
    fs::remove_dir_all(&root).expect("removed");
    fs::write(disk.path().join("more"), vec![3; 40 << 20]).expect_err("fills up the rest");
    open(&root).await.expect_err("there is no room for a ledger");
    fs::remove_file(disk.path().join("more")).expect("removed");
    open_sound(&root).await.append(b"there is room now").await;
}
