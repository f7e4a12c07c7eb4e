//! What the scripts answer, read with mistrust: whatever can be checked is.

use lockkeeper_core::time::{Millis, Stamp, Time};
use redis::Value;

use super::chain;
use crate::{BatchId, Outside, Position, Record};

/// The answer of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) word: Word,
    /// What time it was for the ledger.
    pub(super) time: Time,
    /// None: there is no ledger.
    pub(super) head: Option<Head>,
    pub(super) records: Vec<Stored>,
    /// Of a batch that was recorded.
    pub(super) stamp: Option<Stamp>,
    /// What others have, of a batch that was not recorded for that.
    pub(super) outside: Vec<Outside>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
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

/// Where a ledger ends, and what its snapshot stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) end: Position,
    /// Payload bytes behind the snapshot.
    pub(super) bytes: u64,
    /// Where the kept records begin.
    pub(super) base: Position,
    pub(super) snapshot: Option<Parts>,
}

/// Where a snapshot is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) hash: String,
}

/// A record as it is kept, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    revision: u64,
    /// Of the place before it.
    before: u64,
    batch: BatchId,
    stamp: Stamp,
    payload: Vec<u8>,
}

impl Stored {
    /// Reads a record from its revision, its header and its payload.
    pub(super) fn read(revision: u64, header: &str, payload: Vec<u8>) -> Option<Stored> {
        let mut parts = header.split(' ');
        let before = hex(parts.next()?)?;
        let batch = BatchId(u128::from_str_radix(parts.next()?, 16).ok()?);
        let stamp = Stamp { time: Time(number(parts.next()?)?), wall: number(parts.next()?)? };
        let _volume = number(parts.next()?)?;
        parts.next().is_none().then_some(Stored { revision, before, batch, stamp, payload })
    }

    /// The place before it, if it belongs to this epoch.
    pub(super) fn before(&self, epoch: u64) -> Position {
        Position { epoch, revision: self.revision.saturating_sub(1), digest: self.before }
    }

    /// The record, if it comes right after this place.
    pub(super) fn after(self, before: Position) -> Option<Record> {
        if self.revision != before.revision + 1 || self.before != before.digest {
            return None;
        }
        let position = chain::following(before, self.batch, self.stamp, &chain::hash(&self.payload));
        Some(Record { position, batch: self.batch, stamp: self.stamp, payload: self.payload })
    }
}

impl Reply {
    /// None: it is not what a script of ours answers.
    pub(super) fn read(value: Value) -> Option<Reply> {
        let Value::Array(parts) = value else { return None };
        let mut parts = parts.into_iter();
        let word = read_word(&text(parts.next()?)?)?;
        let time = Time(number(&text(parts.next()?)?)?);
        let head = parts.next().map(read_head);
        let head = match head {
            Some(None) => return None,
            Some(head) => head,
            None => None,
        };
        let last = parts.next();
        let mut reply = Reply { word, time, head, records: Vec::new(), stamp: None, outside: Vec::new() };
        match (word, last) {
            (Word::Appended, Some(Value::Array(stamp))) => reply.stamp = Some(read_stamp(stamp)?),
            (Word::Taken, Some(outside)) => reply.outside = read_outside(outside)?,
            (Word::Appended | Word::Taken, _) => return None,
            (_, Some(Value::Array(records))) => {
                reply.records = records.into_iter().map(read_record).collect::<Option<_>>()?;
            }
            (_, None) => {}
            (_, Some(_)) => return None,
        }
        Some(reply)
    }
}

fn read_word(text: &str) -> Option<Word> {
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

fn read_head(value: Value) -> Option<Head> {
    let Value::Array(fields) = value else { return None };
    let fields: Vec<String> = fields.into_iter().map(text).collect::<Option<_>>()?;
    let [epoch, revision, digest, bytes, base_revision, base_digest, name, count, snapshot_bytes, hash] =
        fields.as_slice()
    else {
        return None;
    };
    let epoch = hex(epoch)?;
    let end = Position { epoch, revision: number(revision)?, digest: hex(digest)? };
    let base = Position { epoch, revision: number(base_revision)?, digest: hex(base_digest)? };
    let parts = Parts { name: name.clone(), count: number(count)?, bytes: number(snapshot_bytes)?, hash: hash.clone() };
    let snapshot = (!name.is_empty()).then_some(parts);
    Some(Head { end, bytes: number(bytes)?, base, snapshot })
}

fn read_stamp(parts: Vec<Value>) -> Option<Stamp> {
    let parts: Vec<String> = parts.into_iter().map(text).collect::<Option<_>>()?;
    let [time, wall] = parts.as_slice() else { return None };
    Some(Stamp { time: Time(number(time)?), wall: number(wall)? })
}

/// Names that others have, and for how many more milliseconds.
pub(super) fn read_outside(value: Value) -> Option<Vec<Outside>> {
    let Value::Array(names) = value else { return None };
    let read = |value: Value| {
        let Value::Array(parts) = value else { return None };
        let parts: Vec<String> = parts.into_iter().map(text).collect::<Option<_>>()?;
        let [name, left] = parts.as_slice() else { return None };
        let left: i64 = left.parse().ok()?;
        // Without an end it is negative.
        Some(Outside { name: name.clone(), left: u64::try_from(left).ok().map(Millis) })
    };
    names.into_iter().map(read).collect()
}

fn read_record(value: Value) -> Option<Stored> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter();
    let id = text(parts.next()?)?;
    let header = text(parts.next()?)?;
    let Value::BulkString(payload) = parts.next()? else { return None };
    Stored::read(number(id.strip_suffix("-0")?)?, &header, payload)
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

pub(super) fn hex(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn list(parts: &[&str]) -> Value {
        Value::Array(parts.iter().map(|part| bulk(part)).collect())
    }

    const EPOCH: &str = "00000000000000aa";
    const ZERO: &str = "0000000000000000";

    fn head() -> Value {
        list(&[EPOCH, "2", "00000000000000bb", "7", "0", ZERO, "", "0", "0", ""])
    }

    fn record(id: &str, header: &str) -> Value {
        list(&[id, header, "payload"])
    }

    #[test]
    fn an_answer_is_read() {
        let header = format!("{ZERO} 000000000000000000000000000000ff 17 18 7");
        let records = Value::Array(vec![record("1-0", &header)]);
        let reply = Reply::read(Value::Array(vec![bulk("asked"), bulk("1000"), head(), records])).expect("an answer");
        assert_eq!((reply.word, reply.time), (Word::Asked, Time(1000)));
        let head = reply.head.expect("a head");
        assert_eq!(head.end, Position { epoch: 0xaa, revision: 2, digest: 0xbb });
        let start = Position { epoch: 0xaa, ..Position::ORIGIN };
        assert_eq!((head.base, head.bytes, head.snapshot), (start, 7, None));
        let stored = reply.records[0].clone();
        let read = stored.clone().after(start).expect("the first");
        let stamp = Stamp { time: Time(17), wall: 18 };
        let position = chain::following(start, BatchId(255), stamp, &chain::hash(b"payload"));
        assert_eq!(read, Record { position, batch: BatchId(255), stamp, payload: b"payload".to_vec() });
        assert_eq!(stored.clone().after(Position { revision: 1, ..start }), None, "a gap");
        assert_eq!(stored.after(Position { digest: 1, ..start }), None, "another past");
    }

    #[test]
    fn what_no_script_of_ours_answers_is_refused() {
        let header = format!("{ZERO} ff 17 18 7");
        for strange in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![bulk("asked")]),
            Value::Array(vec![bulk("other"), bulk("1")]),
            Value::Array(vec![bulk("asked"), bulk("-1")]),
            Value::Array(vec![bulk("asked"), bulk("1"), list(&["x"])]),
            Value::Array(vec![bulk("asked"), bulk("1"), head(), Value::Array(vec![record("x", &header)])]),
            Value::Array(vec![bulk("asked"), bulk("1"), head(), Value::Array(vec![record("1-0", "x")])]),
            Value::Array(vec![bulk("asked"), bulk("1"), head(), bulk("x")]),
            Value::Array(vec![bulk("appended"), bulk("1"), head()]),
        ] {
            assert_eq!(Reply::read(strange.clone()), None, "{strange:?}");
        }
    }
}
