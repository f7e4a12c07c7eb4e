//! Answers wait for the disk, and no longer.

mod asking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_core::command::{Acquire, Command, Want};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::limits::SET_MAX;
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::space::Space;
use lockkeeper_core::span::Span;
use lockkeeper_core::time::Stamp;
use lockkeeper_engine::{
    Append, Appended, Batch, BoxFuture, Confirm, Delta, Durable, Engine, EngineError, Ledger, Memory,
    PAYLOAD_BYTES_MAX, Position, Strength,
};
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::{Failure, Keeper};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::asking::acquire;

/// A ledger that is durable on the spot from a certain batch on, and never says so otherwise; and that stops when it is
/// told to.
#[derive(Debug)]
struct Disk {
    memory: Arc<dyn Ledger>,
    durable: watch::Sender<Durable>,
    appended: AtomicU64,
    durable_from: u64,
    stops_at: u64,
}

impl Ledger for Disk {
    fn now(&self) -> Stamp {
        self.memory.now()
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        self.memory.read(after)
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        Box::pin(async move {
            let count = self.appended.fetch_add(1, Ordering::SeqCst) + 1;
            if count >= self.stops_at {
                return Append::Down(EngineError::Stopped("the disk failed".to_owned()));
            }
            match self.memory.append(expected, proposed, batch).await {
                Append::Appended(appended) => {
                    Append::Appended(Appended { durable: count >= self.durable_from, ..appended })
                }
                other => other,
            }
        })
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
        self.memory.moved()
    }

    fn bytes_since_snapshot(&self) -> u64 {
        0
    }

    fn strength(&self) -> Strength {
        Strength::Strict
    }
}

async fn keeper(stops_at: u64) -> (Keeper, CancellationToken) {
    let (keeper, _, stopping) = keeper_on_disk(2, stops_at).await;
    (keeper, stopping)
}

async fn keeper_on_disk(durable_from: u64, stops_at: u64) -> (Keeper, Arc<Disk>, CancellationToken) {
    let space = Space::parse("s").unwrap();
    let memory = Memory::new().open(&space).await.unwrap();
    let (durable, appended) = (watch::Sender::new(Durable::Up(0)), AtomicU64::new(0));
    let disk = Arc::new(Disk { memory, durable, appended, durable_from, stops_at });
    let (settings, stopping) = (Settings::default(), CancellationToken::new());
    let keeper = Keeper::open(space, disk.clone(), &settings, Arc::default(), stopping.clone()).await.unwrap();
    (keeper, disk, stopping)
}

#[tokio::test]
async fn what_becomes_durable_with_a_later_batch_is_told_with_it() {
    let (keeper, _) = keeper(u64::MAX).await;
    let first = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.ask(acquire("a", "a")).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!first.is_finished(), "not durable yet");
    assert!(matches!(keeper.ask(acquire("b", "b")).await, Ok(Answer::Granted { .. })));
    let first = tokio::time::timeout(Duration::from_millis(300), first).await.expect("told with the second");
    assert!(matches!(first.unwrap(), Ok(Answer::Granted { .. })));
}

#[tokio::test]
async fn a_lock_that_a_heartbeat_names_is_not_given_back_with_the_connection_that_asked_for_it() {
    let (keeper, _) = keeper(u64::MAX).await;
    let ask = |command: Command| {
        let keeper = keeper.clone();
        tokio::spawn(async move { keeper.ask_bound(command).await })
    };
    let granted = ask(acquire("a", "a"));
    let beaten = ask(asking::beat("a"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!granted.is_finished() && !beaten.is_finished(), "in one batch, which is not durable yet");
    granted.abort();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(matches!(keeper.ask(acquire("b", "b")).await, Ok(Answer::Granted { .. })));
    let Ok(Answer::Renewed { locks, .. }) = beaten.await.unwrap() else { panic!("it is told what it holds") };
    let held: Vec<String> = locks.iter().map(|lock| lock.target.to_string()).collect();
    assert_eq!(held, ["a"]);
    assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(2), "and that holds");
}

#[tokio::test]
async fn thousands_who_leave_while_their_grants_wait_for_the_disk_leave_nothing_behind() {
    let (keeper, disk, _) = keeper_on_disk(u64::MAX, u64::MAX).await;
    let ask = |number| keeper.ask_bound(acquire(&format!("s{number}"), &format!("f{number}")));
    let asked: Vec<_> = (0..3000).map(ask).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(3000), "granted, and told to nobody yet");
    // In one moment: all are gone, and all that they were granted is durable.
    drop(asked);
    disk.durable.send_replace(Durable::Up(disk.appended.load(Ordering::SeqCst)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(0));
}

#[tokio::test]
async fn a_ledger_that_stops_ends_the_service_whoever_notices_first_and_nothing_is_listed_from_it() {
    let (keeper, stopping) = keeper(2).await;
    let first = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.ask(acquire("a", "a")).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(matches!(keeper.ask(acquire("b", "b")).await, Err(Failure::Unavailable(_))));
    assert!(stopping.is_cancelled());
    let (asked, listed) = tokio::join!(keeper.ask(acquire("c", "c")), keeper.read(|state, _| state.lock_count()));
    assert!(matches!(asked, Err(Failure::Unavailable(_))));
    assert!(matches!(listed, Err(Failure::Unavailable(_))), "{listed:?}");
    let first = tokio::time::timeout(Duration::from_secs(2), first).await.expect("told").unwrap();
    assert!(matches!(first, Err(Failure::OutcomeUnknown(_))), "{first:?}");
}

#[tokio::test]
async fn what_is_too_much_for_one_batch_is_recorded_in_several() {
    let (keeper, _) = keeper(u64::MAX).await;
    let set = |number: usize| {
        let name = format!("s{number}");
        let one = asking::wanting(&name, &name);
        let want = |key: usize| {
            let key = Key::parse(&format!("{}/{number}/{key}", "x".repeat(1000))).unwrap();
            Want { target: Target { key, span: Span::WHOLE }, mode: Mode::Exclusive }
        };
        Command::Acquire(Acquire { wants: (0..SET_MAX).map(want).collect(), ..one })
    };
    // More than twice what an engine takes at once.
    let count = 2 * PAYLOAD_BYTES_MAX / (SET_MAX * 1000) + 1;
    let asks: Vec<_> = (0..count)
        .map(|number| {
            let (keeper, set) = (keeper.clone(), set(number));
            tokio::spawn(async move { keeper.ask(set).await })
        })
        .collect();
    for ask in asks {
        assert!(matches!(ask.await.unwrap(), Ok(Answer::Granted { .. })));
    }
    assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(count * SET_MAX));
}
