//! The rules beside a naive model of them: lists that are searched from end to end, written down once more in the
//! plainest way. Random stories, and every story of a small world.

use std::collections::BTreeSet;

use lockkeeper_core::command::{Acquire, Actor, Command, Want, Which};
use lockkeeper_core::decide::Context;
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Answer, Outcome, Refusal};
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::state::{Rules, State};
use lockkeeper_core::time::{Millis, Stamp, Time};
use proptest::prelude::*;

/// What is asked for at once, each in its mode.
type Wants = Vec<(Target, Mode)>;

#[derive(Clone, Copy, Debug)]
struct Lease {
    until: u64,
    ttl: u64,
}

type Held = (u8, Target, Mode, Lease);

/// Who holds what, in which mode, until when; and who waits for what, in the order of the queue, for how long to hold it and until
/// when.
#[derive(Clone, Debug, Default)]
struct Model {
    now: u64,
    held: Vec<Held>,
    waiting: Vec<(u8, Wants, u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Granted,
    Refused,
    Queued,
    Deadlock,
}

fn conflict((one, mode): &(Target, Mode), (other, theirs): &(Target, Mode)) -> bool {
    one.overlaps(other) && (*mode == Mode::Exclusive || *theirs == Mode::Exclusive)
}

impl Model {
    /// What of it is not held yet, or not in this mode. Named twice, it is wanted in the stronger one.
    fn missing(&self, agent: u8, wants: &Wants) -> Wants {
        let stronger = |target: &Target| wants.iter().filter(|want| want.0 == *target).map(|want| want.1).min();
        let wants = wants.iter().map(|(target, mode)| (target.clone(), stronger(target).unwrap_or(*mode)));
        let has = |(target, mode): &(Target, Mode)| {
            self.held.iter().any(|(who, at, held, _)| {
                *who == agent && at == target && (*held == Mode::Exclusive || *mode == Mode::Shared)
            })
        };
        wants.filter(|want| !has(want)).collect()
    }

    /// Whether this one is in the way of that one, at that one's place of the queue: by what it holds, or wants earlier.
    fn is_in_the_way(&self, other: u8, agent: u8, wants: &Wants, place: usize) -> bool {
        let covers = |own: &Held, (target, mode): &(Target, Mode)| {
            let same = own.1.key.reaches(&target.key) && own.1.span.intersection(target.span) == Some(target.span);
            own.0 == agent && same && (own.2 == Mode::Exclusive || *mode == Mode::Shared)
        };
        other != agent
            && self.missing(agent, wants).iter().any(|want| {
                let held = |(who, at, mode, _): &Held| *who == other && conflict(&(at.clone(), *mode), want);
                let awaited = |(who, theirs, ..): &(u8, Wants, u64, u64)| {
                    *who == other && theirs.iter().any(|theirs| conflict(theirs, want))
                };
                let covered = self.held.iter().any(|own| covers(own, want));
                self.held.iter().any(held) || (!covered && self.waiting[..place].iter().any(awaited))
            })
    }

    fn waits_for(&self, agent: u8, wants: &Wants, place: usize) -> BTreeSet<u8> {
        (0..3).filter(|other| self.is_in_the_way(*other, agent, wants, place)).collect()
    }

    /// Whether somebody whom this one waits for at this place of the queue waits, over others or not, for this one.
    fn closes_a_circle(&self, agent: u8, wants: &Wants, place: usize) -> bool {
        let mut reached = self.waits_for(agent, wants, place);
        for _ in 0..3 {
            for (place, (other, wants, ..)) in self.waiting.iter().enumerate() {
                if reached.contains(other) && *other != agent {
                    reached.extend(self.waits_for(*other, wants, place));
                }
            }
        }
        reached.contains(&agent)
    }

    /// What is held already is held on, in the stronger of the two modes and for the longer of the two times.
    fn hold(&mut self, agent: u8, wants: &Wants, ttl: u64) {
        for (target, mode) in wants {
            let same = |held: &&Held| held.0 == agent && held.1 == *target;
            let before = self.held.iter().find(same);
            let mode = before.map_or(*mode, |held| held.2.min(*mode));
            let ttl = before.map_or(ttl, |held| held.3.ttl.max(ttl));
            self.held.retain(|(other, at, ..)| *other != agent || at != target);
            self.held.push((agent, target.clone(), mode, Lease { until: self.now + ttl, ttl }));
        }
    }

    fn acquire(&mut self, agent: u8, wants: &Wants, ttl: u64, wait: u64) -> Told {
        let place = self.waiting.len();
        if self.waits_for(agent, wants, place).is_empty() {
            self.hold(agent, wants, ttl);
            return Told::Granted;
        }
        if wait == 0 {
            return Told::Refused;
        }
        if self.closes_a_circle(agent, wants, place) {
            return Told::Deadlock;
        }
        self.waiting.push((agent, wants.clone(), ttl, self.now + wait));
        Told::Queued
    }

    fn release(&mut self, agent: u8, key: &Key) {
        self.lose(|held| held.0 == agent && held.1.key == *key);
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        let now = self.now;
        self.waiting.retain(|(.., until)| *until > now);
        self.lose(|(.., lease)| lease.until <= now);
    }

    /// Of those who lost something and wait in a circle now, whoever came last waits no longer.
    fn lose(&mut self, is_lost: impl Fn(&Held) -> bool) {
        let losers: BTreeSet<u8> = self.held.iter().filter(|held| is_lost(held)).map(|held| held.0).collect();
        self.held.retain(|held| !is_lost(held));
        self.hand_over();
        let in_a_circle = |model: &Model, place: usize| {
            let (agent, wants, ..) = &model.waiting[place];
            losers.contains(agent) && model.closes_a_circle(*agent, wants, place)
        };
        while let Some(last) = (0..self.waiting.len()).rev().find(|place| in_a_circle(self, *place)) {
            self.waiting.remove(last);
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let mut place = 0;
        while place < self.waiting.len() {
            let (agent, wants, ttl, _) = self.waiting[place].clone();
            if self.waits_for(agent, &wants, place).is_empty() {
                self.waiting.remove(place);
                self.hold(agent, &wants, ttl);
                place = 0;
            } else {
                place += 1;
            }
        }
    }

    fn held(&self) -> BTreeSet<(String, Target, Mode)> {
        self.held.iter().map(|(agent, target, mode, _)| (name(*agent), target.clone(), *mode)).collect()
    }

    fn waiting(&self) -> Vec<(String, BTreeSet<Target>)> {
        let one = |(agent, wants, ..): &(u8, Wants, u64, u64)| {
            (name(*agent), wants.iter().map(|want| want.0.clone()).collect())
        };
        self.waiting.iter().map(one).collect()
    }
}

/// The rules themselves, told one thing at a time.
struct Real {
    state: State,
    rules: Rules,
    now: Stamp,
}

impl Real {
    fn new() -> Real {
        let now = Stamp { time: Time(1_000_000_000), wall: 0 };
        Real { state: State::new(7), rules: Rules { quota_limit: 0, ..Rules::default() }, now }
    }

    fn tell(&mut self, command: &Command) -> Outcome {
        self.state.begin();
        let cx = Context { rules: &self.rules, now: self.now, refused_lately: &[] };
        let outcome = self.state.decide(&cx, command, &mut Vec::new());
        self.state.keep();
        outcome
    }

    fn acquire(&mut self, agent: u8, wants: &Wants, ttl: u64, wait: u64) -> Told {
        let acquire = Acquire {
            actor: actor(agent),
            wants: wants.iter().map(|(target, mode)| Want { target: target.clone(), mode: *mode }).collect(),
            intention: Intention::default(),
            ttl: Millis(ttl),
            wait: Millis(wait),
            priority: 0,
            feature: None,
            request: None,
            restores: false,
        };
        match self.tell(&Command::Acquire(acquire)) {
            Outcome::Granted { .. } => Told::Granted,
            Outcome::Queued(_) => Told::Queued,
            Outcome::Told(Answer::Refused(Refusal::Busy(_))) => Told::Refused,
            Outcome::Told(Answer::Refused(Refusal::Deadlock { .. })) => Told::Deadlock,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, agent: u8, key: &Key) {
        let which = Which::Key(key.clone(), None);
        self.tell(&Command::Release { actor: actor(agent), which, token: None, request: None });
    }

    fn pass(&mut self, time: u64) {
        self.now.time = self.now.time.plus(Millis(time));
        self.tell(&Command::Sweep);
    }

    fn held(&self) -> BTreeSet<(String, Target, Mode)> {
        self.state.locks().map(|lock| (lock.session.to_string(), lock.target.clone(), lock.mode)).collect()
    }

    fn waiting(&self) -> Vec<(String, BTreeSet<Target>)> {
        let mut waiters: Vec<_> = self.state.waiters().collect();
        waiters.sort_unstable_by_key(|waiter| waiter.rank());
        let one = |asked: &lockkeeper_core::event::Enqueued| {
            (asked.session.to_string(), asked.wants.iter().map(|want| want.target.clone()).collect())
        };
        waiters.into_iter().map(|waiter| one(&waiter.asked)).collect()
    }
}

fn name(agent: u8) -> String {
    format!("a{agent}")
}

fn actor(agent: u8) -> Actor {
    let agent = AgentName::parse(&name(agent)).unwrap();
    Actor { session: SessionId::parse(agent.as_str()).unwrap(), agent, agent_type: None, bound: false }
}

fn lines(key: &str, start: u32, end: u32) -> Target {
    let span = if start == 0 { Span::WHOLE } else { Span::checked(Some(start.into()), Some(end.into())).unwrap() };
    Target::new(Key::parse(key).unwrap(), span).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(u8, Wants, u64, u64),
    Release(u8, Key),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![4 => Just("d/x"), 1 => Just("d/y"), 1 => Just("d/*"), 1 => Just("**"), 1 => Just("flag:f")];
    let target = (key, 0..6u32, 0..4u32).prop_map(|(key, start, more)| {
        let whole = start == 0 || key.contains('*') || key.contains(':');
        if whole { lines(key, 0, 0) } else { lines(key, start, start + more) }
    });
    let mode = prop_oneof![2 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let wants = prop::collection::vec((target.clone(), mode), 1..3);
    let wait = prop_oneof![Just(0u64), Just(3000), Just(20_000)];
    prop_oneof![
        5 => (0..3u8, wants, 1000..9000u64, wait).prop_map(|(a, wants, ttl, w)| Step::Acquire(a, wants, ttl, w)),
        3 => (0..3u8, target).prop_map(|(agent, target)| Step::Release(agent, target.key)),
        2 => (1..5000u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("LOCKKEEPER_DEEP").is_some() { 100_000 } else { 5000 }))]
    #[test]
    fn the_rules_say_what_a_naive_model_says(steps in prop::collection::vec(step(), 1..40)) {
        let (mut real, mut model) = (Real::new(), Model::default());
        for step in steps {
            match &step {
                Step::Acquire(agent, wants, ttl, wait) => {
                    let told = real.acquire(*agent, wants, *ttl, *wait);
                    prop_assert_eq!(told, model.acquire(*agent, wants, *ttl, *wait), "{:?}", step);
                }
                Step::Release(agent, key) => {
                    real.release(*agent, key);
                    model.release(*agent, key);
                }
                Step::Pass(time) => {
                    real.pass(*time);
                    model.pass(*time);
                }
            }
            prop_assert_eq!(real.held(), model.held(), "after {:?}", step);
            prop_assert_eq!(real.waiting(), model.waiting(), "after {:?}", step);
        }
    }
}

/// What a random story found once.
#[test]
fn whoever_came_first_is_served_first_though_others_leave_at_that_moment() {
    let (mut real, mut model) = (Real::new(), Model::default());
    let want = |key: &str| (lines(key, 0, 0), Mode::Exclusive);
    let asked = [
        (1, vec![want("d/*")], 1000, 0),
        (0, vec![want("d/x"), want("flag:f")], 1000, 3000),
        (2, vec![want("flag:f")], 4996, 20_000),
        (2, vec![want("flag:f"), want("d/x")], 1000, 20_000),
    ];
    for (agent, wants, ttl, wait) in asked {
        assert_eq!(real.acquire(agent, &wants, ttl, wait), model.acquire(agent, &wants, ttl, wait));
    }
    for time in [3000, 1000] {
        real.pass(time);
        model.pass(time);
        assert_eq!(real.held(), model.held(), "the last word is that of who came last");
    }
}

/// Every span of the first six lines, and the whole file; each in both modes.
fn everything() -> Vec<(Target, Mode)> {
    let spans = (1..=6).flat_map(|start| (start..=6).map(move |end| (start, end))).chain([(0, 0)]);
    let modes = [Mode::Exclusive, Mode::Shared];
    spans.flat_map(|(start, end)| modes.map(|mode| (lines("x", start, end), mode))).collect()
}

#[test]
fn three_agents_on_six_lines_get_what_the_rule_says_whatever_they_ask_for() {
    let all = everything();
    assert_eq!(all.len(), 44);
    for (first, first_mode) in &all {
        for (second, second_mode) in &all {
            for (third, third_mode) in &all {
                let (mut real, mut model) = (Real::new(), Model::default());
                for (agent, target, mode, wait) in
                    [(0, first, first_mode, 0), (1, second, second_mode, 9000), (2, third, third_mode, 9000)]
                {
                    let wants = vec![(target.clone(), *mode)];
                    let told = real.acquire(agent, &wants, 60_000, wait);
                    assert_eq!(told, model.acquire(agent, &wants, 60_000, wait), "{agent} {wants:?}");
                }
                let key = &first.key;
                for agent in 0..3 {
                    assert_eq!(real.held(), model.held(), "{first:?} {second:?} {third:?} before {agent} releases");
                    assert_eq!(real.waiting(), model.waiting());
                    real.release(agent, key);
                    model.release(agent, key);
                }
                assert!(real.held().is_empty() && real.waiting().is_empty(), "{first:?} {second:?} {third:?}");
            }
        }
    }
}
