//! A PostgreSQL of a test's own: in a directory of its own, on a free port, ended and removed with the test.
//!
//! For tests only. It fails loudly: a server that does not start is a panic with the server's log. It knows no client library
//! and no async runtime; a test connects to [`Postgres::url`] with whatever it tries.
//!
//! ```
//! use lockkeeper_postgres_fixture::{Postgres, Stop};
//!
//! let mut postgres = Postgres::start_with(&lockkeeper_postgres_fixture::Options::quick());
//! assert_eq!(postgres.sql("SELECT 6 * 7"), "42");
//! postgres.stop(Stop::Immediate);
//! postgres.run();
//! ```

mod cluster;
mod pooler;
mod processes;
mod slow;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use cluster::Cluster;
pub use pooler::PgBouncer;
pub use slow::{narrow_way, slow_way};

/// How often another port is tried, if somebody else was faster.
const PORTS_TRIED: usize = 20;
/// How long a start, recovery and all, may take on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// What the server is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether a commit reaches the disk. Without it a test is quicker, and a crash of the machine would lose data.
    pub fsync: bool,
    /// Further settings, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// A certificate and its key as PEM text; with them the server speaks TLS too.
    pub tls: Option<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options { fsync: true, settings: Vec::new(), tls: None }
    }
}

impl Options {
    /// Nothing waits for the disk.
    pub fn quick() -> Options {
        Options { fsync: false, ..Options::default() }
    }

    pub fn set(mut self, name: &str, value: &str) -> Options {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// How a server is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// As after a crash: sessions are cut, nothing is written down.
    Immediate,
    /// Sessions are cut, and all is written down.
    Fast,
}

/// A running server. Dropping it ends the server and removes its directory.
#[derive(Debug)]
pub struct Postgres {
    cluster: Cluster,
    port: u16,
    postmaster: Option<Child>,
    /// Ends the server if this process dies without dropping it: it waits for the end of a pipe.
    warden: Option<Child>,
}

impl Postgres {
    pub fn start() -> Postgres {
        Postgres::start_with(&Options::default())
    }

    pub fn start_with(options: &Options) -> Postgres {
        let cluster = Cluster::make(options);
        let warden = Some(cluster.warden());
        let mut postgres = Postgres { cluster, port: 0, postmaster: None, warden };
        for _ in 0..PORTS_TRIED {
            postgres.port = free_port();
            if postgres.came_up() {
                return postgres;
            }
        }
        panic!("PostgreSQL does not start; its log: {}", postgres.log());
    }

    /// Starts the server again, on the same port, after a stop or a kill.
    pub fn run(&mut self) {
        assert!(self.postmaster.is_none(), "it runs already");
        assert!(self.came_up(), "PostgreSQL does not start again; its log: {}", self.log());
    }

    /// Stops and starts the server; sessions are cut.
    pub fn restart(&mut self) {
        self.stop(Stop::Fast);
        self.run();
    }

    pub fn stop(&mut self, how: Stop) {
        let signal = match how {
            Stop::Immediate => Signal::QUIT,
            Stop::Fast => Signal::INT,
        };
        let mut postmaster = self.postmaster.take().expect("it runs");
        resume_all(&postmaster);
        processes::signal(&[postmaster.id()], signal);
        let give_up = Instant::now() + STOP_TIME_MAX;
        while matches!(postmaster.try_wait(), Ok(None)) {
            assert!(Instant::now() < give_up, "PostgreSQL does not stop; its log: {}", self.log());
            std::thread::sleep(LOOK);
        }
    }

    /// Ends the server and all its processes with SIGKILL, as a loss of power would.
    pub fn kill(&mut self) {
        let Some(mut postmaster) = self.postmaster.take() else { return };
        // Stopped first, so that it starts nobody while the others are counted.
        processes::signal(&[postmaster.id()], Signal::STOP);
        let children = processes::children(postmaster.id());
        processes::signal(&children, Signal::KILL);
        processes::signal(&[postmaster.id()], Signal::KILL);
        let _ = postmaster.wait();
        let give_up = Instant::now() + STOP_TIME_MAX;
        // A start would refuse as long as one of them still has the memory that they shared.
        while children.iter().any(|child| processes::lives(*child)) && Instant::now() < give_up {
            std::thread::sleep(LOOK);
        }
    }

    /// Freezes the server and all its sessions: connections stay open and nothing is answered.
    pub fn pause(&self) {
        let postmaster = self.postmaster.as_ref().expect("it runs").id();
        let give_up = Instant::now() + STOP_TIME_MAX;
        // A signal takes a moment to arrive, and until then there may be one session more.
        loop {
            let all: Vec<u32> = std::iter::once(postmaster).chain(processes::children(postmaster)).collect();
            if all.iter().all(|id| processes::stands_still(*id)) {
                return;
            }
            assert!(Instant::now() < give_up, "PostgreSQL does not stand still; its log: {}", self.log());
            processes::signal(&all, Signal::STOP);
            std::thread::sleep(LOOK);
        }
    }

    pub fn resume(&self) {
        resume_all(self.postmaster.as_ref().expect("it runs"));
    }

    pub fn create_database(&self, name: &str) {
        self.sql(&format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\"")));
    }

    /// What a statement answers, by `psql`: one row a line, columns apart by `|`.
    pub fn sql(&self, statement: &str) -> String {
        let mut psql = Command::new(self.cluster.program("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"]);
        psql.arg(self.cluster.dir()).args(["-p", &self.port.to_string(), "-c", statement]);
        let output = psql.stdin(Stdio::null()).output().expect("psql is there");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The database `postgres` over TCP, with the password in it.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The database `postgres` over TCP, by another port that leads there.
    pub fn url_by(&self, port: u16) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{port}/postgres", self.password())
    }

    /// Another database over TCP.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{}/{database}", self.password(), self.port)
    }

    /// The database `postgres` over the Unix socket; no password is asked for there.
    pub fn socket_url(&self) -> String {
        let dir = self.cluster.dir().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{dir}:{}/postgres", self.port)
    }

    pub fn password(&self) -> &str {
        self.cluster.password()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the postmaster.
    pub fn pid(&self) -> u32 {
        self.postmaster.as_ref().expect("it runs").id()
    }

    /// Where the server keeps its socket and its log.
    pub fn dir(&self) -> &Path {
        self.cluster.dir()
    }

    /// A program of this PostgreSQL, such as `pgbench`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.cluster.program(name)
    }

    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// Whether it came up; if not, the port was taken.
    fn came_up(&mut self) -> bool {
        let postmaster = self.postmaster.insert(self.cluster.serve(self.port));
        let give_up = Instant::now() + START_TIME_MAX;
        while Instant::now() < give_up {
            if self.cluster.is_ready(postmaster.id()) {
                return true;
            }
            if !matches!(postmaster.try_wait(), Ok(None)) {
                self.postmaster = None;
                return false;
            }
            std::thread::sleep(LOOK);
        }
        panic!("PostgreSQL does not come up; its log: {}", self.log());
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut warden) = self.warden.take() {
            // Nothing is left to be ended, and its process id may soon be somebody else's.
            let _ = warden.kill();
            let _ = warden.wait();
        }
    }
}

fn resume_all(postmaster: &Child) {
    processes::signal(&processes::children(postmaster.id()), Signal::CONT);
    processes::signal(&[postmaster.id()], Signal::CONT);
}

/// A port of this machine that nobody listens on; somebody else may take it before it is used.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
