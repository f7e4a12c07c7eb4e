//! Who asks: the session that owns locks, the agent behind it, and the id of a request.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::{INTENTION_CHARS_MAX, NAME_CHARS_MAX, REQUEST_ID_CHARS_MAX};
use crate::text::one_line;

/// The session of whoever takes files without asking here.
const EXTERNAL: &str = "~external";
const EXTERNAL_AGENT: &str = "external";

/// Why a text can't be used. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("a session id is 1 to {NAME_CHARS_MAX} letters, digits, '_' or '-'")]
    Session,
    #[error("an agent's name is 1 to {NAME_CHARS_MAX} printable characters")]
    Agent,
    #[error("a request id is 1 to {REQUEST_ID_CHARS_MAX} printable characters without spaces")]
    Request,
    #[error("an intention has at most {INTENTION_CHARS_MAX} characters")]
    Intention,
}

/// The owner of locks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(Arc<str>);

impl SessionId {
    pub fn parse(text: &str) -> Result<SessionId, InvalidName> {
        let plain = (1..=NAME_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if plain { Ok(SessionId(text.into())) } else { Err(InvalidName::Session) }
    }

    /// A session that nobody can have: everything belongs to others.
    pub fn nobody() -> SessionId {
        SessionId(Arc::from(""))
    }

    /// Whoever takes locks away. No client can call itself so.
    pub fn operator() -> SessionId {
        SessionId(Arc::from("~operator"))
    }

    /// Whoever takes files without asking here. No client can call itself so.
    pub fn external() -> SessionId {
        SessionId(Arc::from(EXTERNAL))
    }

    pub fn is_external(&self) -> bool {
        *self.0 == *EXTERNAL
    }
}

/// The name of an agent, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// Of whoever takes files without asking here.
    pub fn external() -> AgentName {
        AgentName(Arc::from(EXTERNAL_AGENT))
    }

    pub fn is_external(&self) -> bool {
        *self.0 == *EXTERNAL_AGENT
    }

    /// Of an agent that is known by its session only.
    pub fn of_session(session: &SessionId) -> AgentName {
        AgentName(session.0.clone())
    }

    pub fn parse(text: &str) -> Result<AgentName, InvalidName> {
        let plain = (1..=NAME_CHARS_MAX).contains(&text.chars().count()) && one_line(text) == text;
        if plain { Ok(AgentName(text.into())) } else { Err(InvalidName::Agent) }
    }
}

/// A client's name for one request, so that asking twice changes once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(Arc<str>);

impl RequestId {
    pub fn parse(text: &str) -> Result<RequestId, InvalidName> {
        let plain = (1..=REQUEST_ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if plain { Ok(RequestId(text.into())) } else { Err(InvalidName::Request) }
    }
}

/// Why a lock is wanted, in the agent's words, as one harmless line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Intention(Arc<str>);

impl Intention {
    pub fn parse(text: &str) -> Result<Intention, InvalidName> {
        if text.is_empty() {
            return Ok(Intention::default());
        }
        // The cheap bound first: a megabyte is not looked at letter by letter.
        if text.len() > INTENTION_CHARS_MAX * 4 || text.chars().count() > INTENTION_CHARS_MAX {
            return Err(InvalidName::Intention);
        }
        Ok(Intention(one_line(text).into()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

macro_rules! text_of {
    ($($name:ty),*) => {$(
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text itself, not a copy.
            pub fn shared_text(&self) -> Arc<str> {
                self.0.clone()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
text_of!(SessionId, AgentName, RequestId, Intention);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_the_door() {
        for bad in ["", "a/b", "a b", "é", &"x".repeat(129)] {
            assert!(SessionId::parse(bad).is_err(), "{bad}");
        }
        SessionId::parse("claude-abc_123").unwrap();
        assert!(AgentName::parse("a\x1b[2J").is_err());
        AgentName::parse("Grace Hopper").unwrap();
        assert!(RequestId::parse("a b").is_err());
        assert!(Intention::parse(&"x".repeat(501)).is_err());
        assert_eq!(Intention::parse("\x1b]0;evil\x07 fix").unwrap().as_str(), "]0;evil fix");
    }
}
