//! What connections hold, and what is given back when they end.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_core::command::Actor;
use lockkeeper_core::lock::LockId;
use lockkeeper_core::session::SessionId;
use lockkeeper_core::space::Space;
use lockkeeper_keeper::Keeper;

use crate::service::Service;

/// Which locks the connections of a service use, each for its own session: nobody keeps what is another's. What several programs of one
/// session were told of is given back by the last of them.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<HashMap<Used, Use>>);

type Used = (Space, SessionId, LockId);

#[derive(Debug, Default)]
struct Use {
    connections: usize,
    /// It was acquired on a connection, and lives as long as one of them does.
    bound: bool,
}

impl Users {
    fn uses(&self) -> MutexGuard<'_, HashMap<Used, Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, used: Used) {
        self.uses().entry(used).or_default().connections += 1;
    }

    fn bind(&self, used: &Used) {
        if let Some(used) = self.uses().get_mut(used) {
            used.bound = true;
        }
    }

    /// These live as long as their TTL from now on, and no longer as long as a connection.
    pub(crate) fn unbind(&self, space: &Space, session: &SessionId, locks: &[LockId]) {
        if locks.is_empty() {
            return;
        }
        let mut uses = self.uses();
        for lock in locks {
            if let Some(used) = uses.get_mut(&(space.clone(), session.clone(), *lock)) {
                used.bound = false;
            }
        }
    }

    /// One connection less. `true`: it was the last, and the lock lived as long as that.
    fn leave(&self, used: Used) -> bool {
        let mut uses = self.uses();
        let Entry::Occupied(mut used) = uses.entry(used) else { return false };
        used.get_mut().connections -= 1;
        used.get().connections == 0 && used.remove().bound
    }

    /// Whether a lock goes on when one of its connections uses it no more: another one does, or it was asked for by itself meanwhile.
    pub(crate) fn outlives_one(&self, used: &Used) -> bool {
        self.uses().get(used).is_some_and(|used| used.connections > 1 || !used.bound)
    }
}

/// What to give back when a connection ends.
#[derive(Debug)]
pub(crate) struct Binding {
    keeper: Keeper,
    pub(crate) actor: Actor,
    users: Arc<Users>,
    locks: HashSet<LockId>,
    ports: bool,
}

impl Binding {
    pub(crate) fn new(keeper: Keeper, actor: Actor, users: Arc<Users>) -> Binding {
        Binding { keeper, actor, users, locks: HashSet::new(), ports: false }
    }

    pub(crate) fn space(&self) -> &Space {
        self.keeper.space()
    }

    /// What was acquired, and what the session had before.
    pub(crate) fn add(&mut self, new: &[LockId], had: &[LockId], ports: bool) {
        for lock in new.iter().chain(had) {
            if self.locks.insert(*lock) {
                self.users.join(self.used(*lock));
            }
        }
        for lock in new {
            self.users.bind(&self.used(*lock));
        }
        self.ports |= ports;
    }

    pub(crate) fn remove(&mut self, locks: &[LockId]) {
        for lock in locks {
            if self.locks.remove(lock) {
                self.users.leave(self.used(*lock));
            }
        }
    }

    /// The connection is gone: what it held goes too, unless another one uses it. What is already gone is no mistake.
    pub(crate) async fn release(mut self, service: &Service) {
        let last = self.leave();
        if service.stopping.is_cancelled() {
            // Stopping a service releases nothing.
            return;
        }
        if self.ports {
            self.keeper.give_back_ports(self.actor.clone()).await;
        }
        self.keeper.give_back(self.actor.session.clone(), last).await;
    }

    /// Uses nothing any more; of what it was the last that did.
    fn leave(&mut self) -> Vec<LockId> {
        let locks = std::mem::take(&mut self.locks);
        let mut last: Vec<LockId> = locks.into_iter().filter(|lock| self.users.leave(self.used(*lock))).collect();
        last.sort_unstable();
        last
    }

    fn used(&self, lock: LockId) -> Used {
        (self.keeper.space().clone(), self.actor.session.clone(), lock)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.leave();
    }
}
