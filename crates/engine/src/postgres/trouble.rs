//! What a failure of a statement means for what it was to change.

use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::address::Address;
use crate::EngineError;
use crate::remote::Trouble;

/// Of a statement that was sent. The server either rolled it back, or took its answer with it.
pub(super) fn of(error: &Error, place: &Address) -> Trouble {
    let Some(told) = error.as_db_error() else {
        return Trouble::Lost(unreachable(place, error));
    };
    let state = told.code();
    let why = EngineError::Unreachable(format!("{place} refused: {} ({})", told.message(), state.code()));
    match state.code().get(..2).unwrap_or_default() {
        // Ended by the operator or with the server: what waited for its replicas may be committed.
        "57" if *state != SqlState::QUERY_CANCELED => Trouble::Lost(why),
        "08" | "58" | "XX" => Trouble::Lost(why),
        // Out of disk, of memory, of whatever.
        "53" => Trouble::Full,
        "42" if is_missing(state) => {
            Trouble::Unchanged(EngineError::Unreachable(format!("{place}: its tables are gone; they are made anew")))
        }
        "42" if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
            let hint = "its user needs the permissions that docs/engines.md lists";
            Trouble::Unchanged(EngineError::Unreachable(format!("{place} refused: {}; {hint}", told.message())))
        }
        _ => Trouble::Unchanged(why),
    }
}

/// The tables or functions are not there.
pub(super) fn is_missing(state: &SqlState) -> bool {
    [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_OBJECT, SqlState::INVALID_SCHEMA_NAME]
        .contains(state)
}

/// Of something that never came so far as to change anything. Holds no secret: PostgreSQL does not repeat passwords.
pub(super) fn unreachable(place: &Address, error: &Error) -> EngineError {
    if let Some(told) = error.as_db_error() {
        let why = format!("{place} refused: {}", told.message());
        // A wrong password, no such user or database: trying again does not help.
        return match told.code().code().get(..2) {
            Some("28" | "3D") => EngineError::Invalid(why),
            _ => EngineError::Unreachable(why),
        };
    }
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    EngineError::Unreachable(format!("{place} can't be reached: {error}{cause}"))
}
