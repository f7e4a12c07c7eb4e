//! Laws about what lasts, and about hearing of it.

use std::time::Duration;

use super::scribe::{asked, on_snapshot};
use super::{Builder, Scribe};
use crate::{Append, Batch, BatchId, Durable, Position};

pub(super) async fn what_was_appended_becomes_durable<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let mut durable = scribe.ledger.durable();
    assert_eq!(*durable.borrow(), Durable::Up(0));
    scribe.append_numbers(1, 20).await;
    let batch = Batch {
        id: BatchId(1),
        payload: b"frees".to_vec(),
        frees: true,
        awaited: false,
        shown: Vec::new(),
        posted: Vec::new(),
    };
    let Append::Appended(freed) = scribe.ledger.append(scribe.at, scribe.ledger.now(), batch).await else {
        panic!("a batch that frees is taken like any other");
    };
    let all = Durable::Up(freed.position.revision);
    let mut last = 0;
    let rises = async {
        while last < freed.position.revision {
            match &*durable.borrow_and_update() {
                Durable::Up(revision) => {
                    assert!(*revision >= last, "durable only rises");
                    last = *revision;
                }
                Durable::Failed(error) => panic!("{error}"),
            }
            if last < freed.position.revision {
                durable.changed().await.expect("the engine lives");
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), rises).await.expect("within a moment, without another append");
    assert_eq!(*scribe.ledger.durable().borrow(), all);
}

pub(super) async fn all_is_there_after_reopening<B: Builder>(builder: &B) {
    let (guard, mut engine) = builder.build().await;
    let mut written = Vec::new();
    let mut at = Position::ORIGIN;
    for _ in 0..3 {
        let mut scribe = Scribe::at_origin(&engine, "a").await;
        assert_eq!(asked(scribe.read(Position::ORIGIN).await), written);
        assert_eq!(*scribe.ledger.moved().borrow(), at.revision);
        assert_eq!(*scribe.ledger.durable().borrow(), Durable::Up(at.revision));
        scribe.at = at;
        scribe.append_numbers(1, 30).await;
        at = scribe.at;
        written.append(&mut scribe.written);
        drop((scribe, engine));
        engine = builder.reopen(&guard).await;
    }
}

pub(super) async fn a_snapshot_is_there_after_reopening<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 10).await;
    let at = scribe.at;
    scribe.ledger.compact(at, b"state".to_vec()).await.expect("compacts");
    scribe.append_numbers(11, 12).await;
    let Scribe { ledger, at: end, written } = scribe;
    drop((ledger, engine));
    let engine = builder.reopen(&guard).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let (position, snapshot, records) = on_snapshot(scribe.read(Position::ORIGIN).await);
    assert_eq!((position, snapshot, records.as_slice()), (at, b"state".to_vec(), &written[10..]));
    scribe.at = end;
    scribe.append(b"goes on").await;
}

pub(super) async fn time_does_not_fall_over_a_reopening<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let before = scribe.append(b"before").await;
    drop((scribe, engine));
    let engine = builder.reopen(&guard).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    assert!(scribe.ledger.now().time >= before.stamp.time);
    scribe.at = before.position;
    assert!(scribe.append(b"after").await.stamp.time >= before.stamp.time);
}

pub(super) async fn other_openers_hear_that_it_moved<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let second = builder.beside(&guard).await.unwrap_or_else(|| engine.clone());
    let mut writer = Scribe::at_origin(&engine, "a").await;
    let listener = Scribe::at_origin(&second, "a").await;
    let mut moved = listener.ledger.moved();
    assert_eq!(*moved.borrow_and_update(), 0);
    writer.append(b"news").await;
    let heard = tokio::time::timeout(Duration::from_secs(10), moved.wait_for(|revision| *revision == 1)).await;
    heard.expect("within a moment").expect("the engine lives");
    assert_eq!(asked(listener.read(Position::ORIGIN).await), writer.written);
}
