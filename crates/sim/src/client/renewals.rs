//! How a client keeps what it holds, and hears what it lost.

use std::sync::Arc;

use lockkeeper_core::command::{Command, Which};
use lockkeeper_core::lock::{Lock, LockId, Token};
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::time::Millis;

use super::{Client, Heard};
use crate::wishes::shown;

/// Older than every token that was ever given.
pub(super) const STALE: Token = Token(1);

impl Client {
    /// One beat. `new`: locks that were granted and are believed in from here on.
    pub(super) async fn beat_once(&self, new: &[Arc<Lock>]) {
        let (actor, sent) = (self.actor(), self.now());
        let session = actor.session.clone();
        let held_before: Vec<LockId> = self.mind().held.keys().copied().collect();
        let command = Command::Renew { actor, which: Which::Everything, ttl: None, token: None };
        let Heard::Told(Answer::Renewed { locks, lost, .. }) = self.call(command, 0).await else { return };
        if self.mind().session != session {
            return;
        }
        let now = self.now();
        self.audit().note(now, self.number, locks.len(), || format!("beat: {}", shown(&locks)));
        // No beat makes a finish longer.
        for lock in locks.iter().filter(|lock| !lock.is_finish()) {
            let believed = self.mind().held.get(&lock.id).is_some_and(|(_, until)| now < *until);
            if believed || new.iter().any(|new| new.id == lock.id) {
                self.believe(sent, lock);
            }
        }
        let gone = |id: &LockId| !locks.iter().any(|lock| lock.id == *id);
        for id in held_before.iter().chain(new.iter().map(|lock| &lock.id)).filter(|id| gone(id)) {
            self.mind().held.remove(id);
            self.audit().told_lost(now, &session, |lock| lock.id == *id);
            self.audit().names_lost(&session, *id, &locks, &lost);
            self.audit().disbelieves(now, |lock| lock.session == session && lock.id == *id);
        }
        self.mind().held.retain(|_, (_, until)| now < *until);
    }

    /// Renews one lock, or what came with its token; now and then with a token that is stale.
    pub(super) async fn renew_one(&self) {
        let Some((lock, _)) = self.some_held() else { return };
        let (actor, sent) = (self.actor(), self.now());
        let session = actor.session.clone();
        let (stale, everything, timed) = (self.draw(4) == 0, self.draw(2) == 0, self.draw(2) == 0);
        let which = if everything { Which::Everything } else { Which::Id(lock.id) };
        let token = if stale { STALE } else { lock.token };
        // With a stale token it would be a harmful one.
        let ttl = timed.then(|| if stale { Millis(1) } else { lock.ttl });
        let command = Command::Renew { actor, which, ttl, token: Some(token) };
        let heard = self.call(command, 0).await;
        let now = self.now();
        match heard {
            Heard::Told(Answer::Renewed { locks, .. }) => {
                if stale {
                    self.audit().breaks("P5", || format!("a stale token renewed {lock:?}"));
                }
                let believed = |id| self.mind().held.get(&id).is_some_and(|(_, until): &(_, u64)| now < *until);
                let longer = |lock: &&Arc<Lock>| !lock.is_finish() && believed(lock.id);
                for lock in locks.iter().filter(longer).collect::<Vec<_>>() {
                    self.believe(sent, lock);
                }
            }
            Heard::Told(Answer::Refused(Refusal::LockLost { .. } | Refusal::NotFound { .. })) if !stale => {
                self.audit().told_lost(now, &session, |other| other.id == lock.id);
                self.mind().held.remove(&lock.id);
                self.audit().disbelieves(now, |other| other.session == session && other.id == lock.id);
            }
            Heard::Told(answer) if stale && everything => self.audit().stale_answered(&session, &answer),
            _ => {}
        }
    }
}
