//! The keeper in this process, without a service: what is left when no door is in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lockkeeper_core::command::{Acquire, Actor, Command, Want, Which};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::limits::{PRIORITY_DEFAULT, TTL_DEFAULT, TTL_MAX};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::session::{AgentName, Intention, SessionId};
use lockkeeper_core::space::Space;
use lockkeeper_core::span::Span;
use lockkeeper_core::state::Rules;
use lockkeeper_core::time::Millis;
use lockkeeper_engine::{Durability, Options};
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::metrics::Metrics;
use lockkeeper_keeper::settings::Settings;

use super::ask::{self, Ask, Spot};
use super::flood::Times;
use super::{HAND_OVER_PAUSE, What, servers};

pub(crate) struct Library {
    engine: String,
    durability: Durability,
    space: Space,
    /// `None` while others serve the ledger: they are not to tell it what they do.
    own: Option<Own>,
    stop: Arc<AtomicBool>,
}

/// A keeper and what it runs on.
struct Own {
    // Before the runtime, whose tasks it speaks to.
    keeper: Keeper,
    runtime: tokio::runtime::Runtime,
    /// Others can serve the same ledger.
    is_shared: bool,
}

/// A question as the keeper takes it.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    Ask(Command),
    Look { session: SessionId, wants: Vec<Want>, free: bool },
}

impl Library {
    pub(crate) fn open(
        engine: &str,
        durability: Durability,
        space: &Space,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Library> {
        let (engine, space) = (engine.to_owned(), space.clone());
        let mut library = Library { engine, durability, space, own: None, stop };
        library.own()?;
        Ok(library)
    }

    fn own(&mut self) -> anyhow::Result<&Own> {
        let own = match self.own.take() {
            Some(own) => own,
            None => {
                // One thread: nobody has to be woken for an answer.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let (keeper, is_shared) = runtime.block_on(keeper(&self.engine, self.durability, &self.space))?;
                Own { keeper, runtime, is_shared }
            }
        };
        Ok(self.own.insert(own))
    }

    /// Takes so many locks, and goes on holding them.
    pub(crate) fn load(&mut self, held: u64) -> anyhow::Result<()> {
        let loaders = (0..ask::LOADERS as u64).map(|loader| prepare("held", loader, &ask::load(loader, held)));
        let loaders = loaders.collect::<anyhow::Result<Vec<_>>>()?;
        let times = self.flood(loaders, None)?;
        times.first_failure.map_or(Ok(()), |failure| bail!("what is to be held could not be taken: {failure}"))
    }

    pub(crate) fn measure(&mut self, what: What, clients: usize, held: u64, length: Duration) -> anyhow::Result<Times> {
        let all = (0..clients as u64).map(|client| prepare("client", client, &ask::asks(what, client, held)));
        let all = all.collect::<anyhow::Result<Vec<_>>>()?;
        match what {
            What::Handover if self.own()?.is_shared => {
                self.own = None;
                let start = || servers::Server::start(self.engine.clone(), self.durability, self.space.clone());
                servers::hand_over([start()?, start()?], all, length, &self.stop)
            }
            What::Handover => self.hand_over(all, length),
            _ => self.flood(all, Some(length)),
        }
    }

    /// Without a length: everything once.
    fn flood(&mut self, clients: Vec<Vec<Prepared>>, length: Option<Duration>) -> anyhow::Result<Times> {
        let end = length.map(|length| Instant::now() + length);
        let stop = self.stop.clone();
        let own = self.own()?;
        own.runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for steps in clients {
                tasks.spawn(ask_in_turn(own.keeper.clone(), steps, end, stop.clone()));
            }
            let mut all = Times::default();
            while let Some(times) = tasks.join_next().await {
                let times = times.context("a client ended")?;
                all.rounds.extend(times.rounds);
                all.steps.resize(all.steps.len().max(times.steps.len()), Vec::new());
                for (all, own) in all.steps.iter_mut().zip(times.steps) {
                    all.extend(own);
                }
                all.failures += times.failures;
                all.first_failure = all.first_failure.or(times.first_failure);
            }
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            all.elapsed = length.unwrap_or_default();
            Ok(all)
        })
    }

    fn hand_over(&mut self, mut clients: Vec<Vec<Prepared>>, length: Duration) -> anyhow::Result<Times> {
        let mut times = Times::default();
        let began = Instant::now();
        let stop = self.stop.clone();
        let own = self.own()?;
        own.runtime.block_on(async {
            if !answer(&own.keeper, &clients[0][0]).await? {
                bail!("the first lock was refused");
            }
            while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
                let (keeper, take) = (own.keeper.clone(), clients[1][0].clone());
                let waiter = tokio::spawn(async move { (answer(&keeper, &take).await, Instant::now()) });
                tokio::time::sleep(HAND_OVER_PAUSE).await;
                let asked = Instant::now();
                let released = answer(&own.keeper, &clients[0][1]).await?;
                let (granted, at) = waiter.await?;
                if granted? && released {
                    times.rounds.push((at - asked).as_nanos() as u64);
                } else {
                    times.failed(|| "a hand-over was refused".to_owned());
                }
                clients.swap(0, 1);
            }
            anyhow::Ok(())
        })?;
        times.elapsed = began.elapsed();
        Ok(times)
    }
}

/// A keeper with an engine of its own, and whether others can serve the same ledger.
pub(super) async fn keeper(engine: &str, durability: Durability, space: &Space) -> anyhow::Result<(Keeper, bool)> {
    let engine = lockkeeper_engine::open(engine, &Options { durability, ..Options::default() }).await?;
    let rules = Rules { quota_limit: 0, ..Rules::default() };
    let settings = Settings { rules, ..Settings::default() };
    let ledger = engine.open(space).await?;
    let is_shared = engine.scheme() != "memory" && ledger.has_other_writers();
    let stopping = tokio_util::sync::CancellationToken::new();
    let keeper = Keeper::open(space.clone(), ledger, &settings, Arc::new(Metrics::new()), stopping).await?;
    Ok((keeper, is_shared))
}

async fn ask_in_turn(keeper: Keeper, steps: Vec<Prepared>, end: Option<Instant>, stop: Arc<AtomicBool>) -> Times {
    let mut times = Times { steps: vec![Vec::new(); steps.len()], ..Times::default() };
    let mut now = Instant::now();
    while end.is_none_or(|end| now < end) && !stop.load(Ordering::Relaxed) {
        let began = now;
        for (step, took) in steps.iter().zip(&mut times.steps) {
            let asked = now;
            let answered = answer(&keeper, step).await;
            now = Instant::now();
            match answered {
                Ok(true) => took.push((now - asked).as_nanos() as u64),
                Ok(false) => {
                    times.failures += 1;
                    times.first_failure.get_or_insert_with(|| format!("refused: {step:?}"));
                }
                Err(error) => {
                    times.failures += 1;
                    times.first_failure.get_or_insert_with(|| error.to_string());
                }
            }
        }
        times.rounds.push((now - began).as_nanos() as u64);
        if end.is_none() {
            break;
        }
    }
    times
}

/// Whether the answer is the one that is expected.
pub(super) async fn answer(keeper: &Keeper, step: &Prepared) -> Result<bool, lockkeeper_keeper::Failure> {
    match step {
        Prepared::Ask(command) => {
            let answer = keeper.ask(command.clone()).await?;
            Ok(matches!(answer, Answer::Granted { fresh: 1.., .. } | Answer::Released { .. }))
        }
        Prepared::Look { session, wants, free } => {
            let (session, wants) = (session.clone(), wants.clone());
            let busy = keeper.read(move |state, _| state.conflicts(&session, &wants)).await?;
            Ok(busy.conflicts.is_empty() == *free)
        }
    }
}

fn prepare(role: &str, number: u64, asks: &[Ask]) -> anyhow::Result<Vec<Prepared>> {
    let name = ask::session(role, number);
    let (session, agent) = (SessionId::parse(&name)?, AgentName::parse(&name)?);
    let actor = Actor { session: session.clone(), agent, agent_type: None, bound: false };
    let take = |spots: &[Spot], ttl: Millis, wait: Millis| {
        let wants = spots.iter().map(want).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Prepared::Ask(Command::Acquire(Acquire {
            actor: actor.clone(),
            wants,
            intention: Intention::parse("")?,
            ttl,
            wait,
            priority: PRIORITY_DEFAULT,
            feature: None,
            request: None,
            restores: false,
        })))
    };
    let prepared = asks.iter().map(|ask| match ask {
        Ask::Take { spot, wait_ms } => take(std::slice::from_ref(spot), TTL_DEFAULT, Millis(*wait_ms)),
        Ask::TakeAll(spots) => take(spots, TTL_MAX, Millis(0)),
        Ask::Give(spot) => {
            let Target { key, span } = want(spot)?.target;
            let which = Which::Key(key, spot.lines.map(|_| span));
            Ok(Prepared::Ask(Command::Release { actor: actor.clone(), which, token: None, request: None }))
        }
        Ask::Look { spot, free } => {
            Ok(Prepared::Look { session: session.clone(), wants: vec![want(spot)?], free: *free })
        }
    });
    prepared.collect()
}

fn want(spot: &Spot) -> anyhow::Result<Want> {
    let (start, end) = spot.lines.unzip();
    let span = Span::checked(start.map(i128::from), end.map(i128::from))?;
    Ok(Want { target: Target::new(Key::parse(&spot.path)?, span)?, mode: Mode::Exclusive })
}
