//! `lockkeeper config get`

use clap::Args;
use std::io::IsTerminal as _;

use lockkeeper_config_editor::{Document, Error, Format, Key, Value};
use lockkeeper_core::text::percent_decoded;
use lockkeeper_wire::word::Word;
use serde_json::json;

use super::known::{self, Known};
use super::{EXAMPLES, Which, dotted, parsed, repository_file, told, user_file};
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::place::Place;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    /// Left out: everything.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    which: Which,
}

impl Get {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let key = self.key.as_deref().map(parsed).transpose()?;
        if self.which.is_open() {
            let settings = InForce::read()?;
            return match key {
                Some(key) => settings.one(context, &key),
                None => {
                    settings.all(context);
                    Ok(())
                }
            };
        }
        let chosen = self.which.choose(key.as_ref())?;
        if self.which.file.is_some() && !chosen.path.exists() {
            let message = format!("there is no file {}", chosen.path.display());
            return Err(Failure::Question { word: Word::NotFound, message, hint: None });
        }
        let document = chosen.editor(self.which.wait()?)?.read().map_err(told)?;
        let (value, name) = match &key {
            Some(key) => {
                let missing = || Error::NotFound(key.to_string());
                (document.get(key).ok_or_else(|| missing_told(missing()))?, key.to_string())
            }
            None => (document.value(), String::new()),
        };
        print(context, &name, value, document.format(), &chosen.path.display().to_string());
        Ok(())
    }
}

/// Reading changes nothing, so that nobody need be told.
fn missing_told(error: Error) -> Failure {
    match told(error) {
        Failure::Question { word, message, hint } => {
            Failure::Question { word, message: message.replace("; nothing was changed", ""), hint }
        }
        other => other,
    }
}

fn print(context: &Context, key: &str, value: &Value, format: Format, from: &str) {
    if context.global.json {
        output::json(&json!({ "success": true, "key": key, "value": as_json(value), "from": from }));
    } else {
        let shown = value.shown(format);
        let shown = shown.trim_end_matches('\n');
        if std::io::stdout().is_terminal() {
            say!("{shown}");
        } else {
            // A program gets it as it is.
            output::write(&mut std::io::stdout(), format!("{shown}\n").as_bytes());
        }
    }
}

fn as_json(value: &Value) -> serde_json::Value {
    let text = value.to_json();
    serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text))
}

/// The settings as they count here, with what says each.
struct InForce {
    repository: (Document, String),
    user: Option<(Document, String)>,
    /// All of them together, if they can be used.
    config: Option<Config>,
}

impl InForce {
    fn read() -> Result<InForce, Failure> {
        let read = |chosen: super::Chosen| {
            let text = match crate::config::text_of(&chosen.path, crate::config::CONFIG_BYTES_MAX) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
                other => other?,
            };
            let document = Document::parse(Format::Toml, &text).map_err(told)?;
            Ok::<_, Failure>((document, chosen.path.display().to_string()))
        };
        let repository = read(repository_file(&Place::find()?))?;
        let user = user_file().ok().map(read).transpose()?;
        Ok(InForce { repository, user, config: Config::load().ok() })
    }

    fn in_files(&self, key: &Key) -> Option<(Value, String)> {
        let files = [Some(&self.repository), self.user.as_ref()];
        files.into_iter().flatten().find_map(|(document, path)| Some((document.get(key)?.clone(), path.clone())))
    }

    fn value(&self, setting: &Known) -> Option<(Value, String)> {
        let of = |name: &str| Some((Value::Text(std::env::var(name).ok()?), name.to_owned()));
        let key: Key = setting.key.parse().ok()?;
        setting
            .variable()
            .and_then(of)
            .or_else(|| self.in_files(&key))
            .or_else(|| setting.late_variable().and_then(of))
            .or_else(|| Some((self.default(setting)?, "default".to_owned())))
    }

    /// What counts where nothing is said. Where locks are depends on where one stands.
    fn default(&self, setting: &Known) -> Option<Value> {
        match (setting.key, &self.config) {
            ("space", Some(config)) => config.space().ok().map(Value::Text),
            ("engine", Some(config)) => Some(Value::Text(config.engine().url)),
            (_, _) => (!setting.default.is_empty()).then(|| Value::text(setting.default)),
        }
    }

    fn one(&self, context: &Context, key: &Key) -> Result<(), Failure> {
        let found = known::find(key).and_then(|setting| self.value(setting)).or_else(|| self.in_files(key));
        let Some((value, from)) = found else {
            let name = dotted(key).unwrap_or_default();
            let meant = known::nearest(&name).filter(|_| known::find(key).is_none());
            let Failure::Question { word, message, .. } = missing_told(Error::NotFound(key.to_string())) else {
                return Err(Failure::Silent(4));
            };
            let hint = meant.map(|meant| format!("lockkeeper config get {meant}"));
            return Err(Failure::Question { word, message, hint });
        };
        print(context, &key.to_string(), &value, Format::Toml, &from);
        Ok(())
    }

    fn all(&self, context: &Context) {
        let rows = known::ALL.iter().filter_map(|setting| {
            let (value, from) = self.value(setting)?;
            Some((setting.key, without_password(value), from))
        });
        if context.global.json {
            let rows: Vec<_> =
                rows.map(|(key, value, from)| json!({ "key": key, "value": as_json(&value), "from": from })).collect();
            output::json(&json!({ "success": true, "settings": rows }));
            return;
        }
        let shown = |value: &Value| match value {
            Value::Map(_) | Value::List(_) => value.to_json(),
            other => other.shown(Format::Toml),
        };
        output::table(["Key", "Value", "From"], rows.map(|(key, value, from)| [key.to_owned(), shown(&value), from]));
    }
}

/// A list of everything is shown around; a password in a URL is not for that.
fn without_password(value: Value) -> Value {
    let Value::Text(text) = &value else { return value };
    // Names of options may be escaped, and a password's is one of them.
    if let Some((place, options)) = text.split_once('?')
        && percent_decoded(options).to_ascii_lowercase().matches("password=").count()
            != options.to_ascii_lowercase().matches("password=").count()
    {
        return without_login(Value::Text(format!("{place}?***")));
    }
    // As an option of a URL, or as libpq writes it.
    let lower = text.to_ascii_lowercase();
    if let Some(at) = lower.find("password=") {
        let start = at + "password=".len();
        let end = text[start..].find(['&', ' ']).map_or(text.len(), |length| start + length);
        let masked = Value::Text(format!("{}***{}", &text[..start], &text[end..]));
        return if text[end..].contains("password=") { Value::text("***") } else { without_login(masked) };
    }
    without_login(value)
}

fn without_login(value: Value) -> Value {
    let Value::Text(text) = &value else { return value };
    let Some((scheme, rest)) = text.split_once("://") else {
        // A slip in the URL of an engine, perhaps: its password is one all the same.
        let engine = ["redis", "postgres"].iter().find(|scheme| text.to_ascii_lowercase().starts_with(**scheme));
        return match engine.filter(|_| text.contains('@')) {
            Some(scheme) => Value::Text(format!("{scheme}***")),
            None => value,
        };
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password may hold a slash that nobody has escaped: the last @ of all is the safer end.
    match rest.rfind('@') {
        Some(at) if rest[..at].contains(':') => {
            let user = rest[..at].split(':').next().unwrap_or_default();
            Value::Text(format!("{scheme}://{user}:***@{}", &rest[at + 1..]))
        }
        Some(at) if at < end => Value::Text(format!("{scheme}://***@{}", &rest[at + 1..])),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_settings_holds_no_password() {
        for url in ["redis://:hunter2@h:1/0", "redis://u:hunter2@h", "redis://u:hun/ter2@h", "rediss://hunter2@h"] {
            let Value::Text(shown) = without_password(url.into()) else { panic!("{url}") };
            assert!(!shown.contains("ter2") && shown.contains("***@h"), "{shown}");
        }
        for url in [
            "postgres://u@h/x?password=hunter2",
            "redis:u:hunter2@h",
            "redis//u:hunter2@h",
            "postgresql:u:hunter2@h/db",
            "host=h password=hunter2 user=u",
            "postgres://h/x?a=b&PASSWORD=hunter2&c=d",
        ] {
            let Value::Text(shown) = without_password(url.into()) else { panic!("{url}") };
            assert!(!shown.contains("ter2") && shown.contains("***"), "{shown}");
        }
        for plain in ["redis://h:6379", "file:x@y", "30s", "http://h/a@b"] {
            assert_eq!(without_password(plain.into()), Value::from(plain));
        }
    }
}
