//! What a measurement leaves in an engine that is not its own: a space of its own name, removed with it.

use lockkeeper_core::space::Space;
use lockkeeper_engine::Options;

use crate::output::note;

/// Removed at the end, and also when that comes early.
#[derive(Debug)]
pub(crate) struct Leavings {
    engine: String,
    space: Space,
}

impl Leavings {
    /// A space that nobody else has.
    pub(crate) fn new(engine: &str) -> anyhow::Result<Leavings> {
        let space = Space::parse(&format!("bench-{}", uuid::Uuid::now_v7().simple()))?;
        Ok(Leavings { engine: engine.to_owned(), space })
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Whether it goes with something else: a process, or a folder.
    fn goes_by_itself(&self) -> bool {
        ["memory:", "file:"].iter().any(|own| self.engine.starts_with(own))
    }

    fn remove(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let engine = lockkeeper_engine::open(&self.engine, &Options::default()).await?;
            Ok(engine.remove(&self.space).await?)
        })
    }
}

impl Drop for Leavings {
    fn drop(&mut self) {
        if self.goes_by_itself() {
            return;
        }
        if let Err(error) = self.remove() {
            note!("The space {} is left behind: {error:#}", self.space);
        }
    }
}
