//! From the first answer to everything that was missed: page after page, and the snapshot before them.

use super::ledger::{Inner, PAGE_BYTES};
use super::reply::{Head, Reply, Stored, Word};
use crate::{Base, Delta, EngineError, Position, Record};

/// How often reading begins anew because the ledger was compacted or rewritten meanwhile.
const TRIES_MAX: usize = 5;

impl Inner {
    /// All that came after a place, of which the first answer is here.
    pub(super) async fn delta(&self, after: Position, first: Reply) -> Result<Delta, EngineError> {
        let mut reply = first;
        let mut missing: Option<String> = None;
        for _ in 0..TRIES_MAX {
            let Some(head) = reply.head.take() else {
                return self.nothing(after, reply.word);
            };
            if let Some(base) = self.base(reply.word, &head, &mut missing).await? {
                let start = match &base {
                    Base::Asked if after == Position::ORIGIN => head.base,
                    Base::Asked => after,
                    Base::Snapshot { position, .. } | Base::Rewritten { position, .. } => *position,
                };
                if let Some((records, end)) = self.pages(start, head, std::mem::take(&mut reply.records)).await? {
                    self.answered(Some(&end), matches!(base, Base::Rewritten { .. }));
                    return Ok(Delta { base, records });
                }
            }
            reply = self.look_at(after, PAGE_BYTES).await?;
        }
        Err(EngineError::Unreachable(format!("{} changes faster than it can be read", self.place)))
    }

    /// There is no ledger, and maybe there was one.
    fn nothing(&self, after: Position, word: Word) -> Result<Delta, EngineError> {
        if word != Word::Empty {
            return Err(self.damaged("its scripts answer what nobody understands"));
        }
        let is_new = after == Position::ORIGIN;
        self.answered(None, !is_new);
        let base = if is_new { Base::Asked } else { Base::Rewritten { snapshot: None, position: Position::ORIGIN } };
        Ok(Delta { base, records: Vec::new() })
    }

    /// What the records build on. None: the snapshot was replaced while it was read.
    async fn base(&self, word: Word, head: &Head, missing: &mut Option<String>) -> Result<Option<Base>, EngineError> {
        let is_rewritten = match word {
            Word::Asked => return Ok(Some(Base::Asked)),
            Word::Snapshot => false,
            Word::Rewritten => true,
            Word::Empty
            | Word::Appended
            | Word::Taken
            | Word::Full
            | Word::Compacted
            | Word::Older
            | Word::Foreign
            | Word::Incomplete => return Err(self.damaged("its scripts answer what nobody understands")),
        };
        let position = head.base;
        let snapshot = match &head.snapshot {
            None => None,
            Some(parts) => match self.download(parts).await? {
                Some(bytes) => Some(bytes),
                None if missing.as_ref() == Some(&parts.name) => {
                    return Err(self.damaged("parts of its snapshot are missing"));
                }
                None => {
                    *missing = Some(parts.name.clone());
                    return Ok(None);
                }
            },
        };
        Ok(Some(match (is_rewritten, snapshot) {
            (true, snapshot) => Base::Rewritten { snapshot: snapshot.map(|bytes| (position, bytes)), position },
            (false, Some(snapshot)) => Base::Snapshot { position, snapshot },
            (false, None) => return Err(self.damaged("its snapshot is missing")),
        }))
    }

    /// Goes on from the first records to the end. None: the place where it stood is gone.
    async fn pages(
        &self,
        start: Position,
        head: Head,
        first: Vec<Stored>,
    ) -> Result<Option<(Vec<Record>, Head)>, EngineError> {
        let mut records = Vec::new();
        let (mut at, mut head, mut page) = (Position { epoch: head.end.epoch, ..start }, head, first);
        loop {
            let before = at;
            for stored in page {
                let record = stored.after(at).ok_or_else(|| self.damaged("a record is not where it belongs"))?;
                at = record.position;
                records.push(record);
            }
            if at.revision == head.end.revision {
                if at != head.end {
                    return Err(self.damaged("its records do not lead to its end"));
                }
                return Ok(Some((records, head)));
            }
            if at == before {
                return Err(self.damaged("a record is missing"));
            }
            let reply = self.look_at(at, PAGE_BYTES).await?;
            match (reply.word, reply.head) {
                (Word::Asked, Some(next)) => (head, page) = (next, reply.records),
                (_, _) => return Ok(None),
            }
        }
    }
}
