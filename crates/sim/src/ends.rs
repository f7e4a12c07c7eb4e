//! Which locks somebody who may wants to end.

use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::lock::{Lock, LockId};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::session::SessionId;

/// Somebody who may asked for the end of locks, and when that can have taken effect.
#[derive(Clone, Debug)]
pub(crate) struct EndAsked {
    pub(crate) ends: Ends,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// Whose end is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Ends {
    Lock(LockId),
    /// Everything of a session.
    Session(SessionId),
    /// A session with everything, even what it once asked.
    Closed(SessionId),
    /// The locks of a session on a key, or of everybody.
    Key(Option<SessionId>, Key),
    /// Own shared locks that an exclusive one takes the place of.
    Shared(SessionId, Target),
}

impl Ends {
    pub(crate) fn ends(&self, lock: &Lock) -> bool {
        match self {
            Ends::Lock(id) => lock.id == *id,
            Ends::Session(session) | Ends::Closed(session) => lock.session == *session,
            Ends::Key(session, key) => {
                session.as_ref().is_none_or(|session| lock.session == *session) && lock.target.key == *key
            }
            Ends::Shared(session, target) => {
                lock.session == *session && lock.target == *target && lock.mode == Mode::Shared
            }
        }
    }
}
