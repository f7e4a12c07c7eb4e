//! The keepers of a service, one for each space, opened when somebody asks for it.

use std::sync::{Arc, RwLock, RwLockReadGuard};

use lockkeeper_core::HashMap;
use lockkeeper_core::space::Space;
use lockkeeper_engine::{Engine, EngineError, Memory};
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
    /// How many there may be at the same time.
    most: usize,
    open: RwLock<HashMap<Space, Keeper>>,
    /// Each is held while that one is opened, so that no two keepers of this service write one ledger.
    opening: std::sync::Mutex<HashMap<Space, Arc<Mutex<()>>>>,
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
        let (open, opening) = (RwLock::default(), std::sync::Mutex::default());
        Spaces { engine, settings, metrics, stopping, most: SPACES_MAX, open, opening }
    }

    fn opened(&self) -> RwLockReadGuard<'_, HashMap<Space, Keeper>> {
        self.open.read().expect("no holder panics")
    }

    pub(crate) async fn keeper(&self, space: &Space) -> Result<Keeper, NoKeeper> {
        if let Some(keeper) = self.opened().get(space) {
            return Ok(keeper.clone());
        }
        if self.opened().len() >= self.most / 2 {
            // Most are folders that somebody worked in once. Well before there is no room: their loops have yet to end.
            self.open.write().expect("no holder panics").retain(|_, keeper| !keeper.is_at_rest());
            tokio::task::yield_now().await;
        }
        let opening = {
            let mut all = self.opening.lock().expect("no holder panics");
            // Those that nobody is opening any more.
            all.retain(|_, opening| Arc::strong_count(opening) > 1);
            if self.opened().len() + all.len() >= self.most && !all.contains_key(space) {
                return Err(NoKeeper::TooMany);
            }
            all.entry(space.clone()).or_default().clone()
        };
        let _opening = opening.lock().await;
        if let Some(keeper) = self.opened().get(space) {
            return Ok(keeper.clone());
        }
        let ledger = self.engine.open(space).await.map_err(NoKeeper::Failed)?;
        let (metrics, stopping) = (self.metrics.clone(), self.stopping.clone());
        let keeper = Keeper::open(space.clone(), ledger, &self.settings, metrics, stopping);
        let keeper = keeper.await.map_err(NoKeeper::Failed)?;
        self.open.write().expect("no holder panics").insert(space.clone(), keeper.clone());
        Ok(keeper)
    }

    /// The keeper for whoever only looks: a space that nobody has used is empty, and is not made by that.
    pub(crate) async fn looked_at(&self, space: &Space) -> Result<Keeper, NoKeeper> {
        if let Some(keeper) = self.if_open(space) {
            return Ok(keeper);
        }
        // One that can't be told may be there.
        let is_there = async || self.engine.spaces().await.map_or(true, |spaces| spaces.contains(space));
        if !self.engine.opening_takes_room() || is_there().await {
            return self.keeper(space).await;
        }
        let empty = Memory::new().open(space).await.map_err(NoKeeper::Failed)?;
        let looked = Keeper::open(space.clone(), empty, &self.settings, Arc::default(), self.stopping.clone());
        looked.await.map_err(NoKeeper::Failed)
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
        for space in self.engine.spaces().await?.into_iter().take(self.most / 2) {
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

#[cfg(test)]
mod tests {
    use lockkeeper_core::command::{Actor, Command};
    use lockkeeper_core::key::Key;
    use lockkeeper_core::session::{AgentName, SessionId};
    use lockkeeper_core::time::Millis;
    use lockkeeper_engine::{BoxFuture, Durability, Embedded, Ledger};

    use super::*;

    /// An engine that never comes to an end with one space.
    #[derive(Debug)]
    struct Partial(Memory);

    impl Engine for Partial {
        fn scheme(&self) -> &'static str {
            "partial"
        }

        fn place(&self) -> String {
            "nowhere".to_owned()
        }

        fn open<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<Arc<dyn Ledger>, EngineError>> {
            if space.as_str() == "stuck" { Box::pin(std::future::pending()) } else { self.0.open(space) }
        }

        fn spaces(&self) -> BoxFuture<'_, Result<Vec<Space>, EngineError>> {
            self.0.spaces()
        }
    }

    /// Segments are made when a space is opened, so whoever could open any number of them could fill the disk.
    #[tokio::test]
    async fn looking_at_a_space_makes_none() {
        let folder = tempfile::tempdir().expect("a directory");
        let engine = Embedded::open(folder.path(), Durability::Always).expect("an engine");
        let spaces = Spaces::new(Arc::new(engine), Settings::default(), Arc::default(), CancellationToken::new());
        let space = Space::parse("nobody/was/here").expect("a name");
        let looked = spaces.looked_at(&space).await.expect("a keeper");
        assert_eq!(looked.read(|state, _| state.lock_count()).await, Ok(0));
        assert!(spaces.if_open(&space).is_none());
        assert_eq!(spaces.engine.spaces().await, Ok(Vec::new()));
        spaces.keeper(&space).await.expect("whoever uses it makes it");
        assert_eq!(spaces.engine.spaces().await.map(|spaces| spaces.len()), Ok(1));
    }

    /// Agents work in thousands of folders, one after the other: those where nothing is held make room, and are found as they were.
    #[tokio::test]
    async fn spaces_at_rest_make_room_and_come_back() {
        let folder = tempfile::tempdir().expect("a directory");
        let embedded = Embedded::open(folder.path(), Durability::Interval).expect("an engine");
        let engines: [Arc<dyn Engine>; 2] = [Arc::new(Memory::new()), Arc::new(embedded)];
        for engine in engines {
            let stopping = CancellationToken::new();
            let spaces = Spaces { most: 20, ..Spaces::new(engine, Settings::default(), Arc::default(), stopping) };
            let space = |number: usize| Space::parse(&format!("team/{number}")).expect("a name");
            let (session, agent) = (SessionId::parse("a").expect("a name"), AgentName::parse("a").expect("a name"));
            let actor = Actor { session, agent, agent_type: None, bound: false };
            let open = Command::OpenSession { actor: actor.clone() };
            let key = Key::parse("x").expect("a key");
            let held = spaces.keeper(&space(0)).await.expect("a keeper");
            held.ask(Command::OpenRoom { actor, key, busy: Millis::from_secs(3600) }).await.expect("a room");
            let used = spaces.keeper(&space(1)).await.expect("a keeper");
            used.ask(open.clone()).await.expect("a session");
            let watched = spaces.keeper(&space(2)).await.expect("a keeper");
            drop((held, used));
            for number in 3..100 {
                spaces.keeper(&space(number)).await.expect("a keeper");
            }
            assert!(spaces.if_open(&space(0)).is_some(), "somebody is in a room");
            assert!(spaces.if_open(&space(1)).is_none(), "nothing is held there");
            assert!(spaces.if_open(&space(2)).is_some(), "somebody has it");
            let again = spaces.keeper(&space(1)).await.expect("a keeper");
            assert_eq!(again.read(|state, _| state.session_count()).await, Ok(1), "as it was");
            again.ask(open).await.expect("and goes on");
            drop(watched);
            assert!(spaces.all().len() <= spaces.most);
        }
    }

    #[tokio::test]
    async fn a_space_that_can_not_be_opened_keeps_nobody_waiting_who_wants_another() {
        let (settings, stopping) = (Settings::default(), CancellationToken::new());
        let spaces = Arc::new(Spaces::new(Arc::new(Partial(Memory::new())), settings, Arc::default(), stopping));
        let space = |name: &str| Space::parse(name).expect("a name");
        let stuck = tokio::spawn({
            let (spaces, stuck) = (spaces.clone(), space("stuck"));
            async move { spaces.keeper(&stuck).await.map(drop) }
        });
        tokio::task::yield_now().await;
        let within = std::time::Duration::from_secs(10);
        let other = tokio::time::timeout(within, spaces.keeper(&space("other"))).await.expect("at once");
        assert!(other.is_ok() && !stuck.is_finished());
        // Of one space there is one keeper, however many want it at once.
        let third = space("third");
        let (one, same) = tokio::join!(spaces.keeper(&third), spaces.keeper(&third));
        assert!(one.is_ok() && same.is_ok());
        assert_eq!(spaces.all().len(), 2);
        stuck.abort();
    }
}
