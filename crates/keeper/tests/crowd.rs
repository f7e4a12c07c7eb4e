//! A mailbox that is full of what takes long to decide: whoever holds something lives on.

mod asking;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockkeeper_core::command::Actor;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::session::AgentName;
use lockkeeper_core::space::Space;
use lockkeeper_engine::{Engine, Memory};
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::settings::Settings;
use tokio_util::sync::CancellationToken;

use self::asking::{acquire, actor, beat, beat_as};

/// More than are taken from the mailbox at once.
const CROWD: usize = 2000;

async fn keeper() -> Keeper {
    let space = Space::parse("crowd").unwrap();
    let ledger = Memory::new().open(&space).await.unwrap();
    Keeper::open(space, ledger, &Settings::default(), Arc::default(), CancellationToken::new()).await.unwrap()
}

#[tokio::test]
async fn a_heartbeat_goes_before_thousands_who_asked_earlier() {
    let keeper = keeper().await;
    keeper.ask(acquire("holder", "mine")).await.unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let mut crowd = Vec::new();
    for n in 0..CROWD {
        let (keeper, answered) = (keeper.clone(), answered.clone());
        crowd.push(tokio::spawn(async move {
            keeper.ask(acquire(&format!("s{n}"), "mine")).await.unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
        }));
    }
    // Also of whoever shows a credential that speaks for one agent only.
    let bound = Actor { bound: true, ..actor("holder") };
    let beats = [beat("holder"), beat_as(bound)].map(|beat| {
        let (keeper, answered) = (keeper.clone(), answered.clone());
        tokio::spawn(async move { (keeper.ask(beat).await.unwrap(), answered.load(Ordering::Relaxed)) })
    });
    for beat in beats {
        let (answer, before) = beat.await.unwrap();
        assert!(matches!(&answer, Answer::Renewed { locks, .. } if locks.len() == 1), "{answer:?}");
        assert!(before < CROWD / 2, "{before} were answered before");
    }
    for asked in crowd {
        asked.await.unwrap();
    }
}

#[tokio::test]
async fn a_bound_heartbeat_renews_nothing_of_another_agent() {
    let keeper = keeper().await;
    keeper.ask(acquire("shared", "mine")).await.unwrap();
    let other = Actor { agent: AgentName::parse("other").unwrap(), bound: true, ..actor("shared") };
    let answer = keeper.ask(beat_as(other)).await.unwrap();
    assert!(matches!(answer, Answer::Refused(Refusal::ForeignSession { .. })), "{answer:?}");
}
