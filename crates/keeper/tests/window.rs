//! Names outside of the ledger that others take without asking, seen late, in turn, or not at all.

mod asking;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_core::command::{Acquire, Command, Want};
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::space::Space;
use lockkeeper_core::time::{Millis, Stamp};
use lockkeeper_engine::{
    Append, Batch, BoxFuture, Confirm, Delta, Durable, Engine, EngineError, Ledger, Memory, Outside, Position, Strength,
};
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::{Failure, Keeper};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::asking::{acquire, release, wanting};

/// Who has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Here,
    Outside,
}

/// What all servers of one store share beside the ledger.
#[derive(Debug, Default)]
struct Street {
    names: Mutex<BTreeMap<String, Taken>>,
    /// Names that somebody outside takes as soon as a batch was told of another.
    taken_next: Mutex<VecDeque<String>>,
    /// Only what frees something is recorded.
    is_full: AtomicBool,
}

impl Street {
    fn take(&self, file: &str) {
        self.names.lock().unwrap().insert(format!("lock:file:{file}"), Taken::Outside);
    }

    fn leave(&self, file: &str) {
        self.names.lock().unwrap().remove(&format!("lock:file:{file}"));
    }

    fn of(&self, file: &str) -> Option<Taken> {
        self.names.lock().unwrap().get(&format!("lock:file:{file}")).copied()
    }

    /// The names of a batch that others have and that it would need.
    fn in_the_way(&self, batch: &Batch) -> Vec<Outside> {
        let names = self.names.lock().unwrap();
        let theirs = |name: &str| names.get(name) == Some(&Taken::Outside);
        let wanted = batch.shown.iter().filter(|shown| shown.left.is_some() && theirs(&shown.name));
        wanted.map(|shown| Outside { name: shown.name.clone(), left: Some(Millis(60_000)) }).collect()
    }

    fn show(&self, batch: &Batch) {
        let mut names = self.names.lock().unwrap();
        for shown in &batch.shown {
            if names.get(&shown.name) != Some(&Taken::Outside) {
                match shown.left {
                    Some(_) => names.insert(shown.name.clone(), Taken::Here),
                    None => names.remove(&shown.name),
                };
            }
        }
    }
}

/// A ledger in memory with a window to the street, as the one in Redis has it.
#[derive(Debug)]
struct Windowed {
    memory: Arc<dyn Ledger>,
    street: Arc<Street>,
    /// Whoever looked has the answer when there is a permit.
    answers: Semaphore,
    is_blind: AtomicBool,
    /// It does not tell when it moved.
    silent: watch::Sender<u64>,
    /// How often each name was looked at.
    looks: Mutex<BTreeMap<String, usize>>,
}

impl Ledger for Windowed {
    fn now(&self) -> Stamp {
        self.memory.now()
    }

    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>> {
        self.memory.read(after)
    }

    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append> {
        Box::pin(async move {
            if self.street.is_full.load(Ordering::SeqCst) && !batch.frees {
                return Append::Full;
            }
            if let Confirm::Moved(delta) = self.memory.confirm(expected).await {
                return Append::Moved(delta);
            }
            let outside = self.street.in_the_way(&batch);
            if !outside.is_empty() {
                if let Some(next) = self.street.taken_next.lock().unwrap().pop_front() {
                    self.street.take(&next);
                }
                return Append::Taken(outside);
            }
            self.street.show(&batch);
            self.memory.append(expected, proposed, batch).await
        })
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
        self.silent.subscribe()
    }

    fn bytes_since_snapshot(&self) -> u64 {
        0
    }

    fn strength(&self) -> Strength {
        Strength::BestEffort
    }

    fn shows(&self) -> bool {
        true
    }

    fn look_outside(&self, names: Vec<String>) -> BoxFuture<'_, Result<Vec<Outside>, EngineError>> {
        Box::pin(async move {
            if self.is_blind.load(Ordering::SeqCst) {
                return Err(EngineError::Unreachable("away".to_owned()));
            }
            for name in &names {
                *self.looks.lock().unwrap().entry(name.clone()).or_default() += 1;
            }
            let theirs = |name: &String| self.street.names.lock().unwrap().get(name) == Some(&Taken::Outside);
            let seen = names.into_iter().filter(theirs);
            let seen = seen.map(|name| Outside { name, left: Some(Millis(60_000)) }).collect();
            self.answers.acquire().await.expect("never closed").forget();
            Ok(seen)
        })
    }
}

/// Some servers of one ledger.
struct Town {
    engine: Memory,
    street: Arc<Street>,
}

impl Town {
    fn new() -> Town {
        Town { engine: Memory::new(), street: Arc::default() }
    }

    /// A server that may look as often as it likes, or only as often as the test lets it.
    async fn server(&self, looks: usize) -> (Keeper, Arc<Windowed>) {
        let space = Space::parse("s").unwrap();
        let memory = self.engine.open(&space).await.unwrap();
        let ledger = Arc::new(Windowed {
            memory,
            street: self.street.clone(),
            answers: Semaphore::new(looks),
            is_blind: AtomicBool::new(false),
            silent: watch::Sender::new(0),
            looks: Mutex::default(),
        });
        let stopping = CancellationToken::new();
        let keeper = Keeper::open(space, ledger.clone(), &Settings::default(), Arc::default(), stopping).await.unwrap();
        (keeper, ledger)
    }
}

fn file(path: &str) -> Vec<Key> {
    vec![Key::parse(path).unwrap()]
}

async fn holders(keeper: &Keeper) -> Vec<String> {
    keeper.read(|state, _| state.locks().map(|lock| lock.agent.to_string()).collect()).await.unwrap()
}

const OFTEN: usize = 1_000_000;

#[tokio::test]
async fn what_was_seen_before_the_ledger_moved_takes_nothing_away() {
    let town = Town::new();
    let ((one, _), (other, slow)) = (town.server(OFTEN).await, town.server(0).await);
    town.street.take("x");
    let looking = tokio::spawn({
        let other = other.clone();
        async move { other.look_outside(file("x")).await }
    });
    // It has looked, and has no answer yet. Meanwhile the name is given back, and somebody gets the file.
    tokio::time::sleep(Duration::from_millis(50)).await;
    town.street.leave("x");
    assert!(matches!(one.ask(acquire("s", "x")).await, Ok(Answer::Granted { .. })));
    slow.answers.add_permits(OFTEN);
    looking.await.unwrap().unwrap();
    assert_eq!(holders(&one).await, ["s"]);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(town.street.of("x"), Some(Taken::Here), "others are still kept out");
    assert!(matches!(one.ask(release("s")).await, Ok(Answer::Released { .. })));
}

#[tokio::test]
async fn names_that_are_taken_one_after_the_other_fail_nobody() {
    let town = Town::new();
    let (keeper, _) = town.server(OFTEN).await;
    assert!(matches!(keeper.ask(acquire("c", "z")).await, Ok(Answer::Granted { .. })));
    town.street.take("x");
    town.street.taken_next.lock().unwrap().push_back("y".to_owned());
    let (first, second, third) =
        tokio::join!(keeper.ask(acquire("a", "x")), keeper.ask(acquire("b", "y")), keeper.ask(release("c")));
    for answer in [first, second] {
        assert!(matches!(&answer, Ok(Answer::Refused(Refusal::Busy(_)))), "{answer:?}");
    }
    assert!(matches!(third, Ok(Answer::Released { .. })), "{third:?}");
}

#[tokio::test]
async fn whoever_could_not_look_outside_is_told_so() {
    let town = Town::new();
    let (keeper, ledger) = town.server(OFTEN).await;
    town.street.take("x");
    ledger.is_blind.store(true, Ordering::SeqCst);
    assert!(matches!(keeper.look_outside(file("x")).await, Err(Failure::Unavailable(_))));
    ledger.is_blind.store(false, Ordering::SeqCst);
    keeper.look_outside(file("x")).await.unwrap();
    assert_eq!(holders(&keeper).await, ["external"]);
}

#[tokio::test]
async fn what_others_hold_is_seen_although_the_store_is_full() {
    let town = Town::new();
    let (keeper, _) = town.server(OFTEN).await;
    town.street.take("x");
    town.street.is_full.store(true, Ordering::SeqCst);
    keeper.look_outside(file("x")).await.unwrap();
    assert_eq!(holders(&keeper).await, ["external"]);
}

#[tokio::test]
async fn a_full_store_takes_a_release_although_the_next_in_the_queue_is_kept_out_from_outside() {
    let town = Town::new();
    let (keeper, _) = town.server(OFTEN).await;
    assert!(matches!(keeper.ask(acquire("a", "z")).await, Ok(Answer::Granted { .. })));
    let both = Acquire { wait: Millis(60_000), ..wanting("b", "z") };
    let wants: Vec<Want> = both.wants.iter().chain(&wanting("b", "y").wants).cloned().collect();
    let waiting = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.ask(Command::Acquire(Acquire { wants, ..both })).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    town.street.take("y");
    town.street.is_full.store(true, Ordering::SeqCst);
    let answer = keeper.ask(release("a")).await;
    assert!(matches!(answer, Ok(Answer::Released { .. })), "{answer:?}");
    assert!(!waiting.is_finished(), "it waits for whoever is outside");
}

#[tokio::test]
async fn a_look_beside_what_a_full_store_refused_is_no_staler_than_its_question() {
    let town = Town::new();
    let ((one, _), (other, _)) = (town.server(OFTEN).await, town.server(OFTEN).await);
    assert_eq!(holders(&other).await, [""; 0]);
    assert!(matches!(one.ask(acquire("a", "x")).await, Ok(Answer::Granted { .. })));
    // The other one was not told that the ledger moved.
    town.street.is_full.store(true, Ordering::SeqCst);
    let (refused, seen) = tokio::join!(other.ask(acquire("b", "y")), holders(&other));
    assert!(matches!(refused, Err(Failure::Full)), "{refused:?}");
    assert_eq!(seen, ["a"]);
    // It is said to be full until something new was recorded.
    assert!(other.is_full() && !one.is_full());
    town.street.is_full.store(false, Ordering::SeqCst);
    assert!(matches!(other.ask(acquire("b", "y")).await, Ok(Answer::Granted { .. })));
    assert!(!other.is_full());
}

#[tokio::test]
async fn what_somebody_waits_for_is_looked_at_each_time_however_much_others_hold() {
    let town = Town::new();
    let (keeper, ledger) = town.server(OFTEN).await;
    let names: Vec<String> = (0..5000).map(|number| format!("f{number}")).collect();
    for name in &names {
        town.street.take(name);
    }
    keeper.look_outside(names.iter().flat_map(|name| file(name)).collect()).await.unwrap();
    ledger.looks.lock().unwrap().clear();
    let waiting = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.ask(Command::Acquire(Acquire { wait: Millis(60_000), ..wanting("a", "f4321") })).await }
    });
    let looks = |name: &str| ledger.looks.lock().unwrap().get(name).copied().unwrap_or_default();
    while looks("lock:file:f4321") < 8 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A thousand of five thousand at a time.
    assert!((1..=3).contains(&looks("lock:file:f1234")), "{}", looks("lock:file:f1234"));
    town.street.leave("f4321");
    assert!(matches!(waiting.await.unwrap(), Ok(Answer::Granted { .. })));
}
