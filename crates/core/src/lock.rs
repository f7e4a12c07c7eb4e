//! A lock that is held, and the ids that things go by.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::Target;
use crate::mode::Mode;
use crate::session::{AgentName, Intention, SessionId};
use crate::time::{Millis, Time};

/// The name of a lock, such as `lock-2757c6049058`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockId(u64);

const LOCK_ID_BITS: u32 = 48;
const LOCK_ID_MASK: u64 = (1 << LOCK_ID_BITS) - 1;

impl LockId {
    /// The side on which the locks of a ledger's first grant are counted.
    pub(crate) const FIRST_GRANT: u64 = 1 << (LOCK_ID_BITS - 1);

    /// More than can be granted in a past that is lost unnoticed.
    pub(crate) const LOST_AT_ONCE: u64 = 1 << 24;

    /// The id of a space's `count`th lock. One-to-one for a given salt, so no two locks of a space share an id,
    /// and mixed, so that nobody mistakes it for an order.
    pub(crate) fn of(count: u64, salt: u64) -> LockId {
        let mut mixed = (count ^ salt) & LOCK_ID_MASK;
        for odd in [0x9e37_79b9_7f4b, 0xbf58_476d_1ce5] {
            mixed = mixed.wrapping_mul(odd) & LOCK_ID_MASK;
            mixed ^= mixed >> 23;
        }
        LockId(mixed)
    }

    pub fn parse(text: &str) -> Option<LockId> {
        let digits = text.strip_prefix("lock-")?;
        let plain = digits.len() == 12 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| u64::from_str_radix(digits, 16).ok().map(LockId)).flatten()
    }

    /// As it is written. By hand: every answer has one.
    pub fn text(self) -> [u8; 17] {
        let mut text = *b"lock-000000000000";
        for (place, byte) in text.iter_mut().rev().take(12).enumerate() {
            *byte = b"0123456789abcdef"[(self.0 >> (4 * place)) as usize & 0xf];
        }
        text
    }

    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_raw(raw: u64) -> LockId {
        LockId(raw)
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

/// A fencing token: a later grant has a greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WaiterId(pub u64);

/// The feature that a lock belongs to.
pub type FeatureId = Arc<str>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub id: LockId,
    pub target: Target,
    pub mode: Mode,
    pub session: SessionId,
    pub agent: AgentName,
    pub intention: Intention,
    pub feature: Option<FeatureId>,
    pub token: Token,
    pub acquired: Time,
    pub expires: Time,
    pub ttl: Millis,
}

impl Lock {
    /// Keeps a pause away from somebody's finish. It ends when it was said to end, whatever is heard of its session: a
    /// pause has to come through.
    pub fn is_finish(&self) -> bool {
        self.mode == Mode::Shared && self.target.key.paused_feature().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_of_one_space_never_repeat_and_read_back() {
        let ids: HashSet<LockId> = (0..200_000).map(|count| LockId::of(count, 0x1234_5678_9abc)).collect();
        assert_eq!(ids.len(), 200_000);
        for id in ids.iter().take(100) {
            assert_eq!(LockId::parse(&id.to_string()), Some(*id));
        }
        for bad in ["lock-", "lock-12", "lock-2757C6049058", "2757c6049058", "lock-2757c60490581"] {
            assert_eq!(LockId::parse(bad), None, "{bad}");
        }
    }
}
