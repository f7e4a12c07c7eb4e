//! `lockkeeper config unset`

use clap::Args;
use lockkeeper_config_editor::Error;

use super::{EXAMPLES, Which, parsed, report, told, warn};
use crate::context::Context;
use crate::failure::Failure;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Unset {
    /// Such as lock.default_ttl or hosts[0].
    #[arg(value_name = "KEY")]
    key: String,
    #[command(flatten)]
    which: Which,
}

impl Unset {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let key = parsed(&self.key)?;
        let chosen = self.which.choose(Some(&key))?;
        let editor = chosen.editor(self.which.wait()?)?;
        // Without a file there is nothing to lock.
        if editor.get(&key).map_err(told)?.is_none() {
            return Err(told(Error::NotFound(format!("{key} in {}", chosen.path.display()))));
        }
        let changed = editor.unset(&key).map_err(told)?;
        if !changed.answer {
            return Err(told(Error::NotFound(key.to_string())));
        }
        report(context, "unset", &key, &changed);
        warn(context, &chosen, &key);
        Ok(())
    }
}
