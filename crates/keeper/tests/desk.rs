//! The keeper without its loop: batches that are stamped late, found again, or void.

use lockkeeper_core::command::{Acquire, Actor, Command, Request, Want, Which};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::limits::{SET_MAX, WAITERS_MAX};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::session::{AgentName, Intention, RequestId, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::state::Rules;
use lockkeeper_core::time::{Millis, Stamp, Time};
use lockkeeper_engine::{Appended, Base, Batch, BatchId, Delta, PAYLOAD_BYTES_MAX, Position, Record};
use lockkeeper_keeper::desk::{Asked, Desk, Ticket, Told};

fn actor(session: &str) -> Actor {
    let agent = AgentName::parse(session).unwrap();
    Actor { session: SessionId::parse(session).unwrap(), agent, agent_type: None, bound: false }
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn acquire(session: &str, keys: &[&str], wait: u64) -> Command {
    let want = |text: &&str| Want { target: Target::new(key(text), Span::WHOLE).unwrap(), mode: Mode::Exclusive };
    Command::Acquire(Acquire {
        actor: actor(session),
        wants: keys.iter().map(want).collect(),
        intention: Intention::default(),
        ttl: Millis(30_000),
        wait: Millis(wait),
        priority: 5,
        feature: None,
        request: Some(Request { id: RequestId::parse(&keys.join("+")).unwrap(), digest: 1 }),
        restores: false,
    })
}

fn force(text: &str) -> Command {
    let (by, reason) = (AgentName::parse("op").unwrap(), Intention::default());
    Command::ForceRelease { by, reason, which: Which::Key(key(text), None), request: None }
}

fn stamp(at: u64) -> Stamp {
    Stamp { time: Time(1_000_000_000 + at), wall: 0 }
}

/// A desk, and the ledger that its batches go to.
struct House {
    desk: Desk,
    records: Vec<Record>,
    made: u128,
}

impl House {
    fn new() -> House {
        House { desk: Desk::new(7, Rules::default()), records: Vec::new(), made: 0 }
    }

    fn decide(&mut self, at: u64, commands: Vec<Command>) -> Batch {
        let first = self.made as u64 * 10 + 1;
        self.made += 1;
        let asked = (first..).zip(commands).map(|(n, command)| Asked { ticket: Some(Ticket(n)), command }).collect();
        self.desk.decide(BatchId(self.made), stamp(at), asked).expect("something to record")
    }

    fn record(&mut self, at: u64, batch: Batch) -> Appended {
        let begin = Position { epoch: 1, ..Position::ORIGIN };
        let end = self.records.last().map_or(begin, |record| record.position);
        let position = end.following(batch.id, stamp(at), &batch.payload);
        self.records.push(Record { position, batch: batch.id, stamp: stamp(at), payload: batch.payload });
        Appended { position, stamp: stamp(at), durable: true }
    }

    /// Decides at one moment and records at another.
    fn settle(&mut self, decided: u64, recorded: u64, commands: Vec<Command>) -> Vec<Told> {
        let batch = self.decide(decided, commands);
        let appended = self.record(recorded, batch);
        self.desk.settle(appended)
    }

    fn missed(&self, seen: usize) -> Delta {
        Delta { base: Base::Asked, records: self.records[seen..].to_vec() }
    }
}

fn granted(told: &[Told], ticket: u64) -> Vec<String> {
    let told = told.iter().find(|told| told.ticket == Ticket(ticket)).expect("an answer");
    match &told.answer {
        Answer::Granted { locks, .. } => locks.iter().map(|lock| lock.target.key.as_str().to_owned()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_is_of_its_own_moment_whatever_comes_later_in_the_batch() {
    for recorded in [5, 6] {
        let mut house = House::new();
        let told = house.settle(5, recorded, vec![acquire("a", &["x", "y"], 0), force("x")]);
        assert_eq!(granted(&told, 1), ["x", "y"], "recorded at {recorded}");
        // The same for somebody who waits: what frees the way and what takes the lock again come together.
        house.settle(7, recorded + 7, vec![acquire("b", &["y", "z"], 9000)]);
        let told = house.settle(20, recorded + 20, vec![force("y"), force("z")]);
        assert_eq!(granted(&told, 11), ["y", "z"]);
    }
}

#[test]
fn no_lock_id_is_given_twice_whatever_moment_the_first_batch_is_stamped_with() {
    for late in 0..64 {
        let mut house = House::new();
        house.settle(0, late, vec![acquire("a", &["a", "b", "c"], 0), acquire("a", &["d"], 0)]);
        let told = house.settle(100, 100, vec![acquire("b", &["e"], 0), acquire("b", &["f", "g"], 0)]);
        assert_eq!([granted(&told, 11), granted(&told, 12)].concat(), ["e", "f", "g"]);
        assert_eq!(house.desk.state().lock_count(), 7, "stamped {late} later");
    }
}

#[test]
fn a_batch_of_unknown_outcome_is_recognised_when_it_turns_up_late() {
    let mut house = House::new();
    let doubtful = house.decide(0, vec![acquire("a", &["x"], 0)]);
    let asked = house.desk.doubt();
    // It is not there, so it is tried again; but now it is there, and the second try loses.
    house.made += 1;
    house.desk.decide(BatchId(house.made), stamp(1), asked).expect("the same again");
    let id = doubtful.id;
    house.record(2, doubtful);
    assert_eq!(house.desk.give_up().len(), 1);
    let folded = house.desk.fold(house.missed(0)).unwrap();
    assert_eq!(folded.found, [id]);
    assert_eq!(granted(&folded.told, 1), ["x"]);
}

#[test]
fn a_batch_that_others_came_before_is_looked_for_no_more() {
    let mut house = House::new();
    let doubtful = house.decide(0, vec![acquire("a", &["x"], 0)]);
    house.desk.doubt();
    let mut other = House::new();
    let batch = Batch { id: BatchId(77), ..other.decide(1, vec![acquire("b", &["x"], 0)]) };
    house.record(1, batch);
    assert!(house.desk.fold(house.missed(0)).unwrap().found.is_empty());
    house.record(2, doubtful);
    assert!(house.desk.fold(house.missed(1)).unwrap().found.is_empty());
}

#[test]
fn holders_and_waiters_of_a_rewritten_ledger_are_told() {
    let mut house = House::new();
    house.settle(0, 0, vec![acquire("a", &["x"], 0)]);
    house.settle(1, 1, vec![acquire("a", &["y"], 0), acquire("b", &["y"], 9000)]);
    let last_token = house.desk.state().last_token();
    house.records.pop();
    let base = Base::Rewritten { snapshot: None, position: Position { epoch: 1, ..Position::ORIGIN } };
    let folded = house.desk.fold(Delta { base, records: house.records.clone() }).unwrap();
    assert_eq!(folded.unplaced, [Ticket(12)], "b's place in the queue is gone");
    let rewritten = folded.rewritten.expect("noticed");
    assert_eq!(rewritten.last_token, last_token);
    assert_eq!(rewritten.known.len(), 1, "x is still there");
    let mourn = Command::Mourn { locks: rewritten.known.clone(), last_token };
    house.settle(3, 3, vec![mourn.clone()]);
    // Once, however many servers saw it go.
    let again = house.desk.decide(BatchId(9), stamp(4), vec![Asked { ticket: None, command: mourn }]);
    assert!(again.is_none());
    house.desk.settle_unrecorded();
    let release = Command::Release { actor: actor("a"), which: Which::Key(key("y"), None), token: None, request: None };
    let told = house.settle(5, 5, vec![release]);
    assert!(
        matches!(&told[0].answer, Answer::Refused(Refusal::LockLost { targets }) if targets.len() == 1),
        "{told:?}"
    );
    // Nor by one that comes late, when its holder has taken note.
    let late = Command::Mourn { locks: rewritten.known, last_token };
    assert!(house.desk.decide(BatchId(10), stamp(5), vec![Asked { ticket: None, command: late }]).is_none());
    house.desk.settle_unrecorded();
    let told = house.settle(6, 6, vec![acquire("c", &["y"], 0)]);
    let Answer::Granted { locks, .. } = &told[0].answer else { panic!("{told:?}") };
    assert!(locks[0].token > last_token, "tokens rise over a lost past");
}

#[test]
fn who_lost_the_better_of_two_locks_with_a_rewritten_ledger_is_told() {
    let mut house = House::new();
    let shared = |command: Command| match command {
        Command::Acquire(mut acquire) => {
            acquire.wants[0].mode = Mode::Shared;
            acquire.request = None;
            Command::Acquire(acquire)
        }
        other => other,
    };
    house.settle(0, 0, vec![shared(acquire("a", &["x"], 0))]);
    let told = house.settle(1, 1, vec![acquire("a", &["x"], 0)]);
    let Answer::Granted { locks, .. } = &told[0].answer else { panic!("{told:?}") };
    let (id, last_token) = (locks[0].id, house.desk.state().last_token());
    house.records.pop();
    let base = Base::Rewritten { snapshot: None, position: Position { epoch: 1, ..Position::ORIGIN } };
    let folded = house.desk.fold(Delta { base, records: house.records.clone() }).unwrap();
    let locks = folded.rewritten.expect("noticed").known;
    house.settle(3, 3, vec![Command::Mourn { locks, last_token }]);
    let renew = Command::Renew { actor: actor("a"), which: Which::Id(id), ttl: None, token: None };
    let renew = Asked { ticket: Some(Ticket(99)), command: renew };
    assert!(house.desk.decide(BatchId(9), stamp(4), vec![renew]).is_none());
    let told = house.desk.settle_unrecorded();
    assert!(matches!(&told[0].answer, Answer::Refused(Refusal::LockLost { .. })), "{told:?}");
}

#[test]
fn a_release_serves_as_many_waiters_as_there_can_be_in_one_batch() {
    let mut house = House::new();
    house.settle(0, 0, vec![acquire("holder", &["x"], 0)]);
    let longest = |count: usize| "\u{1f512}".repeat(count);
    let waits = |number: usize| {
        let Command::Acquire(acquire) = acquire(&format!("s{number}"), &["x"], 60_000) else { unreachable!() };
        let agent = AgentName::parse(&longest(128)).unwrap();
        Command::Acquire(Acquire {
            actor: Actor { agent: agent.clone(), agent_type: Some(agent), ..acquire.actor },
            wants: vec![Want { mode: Mode::Shared, ..acquire.wants[0].clone() }],
            intention: Intention::parse(&longest(500)).unwrap(),
            ..acquire
        })
    };
    for part in (0..WAITERS_MAX).collect::<Vec<_>>().chunks(1000) {
        house.settle(1, 1, part.iter().map(|number| waits(*number)).collect());
    }
    assert_eq!(house.desk.state().waiter_count(), WAITERS_MAX);
    let which = Which::Key(key("x"), None);
    let release = Command::Release { actor: actor("holder"), which, token: None, request: None };
    let batch = house.decide(2, vec![release]);
    assert!(batch.payload.len() < PAYLOAD_BYTES_MAX, "{} bytes", batch.payload.len());
    let appended = house.record(2, batch);
    let told = house.desk.settle(appended);
    assert_eq!(told.len(), WAITERS_MAX + 1);
    let lock = house.desk.state().locks().next().unwrap();
    assert_eq!((lock.intention.as_str(), lock.agent.as_str()), (&*longest(500), &*longest(128)));
}

#[test]
fn a_release_serves_as_many_waiting_sets_as_there_can_be_in_one_batch() {
    let mut house = House::new();
    let names: Vec<String> = (0..SET_MAX).map(|number| format!("x{number}")).collect();
    let all = |session: &str, mode: Mode, wait: u64| {
        let Command::Acquire(one) = acquire(session, &["x"], wait) else { unreachable!() };
        let want = |name: &String| Want { target: Target::new(key(name), Span::WHOLE).unwrap(), mode };
        Command::Acquire(Acquire { wants: names.iter().map(want).collect(), request: None, ..one })
    };
    house.settle(0, 0, vec![all("holder", Mode::Exclusive, 0)]);
    let waits = |number: usize| all(&format!("s{number}"), Mode::Shared, 60_000);
    let refused = |told: &Told| matches!(told.answer, Answer::Refused(Refusal::LimitExceeded { .. }));
    let mut queued = 0;
    while queued < WAITERS_MAX && !house.settle(1, 1, (queued..queued + 100).map(waits).collect()).iter().any(refused) {
        queued += 100;
    }
    let release = Command::Release { actor: actor("holder"), which: Which::Everything, token: None, request: None };
    let batch = house.decide(2, vec![release]);
    assert!(batch.payload.len() < PAYLOAD_BYTES_MAX, "{} bytes for {queued}", batch.payload.len());
}
