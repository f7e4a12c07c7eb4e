//! A handle on the keeper of one space: questions go in, answers come out.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use lockkeeper_core::command::{Actor, Command, Which};
use lockkeeper_core::history::Entry;
use lockkeeper_core::key::Key;
use lockkeeper_core::lock::LockId;
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::session::SessionId;
use lockkeeper_core::space::Space;
use lockkeeper_core::state::State;
use lockkeeper_core::time::Stamp;
use lockkeeper_engine::{BoxFuture, Delta, EngineError, Ledger, Position, Strength};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::desk::{Asked, Desk, Ticket};
use crate::metrics::Metrics;
use crate::running::{Outlets, Running};
use crate::settings::Settings;

/// Questions that may wait in the mailbox; whoever asks beyond that waits to ask.
const MAILBOX_MAX: usize = 16_384;
/// Entries that a slow reader of the stream may be behind before it has to read from the history.
const STREAM_MAX: usize = 4096;

/// A failure, never a refusal. Says what changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing was changed. The engine can't be reached, or has stopped.
    #[error("{0}")]
    Unavailable(String),
    /// Nothing was changed. There is no room for anything new; releases still work.
    #[error("the disk or server that keeps the locks is full: nothing new can be recorded, but releases still work")]
    Full,
    /// May have been recorded; ask again with the same request id.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) struct Reply {
    to: oneshot::Sender<Result<Heard, Failure>>,
    /// If nobody listens any more, that is told.
    pub(crate) leaving_is_told: bool,
}

impl Reply {
    /// The answer comes back if nobody listens any more.
    pub(crate) fn send(self, answer: Result<Answer, Failure>) -> Result<(), Result<Answer, Failure>> {
        self.tell(answer, false)
    }

    /// The same; `alone`: nobody else is told of a grant.
    pub(crate) fn tell(self, answer: Result<Answer, Failure>, alone: bool) -> Result<(), Result<Answer, Failure>> {
        let heard = answer.map(|answer| Heard { answer, alone });
        self.to.send(heard).map_err(|unheard| unheard.map(|heard| heard.answer))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }
}

/// An answer on its way, and whether it is a grant that nobody else is told of.
#[derive(Debug)]
struct Heard {
    answer: Answer,
    alone: bool,
}

pub(crate) type Read = Box<dyn FnOnce(Result<(&State, Stamp), Failure>) + Send>;

/// Somebody is about to look at these: what others hold of them outside of the ledger counts, too.
pub(crate) struct OutsideLook {
    pub(crate) keys: Vec<Key>,
    pub(crate) reply: oneshot::Sender<Result<(), Failure>>,
}

pub(crate) enum Mail {
    Outside(OutsideLook),
    Ask(Asked, Reply),
    /// Is written down as soon as it can be, and answered to nobody.
    Owed(Command),
    Read(Read),
}

/// A session lives on, and all that it holds.
pub(crate) struct Beat {
    pub(crate) actor: Actor,
    pub(crate) ticket: Ticket,
    pub(crate) reply: Reply,
}

/// A handle on the keeper of one space. Cheap to clone; the loop ends when the last one is gone.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    space: Space,
    mailbox: mpsc::Sender<Mail>,
    beats: mpsc::Sender<Beat>,
    withdrawals: mpsc::UnboundedSender<Gone>,
    /// The service is stopping: whoever waits keeps their place, and comes back to it.
    stopping: CancellationToken,
    tickets: AtomicU64,
    entries: broadcast::Sender<Arc<Entry>>,
    epoch: Arc<AtomicU64>,
    rewrites: Arc<AtomicU64>,
    full: Arc<AtomicBool>,
    at_rest: Arc<AtomicBool>,
    ledger: Arc<dyn Ledger>,
}

impl Keeper {
    /// Folds the ledger and starts the loop.
    pub async fn open(
        space: Space,
        ledger: Arc<dyn Ledger>,
        settings: &Settings,
        metrics: Arc<Metrics>,
        stopping: CancellationToken,
    ) -> Result<Keeper, EngineError> {
        let delta = ledger.read(Position::ORIGIN).await?;
        let desk = fold_anew(settings, &space, delta).await?;
        let (mailbox, mails) = mpsc::channel(MAILBOX_MAX);
        let (beats, beaten) = mpsc::channel(MAILBOX_MAX);
        let (withdrawals, withdrawn) = mpsc::unbounded_channel();
        let (entries, _) = broadcast::channel(STREAM_MAX);
        let (epoch, rewrites) = (Arc::new(AtomicU64::new(desk.position().epoch)), Arc::new(AtomicU64::new(0)));
        let (full, at_rest) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let handle = Handle {
            space: space.clone(),
            mailbox,
            beats,
            withdrawals,
            stopping,
            tickets: AtomicU64::default(),
            entries: entries.clone(),
            epoch: epoch.clone(),
            rewrites: rewrites.clone(),
            full: full.clone(),
            at_rest: at_rest.clone(),
            ledger: ledger.clone(),
        };
        let outlets = Outlets { entries, epoch, rewrites, full, at_rest, stopping: handle.stopping.clone() };
        let running = Running::new(space, ledger, desk, settings, metrics, outlets);
        let ends = EndsWithPanic(handle.stopping.clone());
        tokio::spawn(async move {
            let _ends = ends;
            running.run(mails, beaten, withdrawn).await;
        });
        Ok(Keeper(Arc::new(handle)))
    }

    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// Whether nobody else has a handle on it, and nothing will happen by itself: nothing is held, awaited or owed. Whoever wants it
    /// next finds it as it was.
    pub fn is_at_rest(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && self.0.at_rest.load(Ordering::Relaxed)
    }

    /// As the engine is now: a Redis may come back with other settings.
    pub fn strength(&self) -> Strength {
        self.0.ledger.strength()
    }

    /// How often the ledger was rewritten, and what was known of it became void.
    pub fn rewrites(&self) -> u64 {
        self.0.rewrites.load(Ordering::Relaxed)
    }

    /// Whether the ledger had no room the last time that something new was to be recorded.
    pub fn is_full(&self) -> bool {
        self.0.full.load(Ordering::Relaxed)
    }

    /// The engine's time.
    pub fn now(&self) -> Stamp {
        self.0.ledger.now()
    }

    /// Names the ledger: entry numbers of different epochs have nothing to do with each other.
    pub fn epoch(&self) -> u64 {
        self.0.epoch.load(Ordering::Relaxed)
    }

    /// Asks, and waits for the answer. It is asked at once, also if nobody ever waits, unless it is a heartbeat or the mailbox is
    /// full. Dropping the future of a waiting acquisition gives up its place in the queue.
    pub fn ask(&self, command: Command) -> impl Future<Output = Result<Answer, Failure>> + Send {
        self.ask_as(command, false)
    }

    /// As [`Keeper::ask`], for somebody whose locks live as long as the connection: if the future is dropped, a grant
    /// that nobody has heard of is given back.
    pub fn ask_bound(&self, command: Command) -> impl Future<Output = Result<Answer, Failure>> + Send {
        self.ask_as(command, true)
    }

    fn ask_as(&self, command: Command, bound: bool) -> Asking<'_> {
        if let Command::Renew { actor, which: Which::Everything, ttl: None, token: None } = command {
            return Asking::Longer(Box::pin(self.beat(actor)));
        }
        let ticket = self.ticket();
        let (waits, comes_back) = match &command {
            Command::Acquire(acquire) => (bound || acquire.wait.0 > 0, acquire.request.is_some()),
            _ => (false, false),
        };
        let (to, answer) = oneshot::channel();
        let reply = Reply { to, leaving_is_told: waits };
        let asked = Asked { ticket: Some(ticket), command };
        let leaving = waits.then(|| Leaving { ticket: Some(ticket), comes_back, unheard: None, keeper: self });
        let answering = Answering { answer, leaving };
        match self.0.mailbox.try_send(Mail::Ask(asked, reply)) {
            Ok(()) => Asking::Asked(answering),
            Err(TrySendError::Full(mail)) => Asking::Longer(Box::pin(async move {
                self.0.mailbox.send(mail).await.map_err(|_| stopped())?;
                answering.await
            })),
            Err(TrySendError::Closed(_)) => Asking::Longer(Box::pin(std::future::ready(Err(stopped())))),
        }
    }

    /// Renews all that a session holds; gathered with other sessions' beats.
    async fn beat(&self, actor: Actor) -> Result<Answer, Failure> {
        let (to, answer) = oneshot::channel();
        let reply = Reply { to, leaving_is_told: false };
        let beat = Beat { actor, ticket: self.ticket(), reply };
        self.0.beats.send(beat).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped())).map(|heard| heard.answer)
    }

    /// Gives back what a session held that is gone, in one record: at once, or as soon as the engine can be reached again.
    pub async fn give_back(&self, session: SessionId, locks: Vec<LockId>) {
        if !locks.is_empty() {
            let command = Command::GiveBack { session, locks, even_if_heard: true };
            // A service that is stopping releases nothing.
            let _ = self.0.mailbox.send(Mail::Owed(command)).await;
        }
    }

    /// For whoever was granted something on a connection and has yet to be told: if that never happens, it is given back. `comes_back`:
    /// the question had an id, under which it may be asked again.
    pub fn unheard(&self, session: SessionId, locks: Vec<LockId>, comes_back: bool) -> Unheard {
        // Another server may just be telling it to somebody who came back for it.
        let kept = comes_back && self.0.ledger.has_other_writers();
        Unheard { keeper: self.clone(), session, locks: if kept { Vec::new() } else { locks } }
    }

    /// Gives back the ports of a session that is gone, as [`Keeper::give_back`] does locks.
    pub async fn give_back_ports(&self, actor: Actor) {
        let _ = self.0.mailbox.send(Mail::Owed(Command::ReleasePorts { actor })).await;
    }

    /// Looks at the state. `look` runs on the loop: it must be short.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State, Stamp) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (reply, seen) = oneshot::channel();
        let read: Read = Box::new(move |seen| {
            let _ = reply.send(seen.map(|(state, now)| look(state, now)));
        });
        self.0.mailbox.send(Mail::Read(read)).await.map_err(|_| stopped())?;
        seen.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Looks at what others hold of some files outside of the ledger, before somebody asks who holds them.
    pub async fn look_outside(&self, keys: Vec<Key>) -> Result<(), Failure> {
        if !self.0.ledger.shows() || keys.is_empty() {
            return Ok(());
        }
        let (reply, seen) = oneshot::channel();
        self.0.mailbox.send(Mail::Outside(OutsideLook { keys, reply })).await.map_err(|_| stopped())?;
        seen.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Entries of the history as they happen. Who falls behind reads them from the history.
    pub fn entries(&self) -> broadcast::Receiver<Arc<Entry>> {
        self.0.entries.subscribe()
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.0.tickets.fetch_add(1, Ordering::Relaxed))
    }
}

/// A question on its way to its answer. Small, as every request has one: the mailbox has room nearly always.
enum Asking<'a> {
    Asked(Answering<'a>),
    Longer(BoxFuture<'a, Result<Answer, Failure>>),
}

impl Future for Asking<'_> {
    type Output = Result<Answer, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Asking::Asked(answering) => Pin::new(answering).poll(cx),
            Asking::Longer(longer) => longer.as_mut().poll(cx),
        }
    }
}

/// A question in the mailbox.
struct Answering<'a> {
    answer: oneshot::Receiver<Result<Heard, Failure>>,
    leaving: Option<Leaving<'a>>,
}

impl Future for Answering<'_> {
    type Output = Result<Answer, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        if let Some(leaving) = &mut self.leaving {
            leaving.ticket = None;
        }
        Poll::Ready(answer.unwrap_or_else(|_| Err(stopped())).map(|heard| heard.answer))
    }
}

impl Drop for Answering<'_> {
    /// What was told and never heard is told back.
    fn drop(&mut self) {
        if let Some(leaving) = &mut self.leaving
            && leaving.ticket.is_some()
            && let Ok(Ok(Heard { answer, alone: true })) = self.answer.try_recv()
        {
            leaving.unheard = Some(answer);
        }
    }
}

/// A loop that fails an assertion serves nobody any more: the service ends, and is started anew.
struct EndsWithPanic(CancellationToken);

impl Drop for EndsWithPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// Gives up a place in the queue when the one who waits is gone.
struct Leaving<'a> {
    ticket: Option<Ticket>,
    comes_back: bool,
    unheard: Option<Answer>,
    keeper: &'a Keeper,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && !self.keeper.0.stopping.is_cancelled()
        {
            let (comes_back, unheard) = (self.comes_back, self.unheard.take());
            let _ = self.keeper.0.withdrawals.send(Gone { ticket, comes_back, unheard });
        }
    }
}

/// Gives back what nobody was told of when it is dropped.
#[derive(Debug)]
pub struct Unheard {
    keeper: Keeper,
    session: SessionId,
    locks: Vec<LockId>,
}

impl Unheard {
    /// It is told now.
    pub fn heard(mut self) {
        self.locks.clear();
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if self.locks.is_empty() || self.keeper.0.stopping.is_cancelled() {
            return;
        }
        let (session, locks) = (self.session.clone(), std::mem::take(&mut self.locks));
        let owed = Mail::Owed(Command::GiveBack { session, locks, even_if_heard: false });
        if let Err(TrySendError::Full(owed)) = self.keeper.0.mailbox.try_send(owed) {
            let mailbox = self.keeper.0.mailbox.clone();
            tokio::spawn(async move {
                let _ = mailbox.send(owed).await;
            });
        }
    }
}

/// Somebody who asked and does not listen any more.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) ticket: Ticket,
    /// The question had an id, under which it may be asked again.
    pub(crate) comes_back: bool,
    /// What they were granted, and were gone before they heard it.
    pub(crate) unheard: Option<Answer>,
}

fn salt_of(space: &Space) -> u64 {
    let hash = blake3::hash(space.as_str().as_bytes());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

/// Folds a whole ledger, beside everything else: it may be a long one.
async fn fold_anew(settings: &Settings, space: &Space, delta: Delta) -> Result<Desk, EngineError> {
    let (rules, salt, name) = (settings.rules.clone(), salt_of(space), space.clone());
    let fold = move || {
        let mut desk = Desk::new(salt, rules);
        desk.fold(delta).map_err(|error| unreadable(&name, &error))?;
        Ok(desk)
    };
    if settings.has_threads {
        tokio::task::spawn_blocking(fold).await.map_err(|error| EngineError::Stopped(error.to_string()))?
    } else {
        fold()
    }
}

fn unreadable(space: &Space, error: &crate::PayloadError) -> EngineError {
    EngineError::Corrupt { place: space.to_string(), details: error.to_string() }
}

fn stopped() -> Failure {
    Failure::Unavailable("the service is stopping".to_owned())
}
