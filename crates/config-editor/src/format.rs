//! Which language a file is written in, by its name.

use std::fmt;
use std::path::Path;

use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Toml,
    Yaml,
    /// Comments and a comma behind the last value, as editors' settings have them, are read and kept.
    Json,
}

impl Format {
    /// By the extension.
    pub fn of(path: &Path) -> Result<Format, Error> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "toml" => Ok(Format::Toml),
            "yaml" | "yml" => Ok(Format::Yaml),
            "json" | "jsonc" => Ok(Format::Json),
            _ => Err(Error::UnknownFormat(path.to_owned())),
        }
    }

    pub const fn extension(self) -> &'static str {
        match self {
            Format::Toml => "toml",
            Format::Yaml => "yaml",
            Format::Json => "json",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Toml => "TOML",
            Format::Yaml => "YAML",
            Format::Json => "JSON",
        })
    }
}
