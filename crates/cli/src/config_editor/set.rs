//! `lockkeeper config set`

use std::io::Read;

use clap::Args;
use lockkeeper_config_editor::{Value, limits};

use super::{EXAMPLES, Which, Whose, parsed, report, told_of_key, warn};
use crate::context::Context;
use crate::failure::Failure;
use crate::password;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Set {
    /// Such as lock.default_ttl, servers."db.internal".port, rules[0].name, or hosts[] for one more item.
    #[arg(value_name = "KEY")]
    key: String,
    /// true, 5, "text", [1, 2], {"a": 1} as the file's format has it, else a text; - reads a text from standard input.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
    /// Take VALUE as a text, whatever it looks like.
    #[arg(long)]
    string: bool,
    #[command(flatten)]
    which: Which,
}

impl Set {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let key = parsed(&self.key)?;
        let chosen = self.which.choose(Some(&key))?;
        let editor = chosen.editor(self.which.wait()?)?;
        let value = match self.value.as_str() {
            "-" => Value::Text(input()?),
            text if self.string => Value::text(text),
            typed => Value::typed(editor.format(), typed),
        };
        if self.value != "-" && chosen.whose != Whose::Other {
            password::refuse(
                &self.value,
                &format!("lockkeeper config set {key} - < FILE, with the URL in a file of yours"),
            )?;
        }
        chosen.make_folder()?;
        let changed = editor.set(&key, &value).map_err(told_of_key)?;
        report(context, "set", &key, &changed);
        warn(context, &chosen, &key, &changed);
        Ok(())
    }
}

/// A text without the line break that ends it.
fn input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().take(limits::FILE_BYTES_MAX as u64).read_to_string(&mut text)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}
