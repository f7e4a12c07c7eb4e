//! The URL of a PostgreSQL: where it is, as whom it is spoken to, and how long it may take. Opens nothing.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_core::text::percent_decoded;
use tokio_postgres::config::{Host, SslMode};

use crate::EngineError;
use crate::tls::TlsFiles;
use crate::url::check_login;

const PORT_DEFAULT: u16 = 5432;
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
const TIMEOUT_MS_MIN: u64 = 50;
const TIMEOUT_MS_MAX: u64 = 60_000;

/// Everything that a URL says.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: tokio_postgres::Config,
    /// None: not encrypted.
    pub(super) tls: Option<TlsFiles>,
    /// How long one statement may take.
    pub(super) time_limit: Duration,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address, EngineError> {
        // No message repeats a part of the URL that may hold a password.
        check_login(url)?;
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        if place.matches('@').count() > 1 {
            // Taken for a part of the host it would be shown.
            return Err(invalid("an @ in a user's name or a password is written %40"));
        }
        let mut own = Own::default();
        let mut rest: Vec<&str> = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(|| invalid(OPTIONS))?;
            if !own.take(name, value)? {
                rest.push(option);
            }
        }
        let url = if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
        let mut config: tokio_postgres::Config = url.parse().map_err(|_| invalid(SHAPE))?;
        if config.get_hosts().is_empty() || config.get_dbname().is_none_or(str::is_empty) {
            return Err(invalid(SHAPE));
        }
        if config.get_dbname().is_some_and(|name| name.contains('/')) {
            return Err(invalid("the name of a database has no slash, nor one behind it"));
        }
        let is_near = config.get_hosts().iter().all(is_near);
        let encrypted = match own.sslmode.as_deref() {
            None => !is_near,
            Some("disable") => false,
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(_) => return Err(invalid("sslmode is one of: disable, require, verify-full")),
        };
        if own.files.cert.is_some() != own.files.key.is_some() {
            return Err(invalid("sslcert and sslkey are named together"));
        }
        config.ssl_mode(if encrypted { SslMode::Require } else { SslMode::Disable });
        let time_limit = own.time_limit.unwrap_or(TIMEOUT_DEFAULT);
        let seconds = time_limit.max(Duration::from_secs(1));
        config.connect_timeout(time_limit);
        config.keepalives(true).keepalives_idle(seconds * 5).keepalives_interval(seconds).keepalives_retries(3);
        config.tcp_user_timeout(seconds * 5);
        if config.get_application_name().is_none() {
            config.application_name("lockkeeper");
        }
        Ok(Address { config, tls: encrypted.then_some(own.files), time_limit })
    }
}

impl Address {
    /// In which schema the tables are, if it says so.
    pub(super) fn schema(&self) -> Option<&str> {
        let (_, rest) = self.config.get_options()?.split_once("search_path")?;
        Some(rest.trim_start_matches([' ', '=']).split_whitespace().next().unwrap_or_default())
    }
}

/// What is read here, and not by the client library.
#[derive(Default)]
struct Own {
    sslmode: Option<String>,
    files: TlsFiles,
    time_limit: Option<Duration>,
}

impl Own {
    /// False: it is not one of them.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, EngineError> {
        let file = || PathBuf::from(percent_decoded(value));
        match name {
            "sslmode" => self.sslmode = Some(value.to_owned()),
            "sslrootcert" => self.files.ca = Some(file()),
            "sslcert" => self.files.cert = Some(file()),
            "sslkey" => self.files.key = Some(file()),
            "timeout_ms" => {
                let millis = value.parse().ok().filter(|millis| (TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX).contains(millis));
                let why = "timeout_ms is a number of milliseconds between 50 and 60000";
                self.time_limit = Some(Duration::from_millis(millis.ok_or_else(|| invalid(why))?));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Nobody listens in between.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// Without anything that is secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://")?;
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT_DEFAULT);
            let comma = if index == 0 { "" } else { "," };
            match host {
                Host::Unix(path) => write!(f, "{comma}{}:{port}", path.display())?,
                Host::Tcp(name) if name.contains(':') => write!(f, "{comma}[{name}]:{port}")?,
                Host::Tcp(name) => write!(f, "{comma}{name}:{port}")?,
            }
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or_default())?;
        // Another schema is another world.
        self.schema().map_or(Ok(()), |schema| write!(f, "?search_path={schema}"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const SHAPE: &str = "a PostgreSQL URL is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`";
const OPTIONS: &str = "behind the `?` of a PostgreSQL URL come its options, such as `sslmode=require&timeout_ms=2000`";

fn invalid(why: &str) -> EngineError {
    EngineError::Invalid(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_says_is_read_and_nothing_secret_is_shown() {
        let address =
            Address::parse("postgres://me:s3cret@db.example:5433/locks?timeout_ms=300&sslrootcert=/a%20b.pem")
                .expect("an address");
        assert_eq!(format!("{address} {address:?}").matches("s3cret").count(), 0);
        assert_eq!(address.to_string(), "postgres://db.example:5433/locks");
        assert_eq!(address.time_limit, Duration::from_millis(300));
        assert_eq!(address.tls.expect("far away").ca, Some(PathBuf::from("/a b.pem")));
    }

    #[test]
    fn only_what_stays_on_this_machine_goes_in_the_clear_unless_said_otherwise() {
        let encrypted = |url: &str| Address::parse(url).expect(url).tls.is_some();
        for near in ["postgres://127.0.0.1/x", "postgres://[::1]/x", "postgres://localhost/x", "postgres://%2Frun/x"] {
            assert!(!encrypted(near), "{near}");
            assert!(encrypted(&format!("{near}?sslmode=require")), "{near}");
        }
        assert!(encrypted("postgres://db/x") && encrypted("postgres://localhost,db/x"));
        assert!(!encrypted("postgres://db/x?sslmode=disable"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_without_repeating_it() {
        for url in [
            "postgres://",
            "postgres://h",
            "postgres:///x",
            "postgres://u:s3cret@h:port/x",
            "postgres://u:p@s3cret@h/x",
            "postgres://h/x?s3cret",
            "postgres://h/x?s3cret=1",
            "postgres://h/x?sslmode=s3cret",
            "postgres://h/x?timeout_ms=1",
            "postgres://h/x?sslcert=/x",
        ] {
            let why = Address::parse(url).expect_err(url).to_string();
            assert!(!why.contains("s3cret"), "{why}");
        }
    }
}
