//! Eight clients on few keys, some of which wait for them, services that are killed among them, and a checker that knows only what
//! the clients were told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::house::House;
use crate::model::{Did, Operation, Told, Who, is_linearizable};
use crate::service::{Dice, Line, Service, deep};

const CLIENTS: u64 = 8;
const KEYS: u64 = 16;
const PAUSE: Duration = Duration::from_millis(1);
/// How long somebody stands in a queue, at most.
const WAIT_MS_MAX: u64 = 20;
/// How long a service lives before it is killed.
const LIFE_MS: u64 = 900;

/// What all clients share: one order of moments, and new names.
#[derive(Default)]
struct World {
    moments: AtomicU64,
    names: AtomicU32,
    over: AtomicBool,
}

impl World {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }
}

struct Client<'a> {
    world: &'a World,
    /// All services. Whoever hears nothing of one asks the next.
    sockets: &'a [PathBuf],
    at: usize,
    line: Option<Line>,
    who: Who,
    /// Keys that it has, as far as it was told.
    own: BTreeSet<u64>,
    dice: Dice,
    asked: u64,
    answers: u64,
    /// By key.
    history: BTreeMap<u64, Vec<Operation>>,
}

impl Client<'_> {
    fn work(mut self) -> (u64, BTreeMap<u64, Vec<Operation>>) {
        while !self.world.over.load(Ordering::SeqCst) {
            self.step();
            std::thread::sleep(PAUSE);
        }
        (self.answers, self.history)
    }

    fn step(&mut self) {
        let any = self.dice.below(KEYS);
        let operation =
            ["locks/acquire", "locks/acquire", "locks/release", "locks/release", "locks/renew", "locks/check"]
                [self.dice.below(6) as usize];
        // Most give back what they have, so that whoever waits for it gets it.
        let own = self.own.first().copied().filter(|_| operation == "locks/release" && self.dice.below(4) > 0);
        let key = own.unwrap_or(any);
        self.asked += 1;
        let mut body = json!({ "session_id": session(self.who), "file_path": format!("k{key}") });
        if operation != "locks/check" {
            body["request_id"] = json!(format!("r{}", self.asked));
        }
        if operation == "locks/acquire" {
            // Longer than the test: what expires would have to be in the model.
            body["ttl_minutes"] = json!(60);
            if self.dice.below(3) == 0 {
                body["wait_ms"] = json!(1 + self.dice.below(WAIT_MS_MAX));
            }
        }
        let asked = self.world.moment();
        let mut answer = self.ask(operation, &body);
        // Half of those who hear nothing ask again by the same name; the others are never told.
        while answer.is_none() && self.dice.below(2) == 0 {
            std::thread::sleep(Duration::from_millis(5));
            answer = self.ask(operation, &body);
        }
        let told = answer.as_ref().map_or(Told::Nothing, |(status, body)| told(operation, *status, body));
        let answered = if answer.is_some() { self.world.moment() } else { u64::MAX };
        match told {
            Told::New(_) => {
                self.own.insert(key);
            }
            _ if operation == "locks/release" => {
                self.own.remove(&key);
            }
            Told::Own(_) | Told::Others(_) | Told::Free | Told::Nothing => {}
        }
        let (did, waits) = (did(operation, self.who, told), body["wait_ms"].is_u64());
        self.history.entry(key).or_default().push(Operation { asked, answered, did, waits });
        if answer.is_none() {
            self.begin_anew();
        }
    }

    /// A session that does not know what it holds is closed, and never used again.
    fn begin_anew(&mut self) {
        let body = json!({ "session_id": session(self.who) });
        let asked = self.world.moment();
        while self.ask("sessions/close", &body).is_none() {
            if self.world.over.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let answered = self.world.moment();
        for key in 0..KEYS {
            let did = Did::Close(self.who);
            self.history.entry(key).or_default().push(Operation { asked, answered, did, waits: false });
        }
        self.own.clear();
        self.who = self.world.names.fetch_add(1, Ordering::SeqCst);
    }

    /// Asks once; nothing if the connection breaks, or there is none.
    fn ask(&mut self, operation: &str, body: &Value) -> Option<(u16, Value)> {
        if self.line.is_none() {
            self.line = Line::connect(&self.sockets[self.at]).ok();
        }
        let answer = self.line.as_mut().and_then(|line| line.ask(operation, body.clone()).ok());
        // An outcome that the service does not know is not known here either.
        let answer = answer.filter(|(status, _)| *status != 503);
        match answer {
            Some(_) => self.answers += 1,
            None => {
                self.line = None;
                self.at = (self.at + 1) % self.sockets.len();
            }
        }
        answer
    }
}

fn session(who: Who) -> String {
    format!("s{who}")
}

fn who(session: &Value) -> Who {
    session.as_str().and_then(|session| session.strip_prefix('s')?.parse().ok()).expect("a session of ours")
}

/// Who has it, among all that stand in the way.
fn holder(refused: &Value) -> Option<Who> {
    let conflicts = refused["conflicts"].as_array().into_iter().flatten();
    conflicts.filter(|conflict| conflict["kind"] == "held").map(|conflict| who(&conflict["session_id"])).next()
}

fn did(operation: &str, who: Who, told: Told) -> Did {
    match operation {
        "locks/acquire" => Did::Acquire(who, told),
        "locks/release" => Did::Release(who, told),
        "locks/renew" => Did::Renew(who, told),
        _ => Did::Check(who, told),
    }
}

fn told(operation: &str, status: u16, body: &Value) -> Told {
    let token = |lock: &Value| lock["fencing_token"].as_u64().expect("a token");
    match (operation, status, body["action"].as_str(), body["error"].as_str()) {
        ("locks/acquire", 200, Some("acquired"), _) => Told::New(token(body)),
        ("locks/acquire", 200, Some("refreshed"), _) => Told::Own(token(body)),
        ("locks/acquire", 409, _, Some("busy")) => Told::Others(holder(body)),
        // Somebody has it who waits for what this one has.
        ("locks/acquire", 409, _, Some("deadlock")) => Told::Others(None),
        ("locks/release" | "locks/renew", 200, _, _) => Told::Own(token(&body["locks"][0])),
        ("locks/release" | "locks/renew", 403, _, Some("not_owner")) => Told::Others(None),
        ("locks/release" | "locks/renew", 404, _, Some("not_found")) => Told::Free,
        ("locks/check", 200, _, _) => match (&body["conflicts"][0], &body["held"][0]) {
            (Value::Null, Value::Null) => Told::Free,
            (Value::Null, held) => Told::Own(token(held)),
            (_, _) => Told::Others(holder(body)),
        },
        _ => panic!("{operation} -> {status} {body}"),
    }
}

/// Histories by key.
pub(crate) type Histories = BTreeMap<u64, Vec<Operation>>;

/// Lets the clients work, each on one of these services, while something happens. Gives back how many answers they got,
/// and what they were told.
pub(crate) fn record(sockets: &[PathBuf], happens: impl FnOnce()) -> (u64, Histories) {
    let world = World { names: AtomicU32::new(CLIENTS as u32), ..World::default() };
    let (mut answers, mut history) = (0, Histories::new());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client {
                    world: &world,
                    sockets,
                    at: number as usize % sockets.len(),
                    line: None,
                    who: number as Who,
                    own: BTreeSet::new(),
                    dice: Dice::new(100 + number),
                    asked: 0,
                    answers: 0,
                    history: BTreeMap::new(),
                };
                scope.spawn(move || client.work())
            })
            .collect();
        // Whatever fails, the clients have to end.
        let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(happens));
        world.over.store(true, Ordering::SeqCst);
        for client in clients {
            let (count, of_client) = client.join().expect("a client");
            answers += count;
            for (key, operations) in of_client {
                history.entry(key).or_default().extend(operations);
            }
        }
        happened.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    (answers, history)
}

/// How many stood in the queue, if they had to, while somebody else gave it back, and got it.
pub(crate) fn handed_over(history: &Histories) -> usize {
    let taken = |operation: &&Operation| operation.waits && matches!(operation.did, Did::Acquire(_, Told::New(_)));
    let freed = |operation: &&Operation| matches!(operation.did, Did::Release(_, Told::Own(_)));
    let waited = |operations: &Vec<Operation>| {
        let frees: Vec<u64> = operations.iter().filter(freed).map(|operation| operation.asked).collect();
        let during = |taken: &&Operation| frees.iter().any(|asked| (taken.asked..taken.answered).contains(asked));
        operations.iter().filter(taken).filter(during).count()
    };
    history.values().map(waited).sum()
}

/// How many were never told what became of their question.
pub(crate) fn unanswered(history: &Histories) -> usize {
    let unknown = |did: &Did| matches!(did, Did::Acquire(_, Told::Nothing) | Did::Release(_, Told::Nothing));
    history.values().flatten().filter(|operation| unknown(&operation.did)).count()
}

/// There is one order of events for each key that explains every answer.
pub(crate) fn explain(history: &Histories) {
    for (key, operations) in history {
        assert!(is_linearizable(operations), "k{key}: no order explains {operations:#?}");
    }
}

#[test]
fn whatever_the_clients_were_told_is_one_order_of_events_for_each_key() {
    let house = House::new();
    let long = Duration::from_secs(if deep() { 20 } else { 3 });
    let mut service = Service::start(&house);
    let socket = service.socket().to_owned();
    let (mut dice, mut kills) = (Dice::new(3), 0);
    let (answers, history) = record(&[socket], || {
        let began = Instant::now();
        while began.elapsed() < long {
            std::thread::sleep(Duration::from_millis(LIFE_MS / 2 + dice.below(LIFE_MS)));
            service.kill();
            service = Service::start(&house);
            kills += 1;
        }
    });
    let open = unanswered(&history);
    let waited = handed_over(&history);
    println!("{answers} answers in {long:?}, {waited} handed over, {kills} kills, {open} never answered");
    assert!(waited >= 10, "{waited} were handed over");
    assert!(answers > long.as_secs() * 200, "{answers} answers are too few to prove anything");
    assert!(kills >= 2 && open >= 1, "{kills} kills left {open} without an answer");
    explain(&history);
    // The same checker refuses the same history once a single answer in it is a lie.
    let (key, mut doctored) = history.into_iter().next().expect("a history");
    let lie = doctored.iter_mut().find_map(|operation| match &mut operation.did {
        Did::Acquire(who, told @ Told::Others(Some(_))) => {
            *told = Told::New(u64::MAX / 2 + u64::from(*who));
            Some(())
        }
        _ => None,
    });
    lie.expect("somebody was refused");
    assert!(!is_linearizable(&doctored), "k{key}: a grant while another holds it must be seen");
}
