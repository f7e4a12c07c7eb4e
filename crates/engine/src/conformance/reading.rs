//! Laws about what a reader gets.

use super::scribe::{asked, bytes};
use super::{Builder, Scribe};
use crate::{Append, Base, Confirm, Position};

pub(super) async fn an_empty_ledger_reads_as_nothing<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let scribe = Scribe::at_origin(&engine, "a").await;
    assert_eq!(asked(scribe.read(Position::ORIGIN).await), []);
    assert_eq!(*scribe.ledger.moved().borrow(), 0);
    assert_eq!(scribe.ledger.bytes_since_snapshot(), 0);
}

pub(super) async fn payloads_come_back_byte_for_byte<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    for length in (0..70).chain([255, 256, 1000, 4095, 4096, 4097, 70_000]) {
        scribe.append(&bytes(length, 0)).await;
    }
    scribe.append(&[0; 100]).await;
    scribe.append("text, \u{0} and \r\n \u{1f512}".as_bytes()).await;
    assert_eq!(asked(scribe.read(Position::ORIGIN).await), scribe.written);
}

pub(super) async fn a_reader_gets_exactly_what_it_missed<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 20).await;
    for seen in 0..20 {
        let after = scribe.written[seen].position;
        assert_eq!(asked(scribe.read(after).await), scribe.written[seen + 1..]);
    }
    let start = Position { epoch: scribe.at.epoch, ..Position::ORIGIN };
    assert_eq!(asked(scribe.read(start).await), scribe.written, "the ledger's own start");
}

pub(super) async fn a_batch_is_found_by_its_id<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append(b"one").await;
    let before = scribe.at;
    scribe.append(b"two").await;
    let ids: Vec<_> = asked(scribe.read(before).await).iter().map(|record| record.batch).collect();
    assert_eq!(ids, [scribe.written[1].batch]);
}

/// Positions that never were a place of the scribe's ledger.
fn strange(at: Position) -> [Position; 4] {
    [
        Position { digest: at.digest ^ 1, ..at },
        Position { epoch: at.epoch ^ 1, ..at },
        Position { revision: at.revision + 1, ..at },
        Position { revision: at.revision - 1, ..at },
    ]
}

pub(super) async fn a_reader_with_another_past_is_told_that_it_is_void<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 5).await;
    let start = Position { epoch: scribe.at.epoch, ..Position::ORIGIN };
    for after in strange(scribe.written[3].position).into_iter().chain(strange(scribe.at)) {
        let delta = scribe.read(after).await;
        assert_eq!(delta.base, Base::Rewritten { snapshot: None, position: start }, "{after}");
        assert_eq!(delta.records, scribe.written);
        let Confirm::Moved(delta) = scribe.ledger.confirm(after).await else { panic!("confirmed {after}") };
        assert_eq!(delta.base, Base::Rewritten { snapshot: None, position: start });
    }
    let mut stranger = Scribe::at_origin(&engine, "a").await;
    stranger.at = Position { digest: scribe.at.digest ^ 1, ..scribe.at };
    match stranger.try_append(b"void").await {
        Append::Moved(delta) => assert_eq!(delta.base, Base::Rewritten { snapshot: None, position: start }),
        other => panic!("got {other:?}"),
    }
    scribe.append(b"state").await;
    scribe.ledger.compact(scribe.at, b"snapshot".to_vec()).await.expect("compacts");
    let delta = scribe.read(Position { epoch: scribe.at.epoch ^ 1, ..scribe.at }).await;
    let snapshot = Some((scribe.at, b"snapshot".to_vec()));
    assert_eq!(delta.base, Base::Rewritten { snapshot, position: scribe.at });
}

pub(super) async fn large_batches_are_kept_like_small_ones<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    for (seed, length) in [(1, 10), (2, 3 << 20), (3, 10), (4, 7 << 20), (5, 16 << 20), (6, 10), (7, 1 << 20)] {
        scribe.append(&bytes(length, seed)).await;
    }
    assert!(asked(scribe.read(Position::ORIGIN).await) == scribe.written);
    let Scribe { written, ledger, .. } = scribe;
    drop((ledger, engine));
    let engine = builder.reopen(&guard).await;
    let reader = Scribe::at_origin(&engine, "a").await;
    assert!(asked(reader.read(Position::ORIGIN).await) == written);
}
