//! A service of its own for a measurement: nobody else's locks, no quota, and gone with everything it kept at the end.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use lockkeeper_client::{Client, Endpoint};
use lockkeeper_core::space::Space;
use lockkeeper_wire::answer::ServiceStatus;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::StatusRequest;

use super::ask::{self, Ask};
use super::{Door, flood};
use crate::config::Config;
use crate::start;

#[derive(Debug)]
pub(crate) struct Private {
    child: Child,
    folder: tempfile::TempDir,
    /// Where HTTP is served.
    address: String,
    credential: String,
}

impl Private {
    /// Beside the user's own state, so that it is on the same disk.
    pub(crate) fn folder(config: &Config) -> anyhow::Result<tempfile::TempDir> {
        start::make_home(&config.home).with_context(|| format!("{} can't be used", config.home.display()))?;
        let private = std::fs::Permissions::from_mode(0o700);
        Ok(tempfile::Builder::new().prefix("bench-").permissions(private).tempdir_in(&config.home)?)
    }

    pub(crate) fn start(
        folder: tempfile::TempDir,
        engine: &str,
        durability: &str,
        space: &Space,
    ) -> anyhow::Result<Private> {
        let place = folder.path();
        start::check_socket(&socket(place))?;
        let log = std::fs::File::create(place.join("service.log"))?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--background", "--listen", "127.0.0.1:0", "--durability", durability])
            .current_dir(place)
            .env_clear()
            .env("HOME", place)
            .env("XDG_CONFIG_HOME", place)
            .env("LOCKKEEPER_HOME", place)
            // No argument: everybody may read those, and the URL may hold a password.
            .env("LOCKKEEPER_ENGINE", engine)
            .env("LOCKKEEPER_SPACE", space.as_str())
            .env("LOCK_RATE_LIMIT_PER_MIN", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut said = String::new();
        if let Some(mut out) = child.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        let mut private = Private { child, folder, address: String::new(), credential: String::new() };
        if said.trim() != "ready" {
            let log = std::fs::read_to_string(private.folder.path().join("service.log")).unwrap_or_default();
            bail!("the service could not be started: {}{}", said.trim(), log.trim());
        }
        let client = Client::connect(Endpoint::Unix(private.socket()))?;
        let status: ServiceStatus = client.call(Operation::Status, &StatusRequest::default())?;
        let listen = status.listen.context("the service does not listen")?;
        private.address = listen.trim_start_matches("http://").to_owned();
        private.credential = std::fs::read_to_string(private.folder.path().join("credential"))?.trim().to_owned();
        Ok(private)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// A connection that asks these in turn.
    pub(crate) fn client(&self, door: Door, session: &str, asks: &[Ask]) -> anyhow::Result<flood::Client> {
        match door {
            Door::Http => {
                let stream = TcpStream::connect(&self.address)?;
                stream.set_nodelay(true)?;
                let steps = asks.iter().map(|ask| ask.http(session, &self.address, &self.credential)).collect();
                Ok(flood::Client::new(stream, flood::http, steps))
            }
            Door::Socket | Door::Library => {
                let stream = UnixStream::connect(self.socket())?;
                let steps = asks.iter().map(|ask| ask.line(session)).collect();
                Ok(flood::Client::new(stream, flood::line, steps))
            }
        }
    }

    /// Takes so many locks, and goes on holding them.
    pub(crate) fn load(&self, held: u64, stop: &std::sync::atomic::AtomicBool) -> anyhow::Result<()> {
        let asks = |loader| ask::load(loader, held);
        let loaders = (0..ask::LOADERS as u64).map(|loader| (ask::session("held", loader), asks(loader)));
        let clients = loaders.filter(|(_, asks)| !asks.is_empty());
        let clients = clients.map(|(session, asks)| self.client(Door::Socket, &session, &asks));
        let mut clients = clients.collect::<anyhow::Result<Vec<_>>>()?;
        let times = flood::run(&mut clients, flood::Until::Once, stop)?;
        match times.first_failure {
            Some(failure) => bail!("what is to be held could not be taken: {failure}"),
            None => Ok(()),
        }
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

impl Drop for Private {
    fn drop(&mut self) {
        // Nothing that it keeps is needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
