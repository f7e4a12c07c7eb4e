//! Checks the promises. Knows only what clients sent and were told, and when.

mod again;
mod looks;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use lockkeeper_core::command::{Acquire, Want};
use lockkeeper_core::key::Target;
use lockkeeper_core::lock::{FeatureId, Lock, Token};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Blocker, Busy, BusyReason, Conflict};
use lockkeeper_core::ports::Ports;
use lockkeeper_core::session::SessionId;

pub(crate) use self::again::Ended;
pub(crate) use self::looks::{Look, Waiting};
use crate::air::BEGIN;
use crate::ends::{EndAsked, Ends};
use crate::weather::{Kind, SYNC_QUICK, Weather};
use crate::wishes::PRIORITY_LEAST;

/// How much longer than promised something may take: ways, pauses of servers, and a sweep that was put off.
const SLACK: u64 = 1_000_000;
/// How long after a release was told its sync may be over, or have failed: 10 ms, and a quick sync.
const RELEASE_RIDES: u64 = 20_000;
/// How long after it was given up a request may still take effect.
const LATE_MAX: u64 = 60_000_000;

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Broken {
    pub promise: &'static str,
    pub how: String,
}

/// A lock that somebody was told of as theirs.
#[derive(Clone, Debug)]
struct Known {
    lock: Arc<Lock>,
    /// When it was last told of as held, and when that request was sent.
    told: u64,
    sent: u64,
    /// The first moment at which its end was asked for by anybody who may.
    end_asked: Option<u64>,
    /// The moment at which its release was acknowledged.
    end_told: Option<u64>,
    /// The holder believes that it holds it until then.
    believed_until: u64,
}

/// One acquisition, as its client sees it.
#[derive(Clone, Debug)]
struct Ask {
    session: SessionId,
    wants: Vec<Want>,
    sent: u64,
    /// When it was told for certain that nothing is held by it.
    refused: Option<u64>,
    granted: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    waiting: Waiting,
    at: u64,
}

/// A grant, for those who ask about the order.
#[derive(Clone, Debug)]
struct Granted {
    session: SessionId,
    wants: Vec<Want>,
    priority: u8,
    sent: u64,
    acquired: u64,
    /// The session held something of the kind already, or waited for other things.
    entangled: bool,
}

#[derive(Debug)]
pub(crate) struct Auditor {
    kind: Kind,
    quota: u32,
    known: BTreeMap<Token, Known>,
    asks: Vec<Ask>,
    ends: Vec<EndAsked>,
    /// When tokens were told, in that order, with the greatest so far.
    tokens: Vec<(u64, Token)>,
    seen_waiting: Vec<Seen>,
    grants: Vec<Granted>,
    /// Sessions whose end was asked for, and never answered.
    closing: HashSet<SessionId>,
    /// What counts toward the quota: when, and the first token of each grant.
    fresh: HashMap<SessionId, Vec<(u64, Token)>>,
    /// Ports that somebody was told of as theirs; `true`: their end was asked for since.
    ports: Vec<(Arc<Ports>, bool)>,
    /// How old a release that was told may be, and still be lost with the power.
    unsynced: u64,
    /// When the power went: releases that were told before may have come back.
    power_lost: Vec<u64>,
    broken: Vec<Broken>,
    hash: DefaultHasher,
    trace: Option<Vec<String>>,
}

impl Auditor {
    pub(crate) fn new(weather: &Weather, traced: bool) -> Auditor {
        // A disk that fails is found out within a second of the sync that it failed, which may be the one a release rides on.
        let rides = if weather.sync_fails > 0 { RELEASE_RIDES } else { 0 };
        let unsynced = SLACK + rides + if weather.sync > SYNC_QUICK { weather.sync * 1000 } else { 0 };
        Auditor {
            kind: weather.kind,
            quota: weather.quota,
            unsynced,
            known: BTreeMap::new(),
            asks: Vec::new(),
            ends: Vec::new(),
            tokens: Vec::new(),
            seen_waiting: Vec::new(),
            grants: Vec::new(),
            closing: HashSet::new(),
            fresh: HashMap::new(),
            ports: Vec::new(),
            power_lost: Vec::new(),
            broken: Vec::new(),
            hash: DefaultHasher::new(),
            trace: traced.then(Vec::new),
        }
    }

    pub(crate) fn broken(&self) -> &[Broken] {
        &self.broken
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Two runs of one seed have the same.
    pub(crate) fn trace_hash(&self) -> u64 {
        self.hash.finish()
    }

    /// Notes something that happened, for the hash and for whoever reads the trace.
    pub(crate) fn note(&mut self, now: u64, who: usize, facts: impl Hash, text: impl FnOnce() -> String) {
        (now, who).hash(&mut self.hash);
        facts.hash(&mut self.hash);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} {who:>3} {}", now as f64 / 1000.0, text()));
        }
    }

    pub(crate) fn breaks(&mut self, promise: &'static str, how: impl FnOnce() -> String) {
        if self.broken.len() < 10 {
            let how = how();
            if let Some(trace) = &mut self.trace {
                trace.push(format!("BROKEN {promise}: {how}"));
            }
            self.broken.push(Broken { promise, how });
        }
    }

    fn keeps_everything(&self) -> bool {
        self.kind != Kind::Forgetful
    }

    // What clients send.

    /// An acquisition is on its way; the number names it.
    pub(crate) fn asks(&mut self, now: u64, session: &SessionId, wants: &[Want]) -> usize {
        self.asks.push(Ask {
            session: session.clone(),
            wants: wants.to_vec(),
            sent: now,
            refused: None,
            granted: false,
        });
        self.asks.len() - 1
    }

    /// It was told that it holds nothing by it.
    pub(crate) fn refused(&mut self, now: u64, ask: usize) {
        self.asks[ask].refused = Some(now);
    }

    /// It was told what stands in the way: that must be something, and must really be in the way.
    pub(crate) fn busy(&mut self, asked: &Acquire, busy: &Busy) {
        let session = &asked.actor.session;
        let real = |conflict: &Conflict| {
            let wants = |mode: Mode, target: &Target| {
                let meets = |want: &Want| want.target == conflict.wanted && want.mode.conflicts(mode);
                target.overlaps(&conflict.wanted) && asked.wants.iter().any(meets)
            };
            *conflict.with.session() != *session
                && match &conflict.with {
                    Blocker::Held(lock) => wants(lock.mode, &lock.target),
                    Blocker::Waiting { waiter, .. } => {
                        waiter.asked.wants.iter().any(|theirs| wants(theirs.mode, &theirs.target))
                    }
                    Blocker::Room(_) => true,
                }
        };
        // Who waited until the end may find the way free at that very moment.
        let nothing = busy.conflicts.is_empty() && busy.reason != BusyReason::TimedOut;
        if nothing || !busy.conflicts.iter().all(real) {
            self.breaks("refusal", || format!("{session} was refused {:?} because of {busy:?}", asked.wants));
        }
    }

    /// It was told that its feature is paused: somebody else must have done that.
    pub(crate) fn paused(&mut self, asked: &Acquire, by: &Lock) {
        if by.session == asked.actor.session || !pauses(by, asked.feature.as_ref()) {
            self.breaks("refusal", || format!("{asked:?} was refused because of {by:?}"));
        }
    }

    /// Somebody who may asks for the end of locks: whatever comes back, they may be gone from here on. The number
    /// names the asking.
    pub(crate) fn end_asked(&mut self, now: u64, ends: Ends) -> usize {
        for known in self.known.values_mut().filter(|known| ends.ends(&known.lock)) {
            known.end_asked.get_or_insert(now);
            known.believed_until = known.believed_until.min(now);
        }
        self.ends.push(EndAsked { ends, from: now, until: now + LATE_MAX });
        self.ends.len() - 1
    }

    /// The answer has come: nothing ends by it any more.
    pub(crate) fn end_answered(&mut self, now: u64, asked: usize) {
        self.ends[asked].until = now;
    }

    /// A holder gave up: from here on it believes nothing of them.
    pub(crate) fn disbelieves(&mut self, now: u64, which: impl Fn(&Lock) -> bool) {
        for known in self.known.values_mut().filter(|known| which(&known.lock)) {
            known.believed_until = known.believed_until.min(now);
        }
    }

    pub(crate) fn power_lost(&mut self, now: u64) {
        self.power_lost.push(now);
    }

    // What clients are told.

    /// Told that a set is held: all of it must be, by nobody else, under tokens that rise. `first_sent`: when the same
    /// request was sent for the first time.
    pub(crate) fn granted(
        &mut self,
        now: u64,
        ask: usize,
        first_sent: u64,
        (locks, fresh): (&[Arc<Lock>], usize),
        priority: u8,
    ) {
        let Ask { session, wants, sent, .. } = self.asks[ask].clone();
        for want in &wants {
            let has = |lock: &&Arc<Lock>| {
                lock.target == want.target && (lock.mode == want.mode || lock.mode == Mode::Exclusive)
            };
            if !locks.iter().any(|lock| has(&lock)) {
                self.breaks("P9", || format!("{session} asked for {want:?} and was granted {locks:?}"));
            }
        }
        self.asks[ask].granted = true;
        let touches = |target: &Target| wants.iter().any(|want| want.target.overlaps(target));
        let holds = |known: &Known| known.lock.session == session && touches(&known.lock.target);
        let may_hold = |ask: &Ask| {
            let open = !ask.granted && ask.refused.is_none() && ask.session == session;
            open && ask.wants.iter().any(|want| touches(&want.target))
        };
        let entangled = self.known.values().any(holds) || self.asks.iter().any(may_hold);
        for lock in locks {
            if lock.session != session {
                self.breaks("P5", || format!("{session} was granted a lock of {}", lock.session));
            }
        }
        for lock in &locks[..fresh.min(locks.len())] {
            self.check_token(first_sent, now, lock);
            self.check_expiry(lock);
        }
        if let Some(first) = locks.first().filter(|_| fresh > 0) {
            let acquired = first.acquired.0;
            self.count(&session, first);
            self.check_order(sent, &session, &wants, acquired);
            self.grants.push(Granted { session, wants, priority, sent: first_sent, acquired, entangled });
        }
    }

    /// Told that a restore brought these back: grants like any other, and all together one for the quota. Nothing more comes
    /// of the asking.
    pub(crate) fn restored(&mut self, now: u64, ask: usize, locks: &[Arc<Lock>]) {
        let Ask { session, sent, .. } = self.asks[ask].clone();
        self.refused(now, ask);
        for lock in locks {
            if lock.session != session {
                self.breaks("P5", || format!("{session} was given back a lock of {}", lock.session));
            }
            self.check_token(sent, now, lock);
            self.check_expiry(lock);
            self.knows(now, sent, lock);
        }
        if let Some(first) = locks.first() {
            self.count(&session, first);
        }
    }

    /// The holder believes from now on, and until then, that it holds this.
    pub(crate) fn believes(&mut self, now: u64, sent: u64, until: u64, lock: &Arc<Lock>) {
        self.knows(now, sent, lock);
        // What an operator took away meanwhile, the holder will hear of; nobody promised it sooner.
        if now >= until || self.known.get(&lock.token).is_some_and(|known| known.end_asked.is_some()) {
            return;
        }
        if self.keeps_everything() {
            let other = self.known.values().find(|known| {
                known.lock.session != lock.session
                    && known.told <= now
                    && now < known.believed_until
                    && known.lock.mode.conflicts(lock.mode)
                    && known.lock.target.overlaps(&lock.target)
            });
            if let Some(other) = other {
                let how = format!("{} believes in {:?} while {lock:?} is held", other.lock.session, other.lock);
                self.breaks("P1", || how);
            }
        }
        let known = self.known.get_mut(&lock.token).expect("known now");
        if known.lock.expires < lock.expires {
            known.lock = lock.clone();
        }
        known.sent = known.sent.max(sent);
        known.told = known.told.max(now);
        known.believed_until = known.believed_until.max(until);
    }

    /// A holder heard of a lock that it has not taken for its own: it exists, but nobody acts on it.
    pub(crate) fn knows(&mut self, now: u64, sent: u64, lock: &Arc<Lock>) {
        if self.known.contains_key(&lock.token) {
            return;
        }
        // Its end may have been asked for before it was told of.
        let granted = lock.acquired.0 - BEGIN;
        let ended = self.ends.iter().find(|end| end.ends.ends(lock) && end.until >= granted && end.from <= now);
        let end_asked = ended.map(|end| end.from.max(granted));
        let known = Known { lock: lock.clone(), told: now, sent, end_asked, end_told: None, believed_until: 0 };
        self.known.insert(lock.token, known);
    }

    /// A later grant has a greater token; and no two locks have one.
    fn check_token(&mut self, sent: u64, now: u64, lock: &Arc<Lock>) {
        if let Some(known) = self.known.get(&lock.token) {
            if known.lock.id != lock.id || known.lock.session != lock.session || known.lock.target != lock.target {
                let other = known.lock.clone();
                self.breaks("P2", || format!("{other:?} and {lock:?} have one token"));
            }
            return;
        }
        let before = self.tokens.partition_point(|(told, _)| *told < sent);
        if let Some((told, greatest)) = before.checked_sub(1).map(|last| self.tokens[last])
            && lock.token <= greatest
        {
            self.breaks("P2", || format!("{lock:?} was asked for at {sent}, and {greatest} told at {told}"));
        }
        let greatest = self.tokens.last().map_or(lock.token, |(_, greatest)| (*greatest).max(lock.token));
        self.tokens.push((now, greatest));
    }

    /// By the engine's own times, two locks that exclude each other never lived at once, and nothing was granted for a feature
    /// while it was paused.
    fn check_expiry(&mut self, lock: &Arc<Lock>) {
        if !self.keeps_everything() {
            return;
        }
        let excludes = |known: &Lock| known.mode.conflicts(lock.mode) && known.target.overlaps(&lock.target);
        let early = self.known.values().find(|known| {
            known.lock.session != lock.session
                && known.end_asked.is_none()
                && (excludes(&known.lock) || pauses(&known.lock, lock.feature.as_ref()))
                && (known.lock.acquired, known.lock.token) < (lock.acquired, lock.token)
                && lock.acquired < known.lock.expires
        });
        if let Some(early) = early {
            let how = format!("{lock:?} was granted before {:?} had expired", early.lock);
            let promise = if excludes(&early.lock) { "P4" } else { "pause" };
            self.breaks(promise, || how);
        }
    }

    /// A set counts once. Two that were waited for may be granted at one moment, and count twice.
    fn count(&mut self, session: &SessionId, first: &Lock) {
        if self.quota == 0 || !self.keeps_everything() || self.closing.contains(session) {
            return;
        }
        let times = self.fresh.entry(session.clone()).or_default();
        let at = first.acquired.0;
        if !times.contains(&(at, first.token)) {
            times.push((at, first.token));
            let lately = times.iter().filter(|(time, _)| *time + 60_000_000 > at && *time <= at).count();
            if lately > self.quota as usize {
                self.breaks("quota", || format!("{session} was granted {lately} within the window"));
            }
        }
    }

    pub(crate) fn forget_quota(&mut self, session: &SessionId) {
        self.fresh.remove(session);
    }

    /// Nobody knows whether a session was closed, or when it will be: then its quota begins anew.
    pub(crate) fn may_be_closed_yet(&mut self, session: &SessionId) {
        self.closing.insert(session.clone());
    }

    pub(crate) fn ports_end_asked(&mut self, session: &SessionId) {
        for (ports, ended) in &mut self.ports {
            *ended |= ports.session == *session;
        }
    }

    /// By the engine's own times, no two sessions had the same ports at once.
    pub(crate) fn has_ports(&mut self, ports: &Arc<Ports>) {
        let both = |(other, ended): &&(Arc<Ports>, bool)| {
            let first = other.allocated <= ports.allocated && ports.allocated < other.expires && !ended;
            other.session != ports.session && other.base == ports.base && first
        };
        if let Some((other, _)) = self.ports.iter().find(both).filter(|_| self.keeps_everything()).cloned() {
            self.breaks("ports", || format!("{other:?} and {ports:?}"));
        }
        self.ports.push((ports.clone(), false));
    }

    /// The owner was told that something it held is gone.
    pub(crate) fn told_lost(&mut self, now: u64, session: &SessionId, which: impl Fn(&Lock) -> bool) {
        if !self.keeps_everything() {
            return;
        }
        let early = self.known.values().find(|known| {
            known.lock.session == *session
                && known.end_asked.is_none()
                && which(&known.lock)
                && now < known.sent + known.lock.ttl.0 * 1000
        });
        if let Some(early) = early {
            let how = format!("{session} was told at {now} that it lost {:?}, renewed at {}", early.lock, early.sent);
            self.breaks("P6", || how);
        }
    }

    /// Nobody who may has asked for its end, or for another in its place.
    pub(crate) fn should_last(&self, lock: &Lock) -> bool {
        let wants = |ask: &&Ask| ask.wants.iter().any(|want| want.target == lock.target);
        let open = self.asks.iter().filter(|ask| ask.session == lock.session && !ask.granted && ask.refused.is_none());
        self.known.get(&lock.token).is_some_and(|known| known.end_asked.is_none())
            && !open.into_iter().any(|ask| wants(&ask))
    }

    /// The owner was told what was released.
    pub(crate) fn released(&mut self, now: u64, session: &SessionId, locks: &[Arc<Lock>]) {
        for lock in locks {
            if lock.session != *session {
                self.breaks("P5", || format!("{session} released {lock:?}"));
            }
            if let Some(known) = self.known.get_mut(&lock.token) {
                known.end_told.get_or_insert(now);
            }
        }
    }

    /// Nobody who came later, with no more priority, was served earlier.
    fn check_order(&mut self, sent: u64, session: &SessionId, wants: &[Want], acquired: u64) {
        if !self.keeps_everything() {
            return;
        }
        let same = |waiting: &Waiting| waiting.session == *session && waiting.wants == *wants;
        // Seen since it asked, at a place that it took since then: an earlier one, which it had given up, may be seen for a while yet.
        let of_this = |seen: &&Seen| same(&seen.waiting) && seen.at > sent && seen.waiting.queued.0 >= BEGIN + sent;
        let Some(seen) = self.seen_waiting.iter().find(of_this) else { return };
        // Whoever is paused is passed over, and who paused may never have heard of it.
        let feature = seen.waiting.feature.as_deref();
        let pauses = |want: &Want| {
            want.mode == Mode::Exclusive && feature.is_some() && want.target.key.paused_feature() == feature
        };
        if self.asks.iter().any(|ask| ask.session != *session && ask.wants.iter().any(pauses)) {
            return;
        }
        // Pauses come before finishes.
        let goes_first = |a: &Want, b: &Want| a.target.key.paused_feature().is_some() && b.mode == Mode::Shared;
        let meets = |a: &Want, b: &Want| a.mode.conflicts(b.mode) && a.target.overlaps(&b.target) && !goes_first(a, b);
        let overlap = |theirs: &[Want]| theirs.iter().any(|a| wants.iter().any(|b| meets(a, b)));
        // Who waits already overtakes nobody with the next, but nobody who came later and asks with the least overtakes that.
        let priority = seen.waiting.priority.max(PRIORITY_LEAST);
        let overtaken = self.grants.iter().find(|grant| {
            grant.session != *session
                && !grant.entangled
                && grant.sent > seen.at
                && grant.acquired < acquired
                && grant.priority <= priority
                && overlap(&grant.wants)
        });
        if let Some(grant) = overtaken {
            let how = format!("{session} was seen waiting at {} for {wants:?}, and {grant:?} came first", seen.at);
            self.breaks("P11", || how);
        }
    }

    /// At the end, everything must be free again.
    pub(crate) fn not_free(&mut self, target: &Target, why: &str) {
        self.breaks("P8", || format!("{target:?} is not free though everybody is gone: {why}"));
    }

    /// A lock of a session that was last heard long before it was granted.
    pub(crate) fn heard(&mut self, look: &Look, last_heard: impl Fn(&SessionId) -> Option<u64>, alive: u64) {
        for lock in &look.locks {
            let Some(heard) = last_heard(&lock.session) else { continue };
            if lock.acquired.0 > BEGIN + heard + alive + SLACK {
                self.breaks("P10", || format!("{lock:?} was granted to a session last heard at {heard}"));
            }
        }
    }
}

/// Whether whoever has this keeps others from what they ask for a feature.
fn pauses(lock: &Lock, feature: Option<&FeatureId>) -> bool {
    lock.mode == Mode::Exclusive && feature.is_some_and(|feature| lock.target.key.paused_feature() == Some(feature))
}
