//! The laws of every engine, on PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockkeeper_engine::conformance::{self, Builder};
use lockkeeper_engine::{Engine, Position, Postgres, Record};
use lockkeeper_postgres_fixture::{Options, Postgres as Server};

/// A database of its own for each law.
struct InPostgres {
    server: Server,
    databases: AtomicU32,
}

async fn open(url: &str) -> Arc<dyn Engine> {
    Arc::new(Postgres::open(url).await.expect("opens"))
}

impl Builder for InPostgres {
    type Guard = String;

    async fn build(&self) -> (String, Arc<dyn Engine>) {
        let name = format!("law{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.server.create_database(&name);
        let url = self.server.url_of(&name);
        let engine = open(&url).await;
        (url, engine)
    }

    async fn reopen(&self, url: &String) -> Arc<dyn Engine> {
        open(url).await
    }

    async fn beside(&self, url: &String) -> Option<Arc<dyn Engine>> {
        Some(open(url).await)
    }

    fn following(&self, before: Position, record: &Record) -> Position {
        Postgres::following(before, record)
    }
}

async fn keeps_the_laws(options: &Options) {
    conformance::run(&InPostgres { server: Server::start_with(options), databases: AtomicU32::new(0) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_does_not_sync_keeps_the_laws() {
    keeps_the_laws(&Options::quick()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_that_syncs_keeps_the_laws() {
    keeps_the_laws(&Options::default()).await;
}
