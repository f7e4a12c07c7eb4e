//! What the scripts answer, read with mistrust: whatever can be checked is.

use lockkeeper_core::time::{Millis, Stamp, Time};
use redis::Value;

use crate::remote::{Answer, End, Kept, More, Parts, Stored, Word};
use crate::{BatchId, Outside, Position};

/// Reads a record from its revision, its header and its payload.
pub(super) fn read_stored(revision: u64, header: &str, payload: Vec<u8>) -> Option<Stored> {
    let mut parts = header.split(' ');
    let before = hex(parts.next()?)?;
    let batch = BatchId(u128::from_str_radix(parts.next()?, 16).ok()?);
    let stamp = Stamp { time: Time(number(parts.next()?)?), wall: number(parts.next()?)? };
    let _volume = number(parts.next()?)?;
    parts.next().is_none().then_some(Stored { revision, before, batch, stamp, payload })
}

/// None: it is not what a script of ours answers.
pub(super) fn read(value: Value) -> Option<Answer> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter();
    let word = Word::read(&text(parts.next()?)?)?;
    let time = Time(number(&text(parts.next()?)?)?);
    let end = match parts.next() {
        Some(end) => Some(read_end(end)?),
        None => None,
    };
    let more = match (word, end) {
        (Word::Appended, Some(_)) => More::Stamp(read_stamp(parts.next()?)?),
        (Word::Asked | Word::Snapshot | Word::Rewritten, Some(end)) => {
            let kept = read_kept(parts.next()?, end.position.epoch)?;
            let Value::Array(records) = parts.next()? else { return None };
            More::Missed(kept, records.into_iter().map(read_record).collect::<Option<_>>()?)
        }
        (Word::Taken, Some(_)) => More::Outside(read_outside(parts.next()?)?),
        (Word::Appended | Word::Taken | Word::Asked | Word::Snapshot | Word::Rewritten, None) => return None,
        (Word::Empty | Word::Full | Word::Compacted | Word::Older | Word::Foreign | Word::Incomplete, _) => {
            More::Nothing
        }
    };
    Some(Answer { word, time, end, more })
}

/// How many were told of the batch that this is the answer to, with whoever appended it.
pub(super) fn listening(value: &Value) -> Option<i64> {
    let Value::Array(parts) = value else { return None };
    match parts.as_slice() {
        [Value::BulkString(word), .., Value::Int(count)] if word == b"appended" => Some(*count),
        _ => None,
    }
}

fn read_end(value: Value) -> Option<End> {
    let fields = texts(value)?;
    let [epoch, revision, digest, bytes] = fields.as_slice() else { return None };
    let position = Position { epoch: hex(epoch)?, revision: number(revision)?, digest: hex(digest)? };
    Some(End { position, bytes: number(bytes)? })
}

fn read_kept(value: Value, epoch: u64) -> Option<Kept> {
    let fields = texts(value)?;
    let [revision, digest, name, count, bytes, hash] = fields.as_slice() else { return None };
    let base = Position { epoch, revision: number(revision)?, digest: hex(digest)? };
    let parts = || {
        let (name, hash) = (name.clone(), hash.clone());
        Some(Parts { name, count: number(count)?, bytes: number(bytes)?, hash })
    };
    let snapshot = if name.is_empty() { None } else { Some(parts()?) };
    Some(Kept { base, snapshot })
}

fn read_stamp(value: Value) -> Option<Stamp> {
    let parts = texts(value)?;
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

fn texts(value: Value) -> Option<Vec<String>> {
    let Value::Array(parts) = value else { return None };
    parts.into_iter().map(text).collect()
}

fn read_record(value: Value) -> Option<Stored> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter();
    let id = text(parts.next()?)?;
    let header = text(parts.next()?)?;
    let Value::BulkString(payload) = parts.next()? else { return None };
    read_stored(number(id.strip_suffix("-0")?)?, &header, payload)
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
    use super::super::store::RedisStore;
    use super::*;
    use crate::Record;
    use crate::remote::{Store as _, hash};

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn list(parts: &[&str]) -> Value {
        Value::Array(parts.iter().map(|part| bulk(part)).collect())
    }

    const EPOCH: &str = "00000000000000aa";
    const ZERO: &str = "0000000000000000";

    fn end() -> Value {
        list(&[EPOCH, "2", "00000000000000bb", "7"])
    }

    fn kept() -> Value {
        list(&["0", ZERO, "", "0", "0", ""])
    }

    fn record(id: &str, header: &str) -> Value {
        list(&[id, header, "payload"])
    }

    #[test]
    fn an_answer_is_read() {
        let header = format!("{ZERO} 000000000000000000000000000000ff 17 18 7");
        let records = Value::Array(vec![record("1-0", &header)]);
        let reply = Value::Array(vec![bulk("asked"), bulk("1000"), end(), kept(), records]);
        let reply = read(reply).expect("an answer");
        assert_eq!((reply.word, reply.time), (Word::Asked, Time(1000)));
        let start = Position { epoch: 0xaa, ..Position::ORIGIN };
        let position = Position { revision: 2, digest: 0xbb, ..start };
        assert_eq!(reply.end, Some(End { position, bytes: 7 }));
        let More::Missed(kept, records) = reply.more else { panic!("{:?}", reply.more) };
        assert_eq!(kept, Kept { base: start, snapshot: None });
        let stored = records[0].clone();
        let read = stored.clone().after::<RedisStore>(start).expect("the first");
        let stamp = Stamp { time: Time(17), wall: 18 };
        let position = RedisStore::following(start, BatchId(255), stamp, &hash(b"payload"));
        assert_eq!(read, Record { position, batch: BatchId(255), stamp, payload: b"payload".to_vec() });
        assert_eq!(stored.clone().after::<RedisStore>(Position { revision: 1, ..start }), None, "a gap");
        assert_eq!(stored.after::<RedisStore>(Position { digest: 1, ..start }), None, "another past");
    }

    #[test]
    fn what_no_script_of_ours_answers_is_refused() {
        let header = format!("{ZERO} ff 17 18 7");
        let records = |record: Value| Value::Array(vec![record]);
        for strange in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![bulk("empty")]),
            Value::Array(vec![bulk("other"), bulk("1")]),
            Value::Array(vec![bulk("empty"), bulk("-1")]),
            Value::Array(vec![bulk("asked"), bulk("1")]),
            Value::Array(vec![bulk("asked"), bulk("1"), list(&["x"])]),
            Value::Array(vec![bulk("asked"), bulk("1"), end(), list(&["x"]), Value::Array(vec![])]),
            Value::Array(vec![bulk("asked"), bulk("1"), end(), kept(), records(record("x", &header))]),
            Value::Array(vec![bulk("asked"), bulk("1"), end(), kept(), records(record("1-0", "x"))]),
            Value::Array(vec![bulk("asked"), bulk("1"), end(), kept(), bulk("x")]),
            Value::Array(vec![bulk("appended"), bulk("1"), end()]),
        ] {
            assert_eq!(read(strange.clone()), None, "{strange:?}");
        }
    }
}
