//! Folds events into the state. The only place where anything changes.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::event::{Enqueued, Event, Grant, On, Withdrawal};
use crate::feature::Feature;
use crate::history::{Action, Entry};
use crate::key::{Key, Target};
use crate::limits::{LOST_MAX, LOST_PER_SESSION_MAX};
use crate::lock::{Lock, LockId, Token, WaiterId};
use crate::mode::Mode;
use crate::outcome::Room;
use crate::planted::{self, Bug};
use crate::ports::Ports;
use crate::session::{AgentName, Intention, SessionId};
use crate::span::Span;
use crate::state::{Kept, Loss, Remembered, Session, State};
use crate::time::{Millis, Stamp, Time};
use crate::waiter::Waiter;

impl State {
    /// Folds one event that entered the ledger at `stamp`.
    pub fn apply(&mut self, stamp: Stamp, event: &Event) {
        // Stamps never fall; if one does, its engine is wrong, and later is the safe side.
        let stamp = Stamp { time: stamp.time.max(self.counters.stamp.time), wall: stamp.wall };
        self.counters.stamp = stamp;
        match event {
            Event::Granted(grant) => self.granted(stamp, grant),
            Event::Renewed { session, locks, ttl } => {
                self.touch(stamp.time, session);
                for id in locks {
                    self.renew(stamp.time, *id, *ttl);
                }
            }
            Event::Released { session, locks, request } => {
                self.touch(stamp.time, session);
                let released = self.remove_locks(stamp, locks, Action::Released, None);
                if let Some(request) = request.as_ref().filter(|_| !planted::is(Bug::ReleaseForgotten)) {
                    let answer = Kept::Released { locks: released };
                    self.remember_for(stamp.time, session, request, answer);
                }
            }
            Event::Expired { locks } => {
                self.remove_locks(stamp, locks, Action::Expired, None);
            }
            Event::Forced { locks, by, reason, request } => {
                let note: Arc<str> = format!("{by}: {reason}").into();
                let forced = self.remove_locks(stamp, locks, Action::ForceReleased, Some(&note));
                if let Some((session, request)) = request {
                    self.ensure_session(stamp.time, session, by, None);
                    self.remember_for(stamp.time, session, request, Kept::ForceReleased { locks: forced });
                }
            }
            Event::Queued(asked) => self.queued(stamp, asked),
            Event::Withdrawn { waiter, why } => self.leave_queue(stamp, *waiter, why.words()),
            Event::Deadlocked { waiter, cycle: _ } => {
                self.leave_queue(stamp, *waiter, "the wait would never have ended");
            }
            Event::Beaten { sessions, waiters } => self.beaten(stamp.time, sessions, waiters),
            Event::SessionOpened { session, agent, agent_type } => {
                self.ensure_session(stamp.time, session, agent, agent_type.as_ref());
            }
            Event::SessionClosed { session } => self.close_session(stamp, session),
            Event::SessionsForgotten { sessions } => {
                for session in sessions {
                    self.close_session(stamp, session);
                }
            }
            Event::LossAccepted { session, targets } => self.accept_loss(session, targets),
            Event::LossTold { session, targets, request } => {
                self.accept_loss(session, targets);
                if !planted::is(Bug::LossToldTwice) {
                    self.remember_for(stamp.time, session, request, Kept::Lost { targets: targets.clone() });
                }
            }
            Event::RoomOpened { key, session, agent, busy } => self.room_opened(stamp, key, session, agent, *busy),
            Event::RoomClosed { key, by: _ } => {
                if let Some(room) = self.room(key).cloned() {
                    self.note_room(stamp, Action::RoomClosed, &room);
                    self.put_room(key, None);
                }
            }
            Event::FeatureRegistered(feature) => {
                let registered = self.feature(&feature.id).map_or(stamp.time, |known| known.registered);
                self.put_feature(&feature.id, Some(Arc::new(Feature { registered, ..feature.clone() })));
            }
            Event::FeatureEnded { feature, end: _ } => self.put_feature(feature, None),
            Event::PortsAllocated { session, agent, base, ttl } => {
                self.ensure_session(stamp.time, session, agent, None);
                let allocated = self.ports_of(session).map_or(stamp.time, |ports| ports.allocated);
                let (expires, ttl, base) = (stamp.time.plus(*ttl), *ttl, *base);
                let (session, agent) = (session.clone(), agent.clone());
                let ports = Ports { session: session.clone(), agent, base, allocated, expires, ttl };
                self.put_ports(&session, Some(Arc::new(ports)));
            }
            Event::ServerSeen { server, settings } => self.see_server(stamp.time, server, settings),
            Event::PortsFreed { sessions } => {
                for session in sessions {
                    self.put_ports(session, None);
                }
            }
            Event::GivenBack { session, locks } => {
                for number in self.requests_for(session, locks) {
                    self.put_request(number, None);
                }
                self.remove_locks(stamp, locks, Action::Released, None);
            }
            Event::Vanished { locks, last_token } => self.vanished(stamp, locks, *last_token),
        }
    }

    fn room_opened(&mut self, stamp: Stamp, key: &Key, session: &SessionId, agent: &AgentName, busy: Millis) {
        self.counters.rooms_made += 1;
        let number = self.counters.rooms_made;
        let (session, agent) = (session.clone(), agent.clone());
        let before = self.room(key);
        // Of two who edit one file, the first has the room, and it is busy for both.
        let (session, agent) = before.map_or((session, agent), |room| (room.session.clone(), room.agent.clone()));
        let opened = before.map_or(stamp.time, |room| room.opened);
        let until = stamp.time.plus(busy).max(before.map_or(Time::ZERO, |room| room.until));
        let goes_on = before.is_some();
        let room = Room { number, key: key.clone(), session, agent, opened, until };
        if !goes_on {
            self.note_room(stamp, Action::RoomOpened, &room);
        }
        self.put_room(key, Some(room));
    }

    /// Drops history that is older than `kept`. Not on a working state.
    pub fn trim(&mut self, kept: Millis) {
        let oldest = self.counters.stamp.time.minus(kept);
        self.history.trim(oldest);
    }

    fn granted(&mut self, stamp: Stamp, grant: &Grant) {
        let now = stamp.time;
        let waiter = grant.waiter.and_then(|id| self.waiter(id).cloned());
        let grant = &match &waiter {
            Some(waiter) => {
                self.put_waiter(waiter.id(), None);
                Cow::Owned(grant.completed(&waiter.asked))
            }
            None => Cow::Borrowed(grant),
        };
        self.ensure_session(now, &grant.session, &grant.agent, grant.agent_type.as_ref());
        let replaced = self.remove_locks(stamp, &grant.replaced, Action::Released, None);
        if let Some(first) = grant.new.first().filter(|_| self.counters.born == 0) {
            // Not from the stamp, which was not known when later grants of the same batch were decided.
            self.counters.born = first.id.raw().max(1);
        }
        // Who asks again for what they hold is never left with less of it.
        let ttl_of = |held: Option<&Arc<Lock>>| held.map_or(grant.ttl, |lock| lock.ttl.max(grant.ttl));
        for new in &grant.new {
            self.counters.locks_made += 1;
            let wanted = |place: u32| waiter.as_ref()?.asked.wants.get(place as usize);
            let (target, mode) = match &new.on {
                On::Target(target, mode) => (target, *mode),
                On::Wanted(place) => match wanted(*place) {
                    Some(want) => (&want.target, want.mode),
                    None => continue,
                },
            };
            let before = replaced.iter().find(|lock| lock.target == *target);
            self.grant_one(stamp, grant, new.id, target, mode, ttl_of(before));
        }
        for id in &grant.refreshed {
            let Some(lock) = self.lock(*id).filter(|lock| !lock.is_finish()) else { continue };
            let ttl = ttl_of(Some(lock));
            let mut lock = Lock::clone(lock);
            lock.ttl = ttl;
            if !planted::is(Bug::RefreshIgnored) {
                lock.expires = now.plus(ttl);
            }
            if !grant.intention.is_empty() {
                lock.intention = grant.intention.clone();
            }
            self.put_lock(*id, Some(Arc::new(lock)));
        }
        let counted = grant.waiter.is_none() || !planted::is(Bug::QuotaForgotten);
        if counted && grant.quota_kept > 0 && !grant.new.is_empty() {
            self.count_grant(now, &grant.session, grant.quota_kept as usize);
        }
        if let Some(request) = grant.request.as_ref().filter(|_| !planted::is(Bug::RequestForgotten)) {
            let locks = grant.locks().filter_map(|id| self.lock(id).cloned()).collect();
            self.remember_for(now, &grant.session, request, Kept::Granted { locks, fresh: grant.new.len() });
        }
    }

    fn grant_one(&mut self, stamp: Stamp, grant: &Grant, id: LockId, target: &Target, mode: Mode, ttl: Millis) {
        let now = stamp.time;
        let restored = planted::is(Bug::RestoredTokenReused) && grant.quota_kept == 1;
        let next = u64::from(!planted::is(Bug::TokenReused) && !restored);
        let token = Token((self.counters.last_token.0 + next).max(now.0));
        assert!(next == 0 || token > self.counters.last_token, "tokens only rise");
        self.counters.last_token = token;
        let lock = Arc::new(Lock {
            id,
            target: target.clone(),
            mode,
            session: grant.session.clone(),
            agent: grant.agent.clone(),
            intention: grant.intention.clone(),
            feature: grant.feature.clone(),
            token,
            acquired: now,
            expires: now.plus(ttl),
            ttl,
        });
        // Decided on the state that this is applied to, a grant overlaps nothing. After a ledger was rewritten it
        // may, and then the earlier one stands.
        let taken = !lock.session.is_external()
            && self.held_against(&lock.session, &lock.target, lock.mode, |_| ControlFlow::Break(())).is_break();
        if taken || self.lock(id).is_some() {
            self.note_lock(stamp, Action::Lost, &lock, grant.waiter, None);
            self.lose(now, &lock, false);
            return;
        }
        self.put_loss(&lock.session, &lock.target, None);
        self.note_lock(stamp, Action::Acquired, &lock, grant.waiter, None);
        self.put_lock(id, Some(lock));
    }

    fn renew(&mut self, now: Time, id: LockId, ttl: Option<Millis>) {
        let ends = |lock: &Lock| lock.is_finish() && !planted::is(Bug::FinishRenewed);
        let lives_on = |lock: &&Arc<Lock>| !ends(lock) && !planted::is(Bug::RenewalIgnored);
        let Some(lock) = self.lock(id).filter(lives_on) else { return };
        let mut lock = Lock::clone(lock);
        lock.ttl = ttl.unwrap_or(lock.ttl);
        lock.expires = now.plus(lock.ttl);
        self.put_lock(id, Some(Arc::new(lock)));
    }

    fn remove_locks(
        &mut self,
        stamp: Stamp,
        ids: &[LockId],
        action: Action,
        note: Option<&Arc<str>>,
    ) -> Vec<Arc<Lock>> {
        let mut removed = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(lock) = self.lock(*id).cloned() else { continue };
            self.put_lock(*id, None);
            self.note_lock(stamp, action, &lock, None, note);
            if action.is_loss() {
                self.lose(stamp.time, &lock, action == Action::ForceReleased);
            }
            removed.push(lock);
        }
        removed
    }

    /// What went with a rewritten past.
    fn vanished(&mut self, stamp: Stamp, locks: &[Lock], last_token: Token) {
        if !planted::is(Bug::TokensFallBack) {
            self.counters.last_token = self.counters.last_token.max(last_token);
        }
        // Ids of the lost past are not given again: its holders may still name them.
        self.counters.locks_made += LockId::LOST_AT_ONCE;
        for lock in locks {
            if self.session(&lock.session).is_none() {
                self.ensure_session(stamp.time, &lock.session, &lock.agent, None);
            }
            self.note_lock(stamp, Action::Lost, lock, None, None);
            // The session may have the same again, under another id: then it is lost, and there is nothing to restore.
            if !self.has_as_good(lock) {
                self.lose(stamp.time, lock, false);
            }
        }
    }

    /// Whether the session of a lock has another one that is as good.
    fn has_as_good(&self, lock: &Lock) -> bool {
        let other = self.entry(&lock.session).and_then(|entry| entry.locks.get(&lock.target));
        // A shared lock is not what an exclusive one was.
        other.and_then(|id| self.lock(*id)).is_some_and(|kept| kept.mode.is_as_good_as(lock.mode))
    }

    fn accept_loss(&mut self, session: &SessionId, targets: &[Target]) {
        for target in targets {
            self.put_loss(session, target, None);
        }
    }

    fn lose(&mut self, now: Time, lock: &Lock, forced: bool) {
        // A finish that ran out was to run out.
        let Some(entry) = self.entry(&lock.session).filter(|_| !lock.is_finish()) else { return };
        let is_new = !entry.lost.contains_key(&lock.target);
        if is_new && self.lost_count >= LOST_MAX {
            return;
        }
        if is_new && entry.lost.len() >= LOST_PER_SESSION_MAX {
            let oldest = entry.lost.iter().min_by_key(|(_, loss)| loss.at).map(|(target, _)| target.clone());
            self.put_loss(&lock.session, &oldest.expect("more than none"), None);
        }
        let (mode, intention, ttl) = (lock.mode, lock.intention.clone(), lock.ttl);
        let loss = Loss { lock: lock.id, mode, intention, ttl, at: now, forced, feature: lock.feature.clone() };
        self.put_loss(&lock.session, &lock.target, Some(Arc::new(loss)));
    }

    fn queued(&mut self, stamp: Stamp, asked: &Enqueued) {
        self.ensure_session(stamp.time, &asked.session, &asked.agent, asked.agent_type.as_ref());
        self.counters.waiters_made = self.counters.waiters_made.max(asked.waiter.0);
        if self.waiter(asked.waiter).is_some() {
            return;
        }
        self.note_waiter(stamp, Action::Requested, asked, None);
        let waiter = Waiter { asked: asked.clone(), queued: stamp.time, seen: stamp.time };
        self.put_waiter(asked.waiter, Some(Arc::new(waiter)));
    }

    fn leave_queue(&mut self, stamp: Stamp, id: WaiterId, why: &str) {
        let Some(waiter) = self.waiter(id).cloned() else { return };
        self.put_waiter(id, None);
        self.note_waiter(stamp, Action::Withdrawn, &waiter.asked, Some(&why.into()));
    }

    fn beaten(&mut self, now: Time, sessions: &[SessionId], waiters: &[WaiterId]) {
        for session in sessions {
            self.touch(now, session);
            let locks: Vec<LockId> = self.locks_of(session).collect();
            for id in locks {
                self.renew(now, id, None);
            }
        }
        for id in waiters {
            self.touch_waiter(now, *id);
        }
    }

    fn touch_waiter(&mut self, now: Time, id: WaiterId) {
        if let Some(waiter) = self.waiter(id) {
            let seen = Waiter { seen: now, ..Waiter::clone(waiter) };
            self.put_waiter(id, Some(Arc::new(seen)));
        }
    }

    /// A session was heard.
    fn touch(&mut self, now: Time, session: &SessionId) {
        self.put_seen(session, now);
        self.touch_waiters(now, session);
        self.touch_ports(now, session);
    }

    /// Ports stay a session's as long as it is heard.
    fn touch_ports(&mut self, now: Time, session: &SessionId) {
        if let Some(ports) = self.ports_of(session) {
            let kept = Ports { expires: now.plus(ports.ttl), ..Ports::clone(ports) };
            self.put_ports(session, Some(Arc::new(kept)));
        }
    }

    /// A waiter lives as long as its session is heard.
    fn touch_waiters(&mut self, now: Time, session: &SessionId) {
        let Some(entry) = self.entry(session).filter(|entry| !entry.waiters.is_empty()) else { return };
        let waiters: Vec<WaiterId> = entry.waiters.iter().copied().collect();
        for waiter in waiters {
            self.touch_waiter(now, waiter);
        }
    }

    /// A session was heard under this name; it is made if there is none.
    fn ensure_session(&mut self, now: Time, id: &SessionId, agent: &AgentName, agent_type: Option<&AgentName>) {
        let known = self.session(id);
        let agent_type = agent_type.or(known.and_then(|session| session.agent_type.as_ref()));
        let same = |known: &Session| known.agent == *agent && known.agent_type.as_ref() == agent_type;
        if known.is_some_and(same) {
            self.put_seen(id, now);
        } else {
            let opened = known.map_or(now, |session| session.opened);
            let (id, agent, agent_type) = (id.clone(), agent.clone(), agent_type.cloned());
            self.put_session(Session { id, agent, agent_type, opened, seen: now });
        }
        self.touch_waiters(now, id);
        self.touch_ports(now, id);
    }

    fn close_session(&mut self, stamp: Stamp, session: &SessionId) {
        let kept = usize::from(planted::is(Bug::CloseKeepsOne));
        let locks: Vec<LockId> = self.locks_of(session).skip(kept).collect();
        self.remove_locks(stamp, &locks, Action::Released, None);
        if self.locks_of(session).next().is_some() {
            return;
        }
        let Some(entry) = self.entry(session) else { return };
        let waiters: Vec<WaiterId> = entry.waiters.iter().copied().collect();
        let requests: Vec<u64> = entry.requests.iter().copied().collect();
        for waiter in waiters {
            self.leave_queue(stamp, waiter, Withdrawal::SessionGone.words());
        }
        for number in requests {
            self.put_request(number, None);
        }
        if self.ports_of(session).is_some() {
            self.put_ports(session, None);
        }
        self.drop_session(session);
    }

    fn count_grant(&mut self, now: Time, session: &SessionId, kept: usize) {
        let Some(entry) = self.entry(session) else { return };
        let mut quota = entry.quota.clone();
        quota.push_back(now);
        while quota.len() > kept {
            quota.pop_front();
        }
        self.put_quota(session, quota);
    }

    fn remember_for(&mut self, at: Time, session: &SessionId, request: &crate::command::Request, answer: Kept) {
        if self.session(session).is_none() {
            return;
        }
        let (session, digest) = (session.clone(), request.digest);
        self.remember(Remembered { session, request: request.id.clone(), digest, at, answer });
    }

    fn note_lock(
        &mut self,
        stamp: Stamp,
        action: Action,
        lock: &Lock,
        waiter: Option<WaiterId>,
        note: Option<&Arc<str>>,
    ) {
        self.history.push(Entry {
            number: 0,
            time: stamp.time,
            wall: stamp.wall,
            action,
            target: lock.target.clone(),
            mode: lock.mode,
            session: lock.session.clone(),
            agent: lock.agent.clone(),
            intention: lock.intention.clone(),
            lock: Some(lock.id),
            token: Some(lock.token),
            waiter,
            note: note.cloned(),
        });
    }

    fn note_waiter(&mut self, stamp: Stamp, action: Action, asked: &Enqueued, note: Option<&Arc<str>>) {
        for want in &asked.wants {
            self.history.push(Entry {
                number: 0,
                time: stamp.time,
                wall: stamp.wall,
                action,
                target: want.target.clone(),
                mode: want.mode,
                session: asked.session.clone(),
                agent: asked.agent.clone(),
                intention: asked.intention.clone(),
                lock: None,
                token: None,
                waiter: Some(asked.waiter),
                note: note.cloned(),
            });
        }
    }

    fn note_room(&mut self, stamp: Stamp, action: Action, room: &Room) {
        self.history.push(Entry {
            number: 0,
            time: stamp.time,
            wall: stamp.wall,
            action,
            target: whole(&room.key),
            mode: Mode::Exclusive,
            session: room.session.clone(),
            agent: room.agent.clone(),
            intention: Intention::default(),
            lock: None,
            token: None,
            waiter: None,
            note: None,
        });
    }
}

fn whole(key: &Key) -> Target {
    Target { key: key.clone(), span: Span::WHOLE }
}
