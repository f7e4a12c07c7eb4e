//! What simulated clients want, and how what they see is shown.

use std::sync::Arc;

use lockkeeper_core::command::{Acquire, Actor, Command, Want};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::lock::{FeatureId, Lock};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::time::Millis;

use crate::auditor::{Look, Waiting};
use crate::weather::Weather;

/// Nobody asks with less.
pub(crate) const PRIORITY_LEAST: u8 = 4;

pub(crate) fn session(number: usize, life: usize) -> SessionId {
    SessionId::parse(&format!("c{number}-{life}")).expect("a session")
}

pub(crate) fn actor(session: &SessionId) -> Actor {
    let agent = AgentName::parse(session.as_str()).expect("a name");
    Actor { session: session.clone(), agent, agent_type: None, bound: false }
}

/// Asks for all of one thing, for itself alone, and does not wait.
pub(crate) fn wanting(session: &SessionId, target: &Target) -> Command {
    Command::Acquire(Acquire {
        actor: actor(session),
        wants: vec![Want { target: target.clone(), mode: Mode::Exclusive }],
        intention: Intention::default(),
        ttl: Millis::from_secs(30),
        wait: Millis(0),
        priority: 5,
        feature: None,
        request: None,
        restores: false,
    })
}

pub(crate) fn feature(number: usize) -> FeatureId {
    format!("F{number}").as_str().into()
}

/// Who has it pauses a feature, or finishes work on it.
fn pause(number: usize) -> Target {
    Target::new(Key::parse(&format!("feature:{}:pause", feature(number))).expect("a key"), Span::WHOLE)
        .expect("a target")
}

/// Files and lines of them, trees, and things that are no files.
pub(crate) fn drawn_target(rng: &mut fastrand::Rng, weather: &Weather) -> Target {
    if weather.features > 0 && rng.u8(..6) == 0 {
        return pause(rng.usize(..weather.features));
    }
    let file = rng.usize(..weather.files);
    let (key, lines) = match rng.u8(..20) {
        0 => ("src/**".to_owned(), false),
        1 => ("src/*".to_owned(), false),
        2 => ("db:schema:users".to_owned(), false),
        3 => ("flag:a/*".to_owned(), false),
        4 => ("flag:a/b".to_owned(), false),
        _ => (format!("src/f{file}.rs"), rng.bool()),
    };
    let span = if lines {
        let start = rng.u32(1..=6);
        Span::checked(Some(start.into()), Some((start + rng.u32(..4)).into())).expect("lines")
    } else {
        Span::WHOLE
    };
    Target::new(Key::parse(&key).expect("a key"), span).expect("a target")
}

/// Everything that can be fought for, as whole keys.
pub(crate) fn everything(weather: &Weather) -> Vec<Target> {
    let files = (0..weather.files).map(|file| format!("src/f{file}.rs"));
    let keys = files.chain(["db:schema:users".to_owned(), "flag:a/*".to_owned(), "src/**".to_owned()]);
    let keys = keys.map(|key| Target::new(Key::parse(&key).expect("a key"), Span::WHOLE).expect("a target"));
    keys.chain((0..weather.features).map(pause)).collect()
}

/// What a list shows, in an order of its own.
pub(crate) fn look_at(state: &lockkeeper_core::state::State) -> Look {
    let mut locks: Vec<Arc<Lock>> = state.locks().cloned().collect();
    locks.sort_unstable_by_key(|lock| lock.token);
    let mut waiters: Vec<_> = state.waiters().cloned().collect();
    waiters.sort_unstable_by_key(|waiter| waiter.rank());
    let waiting = waiters.iter().map(|waiter| Waiting {
        session: waiter.asked.session.clone(),
        wants: waiter.asked.wants.clone(),
        priority: waiter.asked.priority,
        feature: waiter.asked.feature.clone(),
        queued: waiter.queued,
    });
    let rooms =
        state.rooms().map(|room| (room.session.clone(), Target::new(room.key.clone(), Span::WHOLE).expect("whole")));
    Look { locks, waiting: waiting.collect(), rooms: rooms.collect() }
}

pub(crate) fn asked(target: &Target, mode: Mode) -> String {
    format!("{}:{}-{}:{mode}", target.key.as_str(), target.span.start(), target.span.last().unwrap_or(0))
}

pub(crate) fn shown(locks: &[Arc<Lock>]) -> String {
    let one = |lock: &Arc<Lock>| {
        format!("{}:{}#{}", lock.session, asked(&lock.target, lock.mode), lock.token.0 % 1_000_000_000)
    };
    locks.iter().map(one).collect::<Vec<_>>().join(", ")
}
