//! The last small records that Redis told by itself, so that whoever wants to know what moved need not ask.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::{Position, Record};

/// How many are kept; each has a few kilobytes at most.
const RECORDS_MAX: usize = 256;

/// Records without a gap between them, each with the place before it.
#[derive(Debug, Default)]
pub(crate) struct News(Mutex<VecDeque<(Position, Record)>>);

impl News {
    /// A record was told. What does not lead up to it is of no use any more.
    pub(crate) fn hear(&self, before: Position, record: Record) {
        let mut kept = self.0.lock().expect("no holder panics");
        if kept.back().is_some_and(|(_, last)| last.position != before) {
            kept.clear();
        }
        if kept.len() == RECORDS_MAX {
            kept.pop_front();
        }
        kept.push_back((before, record));
    }

    /// What was told is of a past that is void.
    pub(crate) fn forget(&self) {
        self.0.lock().expect("no holder panics").clear();
    }

    /// Everything after a place up to at least the end, if all of it was told. It is given away.
    pub(crate) fn take(&self, after: Position, end: Position) -> Option<Vec<Record>> {
        let mut kept = self.0.lock().expect("no holder panics");
        let first = kept.iter().position(|(before, _)| *before == after)?;
        let last = kept.back()?.1.position;
        if last.epoch != end.epoch || last.revision < end.revision {
            return None;
        }
        let records = kept.drain(first..).map(|(_, record)| record).collect();
        kept.clear();
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::time::Stamp;

    use super::*;
    use crate::BatchId;

    fn place(revision: u64) -> Position {
        Position { epoch: 1, revision, digest: revision }
    }

    fn tell(news: &News, revision: u64) {
        let record =
            Record { position: place(revision), batch: BatchId(0), stamp: Stamp::default(), payload: Vec::new() };
        news.hear(place(revision - 1), record);
    }

    fn revisions(records: Option<Vec<Record>>) -> Option<Vec<u64>> {
        records.map(|records| records.iter().map(|record| record.position.revision).collect())
    }

    #[test]
    fn only_what_is_whole_is_given_away_and_only_once() {
        let news = News::default();
        for revision in 1..=5 {
            tell(&news, revision);
        }
        assert_eq!(news.take(place(2), place(6)), None, "not all of it is here");
        assert_eq!(news.take(Position { digest: 9, ..place(2) }, place(5)), None, "another past");
        assert_eq!(revisions(news.take(place(2), place(4))), Some(vec![3, 4, 5]));
        assert_eq!(news.take(place(2), place(4)), None);
    }

    #[test]
    fn a_gap_ends_what_came_before_it() {
        let news = News::default();
        for revision in [1, 2, 4, 5] {
            tell(&news, revision);
        }
        assert_eq!(news.take(place(1), place(5)), None);
        assert_eq!(revisions(news.take(place(3), place(5))), Some(vec![4, 5]));
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let news = News::default();
        for revision in 1..=1000 {
            tell(&news, revision);
        }
        assert_eq!(news.0.lock().unwrap().len(), RECORDS_MAX);
    }
}
