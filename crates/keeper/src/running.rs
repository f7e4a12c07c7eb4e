//! The loop: takes what waits in the mailbox as a batch, decides, appends once, answers all.

mod beating;
mod recording;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_core::HashMap;
use lockkeeper_core::command::Command;
use lockkeeper_core::history::Entry;
use lockkeeper_core::lock::{Lock, LockId};
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::planted::{self, Bug};
use lockkeeper_core::snapshot::Snapshot;
use lockkeeper_core::space::Space;
use lockkeeper_core::time::Time;
use lockkeeper_engine::{Confirm, Durable, EngineError, Ledger, Position};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::recording::{BatchIds, Decided, Round};
use crate::beats::Beats;
use crate::contention::Contention;
use crate::desk::{Asked, Desk, Rewritten, Ticket, Told};
use crate::keeper::{Beat, Failure, Gone, Mail, Read, Reply};
use crate::metrics::{Metrics, SpaceGauges};
use crate::payload;
use crate::portion::Portion;
use crate::settings::Settings;
use crate::threshold::Threshold;

/// How long a snapshot that failed is not tried again.
const COMPACT_PAUSE: Duration = Duration::from_secs(60);
/// How long a sweep that failed is not tried again.
const SWEEP_PAUSE: Duration = Duration::from_millis(250);
/// How often others are told what this server is set to.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(60);
/// How long looks may take, one after the other, before others have their turn: some are at a hundred thousand locks.
const READS_TIME_MAX: Duration = Duration::from_millis(10);
/// How long nobody looks at what becomes due.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// What the loop tells besides its answers.
pub(crate) struct Outlets {
    /// The stream of what happens.
    pub(crate) entries: broadcast::Sender<Arc<Entry>>,
    pub(crate) epoch: Arc<AtomicU64>,
    /// How often the ledger was rewritten under this loop.
    pub(crate) rewrites: Arc<AtomicU64>,
    /// The ledger had no room for anything new the last time.
    pub(crate) full: Arc<AtomicBool>,
    /// Nothing happens here unless somebody asks.
    pub(crate) at_rest: Arc<AtomicBool>,
    /// The service, which ends with its engine: whoever starts it anew reads what is really on the disk.
    pub(crate) stopping: CancellationToken,
}

pub(crate) struct Running {
    space: Space,
    ledger: Arc<dyn Ledger>,
    desk: Desk,
    settings: Settings,
    replies: HashMap<Ticket, Reply>,
    /// Answers whose cause is not durable yet, in the order of revisions.
    parked: VecDeque<Told>,
    /// Grants that were told to somebody who had just left, until that is told.
    unheard: HashMap<Ticket, Told>,
    beats: Beats,
    durable: watch::Receiver<Durable>,
    durable_revision: u64,
    moved: watch::Receiver<u64>,
    /// What was last heard of it: a ledger that is shorter than it was has lost something.
    last_moved: u64,
    outlets: Outlets,
    /// The number of the last entry that went out on the stream.
    published: u64,
    metrics: Arc<Metrics>,
    gauges: SpaceGauges,
    batches: BatchIds,
    contention: Contention,
    portion: Portion,
    /// What must be written down and could not be: places and grants of those who left.
    owed: Vec<Asked>,
    /// What a rewritten ledger lost and its holders were not told of yet.
    mourned: Option<Rewritten>,
    /// What was told of the last time.
    mourned_lately: Vec<Arc<Lock>>,
    compacting: Option<tokio::task::JoinHandle<Option<u64>>>,
    threshold: Threshold,
    /// Overdue things are not looked at before.
    sweep_at: Instant,
    /// What others hold outside of the ledger is not looked at before.
    outside_at: Instant,
    /// Which of it comes next, of what somebody waits for and of the rest.
    awaited_next: Round,
    outside_next: Round,
    /// Others are not told before what this server is set to.
    announce_at: Instant,
    /// No snapshot is tried before.
    compact_at: Instant,
    /// The engine stopped, and why.
    failed: Option<String>,
    /// Why the heartbeats of the last batch were not recorded.
    beat_failure: Option<Failure>,
}

impl Running {
    /// A loop that has not begun; the desk has folded the ledger.
    pub(crate) fn new(
        space: Space,
        ledger: Arc<dyn Ledger>,
        desk: Desk,
        settings: &Settings,
        metrics: Arc<Metrics>,
        outlets: Outlets,
    ) -> Running {
        let mut desk = desk;
        if ledger.shows() {
            desk.show();
        }
        if ledger.posts() {
            desk.post();
        }
        let writer = settings.writer.unwrap_or_else(|| uuid::Uuid::now_v7().as_u128() as u64);
        Running {
            gauges: metrics.of_space(&space),
            space,
            published: desk.state().history().made(),
            durable_revision: desk.position().revision,
            durable: ledger.durable(),
            moved: ledger.moved(),
            last_moved: 0,
            ledger,
            desk,
            settings: settings.clone(),
            replies: HashMap::default(),
            parked: VecDeque::new(),
            unheard: HashMap::default(),
            beats: Beats::new(Instant::now()),
            outlets,
            metrics,
            contention: Contention::new(writer),
            portion: Portion::default(),
            batches: BatchIds { prefix: u128::from(writer) << 64, count: 0 },
            owed: Vec::new(),
            mourned: None,
            mourned_lately: Vec::new(),
            compacting: None,
            threshold: Threshold::new(settings.snapshot_bytes, writer),
            sweep_at: Instant::now(),
            outside_at: Instant::now(),
            awaited_next: Round::default(),
            outside_next: Round::default(),
            announce_at: Instant::now(),
            compact_at: Instant::now(),
            failed: None,
            beat_failure: None,
        }
    }

    pub(crate) async fn run(
        mut self,
        mut mails: mpsc::Receiver<Mail>,
        mut beats: mpsc::Receiver<Beat>,
        mut withdrawn: mpsc::UnboundedReceiver<Gone>,
    ) {
        let mut batch = Vec::new();
        // Those who want to look, and had no turn yet.
        let mut reads = VecDeque::new();
        self.publish();
        loop {
            let wake = if reads.is_empty() { self.next_wake() } else { Instant::now() };
            let (mut gone, mut beaten) = (Vec::new(), Vec::new());
            tokio::select! {
                biased;
                changed = self.durable.changed() => if changed.is_err() { break },
                // Not in the mailbox: whoever holds something must not wait behind thousands who want something.
                Some(beat) = beats.recv() => beaten.push(beat),
                count = mails.recv_many(&mut batch, self.portion.questions()) => if count == 0 { break },
                Some(left) = withdrawn.recv() => gone.push(left),
                changed = self.moved.changed() => if changed.is_err() { break },
                () = tokio::time::sleep_until(wake) => {}
            }
            while let Ok(left) = withdrawn.try_recv() {
                gone.push(left);
            }
            while let Ok(beat) = beats.try_recv() {
                beaten.push(beat);
            }
            while batch.len() < self.portion.questions()
                && let Ok(mail) = mails.try_recv()
            {
                batch.push(mail);
            }
            self.flush_durable();
            self.catch_up().await;
            beaten.drain(..).for_each(|beat| self.gather(beat));
            self.step(&mut batch, &gone, &mut reads).await;
            if self.portion.is_over() {
                tokio::task::yield_now().await;
            }
            // What was synced on the spot wakes nobody.
            self.flush_durable();
            self.compact_if_due().await;
        }
        self.finish().await;
    }

    /// When something is to be done though nobody asks.
    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        let far = now + Duration::from_secs(3600);
        if self.failed.is_some() {
            return far;
        }
        let expiry = self.desk.state().next_wake().map_or(far, |wake| {
            let wait = wake.0.saturating_sub(self.ledger.now().time.0);
            // Looked at now and then: timers stand still while a machine is suspended, the engine's time does not.
            (now + Duration::from_micros(wait).min(LOOK_MAX)).max(self.sweep_at)
        });
        let owes = self.mourned.is_some() || !self.owed.is_empty();
        let owed = if owes { now + SWEEP_PAUSE } else { far };
        let beats = self.beats.next(self.desk.waiting().next().is_some()).unwrap_or(far);
        let outside = if self.ledger.shows() && self.desk.state().has_external() { self.outside_at } else { far };
        expiry.min(beats).min(owed).min(outside)
    }

    async fn step(&mut self, batch: &mut Vec<Mail>, gone: &[Gone], reads: &mut VecDeque<Read>) {
        // Before anything is handed to them, or told again to whoever comes back in their place.
        let mut asked = std::mem::take(&mut self.owed);
        asked.extend(self.withdrawn(gone));
        asked.reserve(batch.len());
        let mut outside = Vec::new();
        let taken = batch.len();
        for mail in batch.drain(..) {
            match mail {
                // Whoever left before the question was read has asked nothing.
                Mail::Ask(_, reply) if reply.is_closed() => {}
                Mail::Ask(question, reply) => {
                    self.replies.insert(question.ticket.expect("whoever asks has a ticket"), reply);
                    asked.push(question);
                }
                Mail::Owed(command) => asked.push(Asked { ticket: None, command }),
                Mail::Read(read) => reads.push_back(read),
                Mail::Outside(look) => outside.push(look),
            }
        }
        let now = self.ledger.now().time;
        let beaten = self.add_beats(now, &mut asked);
        let sweeps = self.desk.state().next_wake().is_some_and(|wake| wake <= now) && Instant::now() >= self.sweep_at;
        if sweeps {
            asked.push(Asked { ticket: None, command: Command::Sweep });
        }
        self.announce(&mut asked);
        let questions = asked.iter().filter(|asked| asked.ticket.is_some()).count();
        let alone = questions == asked.len();
        let decided = if asked.is_empty() { None } else { Some(self.decide(asked).await) };
        self.portion.answered(taken, questions, alone);
        if sweeps {
            // What could not be swept is not tried again at once: the disk may be full, the engine away.
            let swept = self.desk.state().next_wake().is_none_or(|wake| wake > now);
            self.sweep_at = if swept { Instant::now() } else { Instant::now() + SWEEP_PAUSE };
            if !swept {
                self.fail_overdue(now);
            }
        }
        self.tell_beaten(beaten);
        // What was just found out need not be found out again, for as long as that takes.
        let mut away = match &decided {
            Some(Decided::Away(why)) => Some(Failure::Unavailable(why.clone())),
            Some(Decided::Recorded | Decided::Confirmed | Decided::Outdated | Decided::Failed) | None => None,
        };
        let unconfirmed = match decided {
            _ if reads.is_empty() || planted::is(Bug::NoConfirm) => None,
            Some(Decided::Recorded | Decided::Confirmed | Decided::Outdated) => None,
            Some(Decided::Away(_)) => away.clone(),
            Some(Decided::Failed) | None => self.confirm().await.err(),
        };
        if !reads.is_empty() {
            self.look(reads, unconfirmed.as_ref());
        }
        if !outside.is_empty() {
            away = self.look_for_all(outside, away).await;
        }
        if away.is_none() {
            self.look_outside().await;
            // If it can't be written down now, it is tried again soon.
            let _ = self.mourn().await;
        }
        self.publish();
    }

    /// Lets some of those look who want to.
    fn look(&self, reads: &mut VecDeque<Read>, unconfirmed: Option<&Failure>) {
        let (now, began) = (self.ledger.now(), Instant::now());
        while let Some(read) = reads.pop_front() {
            // A look is no staler than its question, or it is none.
            read(unconfirmed.map_or_else(|| Ok((self.desk.state(), now)), |failure| Err(failure.clone())));
            if began.elapsed() > READS_TIME_MAX {
                break;
            }
        }
    }

    /// Whoever waits longer than they wanted, because the engine can't be reached, is told so.
    fn fail_overdue(&mut self, now: Time) {
        for ticket in self.desk.overdue(now) {
            self.desk.leave(ticket);
            if let Some(reply) = self.replies.remove(&ticket) {
                let why = "the wait is over, and the engine can't be reached".to_owned();
                let _ = reply.send(Err(Failure::OutcomeUnknown(why)));
            }
        }
    }

    /// Those who left give up their places in the queue, and what they were granted and have not heard of.
    fn withdrawn(&mut self, gone: &[Gone]) -> Vec<Asked> {
        let (mut asked, mut places) = (Vec::new(), Vec::new());
        for Gone { ticket, comes_back, unheard } in gone {
            self.replies.remove(ticket);
            places.extend(self.desk.leave(*ticket));
            let parked = self.parked.iter().position(|parked| parked.ticket == *ticket);
            let parked = parked.and_then(|place| self.parked.remove(place)).filter(|parked| parked.alone);
            let told = parked.or_else(|| self.unheard.remove(ticket)).map(|told| told.answer);
            // Another server may just be telling it to somebody who came back for it.
            let kept = *comes_back && self.ledger.has_other_writers();
            if let Some(Answer::Granted { locks, fresh }) = told.or_else(|| unheard.clone()).filter(|_| !kept)
                && let Some(first) = locks[..fresh].first()
            {
                let (session, locks) = (first.session.clone(), locks[..fresh].iter().map(|lock| lock.id).collect());
                asked.push(Asked { ticket: None, command: Command::GiveBack { session, locks, even_if_heard: false } });
            }
        }
        if !places.is_empty() {
            asked.insert(0, Asked { ticket: None, command: Command::Withdraw { places } });
        }
        asked
    }

    /// Tells others who serve the same ledger what this server is set to; only along with something else, so that whoever
    /// just looks writes nothing.
    fn announce(&mut self, asked: &mut Vec<Asked>) {
        let Some(server) = self.settings.server.clone() else { return };
        if asked.is_empty() || !self.ledger.has_other_writers() || Instant::now() < self.announce_at {
            return;
        }
        self.announce_at = Instant::now() + ANNOUNCE_EVERY;
        asked.push(Asked { ticket: None, command: Command::Announce { server, settings: self.settings.in_words() } });
    }

    /// Reads what another writer of the same ledger appended.
    async fn catch_up(&mut self) {
        let moved = *self.moved.borrow_and_update();
        let fell = moved < self.last_moved;
        if (fell || moved > self.desk.position().revision) && self.failed.is_none() {
            match self.ledger.read(self.desk.position()).await {
                Ok(delta) => {
                    self.fold(delta);
                }
                Err(error) => {
                    // That it fell is not forgotten before somebody has seen why.
                    tracing::warn!(space = %self.space, %error, "the ledger can't be read");
                    return;
                }
            }
        }
        self.last_moved = moved;
    }

    /// Makes sure that nothing was missed.
    async fn confirm(&mut self) -> Result<(), Failure> {
        match self.ledger.confirm(self.desk.position()).await {
            Confirm::Current => {}
            Confirm::Moved(delta) => {
                self.fold(delta);
            }
            Confirm::Down(error) => return Err(Failure::Unavailable(error.to_string())),
        }
        self.failed.clone().map_or(Ok(()), |why| Err(Failure::Unavailable(why)))
    }

    fn tell(&mut self, told: Vec<Told>) {
        let named: HashSet<LockId> = told.iter().flat_map(Told::names_besides).collect();
        for told in told {
            if told.after > self.durable_revision {
                self.parked.push_back(told);
            } else {
                self.tell_one(told);
            }
        }
        self.note_named(&named);
    }

    /// Grants that another answer names are known: they are not given back when whoever asked for them leaves.
    fn note_named(&mut self, named: &HashSet<LockId>) {
        if named.is_empty() {
            return;
        }
        let is_named = |told: &Told| match &told.answer {
            // What was held before is known anyway.
            Answer::Granted { locks, fresh } => locks[..*fresh].iter().any(|lock| named.contains(&lock.id)),
            _ => false,
        };
        self.unheard.retain(|_, unheard| !is_named(unheard));
        for parked in self.parked.iter_mut().filter(|parked| parked.alone) {
            parked.alone = !is_named(parked);
        }
    }

    fn tell_one(&mut self, told: Told) {
        let Told { ticket, answer, after, alone } = told;
        let Some(reply) = self.replies.remove(&ticket) else { return };
        // As many as are being told of, and no more.
        let is_kept = alone && reply.leaving_is_told;
        if let Err(Ok(answer)) = reply.tell(Ok(answer), alone)
            && is_kept
        {
            self.unheard.insert(ticket, Told { ticket, answer, after, alone });
        }
    }

    fn fail(&mut self, asked: &[Asked], failure: &Failure) {
        for ticket in asked.iter().filter_map(|asked| asked.ticket) {
            if let Some(reply) = self.replies.remove(&ticket) {
                let _ = reply.send(Err(failure.clone()));
            }
        }
        // Nobody is there any more who would ask for it again.
        let owed = |asked: &&Asked| {
            matches!(asked.command, Command::Withdraw { .. } | Command::GiveBack { .. } | Command::ReleasePorts { .. })
        };
        self.owed.extend(asked.iter().filter(|asked| asked.ticket.is_none()).filter(owed).cloned());
        // Those who beat have no ticket of their own in the batch.
        if asked.iter().any(|asked| matches!(asked.command, Command::Beat { .. })) {
            self.beat_failure = Some(failure.clone());
        }
    }

    /// Tells what has become durable; after a failed sync, that nobody knows.
    fn flush_durable(&mut self) {
        let durable = self.durable.borrow_and_update().clone();
        match durable {
            Durable::Up(revision) => self.durable_revision = self.durable_revision.max(revision),
            Durable::Failed(error) => self.stop(&error.to_string()),
        }
        while let Some(parked) = self.parked.front() {
            let durable =
                parked.after <= self.durable_revision || self.failed.is_some() && planted::is(Bug::FailedSyncTold);
            if !durable && self.failed.is_none() {
                break;
            }
            let parked = self.parked.pop_front().expect("looked at");
            match &self.failed {
                Some(why) if !durable => {
                    if let Some(reply) = self.replies.remove(&parked.ticket) {
                        let _ = reply.send(Err(Failure::OutcomeUnknown(why.clone())));
                    }
                }
                Some(_) | None => self.tell_one(parked),
            }
        }
    }

    /// The engine is not to be trusted any more: the whole service ends, and whoever starts it anew reads what is
    /// really there.
    fn stop(&mut self, why: &str) {
        if self.failed.is_none() {
            tracing::error!(space = %self.space, why, "the ledger has failed; stopping");
            self.failed = Some(why.to_owned());
        }
        self.outlets.stopping.cancel();
    }

    /// Sends the new entries of the history out on the stream.
    fn publish(&mut self) {
        let history = self.desk.state().history();
        if history.made() != self.published {
            if self.outlets.entries.receiver_count() > 0
                && let Ok(entries) = history.after(self.published.min(history.made()))
            {
                for entry in entries {
                    // The last one has just left: nobody minds.
                    let _ = self.outlets.entries.send(entry.clone());
                }
            }
            self.published = history.made();
        }
        self.gauges.set(self.desk.state());
        self.outlets.at_rest.store(self.is_at_rest(), Ordering::Relaxed);
    }

    fn is_at_rest(&self) -> bool {
        let state = self.desk.state();
        let owes =
            self.mourned.is_some() || !self.owed.is_empty() || !self.parked.is_empty() || !self.unheard.is_empty();
        !owes && state.next_wake().is_none() && !state.has_external()
    }

    /// Starts a snapshot beside the loop when the log has outgrown the last one.
    async fn compact_if_due(&mut self) {
        if self.compacting.as_ref().is_some_and(tokio::task::JoinHandle::is_finished)
            && let Some(task) = self.compacting.take()
        {
            match task.await {
                Ok(Some(bytes)) => self.threshold.left(bytes),
                Ok(None) | Err(_) => self.compact_at = Instant::now() + COMPACT_PAUSE,
            }
        }
        let may = || self.compacting.is_none() && self.failed.is_none() && Instant::now() >= self.compact_at;
        let bytes = self.ledger.bytes_since_snapshot();
        if self.threshold.is_reached(bytes, self.ledger.has_other_writers()) && may() {
            let (ledger, space, position) = (self.ledger.clone(), self.space.clone(), self.desk.position());
            let (snapshot, has_threads) = (self.desk.state().gather(), self.settings.has_threads);
            self.compacting = Some(tokio::spawn(async move {
                match compact(&*ledger, position, snapshot, has_threads).await {
                    Ok(bytes) => {
                        tracing::debug!(%space, %position, bytes, "snapshot");
                        Some(bytes)
                    }
                    Err(error) => {
                        tracing::warn!(%space, %error, "the snapshot failed; the log goes on growing");
                        None
                    }
                }
            }));
        }
    }

    /// Everybody has let go: waits until what was told as recorded is durable.
    async fn finish(&mut self) {
        let last = self.desk.position().revision;
        let enough = |durable: &Durable| match durable {
            Durable::Up(revision) => *revision >= last,
            Durable::Failed(_) => true,
        };
        let _ = tokio::time::timeout(Duration::from_secs(10), self.durable.wait_for(enough)).await;
        self.flush_durable();
    }
}

/// Leaves a snapshot in the place of what led to it. Beside the loop: there may be much to write down.
async fn compact(
    ledger: &dyn Ledger,
    position: Position,
    snapshot: Snapshot,
    has_threads: bool,
) -> Result<u64, EngineError> {
    let encode = move || payload::encode_snapshot(&snapshot.in_order());
    let bytes = if has_threads {
        tokio::task::spawn_blocking(encode).await.map_err(|error| EngineError::Stopped(error.to_string()))?
    } else {
        encode()
    };
    let length = bytes.len() as u64;
    ledger.compact(position, bytes).await?;
    Ok(length)
}
