//! Laws about snapshots and what they replace.

use super::scribe::{bytes, on_snapshot};
use super::{Builder, Scribe};
use crate::{Append, Base, Batch, BatchId, Durable, Position};

pub(super) async fn a_snapshot_stands_for_what_it_replaced<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 10).await;
    let at = scribe.written[6].position;
    scribe.ledger.compact(at, b"state at seven".to_vec()).await.expect("compacts");
    let (position, snapshot, records) = on_snapshot(scribe.read(Position::ORIGIN).await);
    assert_eq!((position, snapshot.as_slice()), (at, b"state at seven".as_slice()));
    assert_eq!(records, scribe.written[7..]);
    let delta = scribe.read(scribe.written[8].position).await;
    assert_eq!((delta.base, delta.records.as_slice()), (Base::Asked, &scribe.written[9..]));
    // Whether an older place is still kept is the engine's choice; what is told must be true either way.
    let delta = scribe.read(scribe.written[2].position).await;
    match delta.base {
        Base::Asked => assert_eq!(delta.records, scribe.written[3..]),
        Base::Snapshot { position, .. } => {
            assert_eq!(position, at);
            assert_eq!(delta.records, scribe.written[7..]);
        }
        Base::Rewritten { .. } => panic!("its past is a part of this ledger"),
    }
    scribe.append(b"goes on").await;
    assert_eq!(on_snapshot(scribe.read(Position::ORIGIN).await).2, scribe.written[7..]);
}

pub(super) async fn a_snapshot_far_behind_the_end_takes_nothing_after_it<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    for seed in 0..26 {
        scribe.append(&bytes(1 << 20, seed)).await;
    }
    for place in [3, 9, 20] {
        scribe.ledger.compact(scribe.written[place].position, vec![place as u8]).await.expect("compacts");
        let (position, _, records) = on_snapshot(scribe.read(Position::ORIGIN).await);
        assert_eq!(position, scribe.written[place].position);
        assert!(records == scribe.written[place + 1..], "after the snapshot at {place}");
        let delta = scribe.read(scribe.written[place + 2].position).await;
        assert!(delta.base == Base::Asked && delta.records == scribe.written[place + 3..]);
    }
    let Scribe { ledger, written, .. } = scribe;
    drop((ledger, engine));
    let engine = builder.reopen(&guard).await;
    let (_, _, records) = on_snapshot(Scribe::at_origin(&engine, "a").await.read(Position::ORIGIN).await);
    assert!(records == written[21..], "after reopening");
}

pub(super) async fn a_later_snapshot_replaces_an_earlier_one<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    for round in 0..5_u8 {
        scribe.append(&[round]).await;
        scribe.ledger.compact(scribe.at, vec![round; 1000]).await.expect("compacts");
    }
    let (position, snapshot, records) = on_snapshot(scribe.read(Position::ORIGIN).await);
    assert_eq!((position, snapshot, records), (scribe.at, vec![4; 1000], Vec::new()));
}

pub(super) async fn a_snapshot_stands_only_for_what_is_durable<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let scribe = Scribe::at_origin(&engine, "a").await;
    // Nobody waits for a batch that frees something, so its sync may be some way off.
    let batch = Batch {
        id: BatchId(1),
        payload: b"frees".to_vec(),
        frees: true,
        awaited: false,
        shown: Vec::new(),
        posted: Vec::new(),
    };
    let Append::Appended(freed) = scribe.ledger.append(scribe.at, scribe.ledger.now(), batch).await else {
        panic!("not appended");
    };
    scribe.ledger.compact(freed.position, b"state".to_vec()).await.expect("compacts");
    assert_eq!(*scribe.ledger.durable().borrow(), Durable::Up(1));
}

pub(super) async fn an_older_snapshot_changes_nothing<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 4).await;
    scribe.ledger.compact(scribe.at, b"new".to_vec()).await.expect("compacts");
    scribe.ledger.compact(scribe.written[1].position, b"old".to_vec()).await.expect("is no failure");
    let (position, snapshot, _) = on_snapshot(scribe.read(Position::ORIGIN).await);
    assert_eq!((position, snapshot), (scribe.at, b"new".to_vec()));
}

pub(super) async fn a_snapshot_of_another_past_is_refused<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 4).await;
    let Position { epoch, revision, digest } = scribe.at;
    for at in [
        Position { epoch, revision, digest: digest ^ 1 },
        Position { epoch: epoch ^ 1, revision, digest },
        Position { epoch, revision: revision + 1, digest },
    ] {
        scribe.ledger.compact(at, b"void".to_vec()).await.expect_err("no place of this ledger");
    }
    assert_eq!(scribe.read(Position::ORIGIN).await.records, scribe.written);
}

pub(super) async fn appends_go_on_while_a_snapshot_is_taken<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 10).await;
    let (ledger, at) = (scribe.ledger.clone(), scribe.at);
    let state = bytes(8 << 20, 3);
    let snapshot = state.clone();
    let compaction = tokio::spawn(async move { ledger.compact(at, snapshot).await });
    scribe.append_numbers(11, 200).await;
    compaction.await.expect("no panic").expect("compacts");
    let Scribe { ledger, written, .. } = scribe;
    let check = |(position, snapshot, records)| {
        assert_eq!(position, at);
        assert!(snapshot == state);
        assert_eq!(records, written[10..]);
    };
    check(on_snapshot(ledger.read(Position::ORIGIN).await.expect("reads")));
    drop((ledger, engine));
    let engine = builder.reopen(&guard).await;
    check(on_snapshot(Scribe::at_origin(&engine, "a").await.read(Position::ORIGIN).await));
}

pub(super) async fn bytes_since_the_snapshot_are_payload_bytes_behind_it<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    for length in [100, 200, 300] {
        scribe.append(&bytes(length, 1)).await;
    }
    assert_eq!(scribe.ledger.bytes_since_snapshot(), 600);
    scribe.ledger.compact(scribe.written[0].position, b"state".to_vec()).await.expect("compacts");
    assert_eq!(scribe.ledger.bytes_since_snapshot(), 500);
    scribe.ledger.compact(scribe.at, b"state".to_vec()).await.expect("compacts");
    assert_eq!(scribe.ledger.bytes_since_snapshot(), 0);
    scribe.append(&bytes(7, 1)).await;
    scribe.append(&bytes(8, 1)).await;
    assert_eq!(scribe.ledger.bytes_since_snapshot(), 15);
    drop((scribe, engine));
    let engine = builder.reopen(&guard).await;
    let reader = Scribe::at_origin(&engine, "a").await;
    assert_eq!(reader.ledger.bytes_since_snapshot(), 15, "after reopening");
}
