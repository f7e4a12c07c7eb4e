//! Snapshots on a server: uploaded in parts under a name of their own, then put in place at one stroke.

use super::ledger::Inner;
use super::{Kept, More, Parts, Store, Trouble, Word, hash};
use crate::{EngineError, Position, position};

const PART_BYTES: usize = 1 << 20;
const SNAPSHOT_BYTES_MAX: usize = 512 << 20;
/// After so many parts it is looked whether the snapshot is still wanted.
const LOOK_EVERY_PARTS: u64 = 4;

impl<S: Store> Inner<S> {
    /// All bytes of a snapshot. None: it is not there any more, or not whole.
    pub(super) async fn download(&self, parts: &Parts) -> Result<Option<Vec<u8>>, EngineError> {
        if parts.bytes > SNAPSHOT_BYTES_MAX as u64 {
            return Err(self.damaged("its snapshot is larger than any that is written"));
        }
        let mut snapshot = Vec::with_capacity(parts.bytes as usize);
        for index in 0..parts.count {
            let mut answer = self.store.part(&parts.name, index).await;
            if let Err(Trouble::Lost(_)) = answer {
                answer = self.store.part(&parts.name, index).await;
            }
            let Some(part) = answer.map_err(Trouble::into_error)? else { return Ok(None) };
            if snapshot.len() + part.len() > parts.bytes as usize {
                return Err(self.damaged("its snapshot is larger than it should be"));
            }
            snapshot.extend_from_slice(&part);
        }
        if snapshot.len() as u64 != parts.bytes || hash(&snapshot) != parts.hash {
            return Err(self.damaged("its snapshot is not what was written"));
        }
        Ok(Some(snapshot))
    }

    /// What the kept records build on, and whether that is a snapshot; a failure, if this is no place of the ledger.
    async fn based_on(&self, at: Position) -> Result<(Position, bool), EngineError> {
        let answer = self.look_at(at, 0).await?;
        let More::Missed(Kept { base, snapshot }, _) = answer.more else { return Err(foreign(at)) };
        if base.epoch != at.epoch || answer.word == Word::Rewritten {
            return Err(foreign(at));
        }
        Ok((base, snapshot.is_some()))
    }

    pub(super) async fn compact(&self, at: Position, snapshot: Vec<u8>) -> Result<(), EngineError> {
        if snapshot.len() > SNAPSHOT_BYTES_MAX {
            let bytes = snapshot.len();
            let why = format!("a snapshot of {bytes} bytes is over the limit of {SNAPSHOT_BYTES_MAX}");
            return Err(EngineError::Invalid(why));
        }
        // Looked at first: what is not wanted need not be sent.
        let (base, has_older) = self.based_on(at).await?;
        if has_older && at.revision <= base.revision {
            return Ok(());
        }
        let parts = Parts {
            name: format!("{:016x}", position::draw()),
            count: snapshot.len().div_ceil(PART_BYTES) as u64,
            bytes: snapshot.len() as u64,
            hash: hash(&snapshot),
        };
        for (index, part) in (0..).zip(snapshot.chunks(PART_BYTES)) {
            // Others may think of one at the same time: whoever is later need not send the rest.
            if index > 0 && index % LOOK_EVERY_PARTS == 0 && self.based_on(at).await?.0 != base {
                self.store.discard(&parts.name).await;
                return Ok(());
            }
            if let Err(trouble) = self.store.store_part(&parts.name, index, part).await {
                // If this fails as well, it goes by itself after a while.
                self.store.discard(&parts.name).await;
                return Err(trouble.into_error());
            }
        }
        let answer = self.heed(|bounds| self.store.switch(at, bounds, &parts)).await;
        match answer.map_err(Trouble::into_error)?.word {
            Word::Compacted | Word::Older => Ok(()),
            Word::Foreign => Err(foreign(at)),
            Word::Incomplete => {
                let why = format!("{}: a snapshot was gone before it was whole", self.store.place());
                Err(EngineError::Unreachable(why))
            }
            Word::Empty
            | Word::Asked
            | Word::Snapshot
            | Word::Rewritten
            | Word::Appended
            | Word::Taken
            | Word::Full => Err(self.not_understood()),
        }
    }
}

fn foreign(at: Position) -> EngineError {
    EngineError::Invalid(format!("{at} is no place of this ledger"))
}
