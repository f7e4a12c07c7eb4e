//! What a server answers, before anything of it is believed.

use lockkeeper_core::time::{Stamp, Time};

use super::{Store, hash};
use crate::{BatchId, Outside, Position, Record};

/// The answer of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) word: Word,
    /// What time it was for the ledger.
    pub(crate) time: Time,
    /// None: there is no ledger.
    pub(crate) end: Option<End>,
    pub(crate) more: More,
}

/// Where a ledger ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) position: Position,
    /// Payload bytes behind the snapshot.
    pub(crate) bytes: u64,
}

/// What else there is to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum More {
    Nothing,
    /// Of a batch that was recorded.
    Stamp(Stamp),
    /// What was missed, or the first of it.
    Missed(Kept, Vec<Stored>),
    /// What others have, of a batch that was not recorded for that.
    Outside(Vec<Outside>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// There is no ledger.
    Empty,
    /// What came after the place that was asked for.
    Asked,
    /// What came after the snapshot, of which the place that was asked for is a part.
    Snapshot,
    /// The place that was asked for is none of this ledger; what came after its snapshot, or from its start.
    Rewritten,
    Appended,
    /// Others have something outside of the ledger that would have to be free.
    Taken,
    Full,
    Compacted,
    /// A later snapshot is there already.
    Older,
    /// What the snapshot stands for is no place of this ledger.
    Foreign,
    /// Not all parts of the snapshot are there.
    Incomplete,
}

/// What a ledger keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Where the records begin: the start, or the snapshot.
    pub(crate) base: Position,
    pub(crate) snapshot: Option<Parts>,
}

/// Where a snapshot is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) hash: String,
}

/// A record as it is kept, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    /// Of the place before it.
    pub(crate) before: u64,
    pub(crate) batch: BatchId,
    pub(crate) stamp: Stamp,
    pub(crate) payload: Vec<u8>,
}

impl Word {
    /// None: no server of ours says that.
    pub(crate) fn read(text: &str) -> Option<Word> {
        Some(match text {
            "empty" => Word::Empty,
            "asked" => Word::Asked,
            "snapshot" => Word::Snapshot,
            "rewritten" => Word::Rewritten,
            "appended" => Word::Appended,
            "taken" => Word::Taken,
            "full" => Word::Full,
            "compacted" => Word::Compacted,
            "older" => Word::Older,
            "foreign" => Word::Foreign,
            "incomplete" => Word::Incomplete,
            _ => return None,
        })
    }
}

impl Stored {
    /// The place before it, if it belongs to this epoch.
    pub(crate) fn before(&self, epoch: u64) -> Position {
        Position { epoch, revision: self.revision.saturating_sub(1), digest: self.before }
    }

    /// The record, if it comes right after this place.
    pub(crate) fn after<S: Store>(self, before: Position) -> Option<Record> {
        if self.revision != before.revision + 1 || self.before != before.digest {
            return None;
        }
        let position = S::following(before, self.batch, self.stamp, &hash(&self.payload));
        Some(Record { position, batch: self.batch, stamp: self.stamp, payload: self.payload })
    }
}
