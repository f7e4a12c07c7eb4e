//! Where the database is, read from its URL. Shows no password, and no part of the URL that might be one by mistake.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::error::AdvisoryLockError;
use crate::limits::{CONNECT_TIME_MAX, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_RETRIES, USER_TIMEOUT};
use crate::tls::{Encrypted, Files, Tls};

const APPLICATION: &str = "lockkeeper-advisory";

/// A database that can be connected to.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: Tls,
    /// By which a lock held through one pool is known in another of the same database.
    identity: Arc<str>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("database", &self.config.get_dbname()).finish_non_exhaustive()
    }
}

impl Address {
    /// Reads a URL as other programs know it: `postgres://user:password@host:5432/database?sslmode=require`.
    ///
    /// With `sslmode=require`, `verify-ca` or `verify-full` the server's certificate must be trusted and carry its name; `sslrootcert`
    /// names whom to trust, `sslcert` and `sslkey` say who we are.
    pub fn parse(url: &str) -> Result<Address, AdvisoryLockError> {
        // What is taken for a host or a database is looked up and shown: no part of a password may be.
        let login = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        if login.is_some_and(|(login, _)| login.contains(['@', '/', '?', '#'])) {
            let why = "in the database URL, of a user's name and a password @ is written %40, / is %2F, ? is %3F and # is %23";
            return Err(AdvisoryLockError::Invalid(why.to_owned()));
        }
        let (url, files, verify) = take_tls(url)?;
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            AdvisoryLockError::Invalid(format!(
                "the database URL can't be read: {why}; write postgres://user:password@host:5432/database"
            ))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(AdvisoryLockError::Invalid(
                "the database URL names no host; write postgres://user:password@host:5432/database".to_owned(),
            ));
        }
        // What the URL says itself stands.
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIME_MAX);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_idle(KEEPALIVE_IDLE).keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(KEEPALIVE_RETRIES);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(USER_TIMEOUT);
        }
        let verify = verify || config.get_ssl_mode() == SslMode::Require;
        let identity = identity(&config);
        // Certificates are looked for only where they are asked about.
        let tls = Tls::new(&files, verify)?;
        Ok(Address { config, tls, identity })
    }

    /// With this name in `pg_stat_activity`, unless the URL gives one.
    #[must_use]
    pub fn named(mut self, application: &str) -> Address {
        if self.config.get_application_name() == Some(APPLICATION) {
            self.config.application_name(application);
        }
        self
    }

    /// With this password, if the URL has none.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Address {
        if self.config.get_password().is_none() {
            self.config.password(password);
        }
        self
    }

    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    pub(crate) fn identity(&self) -> &Arc<str> {
        &self.identity
    }

    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Connects, with a further option of the session if there is one.
    pub(crate) async fn connect(&self, option: Option<&str>) -> Result<Connected, tokio_postgres::Error> {
        let mut config = self.config.clone();
        if let Some(option) = option {
            let given = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
            config.options(format!("{given}{option}"));
        }
        config.connect(self.tls.clone()).await
    }
}

pub(crate) type Connected = (Client, Connection<Socket, Encrypted<Socket>>);

/// Takes out what the client library does not read: the files, and modes that mean `require` here.
fn take_tls(url: &str) -> Result<(String, Files, bool), AdvisoryLockError> {
    let (mut files, mut verify) = (Files::default(), false);
    let Some((place, query)) = url.split_once('?').filter(|(place, _)| place.contains("://")) else {
        return Ok((url.to_owned(), files, verify));
    };
    let mut kept: Vec<&str> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let file = || decoded(value).map(PathBuf::from).map(Some);
        match (name, value) {
            ("sslrootcert", "system") => files.root = None,
            ("sslrootcert", _) => files.root = file()?,
            ("sslcert", _) => files.cert = file()?,
            ("sslkey", _) => files.key = file()?,
            ("sslmode", "verify-ca" | "verify-full") => {
                verify = true;
                kept.push("sslmode=require");
            }
            ("sslmode", "allow") => kept.push("sslmode=prefer"),
            (_, _) => kept.push(pair),
        }
    }
    Ok((format!("{place}?{}", kept.join("&")), files, verify))
}

/// Undoes `%2F` and the like.
fn decoded(text: &str) -> Result<String, AdvisoryLockError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| behind.get(..2)).flatten();
        let code = escaped.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| AdvisoryLockError::Invalid("a file in the URL is no text".to_owned()))
}

/// Hosts, ports and the database. Two spellings of one host are two: then a re-entry ends in a timeout.
fn identity(config: &Config) -> Arc<str> {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.to_lowercase(),
            Host::Unix(path) => path.display().to_string(),
        })
        .chain(config.get_hostaddrs().iter().map(ToString::to_string))
        .collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{}|{:?}|{database}", hosts.join(","), config.get_ports()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let address = Address::parse("postgres://me:hunter2@db:5432/app").expect("a URL");
        assert!(!format!("{address:?}").contains("hunter2"));
        assert!(address.has_password());
        for broken in [
            "postgres://me:hunter2@db:port/app",
            "postgres://me:hunter2@db/app?sslmode=hunter2",
            "hunter2",
            "postgres://me:hunter2@db/app?nonsense=hunter2",
            "postgres://me:hunter2@db/app?sslcert=/nowhere",
            "mysql://me:hunter2@db/app",
            "postgres://me:x@hunter2@db/app",
            "postgres://me:x/hunter2@db/app",
        ] {
            let error = Address::parse(broken).expect_err(broken);
            assert!(!error.to_string().contains("ter2"), "{error}");
        }
    }

    #[test]
    fn what_libpq_calls_verified_is_verified_and_its_files_are_read() {
        let (url, files, verify) =
            take_tls("postgres://db/app?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&connect_timeout=3")
                .expect("read");
        assert_eq!(url, "postgres://db/app?sslmode=require&connect_timeout=3");
        assert_eq!(files.root.as_deref(), Some(std::path::Path::new("/etc/ca.pem")));
        assert!(verify);
    }
}
