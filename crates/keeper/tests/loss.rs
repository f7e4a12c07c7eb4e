//! A ledger that lost a part of its past, and keepers that notice it at a bad moment.

mod asking;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_core::command::{Acquire, Command, Which};
use lockkeeper_core::history::Action;
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::space::Space;
use lockkeeper_core::time::{Millis, Stamp};
use lockkeeper_engine::{
    Append, Batch, BoxFuture, Confirm, Delta, Durable, Engine, EngineError, Ledger, Memory, Position, Strength,
};
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::settings::Settings;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::asking::{acquire, actor};

/// A ledger in memory that may not say when it moved, may not let anybody read, and may take its time.
#[derive(Debug)]
struct Shaky {
    memory: Arc<dyn Ledger>,
    /// None: it tells when it moved.
    silent: Option<watch::Sender<u64>>,
    unreadable: Arc<AtomicBool>,
    trouble: Arc<Mutex<Trouble>>,
    /// Says nothing of its own: what moved is heard of in one way only.
    durable: watch::Sender<Durable>,
}

/// What becomes of the next batches.
#[derive(Debug, Default)]
enum Trouble {
    #[default]
    None,
    /// The next one fails, and from then on as below.
    Fails,
    /// The next one that takes something is withheld, and nobody knows.
    Withholds,
    /// Comes in late: before the next one.
    Withheld(Position, Stamp, Box<Batch>),
}

impl Shaky {
    async fn try_append(&self, expected: Position, proposed: Stamp, batch: Batch) -> Append {
        let unknown = || EngineError::Unreachable("no answer".to_owned());
        let trouble = std::mem::take(&mut *self.trouble.lock().unwrap());
        match trouble {
            Trouble::Fails => {
                *self.trouble.lock().unwrap() = Trouble::Withholds;
                return Append::Down(unknown());
            }
            Trouble::Withholds if !batch.frees => {
                *self.trouble.lock().unwrap() = Trouble::Withheld(expected, proposed, Box::new(batch));
                return Append::Unknown(unknown());
            }
            Trouble::Withholds => *self.trouble.lock().unwrap() = Trouble::Withholds,
            Trouble::Withheld(expected, proposed, late) => {
                self.memory.append(expected, proposed, *late).await;
            }
            Trouble::None => {}
        }
        self.memory.append(expected, proposed, batch).await
    }
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
        Box::pin(self.try_append(expected, proposed, batch))
    }

    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm> {
        self.memory.confirm(expected)
    }

    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>> {
        self.memory.compact(at, snapshot)
    }

    fn durable(&self) -> watch::Receiver<Durable> {
        self.durable.subscribe()
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
    trouble: Arc<Mutex<Trouble>>,
}

impl House {
    async fn open(silent: bool) -> House {
        let (engine, space) = (Memory::new(), Space::parse("s").unwrap());
        let memory = engine.open(&space).await.unwrap();
        let unreadable = Arc::new(AtomicBool::new(false));
        let (silent, trouble) = (silent.then(|| watch::Sender::new(0)), Arc::<Mutex<Trouble>>::default());
        let durable = watch::Sender::new(Durable::Up(u64::MAX));
        let (unreadable_too, trouble_too) = (unreadable.clone(), trouble.clone());
        let ledger = Arc::new(Shaky { memory, silent, unreadable: unreadable_too, trouble: trouble_too, durable });
        let stopping = CancellationToken::new();
        let keeper = Keeper::open(space.clone(), ledger, &Settings::default(), Arc::default(), stopping).await.unwrap();
        House { keeper, engine, space, unreadable, trouble }
    }
}

#[tokio::test]
async fn whoever_asks_when_a_loss_is_noticed_is_told_that_the_lock_is_lost() {
    // The ledger tells of its loss, or whoever asks finds out.
    for silent in [true, false] {
        let house = House::open(silent).await;
        assert!(matches!(house.keeper.ask(acquire("a", "f")).await, Ok(Answer::Granted { .. })));
        house.engine.lose_after(&house.space, 0);
        let which = Which::Key(Key::parse("f").unwrap(), None);
        let answer = house.keeper.ask(Command::Release { actor: actor("a"), which, token: None, request: None }).await;
        assert!(matches!(&answer, Ok(Answer::Refused(Refusal::LockLost { .. }))), "{silent}: {answer:?}");
        assert_eq!(house.keeper.rewrites(), 1);
    }
}

#[tokio::test]
async fn what_is_new_after_a_lost_past_is_pushed_once_and_nothing_else() {
    let house = House::open(false).await;
    assert!(matches!(house.keeper.ask(acquire("a", "f")).await, Ok(Answer::Granted { .. })));
    assert!(matches!(house.keeper.ask(acquire("b", "g")).await, Ok(Answer::Granted { .. })));
    let mut pushed = house.keeper.entries();
    house.engine.lose_after(&house.space, 1);
    assert!(matches!(house.keeper.ask(acquire("c", "h")).await, Ok(Answer::Granted { .. })));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let told = std::iter::from_fn(|| pushed.try_recv().ok());
    let told: Vec<_> = told.map(|entry| (entry.session.to_string(), entry.action)).collect();
    assert_eq!(told, [("b".to_owned(), Action::Lost), ("c".to_owned(), Action::Acquired)]);
}

#[tokio::test]
async fn a_batch_that_comes_in_late_beside_a_loss_is_not_recorded_twice() {
    let house = House::open(false).await;
    assert!(matches!(house.keeper.ask(acquire("a", "f")).await, Ok(Answer::Granted { .. })));
    assert!(matches!(house.keeper.ask(acquire("b", "g")).await, Ok(Answer::Granted { .. })));
    *house.trouble.lock().unwrap() = Trouble::Fails;
    house.engine.lose_after(&house.space, 1);
    // What was lost could not be written down. Whoever asks now stands in the queue, and nobody knows whether.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let waiting = tokio::spawn({
        let keeper = house.keeper.clone();
        let wait = Command::Acquire(Acquire { wait: Millis(60_000), ..asking::wanting("c", "f") });
        async move { keeper.ask(wait).await }
    });
    tokio::time::sleep(Duration::from_millis(600)).await;
    let queued = house.keeper.read(|state, _| state.waiters().count()).await.unwrap();
    assert_eq!(queued, 1, "one question, one place");
    assert!(matches!(*house.trouble.lock().unwrap(), Trouble::None), "all of it happened");
    waiting.abort();
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
