//! One PostgreSQL for all tests of this process, with a database for each of them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lockkeeper_postgres_fixture::{Options, Postgres};

static QUICK: LazyLock<Postgres> = LazyLock::new(|| Postgres::start_with(&Options::quick()));
static SYNCED: LazyLock<Postgres> = LazyLock::new(Postgres::start);
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// The URL of a database that nobody else uses.
pub(crate) fn database(is_synced: bool) -> String {
    let server = if is_synced { &SYNCED } else { &QUICK };
    let name = format!("d{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    server.create_database(&name);
    server.url_of(&name)
}
