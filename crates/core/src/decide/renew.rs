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
            // What this very batch has renewed lives as long already: hundreds may ask for the same at once. What an earlier
            // record touched at the same moment does not: the ledger may stamp this one later.
            let is_new_time = self.state.is_ahead_of_ledger(self.now());
            let lives_longer = |id: &&LockId| {
                let lock = self.state.lock(**id).filter(|_| is_new_time);
                lock.is_none_or(|lock| {
                    ttl.is_some_and(|ttl| ttl != lock.ttl) || lock.expires != self.now().plus(ttl.unwrap_or(lock.ttl))
                })
            };
            let renewed = locks.iter().filter(lives_longer).copied().collect();
            self.record(Event::Renewed { session: session.clone(), locks: renewed, ttl });
        }
        let everything = *which == Which::Everything && token.is_none();
        Ok(Outcome::Renewed { session: session.clone(), locks, everything })
    }
}
