//! What the laws stand on: one server for all that run at the same time, and a namespace for each.

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lockkeeper_advisory::{Address, LockNamespace, Locks, Pools, Sizes};
use lockkeeper_postgres_fixture::{Options, Postgres};

/// Long enough for a busy machine, and a failure when it passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// The server that whoever runs now shares; it ends with the last of them.
pub(crate) fn server() -> Arc<Postgres> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(Postgres::start_with(&Options::quick()));
    *shared = Arc::downgrade(&server);
    server
}

/// A namespace that no other test has.
pub(crate) fn namespace() -> LockNamespace {
    static NEXT: AtomicI32 = AtomicI32::new(1000);
    LockNamespace::new(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn pools(server: &Postgres) -> Pools {
    Pools::open(&server.socket_url()).expect("pools")
}

/// So many connections, for locks alone.
pub(crate) fn locks(server: &Postgres, count: usize) -> Locks {
    Locks::open(Address::parse(&server.socket_url()).expect("a URL"), count).expect("locks")
}

pub(crate) fn pools_of(server: &Postgres, sizes: Sizes) -> Pools {
    Pools::new(Address::parse(&server.socket_url()).expect("a URL"), sizes).expect("pools")
}

/// How many locks of a namespace are held or waited for, by the server's own account.
pub(crate) fn counted(server: &Postgres, namespace: LockNamespace, granted: bool) -> usize {
    let number = namespace.number();
    let text = server.sql(&format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = {number} AND objsubid = 2 AND granted = {granted}"
    ));
    text.parse().expect("a number")
}

pub(crate) fn held(server: &Postgres, namespace: LockNamespace) -> usize {
    counted(server, namespace, true)
}

/// Waits for something that must come about.
pub(crate) async fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let give_up = std::time::Instant::now() + PATIENCE;
    while !is() {
        assert!(std::time::Instant::now() < give_up, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn deep() -> bool {
    std::env::var_os("LOCKKEEPER_DEEP").is_some()
}

/// Runs something that must end, whatever happens.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing hangs")
}

/// An error of the application's own.
#[derive(Debug)]
pub(crate) struct Trouble;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trouble")
    }
}

impl std::error::Error for Trouble {}
