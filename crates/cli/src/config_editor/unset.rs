//! `lockkeeper config unset`

use clap::Args;
use lockkeeper_config_editor::Error;
use lockkeeper_wire::word::Word;

use super::{EXAMPLES, Which, parsed, report, space, told, told_of_key, warn};
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
            let message = format!("there is no '{key}' in {}; nothing was changed", chosen.path.display());
            return Err(Failure::Question { word: Word::NotFound, message, hint: None });
        }
        let before = space();
        let changed = editor.unset(&key).map_err(told_of_key)?;
        if !changed.answer {
            return Err(told(Error::NotFound(key.to_string())));
        }
        report(context, "unset", &key, &changed);
        warn(context, &chosen, &key, &changed, before.as_deref());
        Ok(())
    }
}
