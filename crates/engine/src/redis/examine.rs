//! What a Redis says about itself, and whether locks can be kept there.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::address::Kind;
use super::connection::Connection;
use super::trouble::Trouble;
use crate::EngineError;

/// Older ones can't tell a script that frees memory from one that takes some, and know no sharded channels.
const VERSION_MIN: (u32, u32) = (7, 0);
/// How long to wait before a Redis that is loading is asked again.
const LOADING_PAUSE: Duration = Duration::from_millis(50);

/// What matters of it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// What it acknowledged survives kill -9 and power loss.
    pub(super) is_durable: bool,
}

/// Asks it, and refuses it with the reason. One that is loading its data is waited for until then.
pub(super) async fn examine(connection: &Connection, kind: &Kind, until: Instant) -> Result<Facts, EngineError> {
    let info = loop {
        let info = ask(connection, redis::cmd("INFO")).await?;
        if Told::read(&info).word("loading") != "1" {
            break info;
        }
        if Instant::now() >= until {
            let why = format!("Redis at {} is still loading its data; try again when it is done", connection.host());
            return Err(EngineError::Unreachable(why));
        }
        tokio::time::sleep(LOADING_PAUSE).await;
    };
    let told = Told::read(&info);
    if let Some(why) = told.unsuitable(kind) {
        return Err(EngineError::Invalid(format!("Redis at {} {why}", connection.host())));
    }
    let mut is_durable = false;
    if told.word("aof_enabled") == "1" && *kind == Kind::Single {
        let set = async |name: &str, value: &str| {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            // Some do not let anybody ask: then nothing is promised.
            ask(connection, command).await.is_ok_and(|told| told.ends_with(value))
        };
        is_durable = set("appendfsync", "always").await && set("no-appendfsync-on-rewrite", "no").await;
    }
    Ok(Facts { is_durable })
}

pub(super) async fn ask(connection: &Connection, command: redis::Cmd) -> Result<String, EngineError> {
    match connection.ask(&command, 0).await {
        Ok(value) => Ok(text(&value)),
        Err(Trouble::Refused { code, text }) => {
            let hint =
                if code == "NOPERM" { "; its user needs the permissions that docs/engines.md lists" } else { "" };
            Err(EngineError::Invalid(format!("Redis at {} refused: {code} {text}{hint}", connection.host())))
        }
        Err(Trouble::Unsent(error) | Trouble::Lost(error) | Trouble::Late(error)) => Err(error),
    }
}

/// All texts of an answer, one a line.
fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// Its answer to INFO.
struct Told<'a>(HashMap<&'a str, &'a str>);

impl<'a> Told<'a> {
    fn read(info: &'a str) -> Told<'a> {
        Told(info.lines().filter_map(|line| line.trim().split_once(':')).collect())
    }

    fn word(&self, name: &str) -> &'a str {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Why locks can't be kept there, and what to do about it.
    fn unsuitable(&self, kind: &Kind) -> Option<String> {
        let (major, minor) = VERSION_MIN;
        let version = self.word("redis_version");
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let is_cluster = self.word("redis_mode") == "cluster" || self.word("cluster_enabled") == "1";
        let policy = self.word("maxmemory_policy");
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < VERSION_MIN {
            let version = if version.is_empty() {
                "does not say its version".to_owned()
            } else {
                format!("is version {version}")
            };
            Some(format!(
                "{version}; {major}.{minor} or newer is needed, because only then a full Redis still takes releases"
            ))
        } else if self.word("redis_mode") == "sentinel" {
            Some("is a Sentinel; write redis+sentinel://HOST:PORT/MASTER".to_owned())
        } else if is_cluster && *kind != Kind::Cluster {
            Some("is a node of a cluster; write redis+cluster://HOST:PORT".to_owned())
        } else if !is_cluster && *kind == Kind::Cluster {
            Some("is no node of a cluster; write redis://HOST:PORT".to_owned())
        } else if self.word("role") != "master" {
            let (host, port) = (self.word("master_host"), self.word("master_port"));
            Some(format!(
                "is a replica of {host}:{port}, and would lose what only its master knows; name the master, or its Sentinels with redis+sentinel://"
            ))
        } else if policy != "noeviction" {
            Some(format!(
                "may evict locks when its memory is full (maxmemory-policy {policy}); set maxmemory-policy to noeviction"
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";

    fn refusal(told: &str, kind: &Kind) -> String {
        Told::read(told).unsuitable(kind).expect(told)
    }

    #[test]
    fn a_suitable_redis_is_taken() {
        assert_eq!(Told::read(GOOD).unsuitable(&Kind::Single), None);
        assert_eq!(Told::read(&GOOD.replace("7.0.15", "10.1")).unsuitable(&Kind::Single), None);
        let cluster = GOOD.replace("standalone", "cluster").replace("cluster_enabled:0", "cluster_enabled:1");
        assert_eq!(Told::read(&cluster).unsuitable(&Kind::Cluster), None);
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let single = Kind::Single;
        let table = [
            (GOOD.replace("7.0.15", "6.2.14"), &single, "is version 6.2.14; 7.0 or newer"),
            (String::new(), &single, "does not say its version"),
            (GOOD.replace("standalone", "sentinel"), &single, "redis+sentinel://"),
            (GOOD.replace("standalone", "cluster"), &single, "redis+cluster://"),
            (GOOD.to_owned(), &Kind::Cluster, "is no node of a cluster"),
            (GOOD.replace("role:master", "role:slave\r\nmaster_host:h\r\nmaster_port:1"), &single, "a replica of h:1"),
            (GOOD.replace("noeviction", "allkeys-lru"), &single, "set maxmemory-policy to noeviction"),
            (GOOD.replace("noeviction", "volatile-ttl"), &single, "volatile-ttl"),
        ];
        for (told, kind, part) in table {
            let refusal = refusal(&told, kind);
            assert!(refusal.contains(part), "{refusal}");
        }
    }
}
