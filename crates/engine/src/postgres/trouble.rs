//! What a failure of a statement means for what it was to change.

use std::error::Error as _;

use tokio_postgres::Error;

use super::address::Address;
use crate::EngineError;
use crate::remote::Trouble;

/// What the server says about a statement that failed, by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// It was rolled back.
    Refused,
    /// It was rolled back: there is no room on the disk.
    NoRoom,
    /// It was rolled back: the tables or the functions are not there.
    Missing,
    /// It was rolled back: this user may not do it.
    NotAllowed,
    /// It may be committed: the session was ended, maybe while the commit waited for a replica, or worse.
    Ended,
}

fn said(code: &str) -> Said {
    match (code.get(..2).unwrap_or_default(), code) {
        // A statement that was cancelled is rolled back: while it commits it can't be cancelled any more.
        (_, "57014") => Said::Refused,
        (_, "53100") => Said::NoRoom,
        (_, "42P01" | "42883" | "42704" | "3F000") => Said::Missing,
        (_, "42501") => Said::NotAllowed,
        ("57" | "08" | "58" | "XX" | "F0", _) | (_, "40003") => Said::Ended,
        (_, _) => Said::Refused,
    }
}

/// Of a statement that was sent.
pub(super) fn of(error: &Error, place: &Address) -> Trouble {
    let Some(told) = error.as_db_error() else {
        return Trouble::Lost(unreachable(place, error));
    };
    let (code, message) = (told.code().code(), told.message());
    let why = |more: &str| EngineError::Unreachable(format!("{place} refused: {message} ({code}){more}"));
    match said(code) {
        Said::Refused => Trouble::Unchanged(why("")),
        Said::NoRoom => Trouble::Full,
        Said::Missing => Trouble::Unchanged(why("; its tables are looked at again")),
        Said::NotAllowed => Trouble::Unchanged(why("; its user needs the permissions that docs/engines.md lists")),
        Said::Ended => Trouble::Lost(why("")),
    }
}

/// The tables or functions are not there, or not as they should be.
pub(super) fn is_missing(error: &Error) -> bool {
    error.as_db_error().is_some_and(|told| said(told.code().code()) == Said::Missing)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_has_rolled_back_counts_as_unchanged() {
        for (code, expected) in [
            // Serialization, deadlock, timeouts, a value that does not fit, a key that is taken.
            ("40001", Said::Refused),
            ("40P01", Said::Refused),
            ("57014", Said::Refused),
            ("55P03", Said::Refused),
            ("22P05", Said::Refused),
            ("23505", Said::Refused),
            ("25006", Said::Refused),
            // Passes within moments, and is no full disk.
            ("53200", Said::Refused),
            ("53300", Said::Refused),
            ("53400", Said::Refused),
            ("53100", Said::NoRoom),
            ("42P01", Said::Missing),
            ("42883", Said::Missing),
            ("42501", Said::NotAllowed),
            // Ended by an operator, with the server, by a crash; and the code that says it outright.
            ("57P01", Said::Ended),
            ("57P02", Said::Ended),
            ("57P03", Said::Ended),
            ("57P05", Said::Ended),
            ("08006", Said::Ended),
            ("58030", Said::Ended),
            ("XX000", Said::Ended),
            ("40003", Said::Ended),
        ] {
            assert_eq!(said(code), expected, "{code}");
        }
    }
}
