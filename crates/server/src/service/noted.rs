//! What becomes known of a request on its way, for its audit line and for its connection.

use std::borrow::Cow;

use lockkeeper_core::command::Actor;
use lockkeeper_core::lock::LockId;
use lockkeeper_core::session::{AgentName, SessionId};
use lockkeeper_core::space::Space;
use lockkeeper_core::time::Millis;
use serde::Deserialize;

use super::{Acquired, Caller, Input};
use crate::turns::Turn;

/// What a handler learns on its way, most of it for the audit line.
#[derive(Default)]
pub(super) struct Noted<'a> {
    /// Until it is answered, or stands in a queue.
    pub(super) turn: Option<Turn<'a>>,
    /// Nothing is asked for that could make a space.
    pub(super) looks: bool,
    pub(super) space: Option<Space>,
    pub(super) key: Option<String>,
    pub(super) intention: Option<String>,
    pub(super) session: Option<SessionId>,
    pub(super) agent: Option<AgentName>,
    pub(super) request: Option<String>,
    pub(super) ttl: Option<Millis>,
    pub(super) granted: Option<Acquired>,
    pub(super) released: Vec<LockId>,
}

impl Noted<'_> {
    pub(super) fn actor(&mut self, actor: &Actor) {
        self.session = Some(actor.session.clone());
        self.agent = Some(actor.agent.clone());
    }

    /// A request that was refused early is still somebody's.
    pub(super) fn look_who_asked(&mut self, input: Input<'_>, caller: &Caller) {
        let Input::Json(body) = input else { return };
        if let (None, Ok(who)) = (&self.session, serde_json::from_str::<Asked<'_>>(body)) {
            let named = who.agent_id.and_then(|name| AgentName::parse(&name).ok()).filter(|name| !name.is_external());
            self.agent = caller.agent.clone().or(named);
            let named = who.session_id.or_else(|| self.agent.as_ref().map(|agent| agent.as_str().to_owned().into()));
            self.session = named.and_then(|name| SessionId::parse(&name).ok());
            self.agent = self.agent.take().or_else(|| self.session.as_ref().map(AgentName::of_session));
        }
    }
}

/// Of a body, whatever else is in it, who asks.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow, default)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    agent_id: Option<Cow<'a, str>>,
}
