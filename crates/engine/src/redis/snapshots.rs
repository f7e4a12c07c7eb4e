//! Snapshots in Redis: uploaded in parts under a name of their own, then put in place at one stroke.

use redis::Value;

use super::chain;
use super::ledger::Inner;
use super::reply::{Kept, More, Parts, Word};
use super::script::{self, Call};
use super::trouble::Trouble;
use crate::{EngineError, Position, position};

const PART_BYTES: usize = 1 << 20;
const SNAPSHOT_BYTES_MAX: usize = 512 << 20;
/// After so long an upload is removed that nobody goes on with.
const ABANDONED_SECONDS: u64 = 600;

impl Inner {
    /// All bytes of a snapshot. None: it is not there any more, or not whole.
    pub(super) async fn download(&self, parts: &Parts) -> Result<Option<Vec<u8>>, EngineError> {
        if parts.bytes > SNAPSHOT_BYTES_MAX as u64 {
            return Err(self.damaged("its snapshot is larger than any that is written"));
        }
        let key = self.keys.snapshot(&parts.name);
        let mut snapshot = Vec::with_capacity(parts.bytes as usize);
        for index in 0..parts.count {
            let mut command = redis::cmd("LINDEX");
            command.arg(&key).arg(index);
            let mut answer = self.put(&command, PART_BYTES).await;
            if let Err(Trouble::Lost(_)) = answer {
                answer = self.put(&command, PART_BYTES).await;
            }
            match answer {
                Ok(Value::BulkString(part)) if snapshot.len() + part.len() <= parts.bytes as usize => {
                    snapshot.extend_from_slice(&part);
                }
                Ok(Value::BulkString(_)) => return Err(self.damaged("its snapshot is larger than it should be")),
                Ok(_) => return Ok(None),
                Err(trouble) => return Err(trouble.into_error(&self.place)),
            }
        }
        if snapshot.len() as u64 != parts.bytes || chain::hash(&snapshot) != parts.hash {
            return Err(self.damaged("its snapshot is not what was written"));
        }
        Ok(Some(snapshot))
    }

    pub(super) async fn compact(&self, at: Position, snapshot: Vec<u8>) -> Result<(), EngineError> {
        if snapshot.len() > SNAPSHOT_BYTES_MAX {
            let bytes = snapshot.len();
            let why = format!("a snapshot of {bytes} bytes is over the limit of {SNAPSHOT_BYTES_MAX}");
            return Err(EngineError::Invalid(why));
        }
        // Looked at first: what is not wanted need not be sent.
        let reply = self.look_at(at, 0).await?;
        let More::Missed(Kept { base, snapshot: older }, _) = reply.more else { return Err(foreign(at)) };
        if base.epoch != at.epoch || reply.word == Word::Rewritten {
            return Err(foreign(at));
        }
        if older.is_some() && at.revision <= base.revision {
            return Ok(());
        }
        let name = format!("{:016x}", position::draw());
        if let Err(trouble) = self.upload(&name, &snapshot).await {
            let mut command = redis::cmd("UNLINK");
            command.arg(self.keys.snapshot(&name));
            // If this fails as well, it goes by itself after a while.
            let _ = self.put(&command, 0).await;
            return Err(trouble.into_error(&self.place));
        }
        self.switch(at, &name, &snapshot).await
    }

    async fn upload(&self, name: &str, snapshot: &[u8]) -> Result<(), Trouble> {
        let key = self.keys.snapshot(name);
        let seconds = ABANDONED_SECONDS.to_string();
        for (index, part) in snapshot.chunks(PART_BYTES).enumerate() {
            let index = index.to_string();
            let args: [&[u8]; 3] = [index.as_bytes(), part, seconds.as_bytes()];
            self.run(&script::STORE_PART, &Call { keys: &[&key], args: &args }).await?;
        }
        Ok(())
    }

    async fn switch(&self, at: Position, name: &str, snapshot: &[u8]) -> Result<(), EngineError> {
        let upload = self.keys.snapshot(name);
        let keys = [self.keys.head.as_str(), self.keys.log.as_str(), upload.as_str()];
        let (parts, bytes) = (snapshot.len().div_ceil(PART_BYTES).to_string(), snapshot.len().to_string());
        let hash = chain::hash(snapshot);
        let more = [name, &parts, &bytes, &hash, &self.keys.snapshots].map(str::as_bytes);
        let reply = self.ask(&script::SWITCH, &keys, at, &more).await;
        match reply.map_err(|trouble| trouble.into_error(&self.place))?.word {
            Word::Compacted | Word::Older => Ok(()),
            Word::Foreign => Err(foreign(at)),
            Word::Incomplete => {
                let why = format!("{}: a snapshot was gone before it was whole", self.place);
                Err(EngineError::Unreachable(why))
            }
            Word::Empty
            | Word::Asked
            | Word::Snapshot
            | Word::Rewritten
            | Word::Appended
            | Word::Taken
            | Word::Full => Err(self.damaged("its scripts answer what nobody understands")),
        }
    }
}

fn foreign(at: Position) -> EngineError {
    EngineError::Invalid(format!("{at} is no place of this ledger"))
}
