//! From the first answer to everything that was missed: page after page, and the snapshot before them.

use super::ledger::{Inner, PAGE_BYTES};
use super::{Answer, Kept, More, Store, Stored, Word};
use crate::{Base, Delta, EngineError, Position, Record};

/// How often reading begins anew because the ledger was compacted or rewritten meanwhile.
const TRIES_MAX: usize = 5;

impl<S: Store> Inner<S> {
    /// All that came after a place, of which the first answer is here.
    pub(super) async fn delta(&self, after: Position, first: Answer) -> Result<Delta, EngineError> {
        let mut answer = first;
        let mut missing: Option<String> = None;
        for _ in 0..TRIES_MAX {
            let (end, kept, page) = match (answer.end, answer.more) {
                (Some(end), More::Missed(kept, page)) => (end.position, kept, page),
                (None, More::Nothing) if answer.word == Word::Empty => return Ok(self.nothing(after)),
                (_, _) => return Err(self.not_understood()),
            };
            let asked = if after == Position::ORIGIN { kept.base } else { after };
            if let Some(base) = self.base(answer.word, &kept, &mut missing).await? {
                let start = if base == Base::Asked { asked } else { kept.base };
                if let Some((records, end)) = self.pages(start, end, page).await? {
                    self.standing.answered(end, matches!(base, Base::Rewritten { .. }));
                    return Ok(Delta { base, records });
                }
            }
            answer = self.look_at(after, PAGE_BYTES).await?;
        }
        Err(EngineError::Unreachable(format!("{} changes faster than it can be read", self.store.place())))
    }

    pub(super) fn not_understood(&self) -> EngineError {
        self.damaged("the server answers what nobody understands")
    }

    /// There is no ledger, and maybe there was one.
    fn nothing(&self, after: Position) -> Delta {
        let is_new = after == Position::ORIGIN;
        self.standing.answered(Position::ORIGIN, !is_new);
        let base = if is_new { Base::Asked } else { Base::Rewritten { snapshot: None, position: Position::ORIGIN } };
        Delta { base, records: Vec::new() }
    }

    /// What the records build on. None: the snapshot was replaced while it was read.
    async fn base(&self, word: Word, kept: &Kept, missing: &mut Option<String>) -> Result<Option<Base>, EngineError> {
        if word == Word::Asked {
            return Ok(Some(Base::Asked));
        }
        let position = kept.base;
        let snapshot = match &kept.snapshot {
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
        Ok(Some(match (word == Word::Rewritten, snapshot) {
            (true, snapshot) => Base::Rewritten { snapshot: snapshot.map(|bytes| (position, bytes)), position },
            (false, Some(snapshot)) => Base::Snapshot { position, snapshot },
            (false, None) => return Err(self.damaged("its snapshot is missing")),
        }))
    }

    /// Goes on from the first records to the end. None: the place where it stood is gone.
    async fn pages(
        &self,
        start: Position,
        end: Position,
        first: Vec<Stored>,
    ) -> Result<Option<(Vec<Record>, Position)>, EngineError> {
        let mut records = Vec::new();
        let (mut at, mut end, mut page) = (start, end, first);
        loop {
            let before = at;
            for stored in page {
                let record = stored.after::<S>(at).ok_or_else(|| self.damaged("a record is not where it belongs"))?;
                at = record.position;
                records.push(record);
            }
            if at.revision == end.revision {
                if at != end {
                    return Err(self.damaged("its records do not lead to its end"));
                }
                return Ok(Some((records, end)));
            }
            if at == before {
                return Err(self.damaged("a record is missing"));
            }
            let answer = self.look_at(at, PAGE_BYTES).await?;
            match (answer.word, answer.end, answer.more) {
                (Word::Asked, Some(next), More::Missed(_, records)) => (end, page) = (next.position, records),
                (_, _, _) => return Ok(None),
            }
        }
    }
}
