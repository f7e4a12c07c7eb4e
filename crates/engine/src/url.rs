//! From an engine's URL to the engine.

use std::path::Path;
use std::sync::Arc;

use crate::{Durability, Embedded, Engine, EngineError, Memory};

/// Opens the engine that a URL names: `memory:` or `file:DIR`.
pub fn open(url: &str, durability: Durability) -> Result<Arc<dyn Engine>, EngineError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(EngineError::Invalid(format!("`{url}` is no engine: {KNOWN}")));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Arc::new(Memory::new())),
        "memory" => Err(EngineError::Invalid("`memory:` takes nothing behind the colon".to_owned())),
        "file" => Ok(Arc::new(Embedded::open(directory(rest)?, durability)?)),
        // Only the scheme is repeated: the rest may hold a password.
        other => Err(EngineError::Invalid(format!("there is no engine `{other}:`: {KNOWN}"))),
    }
}

/// Whether [`open`] would know what to open. Opens nothing.
pub fn check_url(url: &str) -> Result<(), EngineError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(()),
        Some(("file", rest)) => directory(rest).map(|_| ()),
        _ => open(url, Durability::Always).map(|_| ()),
    }
}

const KNOWN: &str = "use `memory:` or `file:DIR`";

fn directory(rest: &str) -> Result<&Path, EngineError> {
    let host = rest.starts_with("//") && !rest.starts_with("///");
    if rest.is_empty() || host {
        return Err(EngineError::Invalid(
            "`file:` takes a directory of this machine, such as `file:/var/lib/lockkeeper`".to_owned(),
        ));
    }
    Ok(Path::new(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        open(url, Durability::Always).map(|engine| engine.place()).expect_err(url).to_string()
    }

    #[test]
    fn an_unknown_scheme_is_told_what_exists_and_never_repeats_a_password() {
        assert_eq!(refusal("redis://me:secret@host"), "there is no engine `redis:`: use `memory:` or `file:DIR`");
        assert!(refusal("nonsense").contains("use `memory:` or `file:DIR`"));
    }

    #[test]
    fn a_url_that_names_no_place_is_refused() {
        for url in ["file:", "file://host/dir", "memory:x", ""] {
            refusal(url);
        }
    }

    #[test]
    fn the_scheme_decides_which_engine_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let url = format!("file:{}", dir.path().join("deep/er").display());
        let engine = open(&url, Durability::Always).expect("opens");
        assert_eq!((engine.scheme(), engine.place()), ("file", url));
        assert_eq!(open("memory:", Durability::Always).expect("opens").scheme(), "memory");
    }
}
