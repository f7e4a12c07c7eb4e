//! What can go wrong between a question and its answer, and what it means for what was asked.

use crate::EngineError;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing was changed: it was never sent, or the server said no.
    Unchanged(EngineError),
    /// Nothing was changed: the server has no room for what takes something.
    Full,
    /// It was sent, and what became of it nobody knows: the connection ended.
    Lost(EngineError),
    /// It was sent, and what became of it nobody knows: the time was over.
    Late(EngineError),
}

impl Trouble {
    /// The failure of a question that changes nothing.
    pub(crate) fn into_error(self) -> EngineError {
        match self {
            Trouble::Unchanged(error) | Trouble::Lost(error) | Trouble::Late(error) => error,
            Trouble::Full => EngineError::Unreachable("the server is full".to_owned()),
        }
    }
}
