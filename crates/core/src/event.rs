//! What happened: the entries of the ledger.
//!
//! They are stored. New variants go to the end, and the fields of a variant never change their order or type: a test in
//! the keeper (`payload.rs`) holds the bytes.

use serde::{Deserialize, Serialize};

use crate::command::{Request, Want};
use crate::feature::{Feature, FeatureEnd};
use crate::key::{Key, Target};
use crate::lock::{FeatureId, Lock, LockId, Token, WaiterId};
use crate::mode::Mode;
use crate::outcome::CycleStep;
use crate::session::{AgentName, Intention, SessionId};
use crate::time::Millis;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    Granted(Grant),
    Renewed {
        session: SessionId,
        locks: Vec<LockId>,
        ttl: Option<Millis>,
    },
    Released {
        session: SessionId,
        locks: Vec<LockId>,
        request: Option<Request>,
    },
    Expired {
        locks: Vec<LockId>,
    },
    Forced {
        locks: Vec<LockId>,
        by: AgentName,
        reason: Intention,
        request: Option<(SessionId, Request)>,
    },
    Queued(Enqueued),
    Withdrawn {
        waiter: WaiterId,
        why: Withdrawal,
    },
    Beaten {
        sessions: Vec<SessionId>,
        waiters: Vec<WaiterId>,
    },
    SessionOpened {
        session: SessionId,
        agent: AgentName,
        agent_type: Option<AgentName>,
    },
    /// Its locks, its places in the queue, its history and its quota go with it.
    SessionClosed {
        session: SessionId,
    },
    /// Idle sessions that nobody will miss, to make room.
    SessionsForgotten {
        sessions: Vec<SessionId>,
    },
    /// What the session lost and does not want back.
    LossAccepted {
        session: SessionId,
        targets: Vec<Target>,
    },
    RoomOpened {
        key: Key,
        session: SessionId,
        agent: AgentName,
        busy: Millis,
    },
    RoomClosed {
        key: Key,
        by: Option<SessionId>,
    },
    /// Locks that a past of this ledger knew which is no part of it any more, and how far its tokens had come.
    Vanished {
        locks: Vec<Lock>,
        last_token: Token,
    },
    /// Granted, never heard of, and freed: the request that asked for them is forgotten, and can be made anew.
    GivenBack {
        session: SessionId,
        locks: Vec<LockId>,
    },
    /// Its time is that of the event.
    FeatureRegistered(Feature),
    FeatureEnded {
        feature: FeatureId,
        end: FeatureEnd,
    },
    PortsAllocated {
        session: SessionId,
        agent: AgentName,
        base: u16,
        ttl: Millis,
    },
    /// Given back, or not heard of for too long.
    PortsFreed {
        sessions: Vec<SessionId>,
    },
    /// A server says what it is set to.
    ServerSeen {
        server: String,
        settings: String,
    },
    /// It would wait for itself, because of what happened while it waited: it left the queue with nothing. A long circle is told in
    /// part.
    Deadlocked {
        waiter: WaiterId,
        cycle: Vec<CycleStep>,
    },
    /// What the session lost, wanted to give back, and does not want back; told again to the same request.
    LossTold {
        session: SessionId,
        targets: Vec<Target>,
        request: Request,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub session: SessionId,
    pub agent: AgentName,
    pub agent_type: Option<AgentName>,
    /// The place in the queue that this grant serves. What was said when it was joined is not said again: agent type,
    /// intention, feature and request are empty then.
    pub waiter: Option<WaiterId>,
    pub new: Vec<NewLock>,
    /// Own shared locks that a new exclusive one takes the place of.
    pub replaced: Vec<LockId>,
    /// Own locks that were asked for again.
    pub refreshed: Vec<LockId>,
    pub intention: Intention,
    pub ttl: Millis,
    pub feature: Option<FeatureId>,
    pub request: Option<Request>,
    /// How many grants of the session its quota has to remember; zero: not counted.
    pub quota_kept: u32,
}

impl Grant {
    /// All locks of the grant: the new ones, then those that were held already.
    pub fn locks(&self) -> impl Iterator<Item = LockId> {
        self.new.iter().map(|new| new.id).chain(self.refreshed.iter().copied())
    }

    /// With what the waiter said when it joined the queue.
    pub(crate) fn completed(&self, asked: &Enqueued) -> Grant {
        Grant {
            agent_type: asked.agent_type.clone(),
            intention: asked.intention.clone(),
            feature: asked.feature.clone(),
            request: asked.request.clone(),
            ..self.clone()
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLock {
    pub id: LockId,
    pub on: On,
}

/// What a new lock is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    Target(Target, Mode),
    /// What the waiter asked for at this place: said once, when it joined the queue.
    Wanted(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    pub waiter: WaiterId,
    pub session: SessionId,
    pub agent: AgentName,
    pub agent_type: Option<AgentName>,
    pub wants: Vec<Want>,
    pub intention: Intention,
    pub ttl: Millis,
    pub wait: Millis,
    pub priority: u8,
    pub feature: Option<FeatureId>,
    pub request: Option<Request>,
    pub quota_kept: u32,
}

/// Why a waiter left the queue with nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withdrawal {
    TimedOut,
    /// Its connection closed.
    Disconnected,
    /// Its session was not heard any more.
    SessionGone,
}

impl Withdrawal {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Withdrawal::TimedOut => "the wait was over",
            Withdrawal::Disconnected => "its connection closed",
            Withdrawal::SessionGone => "its session was not heard any more",
        }
    }
}
