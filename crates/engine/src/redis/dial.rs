//! Finds the Redis that is to be asked, and opens connections to it: the one that is named, the master that Sentinels
//! name, or the nodes of a cluster.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::address::{Address, Host, Kind, Login};
use super::connection::{Connection, Destination, Pushed};
use super::examine::{Facts, examine};
use super::permissions;
use crate::{EngineError, tls};

/// How many hosts are asked where the right one is, before that is given up.
const ASKED_MAX: usize = 8;

/// Which slots of a cluster a node is the master of.
pub(super) type Owner = (RangeInclusive<u16>, Host);

/// Everything that is needed to connect.
pub(super) struct Dial {
    pub(super) address: Address,
    tls: Option<TlsConnector>,
    /// Files are shared with other clients: whoever connects may do what that takes.
    shares: AtomicBool,
}

impl Dial {
    pub(super) fn new(address: Address) -> Result<Dial, EngineError> {
        let tls = match &address.tls {
            Some(files) => Some(TlsConnector::from(Arc::new(tls::config(files)?))),
            None => None,
        };
        Ok(Dial { address, tls, shares: AtomicBool::new(false) })
    }

    /// From the next connection on.
    pub(super) fn share(&self) {
        self.shares.store(true, Ordering::Relaxed);
    }

    pub(super) fn time_limit(&self) -> Duration {
        self.address.time_limit
    }

    /// A connection for commands, to a Redis that was examined. No host: the one that is the master now.
    pub(super) async fn command(&self, host: Option<&Host>) -> Result<(Connection, Facts), EngineError> {
        let until = Instant::now() + self.time_limit() * 3 / 4;
        self.in_time(async {
            let host = self.host(host).await?;
            let connection = self.connect(&host, None).await?;
            let facts = examine(&connection, &self.address.kind, until).await?;
            permissions::check(&connection, self.shares.load(Ordering::Relaxed)).await?;
            Ok((connection, facts))
        })
        .await
    }

    /// A connection on which Redis says things without being asked.
    pub(super) async fn listen(&self, host: Option<&Host>, pushed: Pushed) -> Result<Connection, EngineError> {
        self.in_time(async {
            let host = self.host(host).await?;
            self.connect(&host, Some(pushed)).await
        })
        .await
    }

    /// Asks the cluster which node has what, one host after the other; and who told it.
    pub(super) async fn owners(&self, hosts: &[Host]) -> Result<(Vec<Owner>, Host), EngineError> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let hosts: Vec<&Host> = hosts.iter().take(ASKED_MAX).collect();
        let read = |value: &Value, host: &Host| Some((read_owners(value, host)?, host.clone()));
        self.ask_any(&hosts, &self.address.login, &command, read).await
    }

    async fn host(&self, host: Option<&Host>) -> Result<Host, EngineError> {
        match (host, &self.address.kind) {
            (Some(host), _) => Ok(host.clone()),
            (None, Kind::Sentinel { master, login }) => {
                let mut command = redis::cmd("SENTINEL");
                command.arg("get-master-addr-by-name").arg(master);
                let hosts: Vec<&Host> = self.address.hosts.iter().take(ASKED_MAX).collect();
                self.ask_any(&hosts, login, &command, |value, _| read_master(value)).await
            }
            (None, Kind::Single | Kind::Cluster) => Ok(self.address.hosts[0].clone()),
        }
    }

    /// Asks one host after the other until one knows.
    async fn ask_any<T>(
        &self,
        hosts: &[&Host],
        login: &Login,
        command: &redis::Cmd,
        read: impl Fn(&Value, &Host) -> Option<T>,
    ) -> Result<T, EngineError> {
        // Those that do not answer must leave some time for the others, and for what comes after.
        let time_limit = self.time_limit() / (hosts.len() as u32 + 1);
        let mut why = None;
        for host in hosts {
            let to = Destination { host, login, database: 0, time_limit };
            let asked = async {
                let connection = Connection::open(to, self.tls.as_ref(), None).await?;
                let value = connection.ask(command, 0).await.map_err(|trouble| trouble.into_error(""))?;
                read(&value, host).ok_or_else(|| EngineError::Unreachable(self.unknown(host)))
            };
            match tokio::time::timeout(time_limit, asked).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => why = Some(error),
                Err(_) => why = Some(EngineError::Unreachable(format!("{host} does not answer"))),
            }
        }
        Err(why.unwrap_or_else(|| EngineError::Invalid("no host is named".to_owned())))
    }

    fn unknown(&self, host: &Host) -> String {
        match &self.address.kind {
            Kind::Sentinel { master, .. } => format!("the Sentinel at {host} knows no master named {master}"),
            Kind::Single | Kind::Cluster => format!("{host} knows no nodes of a cluster"),
        }
    }

    async fn connect(&self, host: &Host, pushed: Option<Pushed>) -> Result<Connection, EngineError> {
        let Address { login, database, time_limit, .. } = &self.address;
        let to = Destination { host, login, database: *database, time_limit: *time_limit };
        Connection::open(to, self.tls.as_ref(), pushed).await
    }

    async fn in_time<T>(&self, opening: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
        match tokio::time::timeout(self.time_limit(), opening).await {
            Ok(opened) => opened,
            Err(_) => {
                let (address, millis) = (&self.address, self.time_limit().as_millis());
                Err(EngineError::Unreachable(format!("{address} has not answered within {millis} ms")))
            }
        }
    }
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn read_master(value: &Value) -> Option<Host> {
    let Value::Array(parts) = value else { return None };
    let [name, port] = parts.as_slice() else { return None };
    Some(Host { name: text(name)?, port: text(port)?.parse().ok()? })
}

fn read_owners(value: &Value, asked: &Host) -> Option<Vec<Owner>> {
    let Value::Array(ranges) = value else { return None };
    let owners: Vec<Owner> = ranges.iter().map(|range| read_owner(range, asked)).collect::<Option<_>>()?;
    (!owners.is_empty()).then_some(owners)
}

/// First slot, last slot, then the nodes that have them, the master first.
fn read_owner(range: &Value, asked: &Host) -> Option<Owner> {
    let Value::Array(parts) = range else { return None };
    let [first, last, master, ..] = parts.as_slice() else { return None };
    let Value::Array(master) = master else { return None };
    let [name, port, ..] = master.as_slice() else { return None };
    // A node that does not know its own name is the one that was asked.
    let name = text(name).filter(|name| !name.is_empty() && name != "?").unwrap_or_else(|| asked.name.clone());
    let host = Host { name, port: text(port)?.parse().ok()? };
    Some((text(first)?.parse().ok()?..=text(last)?.parse().ok()?, host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn node(name: Value, port: i64) -> Value {
        Value::Array(vec![name, Value::Int(port), bulk("an id")])
    }

    #[test]
    fn the_map_of_a_cluster_is_read() {
        let asked = Host { name: "seed".to_owned(), port: 1 };
        let map = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(99), node(bulk("a"), 7), node(bulk("b"), 8)]),
            Value::Array(vec![Value::Int(100), Value::Int(16_383), node(Value::Nil, 9)]),
        ]);
        let owners = read_owners(&map, &asked).expect("a map");
        assert_eq!(owners[0], (0..=99, Host { name: "a".to_owned(), port: 7 }));
        assert_eq!(owners[1], (100..=16_383, Host { name: "seed".to_owned(), port: 9 }));
        for strange in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Int(1)])] {
            assert_eq!(read_owners(&strange, &asked), None);
        }
    }

    #[test]
    fn what_a_sentinel_says_is_read() {
        let told = Value::Array(vec![bulk("10.0.0.1"), bulk("6379")]);
        assert_eq!(read_master(&told), Some(Host { name: "10.0.0.1".to_owned(), port: 6379 }));
        assert_eq!(read_master(&Value::Nil), None);
    }
}
