//! What a client does beside its own locks.

use std::sync::Arc;

use lockkeeper_core::command::{Command, Which};
use lockkeeper_core::lock::Lock;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::time::Millis;

use super::{Client, Heard};
use crate::server::Reply;
use crate::wishes::drawn_target;

impl Client {
    /// What it believes to hold now.
    pub(crate) fn believed(&self) -> Vec<Arc<Lock>> {
        let now = self.now();
        self.mind().held.values().filter(|(_, until)| now < *until).map(|(lock, _)| lock.clone()).collect()
    }

    /// When the storm is over: whatever it believed to hold is still its own, or it is told that it lost it. Nobody is told that
    /// such a lock never was.
    pub(crate) async fn account(&self, believed: Vec<Arc<Lock>>) {
        for lock in believed {
            // A finish was to run out.
            if lock.is_finish() || !self.audit().should_last(&lock) {
                continue;
            }
            let (actor, which, token) = (self.actor(), Which::Id(lock.id), Some(lock.token));
            let server = self.world.some_server();
            let renew = Command::Renew { actor, which, ttl: None, token };
            let said = self.world.servers[server].ask(renew, false).await;
            let is_told = match &said {
                Reply::Said(Ok(Answer::Renewed { locks, .. })) => locks.iter().any(|kept| kept.id == lock.id),
                Reply::Said(Ok(Answer::Refused(Refusal::LockLost { .. }))) => true,
                Reply::Said(Ok(_) | Err(_)) | Reply::Silence => false,
            };
            if !is_told {
                self.audit().breaks("P3", || format!("{lock:?} was held, and server {server} says {said:?}"));
            }
        }
    }

    /// Tries to end or to renew what others hold.
    pub(super) async fn meddle(&self) {
        let now = self.now();
        let session = self.mind().session.clone();
        let Some(lock) = self.world.a_lock_not_of(&session, now) else { return };
        let actor = self.actor();
        // With its token: after a power loss the id may name another lock, even one's own.
        let (which, token) = (Which::Id(lock.id), Some(lock.token));
        let command = if self.draw(2) == 0 {
            Command::Release { actor, which, token, request: None }
        } else {
            Command::Renew { actor, which, ttl: Some(Millis(1000)), token }
        };
        if let Heard::Told(Answer::Released { locks } | Answer::Renewed { locks, .. }) = self.call(command, 0).await
            && locks.iter().any(|theirs| theirs.session != session)
        {
            self.audit().breaks("P5", || format!("{session} got at {lock:?}"));
        }
    }

    pub(super) async fn room(&self) {
        let key = drawn_target(&mut self.world.air.rng(), &self.world.air.weather).key;
        let actor = self.actor();
        let command = if self.draw(2) == 0 {
            Command::OpenRoom { actor, key, busy: Millis(2000) }
        } else {
            Command::CloseRoom { actor, key }
        };
        self.call(command, 0).await;
    }

    /// Asks for ports, or gives them back.
    pub(super) async fn ports(&self) {
        let actor = self.actor();
        let session = actor.session.clone();
        if self.draw(3) == 0 {
            self.audit().ports_end_asked(&session);
            self.call(Command::ReleasePorts { actor }, 0).await;
        } else if let Heard::Told(Answer::PortsAllocated { ports }) =
            self.call(Command::AllocatePorts { actor, taken: Vec::new() }, 0).await
        {
            let now = self.now();
            self.audit().note(now, self.number, ports.base, || format!("has the ports from {} on", ports.base));
            self.audit().has_ports(&ports);
        }
    }
}
