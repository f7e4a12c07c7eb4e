//! The files of one server: made with `initdb`, owned by a user who is not root, and removed at the end.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::Options;

/// Where packages put the programs: one folder a version.
const PACKAGES: &str = "/usr/lib/postgresql";
/// Tests crowd it.
const CONNECTIONS_MAX: u32 = 200;

#[derive(Debug)]
pub(crate) struct Cluster {
    dir: TempDir,
    programs: PathBuf,
    user: Option<User>,
    password: String,
    settings: Vec<(String, String)>,
}

/// Files that every server of this process begins with: making them takes longer than anything else.
#[derive(Debug)]
struct Template {
    data: PathBuf,
    password: String,
    /// Removes them when this process has ended.
    _warden: Child,
}

static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
    let password = format!("secret-{:016x}", std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
    let cluster = Cluster::bare(&Options::default(), password);
    let password_file = cluster.write("password", &cluster.password);
    let mut initdb = cluster.command("initdb");
    initdb.args(["-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync"]);
    initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256"]);
    initdb.arg("--pwfile").arg(&password_file).arg("-D").arg(cluster.data());
    let output = initdb.output().expect("initdb runs");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    let warden = cluster.warden();
    let Cluster { dir, password, .. } = cluster;
    Template { data: dir.keep().join("data"), password, _warden: warden }
});

/// Whom root becomes: PostgreSQL refuses to run as root.
#[derive(Clone, Copy, Debug)]
struct User {
    id: u32,
    group: u32,
}

impl Cluster {
    pub(crate) fn make(options: &Options) -> Cluster {
        let mut cluster = Cluster::bare(options, TEMPLATE.password.clone());
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(&TEMPLATE.data).arg(cluster.data());
        assert!(copy.status().expect("cp runs").success(), "the files of a server can't be copied");
        if let Some((certificate, key)) = &options.tls {
            let certificate = cluster.write("server.crt", certificate).display().to_string();
            let key = cluster.write("server.key", key).display().to_string();
            let tls = [("ssl", "on".to_owned()), ("ssl_cert_file", certificate), ("ssl_key_file", key)];
            cluster.settings.extend(tls.map(|(name, value)| (name.to_owned(), value)));
        }
        cluster
    }

    /// A directory without files.
    fn bare(options: &Options, password: String) -> Cluster {
        let dir = tempfile::Builder::new().prefix("postgres-").tempdir().expect("a directory");
        let user = rustix::process::geteuid().is_root().then(postgres_user);
        let cluster = Cluster { dir, programs: programs(), user, password, settings: settings(options) };
        cluster.give(cluster.dir());
        cluster
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir().join("log")
    }

    fn data(&self) -> PathBuf {
        self.dir().join("data")
    }

    /// Starts a server, which may not come up.
    pub(crate) fn serve(&self, port: u16) -> Child {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file()).expect("a log");
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data()).arg("-k").arg(self.dir()).args(["-h", "127.0.0.1"]);
        postgres.args(["-p", &port.to_string()]);
        for (name, value) in &self.settings {
            postgres.arg("-c").arg(format!("{name}={value}"));
        }
        postgres.stdout(log.try_clone().expect("a log")).stderr(log);
        postgres.spawn().expect("postgres runs")
    }

    /// Whether this very process says that it takes connections.
    pub(crate) fn is_ready(&self, id: u32) -> bool {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines();
        lines.next().is_some_and(|line| line.trim() == id.to_string()) && lines.any(|line| line.trim() == "ready")
    }

    /// A process that waits for the end of this one, and then ends the server and removes its files.
    pub(crate) fn warden(&self) -> Child {
        let script = "read -r _; read -r id < data/postmaster.pid && kill -CONT \"$id\" && kill -QUIT \"$id\"; \
                      sleep 0.2; cd / && rm -rf \"$1\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(self.dir()).current_dir(self.dir());
        // Of a group of its own: Ctrl-C at a terminal must not end it before it has done its work.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().expect("sh runs")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.program(program));
        command.current_dir(self.dir()).env("LC_ALL", "C").stdin(Stdio::null());
        // Ctrl-C at a terminal is for the test, which then ends the server.
        command.process_group(0);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        if let Some(user) = self.user {
            command.uid(user.id).gid(user.group);
        }
        command
    }

    /// A file that only the server may read.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir().join(name);
        let mut file = fs::File::create(&path).expect("a file");
        file.write_all(text.as_bytes()).expect("a write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(user.id), Some(user.group)).expect("root may give it away");
        }
    }
}

fn settings(options: &Options) -> Vec<(String, String)> {
    let fsync = if options.fsync { "on" } else { "off" };
    let mut settings = vec![
        ("max_connections".to_owned(), CONNECTIONS_MAX.to_string()),
        ("fsync".to_owned(), fsync.to_owned()),
        // Small, so that twenty of them fit on one machine.
        ("shared_buffers".to_owned(), "16MB".to_owned()),
        ("dynamic_shared_memory_type".to_owned(), "mmap".to_owned()),
    ];
    if !options.fsync {
        settings.push(("synchronous_commit".to_owned(), "off".to_owned()));
        settings.push(("full_page_writes".to_owned(), "off".to_owned()));
    }
    settings.extend(options.settings.iter().cloned());
    settings
}

/// The programs of the newest version.
fn programs() -> PathBuf {
    let versions = fs::read_dir(PACKAGES).into_iter().flatten().flatten();
    let with_number = versions.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin"))).filter(|(_, bin)| bin.join("initdb").exists())
    });
    let newest = with_number.max_by_key(|(number, _)| *number);
    newest.expect("PostgreSQL is missing; install the package postgresql").1
}

fn postgres_user() -> User {
    let users = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let mut fields = line.expect("PostgreSQL needs a user who is not root; there is no user postgres").split(':');
    let mut number = |at| fields.nth(at).and_then(|field: &str| field.parse().ok()).expect("a number");
    User { id: number(2), group: number(0) }
}
