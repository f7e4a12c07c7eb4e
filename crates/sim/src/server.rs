//! A server: a keeper on its link, which can be killed, paused and started again.

use std::sync::{Arc, Mutex};

use lockkeeper_core::command::Command;
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::state::State;
use lockkeeper_keeper::metrics::Metrics;
use lockkeeper_keeper::settings::Settings;
use lockkeeper_keeper::{Failure, Keeper};
use tokio_util::sync::CancellationToken;

use crate::link::{Link, Store};

pub(crate) struct Server {
    store: Arc<Store>,
    settings: Settings,
    /// The longest way to the ledger, in milliseconds.
    way: u64,
    runs: Mutex<Option<Run>>,
    started: Mutex<u64>,
}

#[derive(Clone)]
struct Run {
    keeper: Keeper,
    link: Arc<Link>,
    died: CancellationToken,
    /// The process has decided to end.
    stopping: CancellationToken,
}

/// What came back from a server.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    Said(T),
    /// Nobody there, or no answer any more.
    Silence,
}

impl Server {
    pub(crate) fn new(store: Arc<Store>, settings: Settings, way: u64) -> Server {
        Server { store, settings, way, runs: Mutex::default(), started: Mutex::default() }
    }

    fn run(&self) -> Option<Run> {
        self.runs.lock().expect("no holder panics").clone()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.run().is_some()
    }

    /// Starts it, if it is down and the ledger can be read.
    pub(crate) async fn start(&self) -> bool {
        if self.is_up() {
            return true;
        }
        self.store.opened().await;
        let link = Link::new(&self.store, self.way);
        let mut settings = self.settings.clone();
        let started = {
            let mut started = self.started.lock().expect("no holder panics");
            *started += 1;
            *started
        };
        settings.writer = settings.writer.map(|writer| writer << 32 | started);
        let (metrics, stopping) = (Arc::new(Metrics::default()), CancellationToken::new());
        let opened = Keeper::open(self.store.space().clone(), link.clone(), &settings, metrics, stopping.clone()).await;
        let Ok(keeper) = opened else { return false };
        let died = CancellationToken::new();
        let mut runs = self.runs.lock().expect("no holder panics");
        if runs.is_some() {
            // Somebody else was faster: there is one process at a time.
            link.die();
        } else {
            *runs = Some(Run { keeper, link, died, stopping });
        }
        true
    }

    /// kill -9.
    pub(crate) fn kill(&self) {
        if let Some(run) = self.runs.lock().expect("no holder panics").take() {
            run.link.die();
            run.died.cancel();
        }
    }

    pub(crate) fn pause(&self, millis: u64) {
        if let Some(run) = self.run() {
            run.link.pause(millis);
        }
    }

    /// Its disk has failed: it has stopped by itself.
    pub(crate) fn is_broken(&self) -> bool {
        self.run().is_some_and(|run| run.link.is_broken())
    }

    /// Its disk failed a while ago, and it goes on as if nothing had happened.
    pub(crate) fn ignores_its_disk(&self) -> bool {
        self.run().is_some_and(|run| run.link.is_long_broken() && !run.stopping.is_cancelled())
    }

    pub(crate) async fn ask(&self, command: Command, bound: bool) -> Reply<Result<Answer, Failure>> {
        let Some(run) = self.run() else { return Reply::Silence };
        let keeper = run.keeper.clone();
        run.answers(async move { if bound { keeper.ask_bound(command).await } else { keeper.ask(command).await } })
            .await
    }

    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Reply<Result<T, Failure>> {
        let Some(run) = self.run() else { return Reply::Silence };
        let keeper = run.keeper.clone();
        run.answers(async move { keeper.read(move |state, _| look(state)).await }).await
    }
}

impl Run {
    /// Waits for an answer, as long as the process lives and while it is not paused.
    async fn answers<T>(&self, asking: impl Future<Output = T>) -> Reply<T> {
        let asking = async {
            self.link.gate().await;
            let answer = asking.await;
            self.link.gate().await;
            answer
        };
        tokio::select! {
            biased;
            () = self.died.cancelled() => Reply::Silence,
            answer = asking => Reply::Said(answer),
        }
    }
}
