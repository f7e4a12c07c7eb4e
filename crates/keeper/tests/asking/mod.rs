//! Questions to a keeper, as tests ask them.
#![allow(dead_code, reason = "each test takes what it needs")]

use lockkeeper_core::command::{Acquire, Actor, Command, Want, Which};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::time::Millis;

/// A session whose agent has the same name.
pub(crate) fn actor(session: &str) -> Actor {
    let (session, agent) = (SessionId::parse(session).unwrap(), AgentName::parse(session).unwrap());
    Actor { session, agent, agent_type: None, bound: false }
}

/// `a.rs#1-5` is lines 1 to 5 of a.rs.
pub(crate) fn wanting(session: &str, key: &str) -> Acquire {
    let (key, span) = match key.split_once('#') {
        Some((key, lines)) => (key, Span::parse(lines).unwrap()),
        None => (key, Span::WHOLE),
    };
    let target = Target::new(Key::parse(key).unwrap(), span).unwrap();
    Acquire {
        actor: actor(session),
        wants: vec![Want { target, mode: Mode::Exclusive }],
        intention: Intention::default(),
        ttl: Millis::from_secs(3600),
        wait: Millis(0),
        priority: 5,
        feature: None,
        request: None,
        restores: false,
    }
}

pub(crate) fn acquire(session: &str, key: &str) -> Command {
    Command::Acquire(wanting(session, key))
}

/// Gives back all that a session holds.
pub(crate) fn release(session: &str) -> Command {
    Command::Release { actor: actor(session), which: Which::Everything, token: None, request: None }
}

/// Renews all that a session holds.
pub(crate) fn beat(session: &str) -> Command {
    beat_as(actor(session))
}

pub(crate) fn beat_as(actor: Actor) -> Command {
    Command::Renew { actor, which: Which::Everything, ttl: None, token: None }
}
