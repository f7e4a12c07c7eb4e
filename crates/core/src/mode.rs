//! Alone, or together with others of the same mind.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    #[default]
    Exclusive,
    Shared,
}

impl Mode {
    /// Only shared with shared is no conflict.
    pub const fn conflicts(self, other: Mode) -> bool {
        !matches!((self, other), (Mode::Shared, Mode::Shared))
    }

    /// Who has this needs no other.
    pub const fn is_as_good_as(self, other: Mode) -> bool {
        matches!((self, other), (Mode::Exclusive, _) | (Mode::Shared, Mode::Shared))
    }

    pub const fn word(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
