//! Where a service is.

use std::path::PathBuf;

use crate::error::Error;

/// A service's address, with the credential that opens it.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    Unix(PathBuf),
    Http { url: String, credential: Option<String> },
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Endpoint {
    /// Without the credential.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Http { url, .. } => f.write_str(url),
        }
    }
}

impl Endpoint {
    /// Reads `unix:PATH` or `http://HOST:PORT`.
    pub fn parse(text: &str, credential: Option<String>) -> Result<Endpoint, Error> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Endpoint::Unix(PathBuf::from(path)));
        }
        if let Some(rest) = text.strip_prefix("http://").filter(|rest| !rest.is_empty()) {
            if rest.contains('@') {
                return Err(Error::Unreachable("a URL carries no password here; use LOCKKEEPER_CREDENTIAL".to_owned()));
            }
            return Ok(Endpoint::Http { url: text.trim_end_matches('/').to_owned(), credential });
        }
        Err(Error::Unreachable("a service is at unix:PATH or http://HOST:PORT".to_owned()))
    }
}
