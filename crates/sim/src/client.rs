//! A client: asks for this and that, beats, forgets, dies; and believes what it was told, no longer than it may.

mod others;
mod releases;
mod renewals;
mod sessions;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockkeeper_core::command::{Acquire, Actor, Command, Request, Want, Which};
use lockkeeper_core::key::Target;
use lockkeeper_core::lock::{Lock, LockId, Token};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::session::{Intention, RequestId, SessionId};
use lockkeeper_core::time::Millis;
use lockkeeper_keeper::Failure;
use tokio_util::sync::CancellationToken;

use self::releases::Release;
use crate::auditor::Auditor;
use crate::ends::Ends;
use crate::server::Reply;
use crate::wishes::{PRIORITY_LEAST, actor, asked, drawn_target, feature, look_at, session, shown};
use crate::world::World;

/// A holder trusts a lease a hundredth less than its TTL, for the drift of clocks.
const TRUST: u64 = 990;
/// How long a connection may seem to live whose client has given up: less than a session counts as alive.
const LINGERS_MAX: Duration = Duration::from_secs(20);
/// The most a simulated clock drifts, in hundred-thousandths.
const DRIFT_MAX: i64 = 500;
const PATIENCE: u64 = 3000;

pub(crate) struct Client {
    number: usize,
    world: Arc<World>,
    mind: Mutex<Mind>,
}

/// What a client knows.
struct Mind {
    session: SessionId,
    lives: usize,
    /// What it waits for ends with it.
    life: CancellationToken,
    ttl: u64,
    /// What it believes to hold, and until when, in true microseconds.
    held: BTreeMap<LockId, (Arc<Lock>, u64)>,
    requests: Vec<Asked>,
    releases: Vec<Release>,
    asked_for: Vec<Target>,
    paused_until: u64,
    drift: i64,
    made: u64,
}

/// A request that was made under an id, and what it got.
#[derive(Clone)]
struct Asked {
    acquire: Acquire,
    first_sent: u64,
    granted: Option<Vec<(LockId, Token)>>,
}

/// What is known after a call.
enum Heard {
    Told(Answer),
    /// For certain nothing was changed.
    Nothing,
    Unknown,
}

impl Client {
    pub(crate) fn new(number: usize, world: Arc<World>) -> Client {
        let (ttl, drift) = {
            let mut rng = world.air.rng();
            (rng.u64(1..=8) * 1000, rng.i64(-DRIFT_MAX..=DRIFT_MAX))
        };
        let mind = Mind {
            session: session(number, 1),
            lives: 1,
            life: CancellationToken::new(),
            ttl,
            held: BTreeMap::new(),
            requests: Vec::new(),
            releases: Vec::new(),
            asked_for: Vec::new(),
            paused_until: 0,
            drift,
            made: 0,
        };
        Client { number, world, mind: Mutex::new(mind) }
    }

    fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock().expect("no holder panics")
    }

    fn audit(&self) -> MutexGuard<'_, Auditor> {
        self.world.auditor()
    }

    fn now(&self) -> u64 {
        self.world.air.now()
    }

    fn draw(&self, most: u64) -> u64 {
        self.world.air.rng().u64(..most)
    }

    fn actor(&self) -> Actor {
        actor(&self.mind().session)
    }

    /// Asks for this and that, without end.
    pub(crate) async fn live(self: Arc<Client>) {
        loop {
            let weather = &self.world.air.weather;
            self.world.air.way(weather.thinking).await;
            if self.world.air.chance(weather.client_pauses) {
                let pause = self.draw(12_000);
                self.mind().paused_until = self.now() + pause * 1000;
            }
            self.stall().await;
            if self.world.air.chance(weather.client_deaths) {
                self.die();
                continue;
            }
            match self.draw(100) {
                0..45 => self.acquire().await,
                45..65 => self.release().await,
                65..68 => self.ask_again().await,
                68..70 => self.release_again().await,
                70..75 => self.meddle().await,
                75..87 => self.look().await,
                87..91 => self.close_or_open().await,
                91..93 => self.force().await,
                93..96 => self.room().await,
                96 if weather.features > 0 => self.ports().await,
                _ => self.renew_one().await,
            }
        }
    }

    /// Renews all that it holds, as long as it lives.
    pub(crate) async fn beat(self: Arc<Client>) {
        loop {
            let interval = self.mind().ttl / 3;
            tokio::time::sleep(Duration::from_millis(interval)).await;
            self.stall().await;
            if !self.mind().held.is_empty() {
                self.beat_once(&[]).await;
            }
        }
    }

    /// A paused process does nothing until it goes on.
    async fn stall(&self) {
        loop {
            let until = self.mind().paused_until.max(self.world.suspended_until());
            let wait = until.saturating_sub(self.now());
            if wait == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_micros(wait)).await;
        }
    }

    /// Gone without a word; another with another session takes its place.
    fn die(&self) {
        let now = self.now();
        let mut mind = self.mind();
        self.audit().disbelieves(now, |lock| lock.session == mind.session);
        self.world.dead(&mind.session, now);
        mind.lives += 1;
        std::mem::take(&mut mind.life).cancel();
        mind.session = session(self.number, mind.lives);
        mind.held.clear();
        mind.requests.clear();
        mind.releases.clear();
        mind.asked_for.clear();
        let text = mind.session.clone();
        self.audit().note(now, self.number, "dies", || format!("dies, and comes as {text}"));
    }

    /// Sends a command to some server and waits for the answer, for so long.
    async fn call(&self, command: Command, wait: u64) -> Heard {
        let air = &self.world.air;
        let patience = if self.draw(10) == 0 { self.draw(wait + PATIENCE) } else { wait + PATIENCE };
        let server = self.world.some_server();
        // Over the local socket, whoever is gone has no use for a grant.
        let bound = self.draw(2) == 0;
        let (sent, life) = (self.now(), self.mind().life.clone());
        if !matches!(command, Command::Acquire(_)) {
            self.audit().note(sent, self.number, server, || format!("sends {command:?}"));
        }
        let frees = matches!(command, Command::Release { .. } | Command::CloseSession { .. });
        if may_come_again(&command) && air.chance(air.weather.doubled) {
            self.send_twin(server, command.clone());
        }
        let lingers = may_come_late(&command) && air.chance(air.weather.lingering);
        let world = self.world.clone();
        let asking = async move {
            let air = &world.air;
            air.way(air.weather.way).await;
            if air.chance(air.weather.request_lost) {
                return Reply::Silence;
            }
            let reply = world.servers[server].ask(command, bound).await;
            air.way(air.weather.way).await;
            if air.chance(air.weather.answer_lost) { Reply::Silence } else { reply }
        };
        let patience = Duration::from_millis(patience);
        let asked = async {
            if lingers {
                // Whoever gives up takes nothing back: it is on its way. But its connection ends some time after it.
                let (_waits, given_up) = tokio::sync::oneshot::channel::<()>();
                let asking = tokio::spawn(async move {
                    let ended = async {
                        let _ = given_up.await;
                        tokio::time::sleep(LINGERS_MAX).await;
                    };
                    tokio::select! {
                        biased;
                        reply = asking => reply,
                        () = ended => Reply::Silence,
                    }
                });
                tokio::time::timeout(patience, asking).await.map(|asked| asked.unwrap_or(Reply::Silence))
            } else {
                tokio::time::timeout(patience, asking).await
            }
        };
        let reply = tokio::select! {
            biased;
            () = life.cancelled() => Ok(Reply::Silence),
            reply = asked => reply,
        };
        self.stall().await;
        match reply {
            Ok(Reply::Said(Ok(answer))) => Heard::Told(answer),
            Ok(Reply::Said(Err(Failure::Full))) => {
                if frees {
                    self.audit().breaks("P16", || "a release was refused because the disk is full".to_owned());
                }
                Heard::Nothing
            }
            Ok(Reply::Said(Err(Failure::Unavailable(_)))) => Heard::Nothing,
            Ok(Reply::Said(Err(Failure::OutcomeUnknown(_))) | Reply::Silence) | Err(_) => Heard::Unknown,
        }
    }

    /// The network delivers a request a second time, a little later.
    fn send_twin(&self, server: usize, command: Command) {
        if let Command::Acquire(acquire) = &command {
            let now = self.now();
            self.audit().asks(now, &acquire.actor.session, &acquire.wants);
        }
        let world = self.world.clone();
        tokio::spawn(async move {
            world.air.way(500).await;
            let _ = tokio::time::timeout(Duration::from_secs(5), world.servers[server].ask(command, false)).await;
        });
    }

    /// Asks for something, on some days for two things at once.
    async fn acquire(&self) {
        let first = self.drawn_acquire();
        if self.world.air.weather.several && self.draw(2) == 0 {
            let mut second = self.drawn_acquire();
            // Nothing twice: of two grants at one moment the one would replace a part of the other, which is then told as lost.
            second.wants.retain(|want| first.wants.iter().all(|other| other.target != want.target));
            if !second.wants.is_empty() {
                tokio::join!(self.acquire_this(first), self.acquire_this(second));
                return;
            }
        }
        self.acquire_this(first).await;
    }

    async fn acquire_this(&self, acquire: Acquire) {
        if acquire.request.is_some() {
            let first_sent = self.now();
            self.mind().requests.push(Asked { acquire: acquire.clone(), first_sent, granted: None });
        }
        self.send_acquire(acquire, None).await;
    }

    fn drawn_acquire(&self) -> Acquire {
        let (mut rng, weather) = (self.world.air.rng(), &self.world.air.weather);
        let count = if rng.u8(..4) == 0 { rng.usize(2..=3) } else { 1 };
        let wants = (0..count).map(|_| Want {
            target: drawn_target(&mut rng, weather),
            mode: if rng.u8(..3) == 0 { Mode::Shared } else { Mode::Exclusive },
        });
        let mut wants: Vec<Want> = wants.collect();
        // One target once: the mode that is granted is then the mode that was asked for.
        wants.sort_by(|one, other| one.target.cmp(&other.target));
        wants.dedup_by(|one, other| one.target == other.target);
        let wait = [0, 0, 0, 100, 2000, 2000, 20_000, 120_000][rng.usize(..8)];
        let named = rng.u8(..10) < 6;
        let priority = if rng.u8(..5) == 0 { rng.u8(PRIORITY_LEAST..=6) } else { 5 };
        let worked_on = (weather.features > 0 && rng.bool()).then(|| feature(rng.usize(..weather.features)));
        drop(rng);
        let request = named.then(|| self.new_request());
        let mut mind = self.mind();
        mind.asked_for.extend(wants.iter().map(|want| want.target.clone()));
        Acquire {
            actor: actor(&mind.session),
            wants,
            intention: Intention::default(),
            ttl: Millis(mind.ttl),
            wait: Millis(wait),
            priority,
            feature: worked_on,
            request,
            restores: false,
        }
    }

    fn new_request(&self) -> Request {
        let mut mind = self.mind();
        mind.made += 1;
        let id = format!("{}-r{}", mind.session, mind.made);
        Request { id: RequestId::parse(&id).expect("an id"), digest: mind.made }
    }

    /// Sends it, and again under the same id if nothing comes back. `long_ago`: it was sent before, then.
    async fn send_acquire(&self, acquire: Acquire, long_ago: Option<u64>) {
        let first_sent = long_ago.unwrap_or_else(|| self.now());
        let replaced = acquire.wants.iter().filter(|want| want.mode == Mode::Exclusive);
        for want in replaced {
            let ends = Ends::Shared(acquire.actor.session.clone(), want.target.clone());
            let now = self.now();
            self.audit().end_asked(now, ends);
        }
        for _ in 0..3 {
            let sent = self.now();
            let session = acquire.actor.session.clone();
            let ask = self.audit().asks(sent, &session, &acquire.wants);
            self.audit().note(sent, self.number, ask, || {
                let wants: Vec<String> = acquire.wants.iter().map(|want| asked(&want.target, want.mode)).collect();
                let id = acquire.request.as_ref().map_or("no id", |request| request.id.as_str());
                format!("asks for {} under {id}, waits {} ms", wants.join(", "), acquire.wait.0)
            });
            let heard = self.call(Command::Acquire(acquire.clone()), acquire.wait.0).await;
            if self.mind().session != session {
                return;
            }
            let now = self.now();
            match heard {
                Heard::Told(Answer::Granted { locks, fresh }) => {
                    self.granted(&acquire, ask, first_sent, (&locks, fresh), long_ago.is_none()).await;
                    return;
                }
                Heard::Told(Answer::Refused(refusal)) => {
                    let named = format!("{refusal:?}");
                    let word = named.split(['(', ' ']).next().unwrap_or_default().to_owned();
                    self.audit().note(now, self.number, word.as_bytes(), || format!("is refused: {named:.300}"));
                    match &refusal {
                        Refusal::Busy(busy) => self.audit().busy(&acquire, busy),
                        Refusal::Paused { by } => self.audit().paused(&acquire, by),
                        _ => {}
                    }
                    self.audit().refused(now, ask);
                    return;
                }
                Heard::Told(_) | Heard::Nothing => {
                    self.audit().note(now, self.number, "nothing", || "is told that nothing changed".to_owned());
                    self.audit().refused(now, ask);
                    return;
                }
                // Nobody comes back for its place in the queue.
                Heard::Unknown if self.world.air.chance(self.world.air.weather.client_deaths * 5) => {
                    self.die();
                    return;
                }
                Heard::Unknown if acquire.request.is_some() => {}
                Heard::Unknown => return,
            }
        }
    }

    async fn granted(
        &self,
        acquire: &Acquire,
        ask: usize,
        sent: u64,
        (locks, fresh): (&[Arc<Lock>], usize),
        first_time: bool,
    ) {
        let now = self.now();
        let tokens: Vec<(LockId, Token)> = locks.iter().map(|lock| (lock.id, lock.token)).collect();
        let numbers: Vec<u64> = tokens.iter().map(|(_, token)| token.0).collect();
        self.audit().note(now, self.number, numbers, || format!("is granted {}", shown(locks)));
        self.audit().granted(now, ask, sent, (locks, fresh), acquire.priority);
        if let Some(request) = &acquire.request {
            let mut mind = self.mind();
            if let Some(asked) = mind.requests.iter_mut().find(|asked| asked.acquire.request.as_ref() == Some(request))
            {
                match &asked.granted {
                    Some(first) => {
                        self.audit().answered_again(&acquire.actor.session, asked.first_sent, first, &tokens);
                    }
                    None => asked.granted = Some(tokens),
                }
            }
        }
        for lock in locks {
            self.audit().knows(now, sent, lock);
        }
        if !first_time {
            return;
        }
        // It may have stood in the queue for long: only a beat proves it.
        if now - sent > acquire.ttl.0 * 100 {
            self.beat_once(locks).await;
        } else {
            // Asking again makes no finish longer.
            let believed = locks.iter().enumerate().filter(|(place, lock)| *place < fresh || !lock.is_finish());
            for (_, lock) in believed {
                self.believe(sent, lock);
            }
        }
    }

    fn believe(&self, sent: u64, lock: &Arc<Lock>) {
        let now = self.now();
        let mut mind = self.mind();
        if mind.session != lock.session {
            return;
        }
        let trusted = lock.ttl.0 * TRUST;
        let until = sent + (trusted as i64 + trusted as i64 * mind.drift / 100_000) as u64;
        if now < until {
            mind.held.insert(lock.id, (lock.clone(), until));
            self.audit().believes(now, sent, until, lock);
        }
    }

    fn some_held(&self) -> Option<(Arc<Lock>, u64)> {
        let now = self.now();
        let held: Vec<_> = self.mind().held.values().filter(|(_, until)| now < *until).cloned().collect();
        (!held.is_empty()).then(|| held[self.draw(held.len() as u64) as usize].clone())
    }

    /// Asks an old question once more, or another under its id.
    async fn ask_again(&self) {
        let requests = self.mind().requests.clone();
        if requests.is_empty() {
            return;
        }
        let asked = requests[self.draw(requests.len() as u64) as usize].clone();
        if self.draw(3) > 0 {
            self.send_acquire(asked.acquire, Some(asked.first_sent)).await;
            return;
        }
        let mut other = asked.acquire;
        let request = other.request.as_mut().expect("asked under an id");
        request.digest += 1_000_000;
        let (sent, session) = (self.now(), other.actor.session.clone());
        let ask = self.audit().asks(sent, &session, &other.wants);
        match self.call(Command::Acquire(other), 0).await {
            Heard::Told(Answer::Granted { locks, .. }) if asked.granted.is_some() => {
                let how = || format!("another body under a used id was granted {}", shown(&locks));
                self.audit().mismatched(&session, asked.first_sent, how);
            }
            Heard::Told(Answer::Refused(_)) | Heard::Nothing => {
                let now = self.now();
                self.audit().refused(now, ask);
            }
            _ => {}
        }
    }

    async fn look(&self) {
        let (air, sent) = (&self.world.air, self.now());
        let server = self.world.some_server();
        let looking = async {
            air.way(air.weather.way).await;
            let seen = self.world.servers[server].look(look_at).await;
            air.way(air.weather.way).await;
            seen
        };
        let seen = tokio::time::timeout(Duration::from_millis(PATIENCE), looking).await;
        self.stall().await;
        if let Ok(Reply::Said(Ok(look))) = seen {
            let now = self.now();
            self.audit().note(now, self.number, look.locks.len(), || {
                format!("sees {}, {} waiting", shown(&look.locks), look.waiting.len())
            });
            self.audit().looked(sent, now, &look);
            self.world.seen(&look);
        }
    }
}

/// What a network may deliver twice, or a client send again, without harm: it has a name, or says exactly what it means.
fn may_come_again(command: &Command) -> bool {
    match command {
        Command::Acquire(acquire) => acquire.request.is_some(),
        other => may_come_late(other),
    }
}

/// What does no harm when it comes after its sender has given up, and has perhaps taken the same again. A release by key would.
fn may_come_late(command: &Command) -> bool {
    match command {
        Command::Acquire(_) | Command::Renew { .. } => true,
        Command::Release { which: Which::Id(_), token, .. } => token.is_some(),
        _ => false,
    }
}
