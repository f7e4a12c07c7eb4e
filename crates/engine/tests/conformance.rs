//! Every engine passes the same laws.

use std::path::Path;
use std::sync::Arc;

use lockkeeper_engine::conformance::{self, Builder};
use lockkeeper_engine::{Durability, Embedded, Engine, Memory};

struct InMemory;

impl Builder for InMemory {
    type Guard = Arc<Memory>;

    async fn build(&self) -> (Arc<Memory>, Arc<dyn Engine>) {
        let memory = Arc::new(Memory::new());
        (memory.clone(), memory)
    }

    async fn reopen(&self, guard: &Arc<Memory>) -> Arc<dyn Engine> {
        guard.clone()
    }

    async fn beside(&self, guard: &Arc<Memory>) -> Option<Arc<dyn Engine>> {
        Some(guard.clone())
    }
}

struct InDirectory(Durability);

impl InDirectory {
    fn open(&self, dir: &Path) -> Arc<dyn Engine> {
        Arc::new(Embedded::open(dir, self.0).expect("opens"))
    }
}

impl Builder for InDirectory {
    type Guard = tempfile::TempDir;

    async fn build(&self) -> (tempfile::TempDir, Arc<dyn Engine>) {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = self.open(dir.path());
        (dir, engine)
    }

    async fn reopen(&self, dir: &tempfile::TempDir) -> Arc<dyn Engine> {
        self.open(dir.path())
    }

    async fn beside(&self, _: &tempfile::TempDir) -> Option<Arc<dyn Engine>> {
        None
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_laws() {
    conformance::run(&InMemory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_syncs_always_keeps_the_laws() {
    conformance::run(&InDirectory(Durability::Always)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_syncs_at_intervals_keeps_the_laws() {
    conformance::run(&InDirectory(Durability::Interval)).await;
}
