//! Which space is meant, and whether other worktrees of the repository belong to it.

use anyhow::{Result, bail};

use super::Config;

impl Config {
    pub(crate) fn space(&self) -> Result<String> {
        if let Some(space) = self.named_space() {
            return Ok(space);
        }
        match self.worktrees().as_deref() {
            None | Some("shared" | "separate") => Ok(self.place.space()),
            Some(other) => bail!("worktrees is \"shared\" or \"separate\", not \"{other}\""),
        }
    }

    fn named_space(&self) -> Option<String> {
        self.text(&["LOCKKEEPER_SPACE"], |file| file.space.as_ref())
    }

    fn worktrees(&self) -> Option<String> {
        self.text(&[], |file| file.worktrees.as_ref())
    }

    /// With worktrees that are to be separate, this one shares nothing with the others: their files are outside. A space that has a
    /// name is one for all who name it.
    pub(super) fn apart(mut self) -> Config {
        self.place.separate = self.named_space().is_none() && self.worktrees().as_deref() == Some("separate");
        self
    }
}
