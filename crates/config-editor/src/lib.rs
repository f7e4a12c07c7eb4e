//! Changes TOML, YAML and JSON files, one key at a time, together with others.
//!
//! - Two writers at once lose nothing: reading, changing and writing happen under a lock on a file beside it
//!   (`.NAME.lock`, which stays).
//! - Readers need no lock: the file is replaced in one step, and synced before.
//! - Every byte that was not meant stays: comments, order, layout, unknown keys, line ends. After each change the text is read
//!   again and has to be the old document with just that change; else nothing is written.
//! - A link stays a link. A file keeps its mode and, where that is allowed, its owner; a new one is for its owner alone.
//!   (Hard links to it keep the old content, and extended attributes are not carried over.)
//!
//! ```
//! use lockkeeper_config_editor::{Editor, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("app.yaml");
//! std::fs::write(&path, "# Ours.\nserver:\n  port: 80 # the old one\n")?;
//!
//! let editor = Editor::new(&path)?.validator(|document| match document.get(&"server.port".parse().unwrap()) {
//!     Some(Value::Number(port)) if port.parse::<u16>().is_ok() => Ok(()),
//!     _ => Err("server.port is a port".to_owned()),
//! });
//! editor.set(&"server.port".parse()?, &Value::from(8080))?;
//! editor.set(&"server.hosts".parse()?, &Value::List(vec!["a.example".into()]))?;
//! assert!(editor.set(&"server.port".parse()?, &Value::from("http")).is_err());
//!
//! let text = std::fs::read_to_string(&path)?;
//! assert_eq!(text, "# Ours.\nserver:\n  port: 8080 # the old one\n  hosts: [a.example]\n");
//! # Ok(())
//! # }
//! ```
//!
//! Keys are dotted; a name with dots is quoted (`servers."db.internal".port`). An item of a list is `hosts[0]` or `hosts.0`,
//! and `hosts[]` adds one. `null` counts as missing when something is put below it.
//!
//! What is refused, each with its reason: several YAML documents in one file, a name that stands twice, a change that
//! an alias would carry elsewhere or that a tag forbids, and what is beyond [`limits`].

mod block;
mod document;
mod editor;
mod error;
mod file;
mod flow;
mod format;
mod json;
mod key;
pub mod limits;
mod lock;
mod merge;
mod node;
mod scalar;
mod splice;
mod toml;
mod value;
mod yaml;

pub use document::Document;
pub use editor::{Changed, Editor};
pub use error::Error;
pub use format::Format;
pub use key::{Key, Step};
pub use merge::merge;
pub use value::Value;

use std::path::Path;

/// The value at a key of a file.
pub fn get(path: &Path, key: &str) -> Result<Option<Value>, Error> {
    Editor::new(path)?.get(&key.parse()?)
}

/// Puts a value at a key of a file.
pub fn set(path: &Path, key: &str, value: &Value) -> Result<Changed<bool>, Error> {
    Editor::new(path)?.set(&key.parse()?, value)
}

/// Takes a key away from a file.
pub fn unset(path: &Path, key: &str) -> Result<Changed<bool>, Error> {
    Editor::new(path)?.unset(&key.parse()?)
}

/// Changes several keys of a file in one step.
pub fn change<T>(path: &Path, change: impl FnOnce(&mut Document) -> Result<T, Error>) -> Result<Changed<T>, Error> {
    Editor::new(path)?.change(change)
}
