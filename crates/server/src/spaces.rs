//! The keepers of a service, one for each space, opened when somebody asks for it.

use std::collections::HashMap;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use lockkeeper_core::space::Space;
use lockkeeper_engine::{Engine, EngineError};
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::metrics::Metrics;
use lockkeeper_keeper::settings::Settings;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Spaces that one service keeps at the same time.
pub(crate) const SPACES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Spaces {
    engine: Arc<dyn Engine>,
    settings: Settings,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
    open: RwLock<HashMap<Space, Keeper>>,
    /// Held while one is opened, so that no two keepers of this service write one ledger.
    opening: Mutex<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoKeeper {
    TooMany,
    Failed(EngineError),
}

impl Spaces {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        settings: Settings,
        metrics: Arc<Metrics>,
        stopping: CancellationToken,
    ) -> Spaces {
        Spaces { engine, settings, metrics, stopping, open: RwLock::default(), opening: Mutex::default() }
    }

    fn opened(&self) -> RwLockReadGuard<'_, HashMap<Space, Keeper>> {
        self.open.read().expect("no holder panics")
    }

    pub(crate) async fn keeper(&self, space: &Space) -> Result<Keeper, NoKeeper> {
        if let Some(keeper) = self.opened().get(space) {
            return Ok(keeper.clone());
        }
        let _opening = self.opening.lock().await;
        if let Some(keeper) = self.opened().get(space) {
            return Ok(keeper.clone());
        }
        if self.opened().len() >= SPACES_MAX {
            return Err(NoKeeper::TooMany);
        }
        let ledger = self.engine.open(space).await.map_err(NoKeeper::Failed)?;
        let (metrics, stopping) = (self.metrics.clone(), self.stopping.clone());
        let keeper = Keeper::open(space.clone(), ledger, &self.settings, metrics, stopping);
        let keeper = keeper.await.map_err(NoKeeper::Failed)?;
        self.open.write().expect("no holder panics").insert(space.clone(), keeper.clone());
        Ok(keeper)
    }

    /// The keeper of a space that is open already.
    pub(crate) fn if_open(&self, space: &Space) -> Option<Keeper> {
        self.opened().get(space).cloned()
    }

    /// Every keeper that is open.
    pub(crate) fn all(&self) -> Vec<Keeper> {
        self.opened().values().cloned().collect()
    }

    /// Opens every space that the engine has a ledger of, as long as there is room for as many that are yet to come. What
    /// can't be opened is left out.
    pub(crate) async fn open_all(&self) -> Result<(), EngineError> {
        for space in self.engine.spaces().await?.into_iter().take(SPACES_MAX / 2) {
            if let Err(error) = self.keeper(&space).await {
                tracing::warn!(%space, ?error, "a space can't be opened");
            }
        }
        Ok(())
    }

    /// Lets go of every keeper; each ends when the last question to it is answered.
    pub(crate) fn close(&self) {
        self.open.write().expect("no holder panics").clear();
    }
}
