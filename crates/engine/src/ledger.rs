//! The trait that every engine implements, and the words it answers with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::space::Space;
use lockkeeper_core::time::{Millis, Stamp};
use tokio::sync::watch;

use crate::BoxFuture;
use crate::position::Position;

/// A name that the writer gives to a batch, so that it can recognise it after an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchId(pub u128);

/// What a keeper wants recorded in one piece: all of it or nothing.
#[derive(Clone, Debug)]
pub struct Batch {
    pub id: BatchId,
    pub payload: Vec<u8>,
    /// The batch only frees things, and may use the room that is kept back for when the disk is full.
    pub frees: bool,
    /// Somebody waits until it is durable: it is synced at once, and not within the next moments.
    pub awaited: bool,
    /// What changes in what is shown outside of the ledger, in the same step. Empty unless [`Ledger::shows`].
    pub shown: Vec<Shown>,
    /// What people may look at beside the ledger, changed in the same step. Empty unless [`Ledger::posts`].
    pub posted: Vec<Posted>,
}

/// A document that people find beside the ledger changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub id: String,
    pub change: Posting,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posting {
    /// It is there from the stamp of the batch on, and counts for so long. `place`: how many grants of the batch came before;
    /// the number of a grant is at least the stamp and its place.
    Granted {
        document: String,
        fencing_token: u64,
        place: u64,
        left: Millis,
    },
    /// It counts for so long from the stamp of the batch on; with a document, it says something else from now on.
    Lasts {
        document: Option<String>,
        left: Millis,
    },
    Gone,
}

/// A name outside of the ledger, by which clients that know nothing of ledgers see that something is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub name: String,
    /// How much longer it is taken; `None`: no longer. What somebody outside has can't be taken, and then nothing is
    /// recorded.
    pub left: Option<Millis>,
}

/// A name that somebody outside has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    pub name: String,
    /// How much longer; `None`: for ever.
    pub left: Option<Millis>,
}

/// A batch as the ledger holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The place right after this batch.
    pub position: Position,
    pub batch: BatchId,
    pub stamp: Stamp,
    pub payload: Vec<u8>,
}

/// What a reader missed.
#[derive(Clone, Debug)]
pub struct Delta {
    pub base: Base,
    /// In order, each the successor of the one before, the first that of the base.
    pub records: Vec<Record>,
}

/// What the records of a delta build on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// On what the reader already has.
    Asked,
    /// On this snapshot. The reader's own past was a part of it, or the reader asked from the origin.
    Snapshot { position: Position, snapshot: Vec<u8> },
    /// On nothing, or on this snapshot; and the reader's past is no part of this ledger: what it knew is void.
    Rewritten { snapshot: Option<(Position, Vec<u8>)>, position: Position },
}

/// The answer to an append.
#[derive(Debug)]
pub enum Append {
    Appended(Appended),
    /// Nothing was recorded: the ledger is further on than `expected`. Here is what was missed.
    Moved(Delta),
    /// Nothing was recorded: somebody outside has taken these names.
    Taken(Vec<Outside>),
    /// Nothing was recorded: no room is left for batches that take something.
    Full,
    /// May have been recorded: read, and look for the batch id.
    Unknown(EngineError),
    /// Nothing was recorded. The engine can't be reached, or has stopped itself.
    Down(EngineError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub position: Position,
    pub stamp: Stamp,
    /// Already safe from power loss. If not, [`Ledger::durable`] tells when.
    pub durable: bool,
}

/// The answer to "is this still the end of the ledger?".
#[derive(Debug)]
pub enum Confirm {
    Current,
    Moved(Delta),
    Down(EngineError),
}

/// How far a ledger is safe from power loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Everything up to this revision.
    Up(u64),
    /// A sync failed. What was not durable before may be lost; the engine takes nothing more.
    Failed(EngineError),
}

/// How much a grant of this engine is worth (P14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// Survives kill -9 and power loss of the one machine that orders everything.
    Strict,
    /// Survives the loss of a minority of machines.
    Quorum,
    /// Goes on during a partition; overlaps are found and one side is told.
    Available,
    /// May be lost with the process or with the last moments before a power loss.
    BestEffort,
}

impl Strength {
    pub const fn word(self) -> &'static str {
        match self {
            Strength::Strict => "strict",
            Strength::Quorum => "quorum",
            Strength::Available => "available",
            Strength::BestEffort => "best_effort",
        }
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A failure of the engine, never a refusal. Says what changed; carries no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Nothing was changed. Another process owns this directory.
    #[error("{place} is in use by another service{}", holder.as_ref().map(|pid| format!(" (pid {pid}; `kill {pid}` ends it, and no lock is lost by that)")).unwrap_or_default())]
    InUse { place: String, holder: Option<u32> },
    /// Nothing was changed. What is stored can't be trusted, and going on would lose acknowledged locks.
    #[error("{place} is damaged: {details}")]
    Corrupt { place: String, details: String },
    /// Nothing was changed. The engine can't be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The engine has stopped itself after a failed sync; it must be opened again.
    #[error("stopped: {0}")]
    Stopped(String),
    /// Nothing was changed. The engine's URL or settings make no sense.
    #[error("{0}")]
    Invalid(String),
}

/// One ordered ledger. Cheap calls from many tasks; `append` is called by one writer at a time.
pub trait Ledger: Send + Sync + fmt::Debug {
    /// A lower bound of the engine's time, never less than the last stamp.
    fn now(&self) -> Stamp;

    /// What came after a place; from [`Position::ORIGIN`] everything that is kept.
    fn read(&self, after: Position) -> BoxFuture<'_, Result<Delta, EngineError>>;

    /// Records the batch if `expected` is still the end. An engine without a clock of its own stamps it with
    /// `proposed`, unless that lies before its last stamp.
    fn append(&self, expected: Position, proposed: Stamp, batch: Batch) -> BoxFuture<'_, Append>;

    /// Whether `expected` is still the end: asked before an answer that wrote nothing.
    fn confirm(&self, expected: Position) -> BoxFuture<'_, Confirm>;

    /// Takes a snapshot that stands for everything up to `at`, and forgets what it replaces. Serves meanwhile.
    fn compact(&self, at: Position, snapshot: Vec<u8>) -> BoxFuture<'_, Result<(), EngineError>>;

    /// How far the ledger is durable; changes as syncs finish.
    fn durable(&self) -> watch::Receiver<Durable>;

    /// The last revision that the engine has heard of, from whatever writer; changes when it moves.
    fn moved(&self) -> watch::Receiver<u64>;

    /// Payload bytes behind the last snapshot, so that the keeper knows when a new one pays.
    fn bytes_since_snapshot(&self) -> u64;

    fn strength(&self) -> Strength;

    /// How long one small question may take, at most; `None`: as long as it takes.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    /// Whether what is taken is shown outside of the ledger, and what others take there is respected.
    fn shows(&self) -> bool {
        false
    }

    /// Whether documents are kept beside the ledger, for people.
    fn posts(&self) -> bool {
        false
    }

    /// Which of these names somebody outside has taken.
    fn look_outside(&self, names: Vec<String>) -> BoxFuture<'_, Result<Vec<Outside>, EngineError>> {
        let _ = names;
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Whether somebody else may write to it: another process, another machine.
    fn has_other_writers(&self) -> bool {
        true
    }
}

/// A store of ledgers, one for each space.
pub trait Engine: Send + Sync + fmt::Debug {
    /// The scheme of its URL, such as `file`.
    fn scheme(&self) -> &'static str;

    /// Whether a ledger that is opened takes room before anything is recorded in it.
    fn opening_takes_room(&self) -> bool {
        false
    }

    /// Where it keeps things, without any secret.
    fn place(&self) -> String;

    /// Opens the ledger of a space, and makes it when there is none.
    fn open<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<Arc<dyn Ledger>, EngineError>>;

    /// The spaces that have a ledger here.
    fn spaces(&self) -> BoxFuture<'_, Result<Vec<Space>, EngineError>>;

    /// Forgets a space and all that is kept of it, for whoever made it for a while: nobody else may use it.
    fn remove<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<(), EngineError>> {
        let why = format!("{} is not removed: its engine keeps spaces for good", space.as_str());
        Box::pin(async { Err(EngineError::Invalid(why)) })
    }
}
