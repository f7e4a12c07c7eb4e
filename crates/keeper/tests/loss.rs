//! A ledger that lost a part of its past, and keepers that notice it at a bad moment.

mod asking;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper_core::command::{Command, Which};
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::space::Space;
use lockkeeper_core::time::Stamp;
use lockkeeper_engine::{
    Append, Batch, BoxFuture, Confirm, Delta, Durable, Engine, EngineError, Ledger, Memory, Position, Strength,
};
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::settings::Settings;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::asking::{acquire, actor};

/// A ledger in memory that may not say when it moved, and may not let anybody read.
#[derive(Debug)]
struct Shaky {
    memory: Arc<dyn Ledger>,
    /// None: it tells when it moved.
    silent: Option<watch::Sender<u64>>,
    unreadable: Arc<AtomicBool>,
}

impl Ledger for Shaky {
    fn now(&self) -> Stamp {
        self.memory.now()
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        if self.unreadable.load(Ordering::SeqCst) {
            return Box::pin(async { Err(EngineError::Unreachable("away".to_owned())) });
        }
        self.memory.read(after)
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        self.memory.append(expected, proposed, batch)
    }

    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm> {
        self.memory.confirm(expected)
    }

    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>> {
        self.memory.compact(at, snapshot)
    }

    fn durable(&self) -> watch::Receiver<Durable> {
        self.memory.durable()
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.silent.as_ref().map_or_else(|| self.memory.moved(), watch::Sender::subscribe)
    }

    fn bytes_since_snapshot(&self) -> u64 {
        0
    }

    fn strength(&self) -> Strength {
        Strength::BestEffort
    }
}

struct House {
    keeper: Keeper,
    engine: Memory,
    space: Space,
    unreadable: Arc<AtomicBool>,
}

impl House {
    async fn open(silent: bool) -> House {
        let (engine, space) = (Memory::new(), Space::parse("s").unwrap());
        let memory = engine.open(&space).await.unwrap();
        let unreadable = Arc::new(AtomicBool::new(false));
        let silent = silent.then(|| watch::Sender::new(0));
        let ledger = Arc::new(Shaky { memory, silent, unreadable: unreadable.clone() });
        let stopping = CancellationToken::new();
        let keeper = Keeper::open(space.clone(), ledger, &Settings::default(), Arc::default(), stopping).await.unwrap();
        House { keeper, engine, space, unreadable }
    }
}

#[tokio::test]
async fn whoever_asks_when_a_loss_is_noticed_is_told_that_the_lock_is_lost() {
    let house = House::open(true).await;
    assert!(matches!(house.keeper.ask(acquire("a", "f")).await, Ok(Answer::Granted { .. })));
    house.engine.lose_after(&house.space, 0);
    let which = Which::Key(Key::parse("f").unwrap(), None);
    let answer = house.keeper.ask(Command::Release { actor: actor("a"), which, token: None, request: None }).await;
    assert!(matches!(&answer, Ok(Answer::Refused(Refusal::LockLost { .. }))), "{answer:?}");
    assert_eq!(house.keeper.rewrites(), 1);
}

#[tokio::test]
async fn a_loss_that_could_not_be_looked_at_is_looked_at_again() {
    let house = House::open(false).await;
    assert!(matches!(house.keeper.ask(acquire("a", "f")).await, Ok(Answer::Granted { .. })));
    house.unreadable.store(true, Ordering::SeqCst);
    house.engine.lose_after(&house.space, 0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(house.keeper.rewrites(), 0, "it could not be read");
    house.unreadable.store(false, Ordering::SeqCst);
    // Nobody asks anything: it is looked at while something is held.
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if house.keeper.rewrites() == 1 {
            return;
        }
    }
    panic!("the loss was forgotten");
}
