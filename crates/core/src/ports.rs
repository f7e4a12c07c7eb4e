//! Ports: each session that asks has a handful of its own, until it is not heard any more.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::journal::Undo;
use crate::limits::{
    PORT_BASE_DEFAULT, PORT_BASE_MIN, PORT_SESSIONS_DEFAULT, PORT_STRIDE_DEFAULT, PORT_TTL_DEFAULT, PORTS_EACH,
};
use crate::session::{AgentName, SessionId};
use crate::state::State;
use crate::time::{Millis, Time};

/// Which ports there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRules {
    /// The first port of the first session.
    pub base: u16,
    /// From the first port of one session to that of the next.
    pub stride: u16,
    /// How many sessions have ports at once.
    pub sessions: u16,
    pub ttl: Millis,
}

impl Default for PortRules {
    fn default() -> PortRules {
        PortRules {
            base: PORT_BASE_DEFAULT,
            stride: PORT_STRIDE_DEFAULT,
            sessions: PORT_SESSIONS_DEFAULT,
            ttl: PORT_TTL_DEFAULT,
        }
    }
}

/// Why there can be no such ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPorts {
    #[error("the first port is at least {PORT_BASE_MIN}, not {0}")]
    Base(u16),
    #[error("from one session to the next there are at least {PORTS_EACH} ports, not {0}")]
    Stride(u16),
    #[error("at least one session has ports")]
    Sessions,
    #[error("{sessions} sessions from port {base} on, {stride} apart, go beyond port 65535")]
    Beyond { base: u16, stride: u16, sessions: u16 },
}

impl PortRules {
    pub fn check(self) -> Result<PortRules, InvalidPorts> {
        let PortRules { base, stride, sessions, .. } = self;
        if base < PORT_BASE_MIN {
            return Err(InvalidPorts::Base(base));
        }
        if stride < PORTS_EACH {
            return Err(InvalidPorts::Stride(stride));
        }
        if sessions == 0 {
            return Err(InvalidPorts::Sessions);
        }
        let last = u32::from(base) + u32::from(stride) * u32::from(sessions - 1) + u32::from(PORTS_EACH - 1);
        if last > u32::from(u16::MAX) {
            return Err(InvalidPorts::Beyond { base, stride, sessions });
        }
        Ok(self)
    }

    /// The first port of each place.
    pub(crate) fn bases(self) -> impl Iterator<Item = u16> {
        (0..self.sessions).filter_map(move |place| self.base.checked_add(place.checked_mul(self.stride)?))
    }
}

/// The ports of one session: four from `base` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    pub session: SessionId,
    pub agent: AgentName,
    pub base: u16,
    pub allocated: Time,
    pub expires: Time,
    pub ttl: Millis,
}

impl State {
    pub fn ports_of(&self, session: &SessionId) -> Option<&Arc<Ports>> {
        self.ports.get(session)
    }

    /// Every allocation, in the order of sessions.
    pub fn ports(&self) -> impl Iterator<Item = &Arc<Ports>> {
        self.ports.values()
    }

    pub(crate) fn overdue_ports(&self, now: Time) -> Vec<SessionId> {
        self.port_ends.iter().take_while(|(expires, _)| *expires <= now).map(|(_, session)| session.clone()).collect()
    }

    pub(crate) fn put_ports(&mut self, session: &SessionId, new: Option<Arc<Ports>>) {
        let old = self.ports.remove(session);
        if let Some(old) = &old {
            self.port_ends.remove(&(old.expires, session.clone()));
        }
        if let Some(new) = new {
            self.port_ends.insert((new.expires, session.clone()));
            self.ports.insert(session.clone(), new);
        }
        self.journal.note(|| Undo::Ports(session.clone(), old));
    }
}
