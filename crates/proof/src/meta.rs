//! `meta.json`: how long a claim lasts. The document writes `"5m"`, the program nanoseconds; both are read.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

use crate::error::{Error, Result, shown};
use crate::limits::{CLAIM_TIMEOUT_DEFAULT, CLAIM_TIMEOUT_MAX, CLAIM_TIMEOUT_MIN, SMALL_FILE_BYTES_MAX};
use crate::place::{Folder, Unread};
use crate::profile::Profile;

pub(crate) const META_FILE: &str = "meta.json";

/// What `meta.json` says, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) claim_timeout: Duration,
    /// The profile in whose spelling the timeout is written.
    pub(crate) spelling: Option<Profile>,
}

impl Meta {
    pub(crate) fn read(proof: &Folder) -> Result<Meta> {
        let mut content = Vec::new();
        let damaged = |what: String| Error::damaged(META_FILE, what);
        match proof.read(META_FILE, SMALL_FILE_BYTES_MAX, &mut content) {
            Ok(()) => Meta::parse(&content).map_err(damaged),
            Err(Unread::Missing) => Ok(Meta { claim_timeout: CLAIM_TIMEOUT_DEFAULT, spelling: None }),
            Err(Unread::NotAFile(what)) => Err(damaged(format!("it is {what}"))),
            Err(Unread::TooLarge(bytes)) => Err(damaged(format!("it has {bytes} bytes"))),
            Err(Unread::Failed(error)) => Err(Error::io(META_FILE)(error)),
        }
    }

    fn parse(content: &[u8]) -> std::result::Result<Meta, String> {
        let value: Value = serde_json::from_slice(content).map_err(|error| shown(&error.to_string()))?;
        let Value::Object(fields) = value else { return Err("it is no object".to_owned()) };
        let (claim_timeout, spelling) = match fields.get("lock_timeout") {
            None | Some(Value::Null) => return Ok(Meta { claim_timeout: CLAIM_TIMEOUT_DEFAULT, spelling: None }),
            Some(Value::String(text)) => {
                let length: SignedDuration =
                    text.parse().map_err(|_| format!("lock_timeout '{}' is no length of time", shown(text)))?;
                let length = Duration::try_from(length).map_err(|_| "lock_timeout is negative".to_owned())?;
                (length, Profile::Doc)
            }
            Some(Value::Number(number)) => {
                let nanoseconds = number.as_u64().ok_or("lock_timeout is no whole number of nanoseconds")?;
                (Duration::from_nanos(nanoseconds), Profile::Af)
            }
            Some(_) => return Err("lock_timeout is neither a text nor a number".to_owned()),
        };
        let claim_timeout = checked_timeout(claim_timeout).map_err(|error| error.to_string())?;
        Ok(Meta { claim_timeout, spelling: Some(spelling) })
    }

    /// The file that a new proof of this profile gets.
    pub(crate) fn initial(profile: Profile, timeout: Duration) -> String {
        match profile {
            Profile::Doc => format!("{{\n  \"lock_timeout\": \"{}\"\n}}\n", spelled(timeout)),
            Profile::Af => {
                format!("{{\n  \"version\": \"1.0\",\n  \"lock_timeout\": {}\n}}\n", timeout.as_nanos())
            }
        }
    }
}

/// `5m`, `90s`, `1500ms`: without anything that a reader of the document might not know.
fn spelled(timeout: Duration) -> String {
    let millis = timeout.as_millis();
    match millis {
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

/// A claim lasts a second to an hour; anything else is refused, never trimmed.
pub(crate) fn checked_timeout(timeout: Duration) -> Result<Duration> {
    if (CLAIM_TIMEOUT_MIN..=CLAIM_TIMEOUT_MAX).contains(&timeout) {
        Ok(timeout)
    } else {
        Err(Error::InvalidTimeout(timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_read_in_both_spellings() {
        let timeout =
            |text: &str| Meta::parse(text.as_bytes()).map(|meta| (meta.claim_timeout.as_secs(), meta.spelling));
        assert_eq!(timeout(r#"{"lock_timeout": "5m"}"#), Ok((300, Some(Profile::Doc))));
        assert_eq!(timeout(r#"{"lock_timeout": "1h"}"#), Ok((3600, Some(Profile::Doc))));
        assert_eq!(timeout(r#"{"lock_timeout": "1m30s"}"#), Ok((90, Some(Profile::Doc))));
        assert_eq!(timeout(r#"{"lock_timeout": 300000000000}"#), Ok((300, Some(Profile::Af))));
        assert_eq!(timeout(r#"{"version": "1.0"}"#), Ok((300, None)));
        for bad in [
            "",
            "[]",
            r#"{"lock_timeout": "soon"}"#,
            r#"{"lock_timeout": "999ms"}"#,
            r#"{"lock_timeout": "61m"}"#,
            r#"{"lock_timeout": 300}"#,
            r#"{"lock_timeout": -1}"#,
            r#"{"lock_timeout": true}"#,
        ] {
            assert!(timeout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_new_proof_gets_says_its_profile() {
        for profile in [Profile::Doc, Profile::Af] {
            let meta = Meta::parse(Meta::initial(profile, CLAIM_TIMEOUT_DEFAULT).as_bytes()).unwrap();
            assert_eq!(meta, Meta { claim_timeout: CLAIM_TIMEOUT_DEFAULT, spelling: Some(profile) });
        }
    }
}
