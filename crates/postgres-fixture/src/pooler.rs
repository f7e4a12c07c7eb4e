//! Debian's PgBouncer, for tests of what stands between a program and its server.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Postgres, free_port};

/// A pooler in front of a server. Dropping it ends it.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl PgBouncer {
    /// In a mode such as `transaction`, with further settings.
    pub fn start(server: &Postgres, mode: &str, more: &str) -> PgBouncer {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let config = format!(
            "[databases]\npostgres = host={} port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\nlogfile = {}\n{more}\n",
            server.dir().display(),
            server.port(),
            dir.path().join("log").display(),
        );
        let path = dir.path().join("pgbouncer.ini");
        std::fs::File::create(&path).and_then(|mut file| file.write_all(config.as_bytes())).expect("a file");
        let mut command = Command::new("pgbouncer");
        if rustix::process::geteuid().is_root() {
            // It does not run as root; whoever owns the server's files may reach its socket.
            let owner = std::fs::metadata(server.dir()).expect("there");
            let (user, group) =
                (std::os::unix::fs::MetadataExt::uid(&owner), std::os::unix::fs::MetadataExt::gid(&owner));
            std::os::unix::fs::chown(dir.path(), Some(user), Some(group)).expect("given away");
            std::os::unix::fs::chown(&path, Some(user), Some(group)).expect("given away");
            command.uid(user).gid(group);
        }
        command.arg("-q").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("pgbouncer is missing; install the package pgbouncer");
        let pooler = PgBouncer { process, port, _dir: dir };
        let give_up = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < give_up, "PgBouncer does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        pooler
    }

    /// For whoever connects through it; it asks for no password.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
