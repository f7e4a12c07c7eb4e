//! Ports: the same for whoever asks again, the lowest free ones for whoever is new.

use std::collections::HashSet;

use super::{Deciding, Refused};
use crate::command::Actor;
use crate::event::Event;
use crate::limits::PORTS_EACH;
use crate::outcome::{Answer, Outcome, Refusal};
use crate::planted::{self, Bug};
use crate::ports::PortRules;
use crate::session::SessionId;

impl Deciding<'_> {
    /// `taken`: ports that something else uses where the session runs.
    pub(super) fn allocate_ports(&mut self, actor: &Actor, taken: &[u16]) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        self.room_for_session(&actor.session)?;
        let rules = self.cx.rules.ports;
        let base = match self.state.ports_of(&actor.session) {
            // Whatever listens there now is its own.
            Some(ports) => ports.base,
            None => self.free_ports(rules, taken)?,
        };
        let (session, agent) = (actor.session.clone(), actor.agent.clone());
        self.record(Event::PortsAllocated { session: session.clone(), agent, base, ttl: rules.ttl });
        Ok(Outcome::PortsAllocated(session))
    }

    fn free_ports(&self, rules: PortRules, taken: &[u16]) -> Result<u16, Refused> {
        let used = self.state.ports.len();
        let given = self.state.ports().flat_map(|ports| ports.base..=ports.base.saturating_add(PORTS_EACH - 1));
        let given = given.filter(|_| !planted::is(Bug::PortsGivenTwice));
        let taken: HashSet<u16> = taken.iter().copied().chain(given).collect();
        let free = |base: &u16| (*base..=base.saturating_add(PORTS_EACH - 1)).all(|port| !taken.contains(&port));
        rules
            .bases()
            .find(free)
            .filter(|_| used < usize::from(rules.sessions))
            .ok_or_else(|| Box::new(Refusal::NoPorts { used, sessions: rules.sessions }))
    }

    /// Giving back what one does not have is no mistake.
    pub(super) fn release_ports(&mut self, actor: &Actor) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        let ports = self.state.ports_of(&actor.session).cloned();
        if ports.is_some() {
            self.free(vec![actor.session.clone()]);
        }
        Ok(Outcome::Told(Answer::PortsReleased { ports }))
    }

    pub(super) fn free(&mut self, sessions: Vec<SessionId>) {
        self.record(Event::PortsFreed { sessions });
    }
}
