//! Living on: a lease that its holder still wants.

use super::{Deciding, Refused};
use crate::command::{Actor, Which};
use crate::event::Event;
use crate::lock::{LockId, Token};
use crate::outcome::Outcome;
use crate::time::Millis;

impl Deciding<'_> {
    pub(super) fn renew(
        &mut self,
        actor: &Actor,
        which: &Which,
        ttl: Option<Millis>,
        token: Option<Token>,
    ) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        let session = &actor.session;
        let locks: Vec<LockId> = self.state.chosen(session, which, token)?.iter().map(|lock| lock.id).collect();
        if self.state.session(session).is_some() {
            self.record(Event::Renewed { session: session.clone(), locks: locks.clone(), ttl });
        }
        let everything = *which == Which::Everything && token.is_none();
        Ok(Outcome::Renewed { session: session.clone(), locks, everything })
    }
}
