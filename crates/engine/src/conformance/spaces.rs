//! Laws about many ledgers in one store.

use super::scribe::asked;
use super::{Builder, Scribe};
use crate::Position;

const NAMES: [&str; 5] = ["a", "A", "/srv/some repository/.git", "github.com/some/where", "\u{1f512}/../..; rm -rf"];

pub(super) async fn spaces_are_kept_apart<B: Builder>(builder: &B) {
    let (_guard, engine) = builder.build().await;
    let mut scribes = Vec::new();
    for name in NAMES {
        scribes.push(Scribe::at_origin(&engine, name).await);
    }
    for round in 0..10_u8 {
        for (index, scribe) in scribes.iter_mut().enumerate() {
            scribe.append(&[round, index as u8]).await;
        }
    }
    for scribe in &scribes {
        assert_eq!(asked(scribe.read(Position::ORIGIN).await), scribe.written);
        assert_eq!(scribe.at.revision, 10);
    }
}

pub(super) async fn spaces_are_listed_under_their_names<B: Builder>(builder: &B) {
    let (guard, engine) = builder.build().await;
    assert_eq!(engine.spaces().await, Ok(Vec::new()));
    for name in NAMES {
        Scribe::at_origin(&engine, name).await.append(b"x").await;
    }
    let mut expected = NAMES.map(str::to_owned).to_vec();
    expected.sort();
    let names = |spaces: Vec<lockkeeper_core::space::Space>| {
        let mut names: Vec<String> = spaces.into_iter().map(String::from).collect();
        names.sort();
        names
    };
    assert_eq!(names(engine.spaces().await.expect("lists")), expected);
    drop(engine);
    let engine = builder.reopen(&guard).await;
    assert_eq!(names(engine.spaces().await.expect("lists")), expected, "after reopening");
}

pub(super) async fn two_ledgers_never_share_an_epoch<B: Builder>(builder: &B) {
    let mut epochs = Vec::new();
    for _ in 0..2 {
        let (_guard, engine) = builder.build().await;
        for name in ["a", "b"] {
            let mut scribe = Scribe::at_origin(&engine, name).await;
            epochs.push(scribe.append(b"x").await.position.epoch);
        }
    }
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 4);
    assert!(!epochs.contains(&0));
}
