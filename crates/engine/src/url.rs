//! From an engine's URL to the engine.

use std::path::Path;
use std::sync::Arc;

use lockkeeper_core::space::Space;

use crate::{Durability, Embedded, Engine, EngineError, Memory, Postgres, Redis};

/// What an engine is opened with, as far as it concerns it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Of `file:`.
    pub durability: Durability,
    /// Of Redis: the space whose files are shared with clients that know nothing of Lockkeeper.
    pub shared_space: Option<Space>,
}

/// Opens the engine that a URL names: `memory:`, `file:DIR`, `redis://` or a relative of it, `postgres://`.
pub async fn open(url: &str, options: &Options) -> Result<Arc<dyn Engine>, EngineError> {
    match named(url)? {
        Named::Memory => Ok(Arc::new(Memory::new())),
        Named::File(directory) => Ok(Arc::new(Embedded::open(directory, options.durability)?)),
        Named::Postgres => Ok(Arc::new(Postgres::open(url).await?)),
        Named::Redis => Ok(Arc::new(Redis::open(url).await?.sharing(options.shared_space.clone()).await?)),
    }
}

/// Where the engine of a URL keeps things, without any secret. Opens nothing; refuses what [`open`] would not know.
pub fn place_of(url: &str) -> Result<String, EngineError> {
    match named(url)? {
        Named::Memory | Named::File(_) => Ok(url.to_owned()),
        Named::Postgres => Postgres::place_of(url),
        Named::Redis => Redis::place_of(url),
    }
}

/// What a URL names.
enum Named<'a> {
    Memory,
    File(&'a Path),
    Postgres,
    Redis,
}

fn named(url: &str) -> Result<Named<'_>, EngineError> {
    // Nothing but the scheme is repeated: the rest may hold a password.
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(EngineError::Invalid(format!("that is no engine: {KNOWN}")));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Named::Memory),
        "memory" => Err(EngineError::Invalid("`memory:` takes nothing behind the colon".to_owned())),
        "file" => Ok(Named::File(directory(rest)?)),
        "postgres" | "postgresql" => Ok(Named::Postgres),
        _ if Redis::is_scheme(scheme) => Ok(Named::Redis),
        other => Err(EngineError::Invalid(format!("there is no engine `{other}:`: {KNOWN}"))),
    }
}

const KNOWN: &str = "use `memory:`, `file:DIR`, `redis://HOST:PORT` or `postgres://HOST/DATABASE`";

/// A part of a password that is taken for a host or a database would be shown.
pub(crate) fn check_login(url: &str) -> Result<(), EngineError> {
    let login = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    if login.is_some_and(|(login, _)| login.contains(['/', '?', '#'])) {
        let why = "in a user's name or a password / is written %2F, ? is %3F and # is %23; elsewhere, @ is %40";
        return Err(EngineError::Invalid(why.to_owned()));
    }
    Ok(())
}

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
        place_of(url).expect_err(url).to_string()
    }

    #[test]
    fn an_unknown_scheme_is_told_what_exists_and_never_repeats_a_password() {
        assert_eq!(refusal("ftp://me:secret@host"), format!("there is no engine `ftp:`: {KNOWN}"));
        assert!(refusal("nonsense").contains(KNOWN));
        assert!(!refusal("redis://me:secret@host:x").contains("secret"));
        assert!(!refusal("postgres://me:secret@host:x").contains("secret"));
        assert!(!refusal("postgres://me@host/db?password=x&secret=y").contains("secret"));
        for scheme in ["redis", "redis+sentinel", "redis+cluster", "postgres"] {
            for login in ["me/x:secret", "me:x/secret", "me?x:secret", "me:x?y=secret"] {
                let told = refusal(&format!("{scheme}://{login}@host/0"));
                assert!(told.contains("%2F") && !told.contains("secret"), "{told}");
            }
        }
    }

    #[test]
    fn a_url_that_names_no_place_is_refused() {
        for url in ["file:", "file://host/dir", "memory:x", "", "redis:", "redis://", "postgres:", "postgres://"] {
            refusal(url);
        }
    }

    #[test]
    fn a_place_holds_no_secret() {
        assert_eq!(place_of("file:/x").as_deref(), Ok("file:/x"));
        assert_eq!(place_of("rediss://me:secret@host/3").as_deref(), Ok("rediss://host:6379/3"));
        assert_eq!(place_of("postgresql://me:secret@host/locks").as_deref(), Ok("postgres://host:5432/locks"));
    }

    #[test]
    fn another_schema_is_another_place() {
        let named = place_of("postgres://me:secret@host/locks?options=-c%20search_path%3Dours");
        assert_eq!(named.as_deref(), Ok("postgres://host:5432/locks?search_path=ours"));
        assert!(refusal("postgres://host/locks/").contains("no slash"));
    }

    #[tokio::test]
    async fn the_scheme_decides_which_engine_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let url = format!("file:{}", dir.path().join("deep/er").display());
        let engine = open(&url, &Options::default()).await.expect("opens");
        assert_eq!((engine.scheme(), engine.place()), ("file", url));
        assert_eq!(open("memory:", &Options::default()).await.expect("opens").scheme(), "memory");
    }
}
