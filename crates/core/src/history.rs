//! What happened to locks, for people: a bounded fold of the same events.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::Target;
use crate::limits::HISTORY_MAX;
use crate::lock::{LockId, Token, WaiterId};
use crate::mode::Mode;
use crate::session::{AgentName, Intention, SessionId};
use crate::time::Time;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts up without a gap within a space.
    pub number: u64,
    pub time: Time,
    /// By the wall clock of whoever stamped it, in microseconds of the Unix epoch.
    pub wall: u64,
    pub action: Action,
    pub target: Target,
    pub mode: Mode,
    pub session: SessionId,
    pub agent: AgentName,
    pub intention: Intention,
    pub lock: Option<LockId>,
    pub token: Option<Token>,
    pub waiter: Option<WaiterId>,
    /// Who took a lock away, and why.
    pub note: Option<Arc<str>>,
}

/// What happened. New actions go to the end: they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Joined the queue.
    Requested,
    Acquired,
    Released,
    Expired,
    ForceReleased,
    /// A grant that overlapped an earlier one.
    Lost,
    /// Left the queue without a grant.
    Withdrawn,
    RoomOpened,
    RoomClosed,
}

impl Action {
    pub const ALL: [Action; 9] = [
        Action::Requested,
        Action::Acquired,
        Action::Released,
        Action::Expired,
        Action::ForceReleased,
        Action::Lost,
        Action::Withdrawn,
        Action::RoomOpened,
        Action::RoomClosed,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Action::Requested => "requested",
            Action::Acquired => "acquired",
            Action::Released => "released",
            Action::Expired => "expired",
            Action::ForceReleased => "force_released",
            Action::Lost => "lost",
            Action::Withdrawn => "withdrawn",
            Action::RoomOpened => "room_opened",
            Action::RoomClosed => "room_closed",
        }
    }

    /// The state of the seed's life cycle that a lock is in after this.
    pub const fn state(self) -> &'static str {
        match self {
            Action::Requested => "requested",
            Action::Acquired => "active",
            Action::Released | Action::ForceReleased | Action::RoomClosed => "released",
            Action::Expired | Action::Lost => "expired",
            Action::Withdrawn => "rejected",
            Action::RoomOpened => "busy",
        }
    }

    /// Whether a lock is held no more.
    pub const fn is_end(self) -> bool {
        self.is_loss() || matches!(self, Action::Released)
    }

    /// Whether the holder lost something that it had not given back.
    pub const fn is_loss(self) -> bool {
        matches!(self, Action::Expired | Action::ForceReleased | Action::Lost)
    }
}

/// The last entries, and how many there ever were.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Arc<Entry>>,
    made: u64,
}

/// The place that was asked for is older than what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    pub oldest: u64,
}

impl History {
    pub(crate) fn restored(entries: Vec<Arc<Entry>>, made: u64) -> History {
        History { entries: entries.into(), made }
    }

    /// The number of the newest entry; zero: there never was one.
    pub fn made(&self) -> u64 {
        self.made
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().rev()
    }

    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter()
    }

    /// The number of the last entry that is not later than this.
    pub fn made_until(&self, time: Time) -> u64 {
        self.made - self.newest().take_while(|entry| entry.time > time).count() as u64
    }

    /// The entries behind a number, oldest first.
    pub fn after(&self, number: u64) -> Result<impl Iterator<Item = &Arc<Entry>>, Compacted> {
        let missing = self.made.saturating_sub(number) as usize;
        match self.entries.len().checked_sub(missing) {
            Some(skip) => Ok(self.entries.range(skip..)),
            None => Err(Compacted { oldest: self.made - self.entries.len() as u64 + 1 }),
        }
    }

    pub(crate) fn push(&mut self, mut entry: Entry) {
        self.made += 1;
        entry.number = self.made;
        self.entries.push_back(Arc::new(entry));
    }

    /// Takes back everything behind a number, as if it had not happened.
    pub(crate) fn rewind(&mut self, made: u64) {
        while self.made > made {
            assert!(self.entries.pop_back().is_some(), "what is taken back was not trimmed yet");
            self.made -= 1;
        }
    }

    /// Drops what is beyond the bound or older than `oldest`. Not while anything may be taken back.
    pub(crate) fn trim(&mut self, oldest: Time) {
        while self.entries.len() > HISTORY_MAX || self.entries.front().is_some_and(|entry| entry.time < oldest) {
            self.entries.pop_front();
        }
    }
}
