//! The URL of a Redis: where it is, as whom it is spoken to, and how long it may take. Opens nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::EngineError;
use crate::tls::TlsFiles;
use crate::url::check_login;

const PORT_DEFAULT: u16 = 6379;
const SENTINEL_PORT_DEFAULT: u16 = 26_379;
const HOSTS_MAX: usize = 64;
const DATABASE_MAX: u16 = 65_535;
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
const TIMEOUT_MS_MIN: u64 = 50;
const TIMEOUT_MS_MAX: u64 = 60_000;

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: Kind,
    /// The Redis; or Sentinels, or nodes of a cluster, that know where the right one is.
    pub(super) hosts: Vec<Host>,
    pub(super) login: Login,
    pub(super) database: u16,
    pub(super) tls: Option<TlsFiles>,
    /// How long one command may take.
    pub(super) time_limit: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Single,
    /// The hosts know which Redis is the master of this name.
    Sentinel {
        master: String,
        login: Login,
    },
    /// The hosts know which node has which space.
    Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
}

/// What must not be shown, not even by mistake.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Address {
    /// Whether a URL with this scheme is read here.
    pub(super) fn is_scheme(scheme: &str) -> bool {
        schemed(scheme).is_some()
    }

    pub(super) fn parse(url: &str) -> Result<Address, EngineError> {
        check_login(url)?;
        // No message repeats a part of the URL that may hold a password.
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("a Redis URL begins with `redis://`"))?;
        let (shape, has_tls) = schemed(scheme).ok_or_else(|| invalid(SHAPES))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (read_login(login)?, hosts),
            None => (Login::default(), authority),
        };
        let port = if shape == Shape::Sentinel { SENTINEL_PORT_DEFAULT } else { PORT_DEFAULT };
        let hosts = read_hosts(hosts, port)?;
        let mut options = read_options(query)?;
        let time_limit = read_timeout(options.remove("timeout_ms"))?;
        let tls = if has_tls { Some(read_files(&mut options)?) } else { None };
        let (kind, database) = match shape {
            Shape::Single if hosts.len() > 1 => return Err(invalid(SHAPES)),
            Shape::Single => (Kind::Single, read_database(path)?),
            Shape::Cluster if !path.trim_matches('/').is_empty() => {
                return Err(invalid("a Redis Cluster has one database only: write nothing behind the hosts"));
            }
            Shape::Cluster => (Kind::Cluster, 0),
            Shape::Sentinel => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(invalid("behind the Sentinels comes the name of the master: /mymaster"));
                }
                let user = options.remove("sentinel_user");
                let password = options.remove("sentinel_password").map(Secret);
                let login = checked(Login { user, password })?;
                (Kind::Sentinel { master: decoded(master)?, login }, read_database(database)?)
            }
        };
        match options.keys().next() {
            None => Ok(Address { kind, hosts, login, database, tls, time_limit }),
            Some(_) => Err(invalid(OPTIONS)),
        }
    }
}

/// Without anything that is secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls.is_some() { "s" } else { "" };
        let shape = match self.kind {
            Kind::Single => "",
            Kind::Sentinel { .. } => "+sentinel",
            Kind::Cluster => "+cluster",
        };
        write!(f, "redis{tls}{shape}://")?;
        for (place, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if place == 0 { "" } else { "," })?;
        }
        match &self.kind {
            Kind::Single => write!(f, "/{}", self.database),
            Kind::Sentinel { master, .. } => write!(f, "/{master}/{}", self.database),
            Kind::Cluster => Ok(()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Single,
    Sentinel,
    Cluster,
}

const SHAPES: &str = "a Redis is named as redis://HOST:PORT/DATABASE, redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DATABASE \
                      or redis+cluster://HOST:PORT,HOST:PORT, each with `rediss` in place of `redis` for TLS";
const OPTIONS: &str = "a Redis URL takes the options timeout_ms, with TLS ca, cert and key, and with Sentinels \
                       sentinel_user and sentinel_password";

fn schemed(scheme: &str) -> Option<(Shape, bool)> {
    Some(match scheme {
        "redis" => (Shape::Single, false),
        "rediss" => (Shape::Single, true),
        "redis+sentinel" => (Shape::Sentinel, false),
        "rediss+sentinel" => (Shape::Sentinel, true),
        "redis+cluster" => (Shape::Cluster, false),
        "rediss+cluster" => (Shape::Cluster, true),
        _ => return None,
    })
}

fn read_login(text: &str) -> Result<Login, EngineError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let some = |text: String| (!text.is_empty()).then_some(text);
    checked(Login { user: some(decoded(user)?), password: some(decoded(password)?).map(Secret) })
}

fn checked(login: Login) -> Result<Login, EngineError> {
    if login.user.is_some() && login.password.is_none() {
        return Err(invalid("a Redis user needs a password: write user:password@, or :password@ for the default user"));
    }
    Ok(login)
}

fn read_hosts(text: &str, port_default: u16) -> Result<Vec<Host>, EngineError> {
    let hosts: Vec<Host> = text.split(',').map(|host| read_host(host, port_default)).collect::<Result<_, _>>()?;
    if hosts.len() > HOSTS_MAX {
        return Err(invalid(&format!("a Redis URL names at most {HOSTS_MAX} hosts")));
    }
    Ok(hosts)
}

fn read_host(text: &str, port_default: u16) -> Result<Host, EngineError> {
    // IPv6 stands in brackets, because it has colons of its own.
    let (name, port) = match text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let port = port.map_or(Ok(port_default), str::parse).ok().filter(|port| *port > 0);
    let letter = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    match port {
        Some(port) if !name.is_empty() && name.chars().all(letter) => Ok(Host { name: name.to_owned(), port }),
        Some(_) | None => Err(invalid("a host of a Redis URL is HOST or HOST:PORT")),
    }
}

fn read_database(text: &str) -> Result<u16, EngineError> {
    let text = text.trim_end_matches('/');
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| invalid(&format!("the database of a Redis is a number, 0 to {DATABASE_MAX}")))
}

fn read_options(query: &str) -> Result<BTreeMap<String, String>, EngineError> {
    let mut options = BTreeMap::new();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').ok_or_else(|| invalid(OPTIONS))?;
        if options.insert(name.to_owned(), decoded(value)?).is_some() {
            return Err(invalid("an option of a Redis URL is said twice"));
        }
    }
    Ok(options)
}

fn read_timeout(text: Option<String>) -> Result<Duration, EngineError> {
    let Some(text) = text else { return Ok(TIMEOUT_DEFAULT) };
    match text.parse() {
        Ok(millis @ TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX) => Ok(Duration::from_millis(millis)),
        Ok(_) | Err(_) => Err(invalid(&format!("timeout_ms is {TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX}"))),
    }
}

fn read_files(options: &mut BTreeMap<String, String>) -> Result<TlsFiles, EngineError> {
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| options.remove(name).map(PathBuf::from));
    if cert.is_some() != key.is_some() {
        return Err(invalid("cert and key of a Redis URL belong together"));
    }
    Ok(TlsFiles { ca, cert, key })
}

/// Turns `%40` into `@` and so on.
fn decoded(text: &str) -> Result<String, EngineError> {
    let bad = || invalid("a percent sign in a Redis URL is written %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(bad);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| invalid("a Redis URL is UTF-8"))
}

fn invalid(why: &str) -> EngineError {
    EngineError::Invalid(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.to_owned(), port }
    }

    fn read(url: &str) -> Address {
        Address::parse(url).expect(url)
    }

    #[test]
    fn every_shape_is_read_and_shown_without_its_password() {
        let table = [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://h:7000/3", "redis://h:7000/3"),
            ("rediss://me:s3cret@h?ca=ca.pem", "rediss://h:6379/0"),
            ("redis://:s3cret@[::1]:6380/", "redis://[::1]:6380/0"),
            ("redis+sentinel://a,b:9/mine", "redis+sentinel://a:26379,b:9/mine/0"),
            ("rediss+sentinel://u:s3cret@a/m/2?sentinel_password=s3cret", "rediss+sentinel://a:26379/m/2"),
            ("redis+cluster://a,b:7001", "redis+cluster://a:6379,b:7001"),
        ];
        for (url, shown) in table {
            let address = read(url);
            assert_eq!(address.to_string(), shown);
            assert!(!format!("{address:?}").contains("s3cret"), "{url}");
        }
    }

    #[test]
    fn login_options_and_hosts_arrive() {
        let address = read(
            "rediss+sentinel://m%40e:p%3Aw@a:1,[fe80::1]:2/my%20name/4?timeout_ms=500&ca=%2Fx&sentinel_password=q",
        );
        assert_eq!(address.hosts, [host("a", 1), host("fe80::1", 2)]);
        assert_eq!(address.login, Login { user: Some("m@e".into()), password: Some(Secret("p:w".into())) });
        let login = Login { user: None, password: Some(Secret("q".into())) };
        assert_eq!(address.kind, Kind::Sentinel { master: "my name".into(), login });
        assert_eq!((address.database, address.time_limit), (4, Duration::from_millis(500)));
        assert_eq!(address.tls, Some(TlsFiles { ca: Some("/x".into()), cert: None, key: None }));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_never_repeats_a_password() {
        for url in [
            "redis:host",
            "redis://",
            "redis://:s3cret@",
            "redis://user@host",
            "redis://h:0",
            "redis://h:x",
            "redis://h:99999",
            "redis://a,b",
            "redis://h/s3cret",
            "redis://h/70000",
            "redis://h?s3cret=1",
            "redis://h?timeout_ms=1",
            "redis://h?timeout_ms=1&timeout_ms=2",
            "redis://h?ca=x",
            "rediss://h?cert=x",
            "redis://u:s3%cret@h",
            "redis://u:%ff@h",
            "redis+cluster://h/1",
            "redis+sentinel://h",
            "redis+sentinel://h/m/s3cret",
            "redis+sentinel://h/m?sentinel_user=x",
            "redis+other://h",
            "redis://h s3cret",
        ] {
            let refusal = Address::parse(url).expect_err(url);
            assert!(matches!(&refusal, EngineError::Invalid(why) if !why.contains("s3c")), "{url}: {refusal}");
        }
    }
}
