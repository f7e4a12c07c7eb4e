//! A state to tell small stories to, with time as an argument.

use lockkeeper_core::command::{Acquire, Actor, Command, Want, Which};
use lockkeeper_core::decide::Context;
use lockkeeper_core::event::Event;
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::lock::Token;
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Answer, Outcome, Refusal};
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::state::{Rules, State};
use lockkeeper_core::time::{Millis, Stamp, Time};

/// A state with a clock that the test turns, and the events that led to it.
pub(crate) struct House {
    pub state: State,
    pub rules: Rules,
    pub now: Stamp,
    pub ledger: Vec<(Stamp, Event)>,
}

impl House {
    pub(crate) fn new() -> House {
        let now = Stamp { time: Time(1_000_000_000), wall: 1_000_000_000 };
        House { state: State::new(7), rules: Rules { quota_limit: 0, ..Rules::default() }, now, ledger: Vec::new() }
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now.time = self.now.time.plus(Millis(ms));
        self.now.wall += ms * 1000;
    }

    pub(crate) fn outcome(&mut self, command: Command) -> Outcome {
        self.batch(&[command]).pop().expect("one for each command")
    }

    /// Decides them together, as one record of the ledger.
    pub(crate) fn batch(&mut self, commands: &[Command]) -> Vec<Outcome> {
        let mut events = Vec::new();
        let cx = Context { rules: &self.rules, now: self.now, refused_lately: &[] };
        self.state.begin();
        let outcomes = commands.iter().map(|command| self.state.decide(&cx, command, &mut events)).collect();
        self.state.keep();
        self.ledger.extend(events.into_iter().map(|event| (self.now, event)));
        outcomes
    }

    pub(crate) fn tell(&mut self, command: Command) -> Answer {
        let outcome = self.outcome(command);
        self.state.answer(&outcome).expect("an answer at once")
    }

    pub(crate) fn acquire(&mut self, session: &str, keys: &[&str]) -> Answer {
        self.tell(Command::Acquire(wanting(session, keys)))
    }

    pub(crate) fn granted(&mut self, session: &str, key: &str) -> Token {
        match self.acquire(session, &[key]) {
            Answer::Granted { locks, .. } => locks[0].token,
            other => panic!("{session} {key}: {other:?}"),
        }
    }

    pub(crate) fn refused(&mut self, command: Command) -> Refusal {
        match self.tell(command) {
            Answer::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn queue(&mut self, session: &str, keys: &[&str], priority: u8) {
        let acquire = Acquire { wait: Millis(3_600_000), priority, ..wanting(session, keys) };
        let outcome = self.outcome(Command::Acquire(acquire));
        assert!(matches!(outcome, Outcome::Queued(_)), "{session}: {outcome:?}");
    }

    pub(crate) fn release(&mut self, session: &str, key: &str) -> Answer {
        let (key, span) = split(key);
        let span = Some(span).filter(|span| !span.is_whole());
        self.tell(Command::Release { actor: actor(session), which: Which::Key(key, span), token: None, request: None })
    }

    pub(crate) fn holders(&self, key: &str) -> Vec<String> {
        let (key, span) = split(key);
        let target = Target::new(key, span).unwrap();
        let mut found: Vec<String> = self
            .state
            .locks()
            .filter(|lock| lock.target.overlaps(&target))
            .map(|lock| lock.session.to_string())
            .collect();
        found.sort();
        found
    }

    pub(crate) fn beat(&mut self, session: &str) {
        self.tell(Command::Beat { sessions: vec![SessionId::parse(session).unwrap()], waiters: Vec::new() });
    }
}

pub(crate) fn actor(session: &str) -> Actor {
    let session = SessionId::parse(session).unwrap();
    Actor { agent: AgentName::parse(session.as_str()).unwrap(), session, agent_type: None, bound: false }
}

fn split(text: &str) -> (Key, Span) {
    match text.rsplit_once('#') {
        Some((key, lines)) => (Key::parse(key).unwrap(), Span::parse(lines).unwrap()),
        None => (Key::parse(text).unwrap(), Span::WHOLE),
    }
}

pub(crate) fn want(text: &str) -> Want {
    let (text, mode) = text.strip_suffix('~').map_or((text, Mode::Exclusive), |text| (text, Mode::Shared));
    let (key, span) = split(text);
    Want { target: Target::new(key, span).unwrap(), mode }
}

/// `a.rs#1-5~` is lines 1 to 5 of a.rs, shared.
pub(crate) fn wanting(session: &str, keys: &[&str]) -> Acquire {
    Acquire {
        actor: actor(session),
        wants: keys.iter().map(|key| want(key)).collect(),
        intention: Intention::parse("work").unwrap(),
        ttl: Millis(30_000),
        wait: Millis(0),
        priority: 5,
        feature: None,
        request: None,
        restores: false,
    }
}

pub(crate) fn busy(answer: Answer) -> lockkeeper_core::outcome::Busy {
    match answer {
        Answer::Refused(Refusal::Busy(busy)) => busy,
        other => panic!("{other:?}"),
    }
}
