//! Laws about the order: one, gapless, compared before anything is written.

use lockkeeper_core::time::{Stamp, Time};

use super::scribe::asked;
use super::{Builder, Scribe};
use crate::{Append, Batch, BatchId, Confirm, PAYLOAD_BYTES_MAX, Position};

pub(super) async fn appends_are_in_order_and_without_a_gap<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append_numbers(1, 100).await;
    let records = asked(scribe.read(Position::ORIGIN).await);
    assert_eq!(records, scribe.written);
    let revisions: Vec<u64> = records.iter().map(|record| record.position.revision).collect();
    assert_eq!(revisions, (1..=100).collect::<Vec<u64>>());
    let mut before = Position { epoch: scribe.at.epoch, ..Position::ORIGIN };
    assert_ne!(before.epoch, 0, "an epoch is drawn");
    for record in &records {
        assert_eq!(record.position, builder.following(before, record));
        before = record.position;
    }
}

pub(super) async fn a_stale_writer_is_refused_and_told_what_it_missed<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut ahead = Scribe::at_origin(&engine, "a").await;
    let mut behind = Scribe::at_origin(&engine, "a").await;
    ahead.append(b"one").await;
    behind.at = ahead.at;
    ahead.append(b"two").await;
    ahead.append(b"three").await;
    match behind.try_append(b"stale").await {
        Append::Moved(delta) => assert_eq!(asked(delta), ahead.written[1..]),
        other => panic!("a stale writer got {other:?}"),
    }
    assert_eq!(asked(ahead.read(Position::ORIGIN).await), ahead.written, "nothing of it was recorded");
    behind.at = Position::ORIGIN;
    match behind.try_append(b"staler").await {
        Append::Moved(delta) => assert_eq!(asked(delta), ahead.written),
        other => panic!("a stale writer got {other:?}"),
    }
}

pub(super) async fn of_many_writers_each_revision_has_one<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    let second = builder.beside(&guard).await.unwrap_or_else(|| engine.clone());
    let mut tasks = Vec::new();
    for writer in 0..4_u8 {
        let engine = if writer % 2 == 0 { engine.clone() } else { second.clone() };
        tasks.push(tokio::spawn(async move {
            let mut scribe = Scribe::at_origin(&engine, "a").await;
            let mut refused = 0;
            while scribe.written.len() < 25 {
                match scribe.try_append(&[writer]).await {
                    Append::Appended(_) => {}
                    Append::Moved(delta) => {
                        refused += 1;
                        scribe.at = asked(delta).last().expect("something was missed").position;
                    }
                    other => panic!("got {other:?}"),
                }
                tokio::task::yield_now().await;
            }
            (scribe.written, refused)
        }));
    }
    let mut written = Vec::new();
    for task in tasks {
        written.extend(task.await.expect("no writer panics").0);
    }
    written.sort_by_key(|record| record.position.revision);
    let reader = Scribe::at_origin(&engine, "a").await;
    assert_eq!(asked(reader.read(Position::ORIGIN).await), written);
    assert_eq!(written.len(), 100);
}

pub(super) async fn stamps_never_fall<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let mut last = Time::ZERO;
    for number in 0..50 {
        let before = scribe.ledger.now().time;
        assert!(before >= last, "now is never less than the last stamp");
        let stamp = scribe.append(&[number]).await.stamp;
        assert!(stamp.time >= last);
        assert!(stamp.time >= before, "now is a lower bound");
        last = stamp.time;
    }
    assert!(scribe.ledger.now().time >= last);
    assert!(last.0 > 1_600_000_000_000_000, "a new ledger begins near the wall clock");
}

pub(super) async fn a_proposal_from_the_past_or_the_future_does_not_bend_time<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    let first = scribe.append(b"first").await;
    let hour = 3_600_000_000;
    let mut at = first.position;
    let mut last = first.stamp.time;
    for proposed in [Time::ZERO, Time(last.0 - hour), Time(last.0 + hour), Time(u64::MAX)] {
        let batch = Batch {
            id: BatchId(9),
            payload: b"odd".to_vec(),
            frees: false,
            awaited: true,
            shown: Vec::new(),
            posted: Vec::new(),
        };
        let proposed = Stamp { time: proposed, wall: 1 };
        match scribe.ledger.append(at, proposed, batch).await {
            Append::Appended(appended) => {
                assert!(appended.stamp.time >= last, "never falls");
                assert!(appended.stamp.time.0 < first.stamp.time.0 + hour, "never runs ahead");
                (at, last) = (appended.position, appended.stamp.time);
            }
            other => panic!("got {other:?}"),
        }
    }
}

pub(super) async fn confirm_says_whether_it_is_still_the_end<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    assert!(matches!(scribe.ledger.confirm(Position::ORIGIN).await, Confirm::Current), "an empty ledger");
    scribe.append(b"one").await;
    let seen = scribe.at;
    assert!(matches!(scribe.ledger.confirm(seen).await, Confirm::Current));
    scribe.append(b"two").await;
    match scribe.ledger.confirm(seen).await {
        Confirm::Moved(delta) => assert_eq!(asked(delta), scribe.written[1..]),
        other => panic!("got {other:?}"),
    }
    match scribe.ledger.confirm(Position::ORIGIN).await {
        Confirm::Moved(delta) => assert_eq!(asked(delta), scribe.written),
        other => panic!("got {other:?}"),
    }
}

pub(super) async fn a_batch_over_the_limit_is_refused_and_changes_nothing<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    scribe.append(b"before").await;
    match scribe.try_append(&vec![7; PAYLOAD_BYTES_MAX + 1]).await {
        Append::Down(_) => {}
        other => panic!("got {other:?}"),
    }
    scribe.append(b"after").await;
    assert_eq!(asked(scribe.read(Position::ORIGIN).await), scribe.written);
}
