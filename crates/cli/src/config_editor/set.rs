//! `lockkeeper config set`

use std::io::Read;

use clap::Args;
use lockkeeper_config_editor::{Error, Key, Value, limits};

use super::known::{self, Known};
use super::{Chosen, EXAMPLES, Which, Whose, parsed, report, space, told_of_key, warn};
use crate::context::Context;
use crate::failure::Failure;
use crate::{again, config, password};

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
        let before = space();
        let changed = editor.set(&key, &value).map_err(|error| self.told(error, &chosen, &key))?;
        report(context, "set", &key, &changed);
        warn(context, &chosen, &key, &changed, before.as_deref());
        Ok(())
    }

    /// A number is no length of time: what is suggested has a unit, and is taken.
    fn told(&self, error: Error, chosen: &Chosen, key: &Key) -> Failure {
        let is_no_text =
            |error: &Error| matches!(error, Error::Refused(why) if why.contains(&format!("{key} is a text, not ")));
        let is_bare = is_no_text(&error) && known::find(key).is_some_and(Known::is_length);
        match told_of_key(error) {
            Failure::Question { word, message, hint: _ } if is_bare => {
                let hint = self.with_unit(chosen, key).unwrap_or_else(|| "write 20s, 5m or 1h30m".to_owned());
                Failure::Question { word, message, hint: Some(hint) }
            }
            other => other,
        }
    }

    /// The same command with a unit behind the value.
    fn with_unit(&self, chosen: &Chosen, key: &Key) -> Option<String> {
        let of_repository = chosen.whose == Whose::Repository;
        let is_taken = |length: &String| config::judge(&format!("{key} = \"{length}\""), of_repository).is_ok();
        let length = ["s", "ms"].map(|unit| format!("{}{unit}", self.value)).into_iter().find(is_taken)?;
        again::instead(&self.value, &length)
    }
}

/// A text without the line break that ends it.
fn input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().take(limits::FILE_BYTES_MAX as u64).read_to_string(&mut text)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}
