//! One key as a register with an owner and a token: what a checker holds a history against. Knows no service.

use todc_utils::{Action, History, Specification, WGLChecker};

/// A session, by number.
pub(crate) type Who = u32;

/// What was asked about a key, with what was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Did {
    Acquire(Who, Told),
    Release(Who, Told),
    Renew(Who, Told),
    Check(Who, Told),
    /// The session was closed, whatever it held.
    Close(Who),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    /// It is the session's, with this token.
    Own(u64),
    /// It is the session's now, with this new token.
    New(u64),
    /// It is somebody else's; the name, if it was told.
    Others(Option<Who>),
    Free,
    /// The answer never came: it happened, or it did not.
    Nothing,
}

/// Who holds the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Register {
    owner: Option<Who>,
    /// Zero when nobody was told it.
    token: u64,
    /// The greatest token that anybody was told.
    greatest: u64,
}

impl Register {
    fn owned_by(&self, who: Who) -> bool {
        self.owner == Some(who)
    }

    fn freed(&self) -> Register {
        Register { owner: None, token: 0, greatest: self.greatest }
    }

    /// It is the owner's, with this token, if that fits to what is known of it.
    fn with_token(&self, who: Who, token: u64) -> (bool, Register) {
        let fits = self.owned_by(who) && if self.token == 0 { token > self.greatest } else { token == self.token };
        (fits, Register { owner: Some(who), token, greatest: self.greatest.max(token) })
    }

    fn is_others(&self, who: Who, other: Option<Who>) -> bool {
        self.owner.is_some_and(|owner| owner != who && other.is_none_or(|other| other == owner))
    }
}

pub(crate) struct LockRegister;

impl Specification for LockRegister {
    type State = Register;
    type Operation = Did;

    fn init() -> Register {
        Register::default()
    }

    fn apply(operation: &Did, state: &Register) -> (bool, Register) {
        match operation {
            Did::Acquire(who, Told::New(token)) => {
                let taken = Register { owner: Some(*who), token: *token, greatest: *token };
                (state.owner.is_none() && *token > state.greatest, taken)
            }
            Did::Acquire(who, Told::Nothing) if state.owner.is_none() => {
                (true, Register { owner: Some(*who), token: 0, greatest: state.greatest })
            }
            Did::Release(who, Told::Own(token)) => {
                let (fits, held) = state.with_token(*who, *token);
                (fits, held.freed())
            }
            Did::Release(who, Told::Nothing) | Did::Close(who) if state.owned_by(*who) => (true, state.freed()),
            Did::Acquire(who, Told::Own(token))
            | Did::Renew(who, Told::Own(token))
            | Did::Check(who, Told::Own(token)) => state.with_token(*who, *token),
            Did::Acquire(who, Told::Others(other))
            | Did::Release(who, Told::Others(other))
            | Did::Renew(who, Told::Others(other))
            | Did::Check(who, Told::Others(other)) => (state.is_others(*who, *other), state.clone()),
            Did::Release(_, Told::Free) | Did::Renew(_, Told::Free) | Did::Check(_, Told::Free) => {
                (state.owner.is_none(), state.clone())
            }
            Did::Close(_) => (true, state.clone()),
            Did::Acquire(_, Told::Nothing) | Did::Release(_, Told::Nothing) => (true, state.clone()),
            Did::Renew(_, Told::Nothing) | Did::Check(_, Told::Nothing) => (true, state.clone()),
            Did::Acquire(_, Told::Free) => (false, state.clone()),
            Did::Release(_, Told::New(_)) | Did::Renew(_, Told::New(_)) | Did::Check(_, Told::New(_)) => {
                (false, state.clone())
            }
        }
    }
}

/// One operation on one key: when it was asked and when it was answered, in the one order of the whole test.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) asked: u64,
    /// Behind everything, if it never was.
    pub(crate) answered: u64,
    pub(crate) did: Did,
    /// It stood in the queue if it had to.
    pub(crate) waits: bool,
}

/// Whether there is an order of the operations that explains every answer.
pub(crate) fn is_linearizable(operations: &[Operation]) -> bool {
    let mut moments: Vec<(u64, usize, Action<Did>)> = Vec::new();
    for (process, operation) in operations.iter().enumerate() {
        moments.push((operation.asked, process, Action::Call(operation.did.clone())));
        moments.push((operation.answered, process, Action::Response(operation.did.clone())));
    }
    moments.sort_by_key(|(moment, process, _)| (*moment, *process));
    let actions: Vec<_> = moments.into_iter().map(|(_, process, action)| (process, action)).collect();
    actions.is_empty() || WGLChecker::<LockRegister>::is_linearizable(History::from_actions(actions))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after the other.
    fn row(all: &[Did]) -> Vec<Operation> {
        let at = |(n, did): (usize, &Did)| Operation {
            asked: 2 * n as u64,
            answered: 2 * n as u64 + 1,
            did: did.clone(),
            waits: false,
        };
        all.iter().enumerate().map(at).collect()
    }

    #[test]
    fn a_history_that_can_be_explained_is_accepted() {
        let story = [
            Did::Acquire(1, Told::New(10)),
            Did::Acquire(2, Told::Others(Some(1))),
            Did::Renew(1, Told::Own(10)),
            Did::Check(3, Told::Others(Some(1))),
            Did::Release(1, Told::Own(10)),
            Did::Check(3, Told::Free),
            Did::Acquire(2, Told::New(11)),
            Did::Close(2),
            Did::Release(2, Told::Free),
        ];
        assert!(is_linearizable(&row(&story)));
        // Both at once: whichever came first, one was refused.
        let at_once = |did| Operation { asked: 0, answered: 9, did, waits: false };
        let fight = [at_once(Did::Acquire(1, Told::Others(Some(2)))), at_once(Did::Acquire(2, Told::New(5)))];
        assert!(is_linearizable(&fight));
        // Never answered, and yet it happened: seen later by others, and by itself.
        let mut unknown = row(&[
            Did::Acquire(1, Told::Nothing),
            Did::Check(2, Told::Free),
            Did::Check(2, Told::Others(Some(1))),
            Did::Acquire(1, Told::Own(7)),
        ]);
        unknown[0].answered = u64::MAX;
        assert!(is_linearizable(&unknown));
    }

    #[test]
    fn a_history_that_cannot_be_explained_is_refused() {
        let stories: [&[Did]; 8] = [
            // Two at once.
            &[Did::Acquire(1, Told::New(10)), Did::Acquire(2, Told::New(11))],
            // Tokens that fall, or stand.
            &[Did::Acquire(1, Told::New(10)), Did::Release(1, Told::Own(10)), Did::Acquire(2, Told::New(9))],
            &[Did::Acquire(1, Told::New(10)), Did::Release(1, Told::Own(10)), Did::Acquire(2, Told::New(10))],
            // An acknowledged grant that is gone.
            &[Did::Acquire(1, Told::New(10)), Did::Check(2, Told::Free)],
            // An acknowledged release that came back.
            &[Did::Acquire(1, Told::New(10)), Did::Release(1, Told::Own(10)), Did::Renew(1, Told::Own(10))],
            // Busy without a holder.
            &[Did::Acquire(1, Told::Others(None))],
            // The wrong holder.
            &[Did::Acquire(1, Told::New(10)), Did::Check(3, Told::Others(Some(2)))],
            // A token that changed under its holder.
            &[Did::Acquire(1, Told::New(10)), Did::Renew(1, Told::Own(12))],
        ];
        for story in stories {
            assert!(!is_linearizable(&row(story)), "{story:?}");
        }
        // What never was answered happens once, not twice.
        let mut once = row(&[
            Did::Acquire(1, Told::Nothing),
            Did::Check(2, Told::Others(Some(1))),
            Did::Close(1),
            Did::Check(2, Told::Others(Some(1))),
        ]);
        once[0].answered = u64::MAX;
        assert!(!is_linearizable(&once));
    }
}
