//! The error words, with the status code and the exit code that go with each. The same words everywhere.

/// One word for what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Busy,
    Deadlock,
    Paused,
    NoPortsAvailable,
    RequestMismatch,
    SequenceMismatch,
    LockLost,
    Compacted,
    RateLimited,
    Unavailable,
    OutcomeUnknown,
    OperationNotPermitted,
    NotOwner,
    NotFound,
    InvalidKey,
    InvalidPath,
    InvalidRange,
    InvalidTtl,
    InvalidSessionId,
    InvalidSpace,
    InvalidRequest,
    LimitExceeded,
    Malformed,
    Unauthorized,
    TooLarge,
    WrongType,
    Internal,
}

impl Word {
    pub const ALL: [Word; 27] = [
        Word::Busy,
        Word::Deadlock,
        Word::Paused,
        Word::NoPortsAvailable,
        Word::RequestMismatch,
        Word::SequenceMismatch,
        Word::LockLost,
        Word::Compacted,
        Word::RateLimited,
        Word::Unavailable,
        Word::OutcomeUnknown,
        Word::OperationNotPermitted,
        Word::NotOwner,
        Word::NotFound,
        Word::InvalidKey,
        Word::InvalidPath,
        Word::InvalidRange,
        Word::InvalidTtl,
        Word::InvalidSessionId,
        Word::InvalidSpace,
        Word::InvalidRequest,
        Word::LimitExceeded,
        Word::Malformed,
        Word::Unauthorized,
        Word::TooLarge,
        Word::WrongType,
        Word::Internal,
    ];

    pub const fn text(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status that carries it.
    pub const fn status(self) -> u16 {
        self.row().1
    }

    /// The exit code of a command that ends with it.
    pub const fn exit_code(self) -> u8 {
        self.row().2
    }

    pub fn parse(text: &str) -> Option<Word> {
        Word::ALL.into_iter().find(|word| word.text() == text)
    }

    const fn row(self) -> (&'static str, u16, u8) {
        match self {
            Word::Busy => ("busy", 409, 5),
            Word::Deadlock => ("deadlock", 409, 5),
            Word::Paused => ("paused", 409, 5),
            Word::NoPortsAvailable => ("no_ports_available", 409, 5),
            Word::RequestMismatch => ("request_mismatch", 409, 5),
            Word::SequenceMismatch => ("sequence_mismatch", 409, 5),
            Word::LockLost => ("lock_lost", 410, 4),
            Word::Compacted => ("compacted", 410, 1),
            Word::RateLimited => ("rate_limited", 429, 7),
            Word::Unavailable => ("unavailable", 503, 3),
            Word::OutcomeUnknown => ("outcome_unknown", 503, 3),
            Word::OperationNotPermitted => ("operation_not_permitted", 403, 6),
            Word::NotOwner => ("not_owner", 403, 4),
            Word::NotFound => ("not_found", 404, 4),
            Word::InvalidKey => ("invalid_key", 422, 2),
            Word::InvalidPath => ("invalid_path", 422, 2),
            Word::InvalidRange => ("invalid_range", 422, 2),
            Word::InvalidTtl => ("invalid_ttl", 422, 2),
            Word::InvalidSessionId => ("invalid_session_id", 422, 2),
            Word::InvalidSpace => ("invalid_space", 422, 2),
            Word::InvalidRequest => ("invalid_request", 422, 2),
            Word::LimitExceeded => ("limit_exceeded", 422, 2),
            Word::Malformed => ("malformed", 400, 2),
            Word::Unauthorized => ("unauthorized", 401, 6),
            Word::TooLarge => ("too_large", 413, 2),
            Word::WrongType => ("wrong_type", 415, 2),
            Word::Internal => ("internal", 500, 1),
        }
    }
}
