//! The name of a space: what one ledger covers.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::SPACE_BYTES_MAX;

/// The name of one ledger: a repository's common directory, a folder, or a configured name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Space(Arc<str>);

/// Why a text is no name of a space. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a space is 1 to {SPACE_BYTES_MAX} bytes of text without control characters or white space at its ends")]
pub struct InvalidSpace;

impl Space {
    pub fn parse(text: &str) -> Result<Space, InvalidSpace> {
        let plain = !text.is_empty()
            && text.len() <= SPACE_BYTES_MAX
            && text.trim() == text
            && !text.chars().any(crate::text::is_unprintable);
        if plain { Ok(Space(text.into())) } else { Err(InvalidSpace) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Space {
    type Error = InvalidSpace;
    fn try_from(text: String) -> Result<Space, InvalidSpace> {
        Space::parse(&text)
    }
}

impl From<Space> for String {
    fn from(space: Space) -> String {
        space.0.to_string()
    }
}
