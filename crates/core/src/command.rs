//! What may be asked of the rules. Checked by type: a command that exists is well formed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::feature::{Feature, FeatureEnd};
use crate::key::{Key, Target};
use crate::lock::{FeatureId, Lock, LockId, Token, WaiterId};
use crate::mode::Mode;
use crate::session::{AgentName, Intention, RequestId, SessionId};
use crate::span::Span;
use crate::time::Millis;
use crate::waiter::Place;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    pub session: SessionId,
    pub agent: AgentName,
    pub agent_type: Option<AgentName>,
    /// The credential speaks for this agent only: it may not use a session of another one.
    pub bound: bool,
}

/// One key of an acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Want {
    pub target: Target,
    pub mode: Mode,
}

/// A request's id with a digest of its body, so that the same id with another body is noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    pub digest: u64,
}

/// Which locks are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    Id(LockId),
    /// All own spans of a key, or the one that is named.
    Key(Key, Option<Span>),
    /// All that the session holds.
    Everything,
}

#[derive(Clone, Debug)]
pub struct Acquire {
    pub actor: Actor,
    /// Granted together or not at all.
    pub wants: Vec<Want>,
    pub intention: Intention,
    pub ttl: Millis,
    /// How long to stand in the queue; zero: not at all.
    pub wait: Millis,
    pub priority: u8,
    pub feature: Option<FeatureId>,
    pub request: Option<Request>,
    /// Part of a restore that is counted with another part of it: the quota does not matter.
    pub restores: bool,
}

#[derive(Clone, Debug)]
pub enum Command {
    Acquire(Acquire),
    Release {
        actor: Actor,
        which: Which,
        token: Option<Token>,
        request: Option<Request>,
    },
    Renew {
        actor: Actor,
        which: Which,
        ttl: Option<Millis>,
        token: Option<Token>,
    },
    ForceRelease {
        by: AgentName,
        reason: Intention,
        which: Which,
        request: Option<Request>,
    },
    OpenSession {
        actor: Actor,
    },
    RestoreSession {
        actor: Actor,
    },
    CloseSession {
        actor: Actor,
    },
    OpenRoom {
        actor: Actor,
        key: Key,
        busy: Millis,
    },
    CloseRoom {
        actor: Actor,
        key: Key,
    },
    /// Its time is that of the event.
    RegisterFeature {
        actor: Actor,
        feature: Feature,
    },
    EndFeature {
        actor: Actor,
        feature: FeatureId,
        end: FeatureEnd,
    },
    AllocatePorts {
        actor: Actor,
        /// Ports that something else uses where the session runs.
        taken: Vec<u16>,
    },
    ReleasePorts {
        actor: Actor,
    },
    /// Sessions that were heard, and waiters whose connection is open.
    Beat {
        sessions: Vec<SessionId>,
        waiters: Vec<WaiterId>,
    },
    /// Locks that a session was granted and never heard of: whoever asked is gone.
    GiveBack {
        session: SessionId,
        locks: Vec<LockId>,
        /// Although the session was heard since, and may have been told of them by another way.
        even_if_heard: bool,
    },
    /// The connections behind these places are gone.
    Withdraw {
        places: Vec<Place>,
    },
    /// The ledger was rewritten, and these locks went with its past: their holders are to be told.
    Mourn {
        locks: Vec<Arc<Lock>>,
        last_token: Token,
    },
    /// Files that somebody takes, or no longer takes, without asking here.
    SeeExternal {
        seen: Vec<External>,
    },
    /// A server says what it is set to.
    Announce {
        server: String,
        settings: String,
    },
    /// Nobody asks; time has passed.
    Sweep,
}

/// A file that somebody has taken without asking here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    pub key: Key,
    /// How much longer, as far as anybody can tell; `None`: no longer.
    pub left: Option<Millis>,
    /// They have set no end.
    pub endless: bool,
}
