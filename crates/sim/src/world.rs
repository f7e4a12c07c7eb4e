//! One run: servers, clients, weather, and the reckoning at the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_core::lock::Lock;
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::ports::PortRules;
use lockkeeper_core::session::SessionId;
use lockkeeper_core::state::Rules;
use lockkeeper_core::time::Millis;
use lockkeeper_keeper::settings::Settings;

use crate::air::{Air, BEGIN};
use crate::auditor::{Auditor, Broken, Look};
use crate::client::Client;
use crate::link::Store;
use crate::server::{Reply, Server};
use crate::weather::{Kind, Weather};
use crate::wishes::{everything, look_at, wanting};

/// A dead session counts as alive this long after it was heard; what it sent may be on its way for a while.
const ALIVE: u64 = 30_000_000 + 4_000_000;
/// A paused server hears it later by as much.
const PAUSE_MAX: u64 = 10_000;
/// So many starts in a row do not fail by chance.
const STARTS_MAX: u32 = 1000;
/// Everything is free this long after everybody is gone: a dead waiter may get its turn first.
const ALL_FREE: Duration = Duration::from_secs(30 + 10 + 8 + 3);

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    pub broken: Vec<Broken>,
    /// Two runs of one seed have the same.
    pub trace_hash: u64,
    pub weather: Weather,
    pub trace: Vec<String>,
}

pub(crate) struct World {
    pub air: Arc<Air>,
    pub servers: Vec<Server>,
    store: Arc<Store>,
    auditor: Mutex<Auditor>,
    deaths: Mutex<BTreeMap<SessionId, u64>>,
    /// Nobody does anything before, in true microseconds.
    suspended_until: AtomicU64,
    last_look: Mutex<Vec<Arc<Lock>>>,
}

thread_local! {
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes a panic on the thread of its run, wherever in the run it happens.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| PANICKED.with(|noted| *noted.borrow_mut() = Some(panic.to_string()))));
    });
}

/// Runs one seed. `traced`: the report tells all that was sent and told.
pub fn run(seed: u64, traced: bool) -> Report {
    catch_panics();
    let weather = Weather::draw(&mut Rng::with_seed(seed));
    let ran = std::panic::catch_unwind(|| run_unguarded(seed, traced));
    let empty = || Report { seed, broken: Vec::new(), trace_hash: 0, weather, trace: Vec::new() };
    let mut report = ran.unwrap_or_else(|_| empty());
    if let Some(how) = PANICKED.take() {
        report.broken.push(Broken { promise: "no panic", how });
    }
    report
}

fn run_unguarded(seed: u64, traced: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let mut rng = Rng::with_seed(seed);
        let weather = Weather::draw(&mut rng);
        let world = World::new(weather.clone(), rng, traced).await;
        let clients = world.clone().storm().await;
        world.clear_up().await;
        world.account(&clients).await;
        world.reckon().await;
        let mut auditor = world.auditor();
        let (broken, trace_hash) = (auditor.broken().to_vec(), auditor.trace_hash());
        Report { seed, broken, trace_hash, weather, trace: auditor.take_trace() }
    })
}

impl World {
    async fn new(weather: Weather, rng: Rng, traced: bool) -> Arc<World> {
        let air = Arc::new(Air::new(weather.clone(), rng));
        let store = Store::new(air.clone()).await;
        // Too few for all, and soon free.
        let ports = PortRules { sessions: 3, ttl: Millis(4000), ..PortRules::default() };
        let rules = Rules { quota_limit: weather.quota, ports, ..Rules::default() };
        let settings = |number: usize| Settings {
            rules: rules.clone(),
            writer: Some(number as u64 + 1),
            has_threads: false,
            ..Settings::default()
        };
        let server = |number| Server::new(store.clone(), settings(number), weather.ledger_way);
        let servers = (0..weather.servers).map(server).collect();
        let auditor = Auditor::new(&weather, traced);
        Arc::new(World {
            air,
            servers,
            store,
            auditor: Mutex::new(auditor),
            deaths: Mutex::default(),
            suspended_until: AtomicU64::new(0),
            last_look: Mutex::default(),
        })
    }

    pub(crate) fn auditor(&self) -> MutexGuard<'_, Auditor> {
        self.auditor.lock().expect("no holder panics")
    }

    /// Any server; most of the time one that is up.
    pub(crate) fn some_server(&self) -> usize {
        let up: Vec<usize> = (0..self.servers.len()).filter(|number| self.servers[*number].is_up()).collect();
        let mut rng = self.air.rng();
        if up.is_empty() || rng.u8(..20) == 0 { rng.usize(..self.servers.len()) } else { up[rng.usize(..up.len())] }
    }

    pub(crate) fn suspended_until(&self) -> u64 {
        self.suspended_until.load(Ordering::Relaxed)
    }

    pub(crate) fn dead(&self, session: &SessionId, now: u64) {
        self.deaths.lock().expect("no holder panics").insert(session.clone(), now);
    }

    pub(crate) fn seen(&self, look: &Look) {
        let deaths = self.deaths.lock().expect("no holder panics");
        let paused = if self.air.weather.pauses > 0 { PAUSE_MAX * 1000 } else { 0 };
        self.auditor().heard(look, |session| deaths.get(session).copied(), ALIVE + paused);
        self.check_freed_in_time(look);
        *self.last_look.lock().expect("no holder panics") = look.locks.clone();
    }

    /// P8, on days on which nothing but time decides when a lease is ended.
    fn check_freed_in_time(&self, look: &Look) {
        let Weather { kind, pauses, crashes, sync_fails, ledger_down, ledger_unknown, .. } = &self.air.weather;
        let undisturbed = [pauses, crashes, sync_fails, ledger_down, ledger_unknown].iter().all(|rate| **rate == 0);
        if *kind == Kind::Forgetful || !undisturbed {
            return;
        }
        // Seen a moment ago, by a server whose time may lie behind.
        let slack =
            1_000_000 + 1000 * (2 * (self.air.weather.way + self.air.weather.ledger_way) + self.air.weather.lag);
        let now = BEGIN + self.air.now();
        for lock in look.locks.iter().filter(|lock| lock.expires.0 + slack < now) {
            self.auditor().breaks("P8", || format!("{lock:?} is still there at {now}"));
        }
    }

    /// Something that was listed as another's.
    pub(crate) fn a_lock_not_of(&self, session: &SessionId, now: u64) -> Option<Arc<Lock>> {
        let seen = self.last_look.lock().expect("no holder panics").clone();
        seen.into_iter().find(|lock| lock.session != *session && lock.expires.0 > BEGIN + now)
    }

    /// Everybody at work, and everything that may go wrong.
    async fn storm(self: Arc<World>) -> Vec<Arc<Client>> {
        for server in &self.servers {
            self.start(server).await;
        }
        let numbers = 0..self.air.weather.clients;
        let clients: Vec<_> = numbers.map(|number| Arc::new(Client::new(number, self.clone()))).collect();
        let mut tasks = Vec::new();
        for client in &clients {
            tasks.push(tokio::spawn(client.clone().live()));
            tasks.push(tokio::spawn(client.clone().beat()));
        }
        tasks.push(tokio::spawn(self.clone().crashes()));
        tasks.push(tokio::spawn(self.clone().pauses()));
        tasks.push(tokio::spawn(self.clone().bad_disk()));
        tasks.push(tokio::spawn(self.clone().failovers()));
        tokio::time::sleep(Duration::from_millis(self.air.weather.length)).await;
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        clients
    }

    /// Starts a server. What it needs for that is away for moments, never for good.
    async fn start(&self, server: &Server) {
        for _ in 0..STARTS_MAX {
            if server.start().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.auditor().breaks("P12", || "a server can't be started any more".to_owned());
    }

    async fn every(&self, mean: u64) {
        let wait = if mean == 0 { 3_600_000 } else { self.air.rng().u64(mean / 2..mean * 3 / 2) };
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    async fn crashes(self: Arc<World>) {
        loop {
            self.every(self.air.weather.crashes).await;
            let number = self.air.rng().usize(..self.servers.len());
            self.kill(number);
            let longest = self.air.weather.downtime;
            let downtime = if longest > 40_000 { longest } else { self.air.rng().u64(..=longest) };
            tokio::time::sleep(Duration::from_millis(downtime)).await;
            self.start(&self.servers[number]).await;
            let now = self.air.now();
            self.auditor().note(now, 100 + number, "start", || "starts".to_owned());
        }
    }

    fn kill(&self, number: usize) {
        let now = self.air.now();
        let broken = self.servers[number].is_broken();
        self.servers[number].kill();
        let on_disk = self.air.weather.kind == Kind::Disk;
        let power = on_disk && (broken || self.air.chance(self.air.weather.power_loss));
        self.auditor().note(now, 100 + number, power, || {
            if power { "the power goes".to_owned() } else { "is killed".to_owned() }
        });
        if power {
            self.auditor().power_lost(now);
            if !self.store.lose_power() {
                self.auditor().breaks("P6", || "the power took what a snapshot stood for".to_owned());
            }
        }
    }

    async fn pauses(self: Arc<World>) {
        loop {
            self.every(self.air.weather.pauses).await;
            let number = self.air.rng().usize(..self.servers.len());
            let pause = self.air.rng().u64(..PAUSE_MAX);
            let now = self.air.now();
            if self.air.weather.suspends {
                self.suspended_until.store(now + pause * 1000, Ordering::Relaxed);
                for server in &self.servers {
                    server.pause(pause);
                }
                self.auditor().note(now, 200, "suspend", || format!("everything is suspended for {pause} ms"));
            } else {
                self.servers[number].pause(pause);
                self.auditor().note(now, 100 + number, "pause", || format!("is paused for {pause} ms"));
            }
            if self.air.weather.wall_jumps {
                self.air.jump_wall();
            }
        }
    }

    /// Full now and then; and a server whose disk failed is started anew.
    async fn bad_disk(self: Arc<World>) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let full = self.air.chance(self.air.weather.full_disk);
            self.store.set_full(full);
            for number in 0..self.servers.len() {
                if self.servers[number].ignores_its_disk() {
                    self.auditor().breaks("P16", || "a server goes on though its disk has failed".to_owned());
                }
                if self.servers[number].is_broken() {
                    self.kill(number);
                    self.start(&self.servers[number]).await;
                }
            }
        }
    }

    async fn failovers(self: Arc<World>) {
        loop {
            self.every(self.air.weather.failovers).await;
            self.store.fail_over().await;
            let now = self.air.now();
            self.auditor().note(now, 200, "failover", || "the store fails over".to_owned());
        }
    }

    /// The sky clears, and every server is up.
    async fn clear_up(&self) {
        self.air.clear_up();
        self.store.set_full(false);
        for number in 0..self.servers.len() {
            if self.servers[number].is_broken() {
                self.servers[number].kill();
            }
            if !self.servers[number].is_up() {
                self.start(&self.servers[number]).await;
            }
        }
    }

    /// A store that forgot something has everybody told who lost by it, if a server lives that knew of it.
    async fn account(&self, clients: &[Arc<Client>]) {
        let weather = &self.air.weather;
        if weather.kind != Kind::Forgetful || weather.crashes > 0 {
            return;
        }
        let believed: Vec<_> = clients.iter().map(|client| client.believed()).collect();
        self.everybody_looks().await;
        for (client, believed) in clients.iter().zip(believed) {
            client.account(believed).await;
        }
    }

    /// Whoever has not yet seen that the ledger was rewritten sees it now, and writes down what it knew.
    async fn everybody_looks(&self) {
        for server in &self.servers {
            let _ = server.look(|_| ()).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Everybody is gone: what is left must be in order, and soon free.
    async fn reckon(&self) {
        tokio::time::sleep(ALL_FREE).await;
        self.check_replay().await;
        let session = SessionId::parse("reckoner").expect("a session");
        for target in everything(&self.air.weather) {
            let server = self.some_server();
            match self.servers[server].ask(wanting(&session, &target), false).await {
                Reply::Said(Ok(Answer::Granted { .. })) => {}
                other => {
                    let why = format!("{other:?}");
                    if !why.contains("RateLimited") {
                        self.auditor().not_free(&target, &why);
                    }
                }
            }
        }
    }

    /// What each server knows is what the ledger says to somebody who reads it from the beginning.
    async fn check_replay(&self) {
        self.everybody_looks().await;
        let reader = Server::new(
            self.store.clone(),
            Settings { writer: Some(99), has_threads: false, ..Settings::default() },
            1,
        );
        self.start(&reader).await;
        let Reply::Said(Ok(anew)) = reader.look(lockkeeper_core::state::State::snapshot).await else {
            self.auditor().breaks("P12", || "the ledger can't be read anew".to_owned());
            return;
        };
        for server in &self.servers {
            match server.look(lockkeeper_core::state::State::snapshot).await {
                Reply::Said(Ok(live)) if live == anew => {}
                Reply::Said(Ok(live)) => {
                    let (live, anew) = (format!("{live:?}"), format!("{anew:?}"));
                    let same = live.bytes().zip(anew.bytes()).take_while(|(one, other)| one == other).count();
                    let from = same.saturating_sub(200);
                    let part = |text: &str| text.get(from..).map_or(String::new(), |text| format!("{text:.600}"));
                    self.auditor().breaks("P12", || format!("live: {}\nread anew: {}", part(&live), part(&anew)));
                }
                Reply::Said(Err(why)) => {
                    self.auditor().breaks("P8", || format!("a server does not answer: {why}"));
                }
                Reply::Silence => self.auditor().breaks("P8", || "a server does not answer".to_owned()),
            }
        }
        if let Reply::Said(Ok(look)) = reader.look(look_at).await {
            let now = BEGIN + self.air.now();
            for lock in look.locks.iter().filter(|lock| lock.expires.0 + 1_000_000 < now) {
                self.auditor().breaks("P8", || format!("{lock:?} is still there"));
            }
        }
    }
}
