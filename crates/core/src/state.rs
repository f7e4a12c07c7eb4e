//! The fold of a ledger: what is held, wanted and remembered, and the tables behind it.
//!
//! Each table has one way in (`put_*`), which keeps the indexes beside it and the journal true. `apply` is total: it
//! takes any event in any order without a panic, so that a damaged past can still be read.

mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::requests::{Kept, Remembered};
use crate::HashMap;
use crate::command::Actor;
use crate::feature::Feature;
use crate::history::History;
use crate::index::{ConflictIndex, covering};
use crate::journal::{Journal, Undo};
use crate::key::{Key, Target};
use crate::limits::{FEW_SPANS, SESSION_ALIVE};
use crate::lock::{FeatureId, Lock, LockId, Token, WaiterId};
use crate::mode::Mode;
use crate::outcome::{Refusal, Room};
use crate::ports::{PortRules, Ports};
use crate::servers::Server;
use crate::session::{AgentName, Intention, RequestId, SessionId};
use crate::span::Span;
use crate::time::{Millis, Stamp, Time};
use crate::waiter::Waiter;

/// What the rules of a service are set to. Decisions read them; folding events does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Grants of one session within the window; zero: no limit.
    pub quota_limit: u32,
    pub quota_window: Millis,
    pub history_kept: Millis,
    pub ports: PortRules,
}

impl Default for Rules {
    fn default() -> Rules {
        use crate::limits::{HISTORY_KEPT, QUOTA_LIMIT_DEFAULT, QUOTA_WINDOW_DEFAULT};
        Rules {
            quota_limit: QUOTA_LIMIT_DEFAULT,
            quota_window: QUOTA_WINDOW_DEFAULT,
            history_kept: HISTORY_KEPT,
            ports: PortRules::default(),
        }
    }
}

/// All that one ledger says.
#[derive(Debug)]
pub struct State {
    pub(crate) counters: Counters,
    locks: HashMap<LockId, Arc<Lock>>,
    held: ConflictIndex,
    expiries: BTreeSet<(Time, LockId)>,
    sessions: HashMap<SessionId, SessionEntry>,
    waiters: HashMap<WaiterId, Arc<Waiter>>,
    wanted: ConflictIndex,
    waiter_checks: BTreeSet<(Time, WaiterId)>,
    /// How many keys they want, all together.
    awaited: usize,
    pub(crate) waiters_by_feature: BTreeMap<FeatureId, BTreeSet<WaiterId>>,
    rooms: BTreeMap<Key, Room>,
    room_index: ConflictIndex,
    room_ends: BTreeSet<(Time, Key)>,
    room_keys: HashMap<u64, Key>,
    requests: BTreeMap<u64, Arc<Remembered>>,
    /// How many locks they remember, all together.
    requests_weight: usize,
    /// What all sessions lost and may restore.
    pub(crate) lost_count: usize,
    request_numbers: HashMap<(SessionId, RequestId), u64>,
    pub(crate) features: BTreeMap<FeatureId, Arc<Feature>>,
    /// Which of them claim a key, by its text.
    pub(crate) claimed: BTreeMap<Arc<str>, BTreeSet<FeatureId>>,
    pub(crate) ports: BTreeMap<SessionId, Arc<Ports>>,
    pub(crate) port_ends: BTreeSet<(Time, SessionId)>,
    pub(crate) servers: BTreeMap<String, Server>,
    pub(crate) history: History,
    pub(crate) journal: Journal,
}

/// Numbers that only rise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) salt: u64,
    /// From the first grant, which was drawn with the time: a ledger that is begun anew has other ids. Zero: none yet.
    pub(crate) born: u64,
    pub(crate) stamp: Stamp,
    pub(crate) last_token: Token,
    pub(crate) locks_made: u64,
    pub(crate) waiters_made: u64,
    pub(crate) rooms_made: u64,
    pub(crate) requests_made: u64,
}

/// What is recorded of a session, and what follows from the other tables.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    pub(crate) record: Session,
    pub(crate) quota: VecDeque<Time>,
    /// What it lost and may restore.
    pub(crate) lost: BTreeMap<Target, Arc<Loss>>,
    // From here on derived.
    pub(crate) locks: BTreeMap<Target, LockId>,
    pub(crate) waiters: BTreeSet<WaiterId>,
    pub(crate) requests: VecDeque<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub agent: AgentName,
    pub agent_type: Option<AgentName>,
    pub opened: Time,
    pub seen: Time,
}

impl Session {
    pub fn is_alive(&self, now: Time) -> bool {
        now < self.seen.plus(SESSION_ALIVE)
    }
}

/// A lock that went without being given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub lock: LockId,
    pub mode: Mode,
    pub intention: Intention,
    pub ttl: Millis,
    pub at: Time,
    /// An operator took it away: known as lost, but not restored.
    pub forced: bool,
    /// Stored beside: losses were stored before features were.
    #[serde(skip)]
    pub feature: Option<FeatureId>,
}

impl State {
    /// An empty ledger's state. The salt makes lock ids of different spaces differ.
    pub fn new(salt: u64) -> State {
        State {
            counters: Counters { salt, ..Counters::default() },
            locks: HashMap::default(),
            held: ConflictIndex::default(),
            expiries: BTreeSet::new(),
            sessions: HashMap::default(),
            waiters: HashMap::default(),
            wanted: ConflictIndex::default(),
            waiter_checks: BTreeSet::new(),
            awaited: 0,
            waiters_by_feature: BTreeMap::new(),
            rooms: BTreeMap::new(),
            room_index: ConflictIndex::default(),
            room_ends: BTreeSet::new(),
            room_keys: HashMap::default(),
            requests: BTreeMap::new(),
            requests_weight: 0,
            lost_count: 0,
            request_numbers: HashMap::default(),
            features: BTreeMap::new(),
            claimed: BTreeMap::new(),
            ports: BTreeMap::new(),
            port_ends: BTreeSet::new(),
            servers: BTreeMap::new(),
            history: History::default(),
            journal: Journal::default(),
        }
    }

    // What can be asked.

    pub fn lock(&self, id: LockId) -> Option<&Arc<Lock>> {
        self.locks.get(&id)
    }

    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    pub fn waiter_count(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn awaited_count(&self) -> usize {
        self.awaited
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Every lock, in no order.
    pub fn locks(&self) -> impl Iterator<Item = &Arc<Lock>> {
        self.locks.values()
    }

    /// The first locks in the order of their keys, and how many there are: all, or those whose key overlaps `about`.
    pub fn locks_in_order(&self, about: Option<&Key>, most: usize) -> (Vec<Arc<Lock>>, usize) {
        let Some(about) = about else {
            let ids = self.held.in_order().take(most);
            return (ids.map(|raw| self.locks[&LockId::from_raw(raw)].clone()).collect(), self.locks.len());
        };
        // The last of those that are kept goes for each that comes before it: most may be left out.
        let (mut first, mut total) = (BTreeMap::<(Target, LockId), Arc<Lock>>::new(), 0);
        self.all_overlapping(&Target { key: about.clone(), span: Span::WHOLE }, |lock| {
            total += 1;
            let is_last = first.last_key_value().is_some_and(|((last, id), _)| (last, id) < (&lock.target, &lock.id));
            if first.len() < most || !is_last {
                first.insert((lock.target.clone(), lock.id), lock.clone());
                if first.len() > most {
                    first.pop_last();
                }
            }
            ControlFlow::Continue(())
        });
        (first.into_values().collect(), total)
    }

    /// Everybody in the queue, in no order.
    pub fn waiters(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.waiters.values()
    }

    pub fn waiter(&self, id: WaiterId) -> Option<&Arc<Waiter>> {
        self.waiters.get(&id)
    }

    pub fn rooms(&self) -> impl Iterator<Item = &Room> {
        self.rooms.values()
    }

    pub fn room(&self, key: &Key) -> Option<&Room> {
        self.rooms.get(key)
    }

    /// Every session, in no order.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().map(|entry| &entry.record)
    }

    pub fn session(&self, id: &SessionId) -> Option<&Session> {
        self.sessions.get(id).map(|entry| &entry.record)
    }

    /// The ids of a session's locks, in the order of their targets.
    pub fn locks_of(&self, session: &SessionId) -> impl Iterator<Item = LockId> {
        self.sessions.get(session).into_iter().flat_map(|entry| entry.locks.values().copied())
    }

    /// The session's locks on exactly this key.
    pub fn own_on_key(&self, session: &SessionId, key: &Key) -> impl Iterator<Item = &Arc<Lock>> {
        let first = Target { key: key.clone(), span: Span::FIRST };
        let entry = self.sessions.get(session);
        let behind = entry.into_iter().flat_map(move |entry| entry.locks.range(first.clone()..));
        behind.take_while(move |(target, _)| target.key == *key).map(|(_, id)| &self.locks[id])
    }

    /// Whoever is bound to an agent may not act in a session of another.
    pub fn own_session(&self, actor: &Actor) -> Result<(), Refusal> {
        match self.session(&actor.session) {
            Some(session) if actor.bound && session.agent != actor.agent => {
                Err(Refusal::ForeignSession { session: actor.session.clone(), agent: session.agent.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The session's lock on exactly this target.
    pub fn own_on(&self, session: &SessionId, target: &Target) -> Option<&Arc<Lock>> {
        self.locks.get(self.sessions.get(session)?.locks.get(target)?)
    }

    pub fn lost_of(&self, session: &SessionId) -> impl Iterator<Item = (&Target, &Arc<Loss>)> {
        self.sessions.get(session).into_iter().flat_map(|entry| entry.lost.iter())
    }

    /// What is known to be lost of what a lock was on, by its session.
    pub(crate) fn loss_of(&self, lock: &Lock) -> Option<&Arc<Loss>> {
        self.sessions.get(&lock.session)?.lost.get(&lock.target)
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    /// The stamp of the last event.
    pub fn stamp(&self) -> Stamp {
        self.counters.stamp
    }

    /// The greatest fencing token that was given.
    pub fn last_token(&self) -> Token {
        self.counters.last_token
    }

    /// When time alone will change something: a lock expires, a wait is over, a room is left, ports come free.
    pub fn next_wake(&self) -> Option<Time> {
        let times = [
            self.expiries.first().map(|(time, _)| *time),
            self.waiter_checks.first().map(|(time, _)| *time),
            self.room_ends.first().map(|(time, _)| *time),
            self.port_ends.first().map(|(time, _)| *time),
        ];
        times.into_iter().flatten().min()
    }

    // What the rules look up.

    /// The count of locks so far, and what their ids are mixed with.
    pub(crate) fn numbering(&self, now: Time) -> (u64, u64) {
        let Counters { salt, born, locks_made, .. } = self.counters;
        match born {
            // The first grant counts on a side of its own, so that no later id is one of its.
            0 => (locks_made | LockId::FIRST_GRANT, (salt ^ now.0) & !LockId::FIRST_GRANT),
            born => (locks_made, (salt ^ born) & !LockId::FIRST_GRANT),
        }
    }

    pub(crate) fn entry(&self, session: &SessionId) -> Option<&SessionEntry> {
        self.sessions.get(session)
    }

    /// The places that a session has in the queue.
    pub(crate) fn waiters_of(&self, session: &SessionId) -> impl Iterator<Item = &Arc<Waiter>> {
        let waiters = self.entry(session).into_iter().flat_map(|entry| entry.waiters.iter());
        waiters.filter_map(|id| self.waiter(*id))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &SessionEntry> {
        self.sessions.values()
    }

    /// Locks of other sessions that conflict, until told to stop.
    pub(crate) fn held_against(
        &self,
        session: &SessionId,
        target: &Target,
        mode: Mode,
        mut visit: impl FnMut(&Arc<Lock>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.held.conflicting(target, mode, |_, raw| {
            let lock = &self.locks[&LockId::from_raw(raw)];
            if lock.session == *session { ControlFlow::Continue(()) } else { visit(lock) }
        })
    }

    /// Whether a lock that the session holds already reaches all of the target, in a mode as strong: one on the same key, or on a
    /// tree that it lies in.
    pub fn covered_by_own(&self, session: &SessionId, target: &Target, mode: Mode) -> bool {
        let reaches = |lock: &Arc<Lock>| {
            lock.target.span.intersection(target.span) == Some(target.span) && lock.mode.is_as_good_as(mode)
        };
        let mut own = self.own_on_key(session, &target.key);
        if own.by_ref().take(FEW_SPANS).any(reaches) {
            return true;
        }
        if own.next().is_some() {
            // Of many, only those matter that have the first line.
            let first =
                Target { key: target.key.clone(), span: Span::between(target.span.start(), target.span.start()) };
            let mut is_covered = false;
            self.all_overlapping(&first, |lock| {
                is_covered = lock.session == *session && lock.target.key == target.key && reaches(lock);
                if is_covered { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if is_covered {
                return true;
            }
        }
        let around = covering(&target.key).into_iter().map(|text| Key::from(Arc::from(text)));
        around.filter(|key| key.reaches(&target.key)).any(|key| self.own_on_key(session, &key).any(reaches))
    }

    /// Waiters of whatever session that conflict, until told to stop.
    pub(crate) fn waiting_for(
        &self,
        target: &Target,
        mode: Mode,
        mut visit: impl FnMut(&Arc<Waiter>, Span) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.wanted.conflicting(target, mode, |span, raw| visit(&self.waiters[&WaiterId(raw)], span))
    }

    /// Rooms that others keep busy, until told to stop.
    pub(crate) fn rooms_against(
        &self,
        session: &SessionId,
        target: &Target,
        mut visit: impl FnMut(&Room) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.rooms.is_empty() {
            return ControlFlow::Continue(());
        }
        self.room_index.conflicting(target, Mode::Exclusive, |_, number| {
            let room = &self.rooms[&self.room_keys[&number]];
            if room.session == *session { ControlFlow::Continue(()) } else { visit(room) }
        })
    }

    pub(crate) fn overdue_locks(&self, now: Time) -> Vec<LockId> {
        self.expiries.iter().take_while(|(expires, _)| *expires <= now).map(|(_, id)| *id).collect()
    }

    pub(crate) fn overdue_waiters(&self, now: Time) -> Vec<WaiterId> {
        self.waiter_checks.iter().take_while(|(check, _)| *check <= now).map(|(_, id)| *id).collect()
    }

    pub(crate) fn overdue_rooms(&self, now: Time) -> Vec<Key> {
        self.room_ends.iter().take_while(|(until, _)| *until <= now).map(|(_, key)| key.clone()).collect()
    }

    // The tables, each with one way in.

    pub(crate) fn put_lock(&mut self, id: LockId, new: Option<Arc<Lock>>) {
        let old = match &new {
            Some(lock) => self.locks.insert(id, lock.clone()),
            None => self.locks.remove(&id),
        };
        // A renewal moves only the expiry: the place in the index stays.
        let same_place = match (&old, &new) {
            (Some(old), Some(new)) => old.target == new.target && old.mode == new.mode && old.session == new.session,
            (None, _) | (_, None) => false,
        };
        if let Some(old) = &old {
            self.expiries.remove(&(old.expires, id));
            if !same_place {
                self.held.remove(&old.target, old.mode, id.raw());
                if let Some(entry) = self.sessions.get_mut(&old.session)
                    && entry.locks.get(&old.target) == Some(&id)
                {
                    entry.locks.remove(&old.target);
                }
            }
        }
        if let Some(new) = &new {
            self.expiries.insert((new.expires, id));
            if !same_place {
                self.held.insert(&new.target, new.mode, id.raw());
                if let Some(entry) = self.sessions.get_mut(&new.session) {
                    entry.locks.insert(new.target.clone(), id);
                }
            }
        }
        self.journal.note(|| Undo::Lock(id, old));
    }

    pub(crate) fn put_waiter(&mut self, id: WaiterId, new: Option<Arc<Waiter>>) {
        let old = match &new {
            Some(waiter) => self.waiters.insert(id, waiter.clone()),
            None => self.waiters.remove(&id),
        };
        if let Some(old) = &old {
            self.waiter_checks.remove(&(old.check_at(), id));
        }
        if let (Some(old), None) = (&old, &new) {
            self.awaited -= old.asked.wants.len();
            for want in &old.asked.wants {
                self.wanted.remove(&want.target, want.mode, id.0);
            }
            if let Some(feature) = &old.asked.feature
                && let Some(waiters) = self.waiters_by_feature.get_mut(feature)
            {
                waiters.remove(&id);
                if waiters.is_empty() {
                    self.waiters_by_feature.remove(feature);
                }
            }
            if let Some(entry) = self.sessions.get_mut(&old.asked.session) {
                entry.waiters.remove(&id);
            }
        }
        if let Some(new) = &new {
            self.waiter_checks.insert((new.check_at(), id));
        }
        if let (None, Some(new)) = (&old, &new) {
            self.awaited += new.asked.wants.len();
            for want in &new.asked.wants {
                self.wanted.insert(&want.target, want.mode, id.0);
            }
            if let Some(feature) = &new.asked.feature {
                self.waiters_by_feature.entry(feature.clone()).or_default().insert(id);
            }
            if let Some(entry) = self.sessions.get_mut(&new.asked.session) {
                entry.waiters.insert(id);
            }
        }
        self.journal.note(|| Undo::Waiter(id, old));
    }

    pub(crate) fn put_room(&mut self, key: &Key, new: Option<Room>) {
        let target = Target { key: key.clone(), span: Span::WHOLE };
        let old = self.rooms.remove(key);
        if let Some(old) = &old {
            self.room_index.remove(&target, Mode::Exclusive, old.number);
            self.room_keys.remove(&old.number);
            self.room_ends.remove(&(old.until, key.clone()));
        }
        if let Some(new) = new {
            self.room_index.insert(&target, Mode::Exclusive, new.number);
            self.room_keys.insert(new.number, key.clone());
            self.room_ends.insert((new.until, key.clone()));
            self.rooms.insert(key.clone(), new);
        }
        self.journal.note(|| Undo::Room(key.clone(), old));
    }

    /// Changes what is recorded of a session; makes the session if there is none.
    pub(crate) fn put_session(&mut self, new: Session) {
        let id = new.id.clone();
        let old = match self.sessions.get_mut(&id) {
            Some(entry) => Some(std::mem::replace(&mut entry.record, new)),
            None => {
                self.sessions.insert(id.clone(), SessionEntry::new(new));
                None
            }
        };
        self.journal.note(|| Undo::Session(id, old));
    }

    /// A session that is known was heard.
    pub(crate) fn put_seen(&mut self, id: &SessionId, seen: Time) {
        let Some(entry) = self.sessions.get_mut(id) else { return };
        let old = std::mem::replace(&mut entry.record.seen, seen);
        self.journal.note(|| Undo::Seen(id.clone(), old));
    }

    /// Removes a session that has no locks, waiters or remembered requests any more.
    pub(crate) fn drop_session(&mut self, id: &SessionId) {
        let Some(entry) = self.sessions.remove(id) else { return };
        assert!(entry.locks.is_empty() && entry.waiters.is_empty() && entry.requests.is_empty(), "an empty session");
        self.lost_count -= entry.lost.len();
        self.journal.note(|| Undo::Dropped(Box::new(entry)));
    }

    pub(crate) fn restore_entry(&mut self, entry: SessionEntry) {
        self.lost_count += entry.lost.len();
        self.sessions.insert(entry.record.id.clone(), entry);
    }

    pub(crate) fn forget_session(&mut self, id: &SessionId) {
        if let Some(entry) = self.sessions.remove(id) {
            self.lost_count -= entry.lost.len();
        }
    }

    pub(crate) fn put_quota(&mut self, session: &SessionId, new: VecDeque<Time>) {
        let Some(entry) = self.sessions.get_mut(session) else { return };
        let old = std::mem::replace(&mut entry.quota, new);
        self.journal.note(|| Undo::Quota(session.clone(), old));
    }

    pub(crate) fn put_loss(&mut self, session: &SessionId, target: &Target, new: Option<Arc<Loss>>) {
        let Some(entry) = self.sessions.get_mut(session) else { return };
        if new.is_none() && entry.lost.is_empty() {
            return;
        }
        self.lost_count += usize::from(new.is_some());
        let old = match new {
            Some(loss) => entry.lost.insert(target.clone(), loss),
            None => entry.lost.remove(target),
        };
        self.lost_count -= usize::from(old.is_some());
        self.journal.note(|| Undo::Loss(session.clone(), target.clone(), old));
    }
}

impl SessionEntry {
    pub(crate) fn new(record: Session) -> SessionEntry {
        SessionEntry {
            record,
            quota: VecDeque::new(),
            lost: BTreeMap::new(),
            locks: BTreeMap::new(),
            waiters: BTreeSet::new(),
            requests: VecDeque::new(),
        }
    }
}
