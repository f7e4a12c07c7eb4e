//! A ledger that does not answer, or not at once: what those who ask are told meanwhile, and when.

mod asking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_core::command::{Acquire, Command};
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::space::Space;
use lockkeeper_core::time::{Millis, Stamp};
use lockkeeper_engine::{
    Append, Batch, BoxFuture, Confirm, Delta, Durable, Engine, EngineError, Ledger, Memory, Position, Reading,
    Strength, TimeSource,
};
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::{Failure, Keeper};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::asking::{acquire, release, wanting};

/// How long a question may take.
const LIMIT: Duration = Duration::from_millis(500);
/// What a test's own steps may add, in a time that only passes while everybody waits.
const AIR: Duration = Duration::from_millis(20);

/// The time of a test, which passes while everybody waits.
#[derive(Debug)]
struct Passing(Instant);

impl TimeSource for Passing {
    fn reading(&self) -> Reading {
        let micros = self.0.elapsed().as_micros() as u64;
        Reading { boot: 1, since_boot: micros + 1_000_000, wall: micros + 1_000_000_000 }
    }
}

/// How a ledger behaves.
const UP: u8 = 0;
/// Nothing is answered within the limit.
const SILENT: u8 = 1;
/// Everything is refused at once.
const REFUSING: u8 = 2;

/// A ledger in memory that may be away.
#[derive(Debug)]
struct Distant {
    memory: Arc<dyn Ledger>,
    behaviour: AtomicU8,
    appends: AtomicU64,
    confirms: AtomicU64,
}

impl Distant {
    fn behave(&self, behaviour: u8) {
        self.behaviour.store(behaviour, Ordering::SeqCst);
    }

    /// Whether it is away, after as long as that takes to find out.
    async fn is_away(&self) -> Option<EngineError> {
        let why = || EngineError::Unreachable("away".to_owned());
        match self.behaviour.load(Ordering::SeqCst) {
            SILENT => {
                tokio::time::sleep(LIMIT).await;
                Some(why())
            }
            REFUSING => Some(why()),
            _ => None,
        }
    }
}

impl Ledger for Distant {
    fn now(&self) -> Stamp {
        self.memory.now()
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        Box::pin(async move {
            match self.is_away().await {
                Some(away) => Err(away),
                None => self.memory.read(after).await,
            }
        })
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        Box::pin(async move {
            self.appends.fetch_add(1, Ordering::SeqCst);
            let sent = self.behaviour.load(Ordering::SeqCst) == SILENT;
            match self.is_away().await {
                Some(away) if sent => Append::Unknown(away),
                Some(away) => Append::Down(away),
                None => self.memory.append(expected, proposed, batch).await,
            }
        })
    }

    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm> {
        Box::pin(async move {
            self.confirms.fetch_add(1, Ordering::SeqCst);
            match self.is_away().await {
                Some(away) => Confirm::Down(away),
                None => self.memory.confirm(expected).await,
            }
        })
    }

    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>> {
        self.memory.compact(at, snapshot)
    }

    fn durable(&self) -> watch::Receiver<Durable> {
        self.memory.durable()
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.memory.moved()
    }

    fn bytes_since_snapshot(&self) -> u64 {
        0
    }

    fn strength(&self) -> Strength {
        Strength::BestEffort
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(LIMIT)
    }
}

async fn keeper(settings: &Settings) -> (Keeper, Arc<Distant>) {
    let space = Space::parse("s").unwrap();
    let memory = Memory::with_time(Arc::new(Passing(Instant::now()))).open(&space).await.unwrap();
    let behaviour = AtomicU8::new(UP);
    let ledger = Arc::new(Distant { memory, behaviour, appends: AtomicU64::new(0), confirms: AtomicU64::new(0) });
    let keeper = Keeper::open(space, ledger.clone(), settings, Arc::default(), CancellationToken::new()).await.unwrap();
    (keeper, ledger)
}

#[tokio::test(start_paused = true)]
async fn who_asks_what_nobody_answers_is_told_after_one_limit_and_a_moment() {
    let (keeper, ledger) = keeper(&Settings::default()).await;
    ledger.behave(SILENT);
    let asked = Instant::now();
    let answer = keeper.ask(acquire("a", "x")).await;
    assert!(matches!(answer, Err(Failure::OutcomeUnknown(_))), "{answer:?}");
    assert!(asked.elapsed() <= LIMIT + Duration::from_millis(250) + AIR, "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_looks_together_with_somebody_who_failed_is_told_with_them() {
    let (keeper, ledger) = keeper(&Settings::default()).await;
    for behaviour in [SILENT, REFUSING] {
        ledger.behave(behaviour);
        let asked = Instant::now();
        let (answer, list) = tokio::join!(keeper.ask(acquire("a", "x")), keeper.read(|state, _| state.lock_count()));
        assert!(answer.is_err(), "{answer:?}");
        assert!(matches!(list, Err(Failure::Unavailable(_))), "{list:?}");
        assert!(asked.elapsed() <= LIMIT + Duration::from_millis(250) + AIR, "{:?}", asked.elapsed());
    }
    assert_eq!(ledger.confirms.load(Ordering::SeqCst), 0, "what was found out need not be found out again");
    ledger.behave(UP);
    assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(0));
}

/// Somebody in the queue for what another has.
async fn waiting_for_x(keeper: &Keeper) -> JoinHandle<Result<Answer, Failure>> {
    let (keeper, wait) = (keeper.clone(), Millis::from_secs(3600));
    let asked = async move { keeper.ask(Command::Acquire(Acquire { wait, ..wanting("b", "x") })).await };
    let waiting = tokio::spawn(asked);
    tokio::time::sleep(Duration::from_secs(1)).await;
    waiting
}

#[tokio::test(start_paused = true)]
async fn who_waits_keeps_the_place_however_long_the_engine_is_away() {
    for behaviour in [SILENT, REFUSING] {
        let (keeper, ledger) = keeper(&Settings::default()).await;
        keeper.ask(acquire("a", "x")).await.expect("free");
        let waiting = waiting_for_x(&keeper).await;
        ledger.behave(behaviour);
        tokio::time::sleep(Duration::from_secs(90)).await;
        ledger.behave(UP);
        // Whoever asks first must not make others look dead.
        while keeper.ask(acquire("c", "y")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!waiting.is_finished(), "{:?}", waiting.await);
        keeper.ask(release("a")).await.expect("its own");
        let answer = waiting.await.unwrap();
        assert!(matches!(answer, Ok(Answer::Granted { .. })), "{answer:?}");
    }
}

/// Until the engine is back, and a moment longer.
async fn away_for_a_while(ledger: &Distant) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    ledger.behave(UP);
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_while_the_engine_is_away_is_granted_nothing_when_it_is_back() {
    for behaviour in [SILENT, REFUSING] {
        let (keeper, ledger) = keeper(&Settings::default()).await;
        keeper.ask(acquire("a", "x")).await.expect("free");
        let waiting = waiting_for_x(&keeper).await;
        ledger.behave(behaviour);
        waiting.abort();
        away_for_a_while(&ledger).await;
        assert_eq!(keeper.read(|state, _| state.waiter_count()).await, Ok(0));
        keeper.ask(release("a")).await.expect("its own");
        assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(0), "nobody holds what nobody heard of");
    }
}

#[tokio::test(start_paused = true)]
async fn p8_what_a_connection_held_that_ended_while_the_engine_was_away_is_free_when_it_is_back() {
    for behaviour in [SILENT, REFUSING] {
        let (keeper, ledger) = keeper(&Settings::default()).await;
        let mut held = Vec::new();
        for name in ["x", "y"] {
            let Ok(Answer::Granted { locks, .. }) = keeper.ask(acquire("a", name)).await else { panic!("free") };
            held.extend(locks);
        }
        ledger.behave(behaviour);
        let (session, locks) = (held[0].session.clone(), held.iter().map(|lock| lock.id).collect());
        keeper.give_back(session, locks).await;
        away_for_a_while(&ledger).await;
        assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_refuses_is_tried_as_often_as_it_is_set_with_a_pause_that_grows() {
    for attempts in [1_u32, 2, 5] {
        let backoff = Millis(100);
        let (keeper, ledger) = keeper(&Settings { attempts, backoff, ..Settings::default() }).await;
        ledger.behave(REFUSING);
        let asked = Instant::now();
        let answer = keeper.ask(acquire("a", "x")).await;
        assert!(matches!(answer, Err(Failure::Unavailable(_))), "{answer:?}");
        assert_eq!(ledger.appends.load(Ordering::SeqCst), u64::from(attempts));
        // Each pause is longer by one backoff than the last, half to one and a half times.
        let pauses = u64::from(attempts * (attempts - 1) / 2) * backoff.0;
        let (least, most) = (Duration::from_millis(pauses / 2), Duration::from_millis(pauses * 3 / 2) + AIR);
        assert!((least..=most).contains(&asked.elapsed()), "{attempts}: {:?}", asked.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_with_an_answer_that_was_told_and_never_heard_leaves_nothing_behind() {
    let (keeper, _) = keeper(&Settings::default()).await;
    keeper.ask(acquire("a", "x")).await.expect("free");
    let waiting = keeper.ask(Command::Acquire(Acquire { wait: Millis::from_secs(60), ..wanting("b", "x") }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(keeper.read(|state, _| state.waiter_count()).await, Ok(1));
    keeper.ask(release("a")).await.expect("its own");
    drop(waiting);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(keeper.read(|state, _| state.lock_count()).await, Ok(0));
}
