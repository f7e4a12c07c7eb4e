//! What is told: grants, and refusals that say why. A refusal is a value, never an error of the program.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::feature::{Feasibility, Feature, FeatureEnd, SharedClaim};
use crate::key::{Key, Target};
use crate::limits;
use crate::lock::{FeatureId, Lock, LockId, WaiterId};
use crate::ports::Ports;
use crate::session::{AgentName, RequestId, SessionId};
use crate::span::Span;
use crate::time::{Millis, Time};
use crate::waiter::Waiter;

/// What a decision came to, before its events have their stamp.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Nothing in it depends on the stamp.
    Told(Answer),
    /// The first `fresh` of the locks are new, the others were held already.
    Granted {
        locks: Vec<LockId>,
        fresh: usize,
    },
    /// In the queue; the answer follows with the grant, or when the wait is over.
    Queued(WaiterId),
    Renewed {
        session: SessionId,
        locks: Vec<LockId>,
        /// All that the session has.
        everything: bool,
    },
    Opened {
        session: SessionId,
        restored: Vec<LockId>,
        refreshed: Vec<LockId>,
        skipped: Vec<Skipped>,
    },
    RoomOpened {
        key: Key,
        present: Vec<Arc<Lock>>,
    },
    PortsAllocated(SessionId),
    /// The same request was answered before.
    Replayed(SessionId, RequestId),
    /// Nobody asked.
    Nothing,
}

/// What a client is told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The first `fresh` of the locks are new, the others were held already.
    Granted {
        locks: Vec<Arc<Lock>>,
        fresh: usize,
    },
    Released {
        locks: Vec<Arc<Lock>>,
    },
    /// What is held from now on, and what was lost and neither given back nor restored.
    Renewed {
        locks: Vec<Arc<Lock>>,
        lost: Vec<Target>,
        /// By which others pause the features of what is held.
        paused: Vec<Arc<Lock>>,
    },
    ForceReleased {
        locks: Vec<Arc<Lock>>,
    },
    Opened {
        session: SessionId,
        restored: Vec<Arc<Lock>>,
        refreshed: Vec<Arc<Lock>>,
        skipped: Vec<Skipped>,
    },
    Closed {
        session: SessionId,
        released: Vec<Arc<Lock>>,
    },
    /// The room, and whose locks are in it.
    RoomOpened {
        room: Room,
        present: Vec<Arc<Lock>>,
    },
    RoomClosed {
        key: Key,
    },
    FeatureRegistered {
        feature: Arc<Feature>,
        feasibility: Feasibility,
        shared: Vec<SharedClaim>,
    },
    FeatureEnded {
        feature: Arc<Feature>,
        end: FeatureEnd,
    },
    PortsAllocated {
        ports: Arc<Ports>,
    },
    /// `None`: there were none.
    PortsReleased {
        ports: Option<Arc<Ports>>,
    },
    Beaten,
    Withdrawn,
    Refused(Refusal),
}

/// Something that a session lost and did not get back.
#[derive(Clone, Debug)]
pub struct Skipped {
    pub target: Target,
    pub why: Skip,
}

/// Why something that was lost was not given back.
#[derive(Clone, Debug)]
pub enum Skip {
    Refused(Box<Refusal>),
    /// An operator or a client outside of Lockkeeper took it away, with what was noted then: it is not asked for again.
    Taken {
        note: Option<Arc<str>>,
    },
}

/// A file that a person is editing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    pub number: u64,
    pub key: Key,
    pub session: SessionId,
    pub agent: AgentName,
    pub opened: Time,
    pub until: Time,
}

impl Room {
    /// The room's id: the same for everybody who asks about the same file.
    pub fn id(key: &Key) -> String {
        blake3::hash(key.as_str().as_bytes()).to_hex()[..16].to_owned()
    }
}

/// Why not. Nothing was changed, but that a loss which was told of is not restored.
#[derive(Clone, Debug)]
pub enum Refusal {
    Busy(Busy),
    Deadlock {
        cycle: Vec<CycleStep>,
    },
    RequestMismatch,
    /// It was the session's, and is no more.
    LockLost {
        targets: Vec<Target>,
    },
    NotOwner {
        lock: Arc<Lock>,
    },
    /// The room is another's.
    NotInRoom {
        room: Room,
    },
    NotFound {
        what: NotFound,
    },
    RateLimited {
        limit: u32,
        window: Millis,
        retry_after: Millis,
    },
    /// The credential is bound to another agent than the session.
    ForeignSession {
        session: SessionId,
        agent: AgentName,
    },
    LimitExceeded {
        what: Limit,
    },
    /// The feature that it is for is paused.
    Paused {
        by: Arc<Lock>,
    },
    /// The feature is another agent's.
    ForeignFeature {
        feature: Arc<Feature>,
    },
    NoPorts {
        used: usize,
        sessions: u16,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    Lock(LockId),
    /// Nobody holds this.
    Key(Key, Option<Span>),
    Session(SessionId),
    Room(Key),
    Feature(FeatureId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Set,
    Locks,
    LocksPerSession,
    Sessions,
    Waiters,
    Awaited,
    WaitersPerSession,
    AwaitedPerSession,
    Rooms,
    Features,
    Claims,
    /// Of a lock that keeps a pause away.
    FinishSeconds,
}

impl Limit {
    pub const fn number(self) -> usize {
        match self {
            Limit::Set => limits::SET_MAX,
            Limit::Locks => limits::LOCKS_MAX,
            Limit::LocksPerSession => limits::LOCKS_PER_SESSION_MAX,
            Limit::Sessions => limits::SESSIONS_MAX,
            Limit::Waiters => limits::WAITERS_MAX,
            Limit::Awaited => limits::AWAITED_MAX,
            Limit::WaitersPerSession => limits::WAITERS_PER_SESSION_MAX,
            Limit::AwaitedPerSession => limits::AWAITED_PER_SESSION_MAX,
            Limit::Rooms => limits::ROOMS_MAX,
            Limit::Features => limits::FEATURES_MAX,
            Limit::Claims => limits::CLAIMS_MAX,
            Limit::FinishSeconds => (limits::FINALIZE_TTL.0 / 1000) as usize,
        }
    }

    pub const fn what(self) -> &'static str {
        match self {
            Limit::Set => "keys in one call",
            Limit::Locks => "locks in one space",
            Limit::LocksPerSession => "locks of one session",
            Limit::Sessions => "sessions in one space",
            Limit::Waiters => "waiting acquisitions in one space",
            Limit::Awaited => "keys that are waited for in one space",
            Limit::WaitersPerSession => "waiting acquisitions of one session",
            Limit::AwaitedPerSession => "keys that one session waits for",
            Limit::Rooms => "open rooms in one space",
            Limit::Features => "features in one space",
            Limit::Claims => "claims of one feature",
            Limit::FinishSeconds => "seconds to finish, in which a feature can't be paused",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Busy {
    pub reason: BusyReason,
    /// The first few of what stands in the way.
    pub conflicts: Vec<Conflict>,
    /// There are more than are shown.
    pub more: bool,
    /// Lines of the wanted file, as many as were asked for, that are free.
    pub free: Vec<Span>,
    /// How many in the queue come before, or would.
    pub ahead: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyReason {
    Contended,
    TimedOut,
    RoomBusy,
}

/// Something that stands in the way of something wanted.
#[derive(Clone, Debug)]
pub struct Conflict {
    pub wanted: Target,
    pub with: Blocker,
}

#[derive(Clone, Debug)]
pub enum Blocker {
    Held(Arc<Lock>),
    /// Somebody who asked earlier and waits.
    Waiting {
        waiter: Arc<Waiter>,
        target: Target,
    },
    Room(Room),
}

impl Blocker {
    pub fn session(&self) -> &SessionId {
        match self {
            Blocker::Held(lock) => &lock.session,
            Blocker::Waiting { waiter, .. } => &waiter.asked.session,
            Blocker::Room(room) => &room.session,
        }
    }

    pub fn agent(&self) -> &AgentName {
        match self {
            Blocker::Held(lock) => &lock.agent,
            Blocker::Waiting { waiter, .. } => &waiter.asked.agent,
            Blocker::Room(room) => &room.agent,
        }
    }
}

/// One step of a cycle: `session` waits for `wanted`, which stands with `blocker`: the session of the next step, unless some
/// are left out in between. It is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleStep {
    pub session: SessionId,
    pub agent: AgentName,
    pub wanted: Target,
    pub blocker: SessionId,
}
