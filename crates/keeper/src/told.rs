//! An answer on its way out. Knows nobody who hears it.

use std::sync::Arc;

use lockkeeper_core::lock::{Lock, LockId};
use lockkeeper_core::outcome::Answer;

/// The name of one question, for whoever waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An answer, and how safe its cause must be before it may be told.
#[derive(Debug)]
pub struct Told {
    pub ticket: Ticket,
    pub answer: Answer,
    /// The revision that must be durable first; zero: none.
    pub after: u64,
    /// A new grant that nobody else is told of: if this one does not hear it, nobody knows of it.
    pub alone: bool,
}

impl Told {
    /// The locks that it tells of besides those which nobody else tells of.
    pub(crate) fn names_besides(&self) -> Vec<LockId> {
        let ids = |locks: &[Arc<Lock>]| locks.iter().map(|lock| lock.id).collect();
        match &self.answer {
            Answer::Renewed { locks, .. } => ids(locks),
            Answer::Opened { restored, refreshed, .. } => {
                restored.iter().chain(refreshed).map(|lock| lock.id).collect()
            }
            Answer::Granted { locks, fresh } => ids(&locks[if self.alone { *fresh } else { 0 }..]),
            Answer::Released { .. }
            | Answer::ForceReleased { .. }
            | Answer::Closed { .. }
            | Answer::Beaten
            | Answer::RoomOpened { .. }
            | Answer::RoomClosed { .. }
            | Answer::FeatureRegistered { .. }
            | Answer::FeatureEnded { .. }
            | Answer::PortsAllocated { .. }
            | Answer::PortsReleased { .. }
            | Answer::Withdrawn
            | Answer::Refused(_) => Vec::new(),
        }
    }
}
