//! Files that are shared with clients that know nothing of Lockkeeper: two services and plain clients on one Redis.

mod asking;
#[path = "../../engine/tests/redis/server.rs"]
mod server;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_core::command::{Acquire, Command, Which};
use lockkeeper_core::key::Key;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::space::Space;
use lockkeeper_core::time::Millis;
use lockkeeper_engine::{Engine, Redis};
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::{Failure, Keeper};

use self::asking::{actor, release};
use self::server::RedisServer;

const NAME: &str = "lock:file:src/a.rs";

async fn keeper(server: &RedisServer) -> Keeper {
    keeper_with(server, Settings::default(), 0).await
}

async fn keeper_with(server: &RedisServer, mut settings: Settings, quota: u32) -> Keeper {
    let space = Space::parse("shared").unwrap();
    let engine = Redis::open(&server.url()).await.unwrap().sharing(Some(space.clone())).await.unwrap();
    let ledger = engine.open(&space).await.unwrap();
    settings.rules.quota_limit = quota;
    Keeper::open(space, ledger, &settings, Arc::default(), tokio_util::sync::CancellationToken::new()).await.unwrap()
}

fn acquire(session: &str, key: &str, wait: u64) -> Command {
    Command::Acquire(Acquire { ttl: Millis(30_000), wait: Millis(wait), ..asking::wanting(session, key) })
}

/// A client as others write them: `SET NX PX`, and a script that compares and deletes.
struct Plain {
    reader: BufReader<TcpStream>,
}

impl Plain {
    fn connect(server: &RedisServer) -> Plain {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Plain { reader: BufReader::new(stream) }
    }

    fn ask(&mut self, words: &[&str]) -> String {
        let mut sent = format!("*{}\r\n", words.len());
        for word in words {
            let _ = write!(sent, "${}\r\n{word}\r\n", word.len());
        }
        self.reader.get_mut().write_all(sent.as_bytes()).unwrap();
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        if let Some(length) = line.strip_prefix('$').and_then(|length| length.trim().parse::<usize>().ok()) {
            let mut bytes = vec![0; length + 2];
            self.reader.read_exact(&mut bytes).unwrap();
        }
        line.trim().to_owned()
    }

    fn take(&mut self) -> bool {
        self.ask(&["SET", NAME, "theirs", "NX", "PX", "5000"]) == "+OK"
    }

    fn give_back(&mut self) {
        let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        assert_eq!(self.ask(&["EVAL", script, "1", NAME, "theirs"]), ":1", "it was still theirs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_is_seen_by_others_and_what_others_hold_is_respected() {
    let server = RedisServer::start();
    let (one, other) = (keeper(&server).await, keeper(&server).await);
    let mut plain = Plain::connect(&server);
    // Some lines of a file are enough to show it; it is free when the last lock on it is gone.
    assert!(matches!(one.ask(acquire("a", "src/a.rs#1-5", 0)).await, Ok(Answer::Granted { .. })));
    assert!(matches!(other.ask(acquire("b", "src/a.rs#7-9", 0)).await, Ok(Answer::Granted { .. })));
    assert!(!plain.take());
    one.ask(release("a")).await.unwrap();
    assert!(!plain.take());
    other.ask(release("b")).await.unwrap();
    assert!(plain.take());
    // Theirs is a lock of the whole file.
    for keeper in [&one, &other] {
        let answer = keeper.ask(acquire("c", "src/a.rs#100-", 0)).await.unwrap();
        let Answer::Refused(Refusal::Busy(busy)) = answer else { panic!("{answer:?}") };
        assert_eq!(busy.conflicts[0].with.agent().to_string(), "external");
    }
    assert!(matches!(one.ask(acquire("c", "src/b.rs", 0)).await, Ok(Answer::Granted { .. })));
    // Whoever looks sees it, too.
    let key = Key::parse("src/a.rs").unwrap();
    let holder = |keeper: &Keeper| {
        let (keeper, key) = (keeper.clone(), key.clone());
        async move {
            keeper.look_outside(vec![key]).await.unwrap();
            keeper.read(|state, _| state.locks().map(|lock| lock.agent.to_string()).collect::<Vec<_>>()).await.unwrap()
        }
    };
    assert!(holder(&one).await.contains(&"external".to_owned()));
    // Whoever waits for it gets it soon after it is given back.
    let waiting = {
        let other = other.clone();
        tokio::spawn(async move { other.ask(acquire("d", "src/a.rs", 60_000)).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    plain.give_back();
    let begin = Instant::now();
    assert!(matches!(waiting.await.unwrap(), Ok(Answer::Granted { .. })));
    // It is looked at every 250 ms at least.
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(!plain.take());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_shown_until_the_latest_end_of_its_locks() {
    let server = RedisServer::start();
    let keeper = keeper(&server).await;
    let mut plain = Plain::connect(&server);
    let take = |session: &str, lines: &str, ttl: u64| {
        let ttl = Millis(ttl);
        Command::Acquire(Acquire { ttl, ..asking::wanting(session, &format!("src/a.rs#{lines}")) })
    };
    let mut left = || plain.ask(&["PTTL", NAME]).trim_start_matches(':').parse::<i64>().unwrap();
    keeper.ask(take("a", "1-5", 60_000)).await.unwrap();
    assert!((50_000..=60_000).contains(&left()));
    // Neither a shorter one nor one that is given back shortens it.
    keeper.ask(take("b", "7-9", 5000)).await.unwrap();
    assert!((50_000..=60_000).contains(&left()));
    keeper.ask(take("c", "11-12", 120_000)).await.unwrap();
    assert!((110_000..=120_000).contains(&left()));
    keeper.ask(release("c")).await.unwrap();
    assert!((50_000..=60_000).contains(&left()));
    keeper.ask(release("a")).await.unwrap();
    assert!((1..=5000).contains(&left()));
    keeper.ask(release("b")).await.unwrap();
    assert_eq!(left(), -2, "nobody has it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_client_and_lockkeeper_never_both_hold_a_file() {
    const ROUNDS: usize = 10_000;
    // Long enough that whoever takes it as well is seen.
    const HELD: Duration = Duration::from_micros(200);
    let server = RedisServer::start();
    let (inside, rounds, ours) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let enter = |inside: &AtomicBool| assert!(!inside.swap(true, Ordering::SeqCst), "two hold one file");
    let peers: Vec<_> = (0..2)
        .map(|_| {
            let (inside, rounds, mut plain) = (inside.clone(), rounds.clone(), Plain::connect(&server));
            std::thread::spawn(move || {
                while rounds.load(Ordering::Relaxed) < ROUNDS {
                    if plain.take() {
                        enter(&inside);
                        std::thread::sleep(HELD);
                        inside.store(false, Ordering::SeqCst);
                        plain.give_back();
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_micros(700));
                }
            })
        })
        .collect();
    let (one, other) = (keeper(&server).await, keeper(&server).await);
    let agents = [("a", &one), ("b", &one), ("c", &other)].map(|(session, keeper)| {
        let (keeper, inside, rounds) = (keeper.clone(), inside.clone(), rounds.clone());
        tokio::spawn(async move {
            let mut held = 0;
            while rounds.load(Ordering::Relaxed) < ROUNDS {
                if let Ok(Answer::Granted { .. }) = keeper.ask(acquire(session, "src/a.rs#3-4", 500)).await {
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold one file");
                    // On the spot: a timer would take a millisecond.
                    std::thread::sleep(HELD);
                    inside.store(false, Ordering::SeqCst);
                    keeper.ask(release(session)).await.unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                    held += 1;
                }
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            held
        })
    });
    for agent in agents {
        ours.fetch_add(agent.await.unwrap(), Ordering::Relaxed);
    }
    for peer in peers {
        peer.join().unwrap();
    }
    let (ours, all) = (ours.load(Ordering::Relaxed), rounds.load(Ordering::Relaxed));
    assert!(ours > 50 && all - ours > 50, "both get their turns: {ours} of {all} were ours");
    println!("{all} rounds, {ours} of them ours");
}

/// Holders that die without giving back, leases that end, and a Redis that stands still now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_client_and_lockkeeper_share_a_file_also_when_holders_die_and_redis_stands_still() {
    const LONG: Duration = Duration::from_secs(12);
    // Whoever stands in the queue is quicker than one who looks every few milliseconds: until that one had some turns, too.
    const LONGEST: Duration = Duration::from_secs(90);
    const TURNS: u32 = 5;
    let server = RedisServer::start();
    let (inside, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let turns = Arc::new(AtomicU32::new(0));
    let peer = {
        let (inside, over, mut plain) = (inside.clone(), over.clone(), Plain::connect(&server));
        let turns = turns.clone();
        std::thread::spawn(move || {
            let mut rounds = 0u32;
            while !over.load(Ordering::Relaxed) {
                turns.store(rounds, Ordering::Relaxed);
                let began = Instant::now();
                // One whose answer took long may be over already: it does not enter.
                if plain.ask(&["SET", NAME, "theirs", "NX", "PX", "400"]) == "+OK" && began.elapsed().as_millis() < 200
                {
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold one file");
                    inside.store(false, Ordering::SeqCst);
                    rounds += 1;
                    // Every other time it dies, and the key goes by itself.
                    if rounds.is_multiple_of(2) {
                        plain.ask(&["DEL", NAME]);
                    }
                }
                std::thread::sleep(Duration::from_millis(3));
            }
            rounds
        })
    };
    let keepers = [keeper(&server).await, keeper(&server).await];
    let agents: Vec<_> = keepers
        .iter()
        .enumerate()
        .map(|(number, keeper)| {
            let (keeper, inside, over) = (keeper.clone(), inside.clone(), over.clone());
            tokio::spawn(async move {
                let mut rounds = 0u32;
                while !over.load(Ordering::Relaxed) {
                    let session = format!("s{number}-{rounds}");
                    let (ttl, wait) = (Millis(1000), Millis(2000));
                    let wanted = Acquire { ttl, wait, ..asking::wanting(&session, "src/a.rs#3-4") };
                    let answer = keeper.ask(Command::Acquire(wanted)).await;
                    // Only a renewal proves that it is held now: the answer may have taken long.
                    let renew =
                        Command::Renew { actor: actor(&session), which: Which::Everything, ttl: None, token: None };
                    let began = Instant::now();
                    let renewed = keeper.ask(renew).await;
                    let held = matches!(&renewed, Ok(Answer::Renewed { locks, .. }) if locks.len() == 1);
                    if matches!(answer, Ok(Answer::Granted { .. })) && held && began.elapsed().as_millis() < 500 {
                        assert!(!inside.swap(true, Ordering::SeqCst), "two hold one file");
                        inside.store(false, Ordering::SeqCst);
                        if !rounds.is_multiple_of(3) {
                            let _ = keeper.ask(release(&session)).await;
                        }
                    }
                    rounds += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                rounds
            })
        })
        .collect();
    let began = Instant::now();
    while began.elapsed() < LONG || (turns.load(Ordering::Relaxed) < TURNS && began.elapsed() < LONGEST) {
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.pause();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.resume();
    }
    over.store(true, Ordering::Relaxed);
    let mut ours = 0;
    for agent in agents {
        ours += agent.await.unwrap();
    }
    let theirs = peer.join().unwrap();
    println!("{ours} rounds of ours, {theirs} of theirs");
    assert!(ours >= TURNS && theirs >= TURNS, "both get their turns: {ours} and {theirs}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_across_all_servers_of_one_redis() {
    let server = RedisServer::start();
    let one = keeper_with(&server, Settings::default(), 4).await;
    let other = keeper_with(&server, Settings::default(), 4).await;
    for (keeper, file) in [(&one, "a"), (&other, "b"), (&one, "c"), (&other, "d")] {
        assert!(matches!(keeper.ask(acquire("s", file, 0)).await, Ok(Answer::Granted { .. })), "{file}");
    }
    for keeper in [&one, &other] {
        let answer = keeper.ask(acquire("s", "e", 0)).await.unwrap();
        assert!(matches!(answer, Answer::Refused(Refusal::RateLimited { .. })), "{answer:?}");
    }
    assert!(matches!(other.ask(acquire("t", "e", 0)).await, Ok(Answer::Granted { .. })), "each session has its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_away_for_a_moment_is_tried_again() {
    let mut server = RedisServer::durable();
    let settings = Settings { attempts: 10, backoff: Millis(100), ..Settings::default() };
    let (patient, hasty) = (keeper_with(&server, settings, 0).await, keeper(&server).await);
    assert!(matches!(patient.ask(acquire("a", "x", 0)).await, Ok(Answer::Granted { .. })));
    server.kill();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(matches!(hasty.ask(acquire("b", "y", 0)).await, Err(Failure::Unavailable(_))));
    let waiting = tokio::spawn(async move { patient.ask(acquire("a", "z", 0)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.start_again();
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Ok(Answer::Granted { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_while_redis_is_away_is_told_when_the_wait_is_over() {
    let mut server = RedisServer::start();
    let keeper = keeper(&server).await;
    assert!(matches!(keeper.ask(acquire("a", "x", 0)).await, Ok(Answer::Granted { .. })));
    let waiting = {
        let keeper = keeper.clone();
        tokio::spawn(async move { keeper.ask(acquire("b", "x", 1000)).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.kill();
    let answer = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("an answer").unwrap();
    assert!(matches!(answer, Err(Failure::OutcomeUnknown(_))), "{answer:?}");
}
