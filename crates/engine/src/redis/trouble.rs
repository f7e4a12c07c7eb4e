//! What can go wrong between a question and its answer, and what it means for what was asked.

use crate::EngineError;

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing was changed: it was never sent.
    Unsent(EngineError),
    /// Nothing was changed: Redis said no.
    Refused { code: String, text: String },
    /// It was sent, and what became of it nobody knows: the connection ended.
    Lost(EngineError),
    /// It was sent, and what became of it nobody knows: the time was over.
    Late(EngineError),
}

impl Trouble {
    /// The failure of a question that changes nothing.
    pub(super) fn into_error(self, place: &str) -> EngineError {
        match self {
            Trouble::Unsent(error) | Trouble::Lost(error) | Trouble::Late(error) => error,
            Trouble::Refused { code, text } => match code.as_str() {
                "DAMAGED" => EngineError::Corrupt { place: place.to_owned(), details: text },
                "WRONGTYPE" => EngineError::Corrupt {
                    place: place.to_owned(),
                    details: "something else has taken one of its keys".to_owned(),
                },
                _ if code == "NOPERM" || text.contains("user executing the script") => EngineError::Unreachable(
                    format!("Redis refused: {code} {text}; its user needs the permissions that docs/engines.md lists"),
                ),
                _ => EngineError::Unreachable(format!("Redis refused: {code} {text}")),
            },
        }
    }

    /// Redis said no because this is not, or not now, the place to ask.
    pub(super) fn is_wrong_place(&self) -> bool {
        match self {
            Trouble::Refused { code, .. } => {
                ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"]
                    .contains(&code.as_str())
            }
            Trouble::Unsent(_) | Trouble::Lost(_) | Trouble::Late(_) => false,
        }
    }

    pub(super) fn is_code(&self, expected: &str) -> bool {
        matches!(self, Trouble::Refused { code, .. } if code == expected)
    }
}
