//! PgBouncer: in transaction mode it is refused, in session mode it is none to worry about.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_advisory::{Address, AdvisoryLockError, Locks, Monitor, Namespaces};
use lockkeeper_postgres_fixture::{Postgres, free_port};

use crate::ground::{held, in_time, namespace, server};

struct PgBouncer {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl PgBouncer {
    fn start(server: &Postgres, mode: &str, more: &str) -> PgBouncer {
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

    fn address(&self) -> Address {
        Address::parse(&format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)).expect("a URL")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn is_refused(mode: &str, more: &str) {
    let server = server();
    let pooler = PgBouncer::start(&server, mode, more);
    let (locks, namespace) = (Locks::open(pooler.address(), 2).expect("locks"), namespace());
    let refused = in_time(locks.lock(namespace, 1, None).into_future()).await;
    assert!(matches!(refused, Err(AdvisoryLockError::Pooler(_))), "{mode} {more}: {refused:?}");
    let message = refused.expect_err("refused").to_string();
    assert!(message.contains("pool_mode = session"), "{message}");
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn a_pgbouncer_in_transaction_mode_is_refused() {
    is_refused("transaction", "").await;
}

#[tokio::test]
async fn a_pgbouncer_in_transaction_mode_that_hides_itself_is_refused() {
    is_refused("transaction", "ignore_startup_parameters = options,extra_float_digits").await;
    is_refused("transaction", "default_pool_size = 1").await;
    is_refused("statement", "ignore_startup_parameters = options").await;
}

#[tokio::test]
async fn a_busy_pgbouncer_in_transaction_mode_is_refused() {
    let server = server();
    let pooler = PgBouncer::start(&server, "transaction", "default_pool_size = 8");
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", pooler.port);
    // Others keep taking sessions out of the pool and putting them back.
    let crowd: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move {
                let (client, connection) =
                    tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
                tokio::spawn(connection);
                while client.batch_execute("SELECT pg_sleep(0.002)").await.is_ok() {}
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..5 {
        let locks = Locks::open(pooler.address(), 2).expect("locks");
        let refused = in_time(locks.lock(namespace(), 1, None).into_future()).await;
        assert!(matches!(refused, Err(AdvisoryLockError::Pooler(_))), "{refused:?}");
    }
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_pgbouncer_in_session_mode_serves() {
    let server = server();
    let pooler = PgBouncer::start(&server, "session", "");
    let (locks, namespace) = (Locks::open(pooler.address(), 2).expect("locks"), namespace());
    let body = async || anyhow::Ok(held(&server, namespace));
    assert_eq!(in_time(locks.lock(namespace, 1, None).scope(body)).await.expect("locked"), 1);
    assert_eq!(held(&server, namespace), 0);
}

#[tokio::test]
async fn the_monitor_looks_through_a_pgbouncer_of_any_mode() {
    let server = server();
    let pooler = PgBouncer::start(&server, "transaction", "");
    let monitor = Monitor::new(pooler.address(), Namespaces::default());
    for _ in 0..3 {
        in_time(monitor.locks()).await.expect("listed");
    }
}
