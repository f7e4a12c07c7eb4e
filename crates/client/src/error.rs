//! What can go wrong with a call.

use lockkeeper_wire::answer::Refused;
use lockkeeper_wire::word::Word;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The service said no. Nothing was changed, unless its word is `outcome_unknown`.
    #[error("{}", .0.message)]
    Refused(Box<Refused>),
    /// No service can be reached. Nothing was changed, unless the connection broke while it answered.
    #[error("{0}")]
    Unreachable(String),
    /// What came back makes no sense.
    #[error("the service answered in a way that this program does not understand: {0}")]
    Strange(String),
}

impl Error {
    /// The word for it, as the service or this client says it.
    pub fn word(&self) -> Word {
        match self {
            Error::Refused(refused) => Word::parse(&refused.error).unwrap_or(Word::Internal),
            Error::Unreachable(_) => Word::Unavailable,
            Error::Strange(_) => Word::Internal,
        }
    }

    /// As the body of an answer, for those who read JSON.
    pub fn body(&self) -> Refused {
        match self {
            Error::Refused(refused) => (**refused).clone(),
            Error::Unreachable(_) | Error::Strange(_) => {
                Refused { error: self.word().text().to_owned(), message: self.to_string(), ..Refused::default() }
            }
        }
    }
}
