//! Credentials: what opens the service on TCP, and whom each speaks for.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use lockkeeper_core::session::AgentName;
use subtle::ConstantTimeEq;

use crate::service::Caller;

/// A secret that only its hash is kept of, and what it may do.
#[derive(Clone)]
pub struct Credential {
    hash: [u8; 32],
    /// The only agent that it speaks for.
    agent: Option<AgentName>,
    operator: bool,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential")
            .field("agent", &self.agent)
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

impl Credential {
    pub fn new(secret: &str, agent: Option<AgentName>, operator: bool) -> Credential {
        Credential { hash: *blake3::hash(secret.trim().as_bytes()).as_bytes(), agent, operator }
    }
}

/// All credentials of a service.
#[derive(Clone, Debug, Default)]
pub struct Credentials(Vec<Credential>);

impl Credentials {
    pub fn new(credentials: Vec<Credential>) -> Credentials {
        Credentials(credentials)
    }

    /// Who shows this secret. Takes the same time whatever is shown.
    pub(crate) fn caller(&self, secret: &str) -> Option<Caller> {
        let shown = *blake3::hash(secret.as_bytes()).as_bytes();
        let mut found = None;
        for credential in &self.0 {
            if bool::from(credential.hash.ct_eq(&shown)) {
                found = Some(credential);
            }
        }
        let credential = found?;
        let bound = |agent: &AgentName| {
            self.0
                .iter()
                .filter_map(|other| other.agent.clone())
                .filter(|other| other != agent && is_session_of(other.as_str(), agent))
                .collect()
        };
        Some(Caller {
            others: credential.agent.as_ref().map(bound).unwrap_or_default(),
            known: true,
            local: false,
            operator: credential.operator,
            agent: credential.agent.clone(),
            trace: None,
        })
    }
}

/// Whether a session goes by the name of an agent: its own, or that and something behind a hyphen.
pub(crate) fn is_session_of(session: &str, agent: &AgentName) -> bool {
    let rest = session.strip_prefix(agent.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Reads the credential of a home directory, and makes one at the first start.
pub fn read_or_make(path: &Path) -> std::io::Result<String> {
    match read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        done => return done,
    }
    let mut bytes = [0u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let secret = blake3::Hash::from_bytes(bytes).to_hex().to_string();
    // Whole or not at all: nobody reads half of it, and of two who start at once one wins.
    let temporary = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&temporary, path);
    std::fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error),
    }
}

/// Reads a secret from a file that nobody else may read.
pub fn read(path: &Path) -> std::io::Result<String> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(std::io::Error::other(format!("{} belongs to another user", path.display())));
    }
    if found.permissions().mode() & 0o077 != 0 {
        return Err(std::io::Error::other(format!(
            "{} can be read by others; make it private: chmod 600 {}",
            path.display(),
            path.display()
        )));
    }
    let mut secret = String::new();
    file.take(4096).read_to_string(&mut secret)?;
    let secret = secret.trim().to_owned();
    if secret.is_empty() { Err(std::io::Error::other(format!("{} is empty", path.display()))) } else { Ok(secret) }
}
