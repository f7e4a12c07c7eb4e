//! Passwords where everybody can read them: on the command line.

use lockkeeper_core::text::percent_decoded;
use lockkeeper_wire::word::Word;

use crate::failure::Failure;

/// Refuses a URL that holds a password, with the way out.
pub(crate) fn refuse(url: &str, hint: &str) -> Result<(), Failure> {
    let login = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let in_login = login.is_some_and(|(login, _)| login.contains(':'));
    // As an option of a URL, with an escaped name, perhaps, or as libpq writes it.
    if in_login || percent_decoded(url).to_ascii_lowercase().contains("password=") {
        return Err(Failure::Question {
            word: Word::InvalidRequest,
            message: "A password on the command line can be read by every user of this machine.".to_owned(),
            hint: Some(hint.to_owned()),
        });
    }
    Ok(())
}
