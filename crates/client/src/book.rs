//! What is held, what was lost, and what is still to be told or given back. Knows no service and no thread.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use lockkeeper_wire::answer::LockView;
use serde_json::value::RawValue;

use crate::boot_clock::BootTime;

/// A lock that is not held any more, and why.
#[derive(Clone, Debug)]
pub struct Lost {
    pub lock: LockView,
    pub why: String,
}

/// Somebody stops, or no longer stops, the line of a feature that locks are held for. They stay held.
#[derive(Clone, Debug)]
pub enum Pause {
    Began(LockView),
    Ended(LockView),
}

/// What is held, and what was lost and not yet told.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) held: HashMap<String, Held>,
    pub(crate) lost: VecDeque<Lost>,
    /// The locks by which others pause what is held for, as the last beat told.
    pub(crate) paused: Vec<LockView>,
    /// What changed of that and is not yet told.
    pub(crate) pauses: VecDeque<Pause>,
    /// The ids of what the session itself gave back, as the service says; the next beat makes sure of it.
    pub(crate) given_back: HashSet<String>,
    /// What was asked for, and may have been granted: to be found out, and given back.
    pub(crate) unknown: Vec<Box<RawValue>>,
    /// The ids of what was granted and could not be proved: to be given back, since every beat keeps it alive.
    pub(crate) unproved: HashSet<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lock: LockView,
    /// From then on, nobody may believe that it is held.
    pub(crate) deadline: BootTime,
    /// How often to beat for it.
    pub(crate) interval: Duration,
    /// The session had it before: it is not this program's to release.
    pub(crate) borrowed: bool,
}

impl Book {
    /// Says of some locks that they are lost, and never takes that back.
    pub(crate) fn lose(&mut self, why: &str, which: impl Fn(&str, &Held) -> bool) {
        let gone: Vec<String> =
            self.held.iter().filter(|(id, held)| which(id, held)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            if let Some(Held { lock, .. }) = self.held.remove(&id) {
                self.lost.push_back(Lost { lock, why: why.to_owned() });
            }
        }
    }

    pub(crate) fn note_pauses(&mut self, paused: Vec<LockView>) {
        let among = |lock: &LockView, locks: &[LockView]| locks.iter().any(|other| other.lock_id == lock.lock_id);
        let ended = self.paused.iter().filter(|lock| !among(lock, &paused)).cloned().map(Pause::Ended);
        let began = paused.iter().filter(|lock| !among(lock, &self.paused)).cloned().map(Pause::Began);
        self.pauses.extend(ended.chain(began));
        self.paused = paused;
    }

    pub(crate) fn lose_overdue(&mut self) {
        let now = BootTime::now();
        self.lose("its time ran out before a heartbeat came through", |_, held| now >= held.deadline);
    }
}

/// Whether both are one grant: after a lost past an id may name another lock, but not with the same token.
pub(crate) fn is_same(one: &LockView, other: &LockView) -> bool {
    one.lock_id == other.lock_id && one.fencing_token == other.fencing_token
}

/// How long it lives from the answer on at least: a lock that is not renewed has less left than its TTL.
pub(crate) fn life(lock: &LockView) -> u64 {
    lock.ttl_ms.min(lock.expires_in_ms)
}

pub(crate) fn same_place(one: &LockView, other: &LockView) -> bool {
    (&one.file_path, one.start_line, one.end_line) == (&other.file_path, other.start_line, other.end_line)
}

/// Counted from when the request was sent, less one percent for clocks that drift.
pub(crate) fn deadline(sent: BootTime, ttl_ms: u64) -> BootTime {
    sent.plus(Duration::from_micros(ttl_ms.saturating_mul(990)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_not_renewed_is_believed_in_no_longer_than_it_lives() {
        let lock = |expires_in_ms: u64| {
            serde_json::from_value::<LockView>(serde_json::json!({
                "lock_id": "lock-000000000001", "file_path": "feature:F:pause", "start_line": null, "end_line": null,
                "mode": "shared", "intention": "", "owner": "a", "session_id": "a", "fencing_token": 1,
                "created_at": "", "expires_at": "", "ttl_ms": 30_000, "expires_in_ms": expires_in_ms,
            }))
            .expect("a lock")
        };
        assert_eq!((life(&lock(30_000)), life(&lock(9000))), (30_000, 9000));
    }
}
