//! Getting a batch into the ledger, whatever the ledger says: it moved, it is full, nobody knows, it is not what it was.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper_core::command::{Command, External};
use lockkeeper_core::key::Key;
use lockkeeper_core::limits::LOST_MAX;
use lockkeeper_core::planted::{self, Bug};
use lockkeeper_core::time::Stamp;
use lockkeeper_engine::{Append, Appended, Batch, BatchId, Confirm, Delta, EngineError, Outside, PAYLOAD_BYTES_MAX};
use tokio::time::Instant;

use super::Running;
use crate::desk::{Asked, Folded, Rewritten};
use crate::keeper::{Failure, OutsideLook};
use crate::outside;

/// How often a batch of unknown outcome is tried again while the ledger can be read and does not have it.
const DOUBTS_MAX: usize = 5;
/// How often a batch is tried although others took something of it outside of the ledger: after the first time, the rules
/// know of them.
const TAKEN_MAX: u32 = 8;
/// How often what others hold is looked at anew because the ledger moved meanwhile.
const LOOKS_MAX: usize = 8;
/// How long a batch of unknown outcome is looked for when the time for it is over.
const DOUBT_LOOK: Duration = Duration::from_millis(250);
/// An engine that fails no slower than this may be tried again.
const QUICK_FAILURE: Duration = Duration::from_millis(500);
/// How often it is looked whether others still have what they took.
pub(super) const OUTSIDE_LOOK: Duration = Duration::from_millis(100);
/// How many names are looked at together.
const OUTSIDE_LOOK_MAX: usize = 1000;
/// How many names that somebody waits for are looked at each time.
const AWAITED_LOOK_MAX: usize = 10 * OUTSIDE_LOOK_MAX;
/// Locks that went with a lost past and are written down in one batch.
const MOURNED_AT_ONCE: usize = 1000;

impl Running {
    /// Decides a batch and has it recorded.
    pub(super) async fn decide(&mut self, mut asked: Vec<Asked>) -> Decided {
        let (mut tries, mut taken, mut failures, mut spent) = (0u32, 0u32, 0u32, Duration::ZERO);
        // Earlier tries that may yet be recorded: as long as there are any, nobody is told that nothing was changed.
        let mut doubtful: Vec<BatchId> = Vec::new();
        loop {
            if let Some(why) = self.failed.clone() {
                return self.give_up(&asked, &doubtful, Failure::Unavailable(why));
            }
            tries += 1;
            // Not between two tries of which nobody knows: the first would be found there, and this one would not hear of it.
            if doubtful.is_empty()
                && let Err(why) = self.mourn_before(&asked).await
            {
                self.give_up(&asked, &doubtful, Failure::Unavailable(why.clone()));
                return Decided::Away(why);
            }
            self.contention.before_append(tries).await;
            let now = self.ledger.now();
            let id = self.batches.next();
            let Some(batch) = self.judge(id, now, asked) else {
                match self.unrecorded(&doubtful).await {
                    Ok(decided) => return decided,
                    Err(again) => asked = self.still_true(again),
                }
                if asked.is_empty() {
                    return Decided::Outdated;
                }
                continue;
            };
            if batch.payload.len() > PAYLOAD_BYTES_MAX && doubtful.is_empty() && self.desk.asked() > 1 {
                return self.decide_in_halves().await;
            }
            let (started, frees) = (Instant::now(), batch.frees);
            let appended = self.ledger.append(self.desk.position(), now, batch).await;
            let took = started.elapsed();
            spent += took;
            if matches!(appended, Append::Appended(_) | Append::Moved(_)) {
                self.contention.took(took);
            }
            match appended {
                Append::Appended(appended) => {
                    if !frees {
                        self.outlets.full.store(false, Ordering::Relaxed);
                    }
                    self.metrics.appended(self.desk.asked(), took, tries);
                    self.settle(appended);
                    return Decided::Recorded;
                }
                Append::Moved(delta) => {
                    asked = self.desk.give_up();
                    if let Some(decided) = self.settled_by(delta, &doubtful, &asked) {
                        return decided;
                    }
                    asked = self.still_true(asked);
                }
                Append::Taken(theirs) => {
                    asked = self.desk.give_up();
                    taken += 1;
                    if taken == TAKEN_MAX {
                        return self.give_up(&asked, &doubtful, taken_outside(&theirs));
                    }
                    see_too(&mut asked, theirs.iter().filter_map(outside::external).collect());
                }
                Append::Full => {
                    self.outlets.full.store(true, Ordering::Relaxed);
                    asked = self.desk.give_up();
                    if !doubtful.is_empty() {
                        return self.give_up(&asked, &doubtful, Failure::Full);
                    }
                    asked = self.refuse_takers(asked);
                    if asked.is_empty() {
                        // A store that is full refuses before it compares: nobody knows how late it is.
                        return Decided::Failed;
                    }
                }
                Append::Unknown(error) => {
                    asked = self.desk.doubt();
                    doubtful.push(id);
                    if let Some(decided) = self.look_for(&doubtful, &asked, &error, spent).await {
                        return decided;
                    }
                    asked = self.still_true(asked);
                }
                Append::Down(error) => {
                    asked = self.desk.give_up();
                    if matches!(error, EngineError::Stopped(_)) {
                        self.stop(&error.to_string());
                    }
                    failures += 1;
                    if !self.tries_again(&error, failures, spent).await {
                        return self.is_away(&asked, &doubtful, &error);
                    }
                }
            }
            if asked.is_empty() {
                return Decided::Outdated;
            }
        }
    }

    /// Decides a batch on a working state, and notes how long that takes.
    fn judge(&mut self, id: BatchId, now: Stamp, asked: Vec<Asked>) -> Option<Batch> {
        let began = Instant::now();
        let batch = self.desk.decide(id, now, asked);
        self.portion.judged(began.elapsed());
        batch
    }

    /// Nobody knows whether the last try was recorded: looks for it, as long as everybody was told that a question takes, and
    /// a moment more. `None`: it is not there, and may be tried again.
    async fn look_for(
        &mut self,
        doubtful: &[BatchId],
        asked: &[Asked],
        error: &EngineError,
        spent: Duration,
    ) -> Option<Decided> {
        let began = Instant::now();
        let read = self.ledger.read(self.desk.position());
        let read = match self.ledger.time_limit() {
            Some(limit) => {
                let read = tokio::time::timeout(limit.saturating_sub(spent) + DOUBT_LOOK, read).await;
                read.unwrap_or_else(|_| Err(error.clone()))
            }
            None => read.await,
        };
        let is_away = read.is_err();
        if let Ok(delta) = read
            && let Some(decided) = self.settled_by(delta, doubtful, asked)
        {
            return Some(decided);
        }
        if planted::is(Bug::UnknownIsNothing) {
            self.fail(asked, &Failure::Unavailable(error.to_string()));
            return Some(Decided::Failed);
        }
        let is_over = self.ledger.time_limit().is_some_and(|limit| spent + began.elapsed() > limit);
        if is_away {
            return Some(self.is_away(asked, doubtful, error));
        }
        let hopeless = is_over || doubtful.len() == DOUBTS_MAX;
        hopeless.then(|| self.give_up(asked, doubtful, Failure::OutcomeUnknown(error.to_string())))
    }

    /// The engine can't be reached: everybody is told so, and nobody of this step has to find out for themselves.
    fn is_away(&mut self, asked: &[Asked], doubtful: &[BatchId], error: &EngineError) -> Decided {
        self.give_up(asked, doubtful, Failure::Unavailable(error.to_string()));
        Decided::Away(error.to_string())
    }

    /// Waits a moment before an engine that could not be reached is tried again, if it is to be. One that made everybody
    /// wait for long is not.
    async fn tries_again(&self, error: &EngineError, failures: u32, spent: Duration) -> bool {
        let again =
            matches!(error, EngineError::Unreachable(_)) && failures < self.settings.attempts && spent < QUICK_FAILURE;
        if again {
            let backoff = Duration::from_millis(self.settings.backoff.0) * failures;
            // Half to one and a half times as long: several servers do not come back at one moment.
            let jitter = (self.batches.prefix >> 64) as u32 ^ (self.batches.count as u32).wrapping_mul(0x9E37_79B9);
            tokio::time::sleep(backoff / 2 + backoff.mul_f64(f64::from(jitter) / f64::from(u32::MAX))).await;
        }
        again
    }

    /// The batch records nothing: its answers hold if nothing was missed meanwhile. If something was, what was asked is
    /// given back, to be decided again.
    async fn unrecorded(&mut self, doubtful: &[BatchId]) -> Result<Decided, Vec<Asked>> {
        let confirm = self.ledger.confirm(self.desk.position()).await;
        if matches!(confirm, Confirm::Current) && doubtful.is_empty() {
            let told = self.desk.settle_unrecorded();
            self.tell(told);
            return Ok(Decided::Confirmed);
        }
        let asked = self.desk.give_up();
        match confirm {
            Confirm::Current => Ok(self.give_up(&asked, doubtful, unseen())),
            Confirm::Moved(delta) => self.settled_by(delta, doubtful, &asked).ok_or(asked),
            Confirm::Down(error) => Ok(self.is_away(&asked, doubtful, &error)),
        }
    }

    /// What can't be recorded in one batch is recorded one half after the other.
    async fn decide_in_halves(&mut self) -> Decided {
        let mut first = self.desk.give_up();
        let second = first.split_off(first.len() / 2);
        let decided = Box::pin(self.decide(first)).await;
        match Box::pin(self.decide(second)).await {
            failed @ (Decided::Failed | Decided::Away(_)) => failed,
            Decided::Recorded | Decided::Confirmed | Decided::Outdated => decided,
        }
    }

    /// Tells everybody that it failed. As long as an earlier try may be recorded, only that nobody knows; and if it
    /// turns up later, it is nobody's here.
    fn give_up(&mut self, asked: &[Asked], doubtful: &[BatchId], certain: Failure) -> Decided {
        self.fail(asked, &if doubtful.is_empty() { certain } else { unseen() });
        self.desk.forget_doubtful(doubtful);
        Decided::Failed
    }

    fn settle(&mut self, appended: Appended) {
        let revision = appended.position.revision;
        let moved = *self.moved.borrow_and_update();
        if moved > revision {
            self.moved.mark_changed();
        }
        // A ledger that falls from here on has lost something.
        self.last_moved = self.last_moved.max(moved);
        let told = self.desk.settle(appended);
        self.note_epoch();
        if appended.durable {
            self.durable_revision = self.durable_revision.max(revision);
            // Earlier ones may have become durable with it.
            self.flush_durable();
        }
        self.tell(told);
    }

    /// Folds what others wrote. If a doubtful try was among it, or may have been, everybody has an answer.
    fn settled_by(&mut self, delta: Delta, doubtful: &[BatchId], asked: &[Asked]) -> Option<Decided> {
        let folded = self.fold(delta)?;
        if folded.unseen.iter().any(|id| doubtful.contains(id)) {
            return Some(self.give_up(asked, doubtful, unseen()));
        }
        folded.found.iter().any(|id| doubtful.contains(id)).then_some(Decided::Confirmed)
    }

    /// Looks whether others still have what they took outside of the ledger: nobody tells when they give it back.
    pub(super) async fn look_outside(&mut self) {
        if !self.ledger.shows() || Instant::now() < self.outside_at || self.failed.is_some() {
            return;
        }
        let state = self.desk.state();
        let keys = state.external();
        if keys.is_empty() {
            return;
        }
        let wants = state.waiters().flat_map(|waiter| &waiter.asked.wants);
        let awaited: HashSet<&Key> = wants.map(|want| &want.target.key).collect();
        // Each time what somebody waits for; of the rest some at a time, all in turn.
        let (mut looks, others): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(|key| awaited.contains(key));
        looks = self.awaited_next.turn(looks, AWAITED_LOOK_MAX);
        looks.extend(self.outside_next.turn(others, OUTSIDE_LOOK_MAX));
        self.outside_at = Instant::now() + OUTSIDE_LOOK;
        for some in looks.chunks(OUTSIDE_LOOK_MAX) {
            if let Err(failure) = self.look_at(some).await {
                tracing::debug!(space = %self.space, %failure, "what others hold can't be looked at");
                return;
            }
        }
    }

    /// Looks which of these files others hold outside of the ledger, and writes it down.
    pub(super) async fn look_at(&mut self, keys: &[Key]) -> Result<(), Failure> {
        for _ in 0..LOOKS_MAX {
            let seen = self.seen(keys).await.map_err(|error| Failure::Unavailable(error.to_string()))?;
            if seen.is_empty() {
                return Ok(());
            }
            match self.decide(vec![seeing(seen)]).await {
                Decided::Recorded | Decided::Confirmed => return Ok(()),
                Decided::Outdated => {}
                Decided::Away(why) => return Err(Failure::Unavailable(why)),
                Decided::Failed => break,
            }
        }
        Err(Failure::Unavailable("what clients outside of Lockkeeper hold could not be written down".to_owned()))
    }

    /// One look for all who want to look at files, so that nobody waits for as many as there are. If the engine is away: why.
    pub(super) async fn look_for_all(&mut self, looks: Vec<OutsideLook>, mut away: Option<Failure>) -> Option<Failure> {
        let keys: BTreeSet<Key> = looks.iter().flat_map(|look| look.keys.iter().cloned()).collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        for some in keys.chunks(OUTSIDE_LOOK_MAX) {
            if away.is_none() {
                away = self.look_at(some).await.err();
            }
        }
        for look in looks {
            let _ = look.reply.send(away.clone().map_or(Ok(()), Err));
        }
        away
    }

    /// What others take of these files outside of the ledger, or no longer take.
    async fn seen(&self, keys: &[Key]) -> Result<Vec<External>, EngineError> {
        let theirs = self.ledger.look_outside(keys.iter().map(outside::name).collect()).await?;
        let taken = theirs.iter().filter_map(outside::external).map(|seen| (seen.key.clone(), seen));
        let mut taken: HashMap<Key, External> = taken.collect();
        let gone = |key: &Key| External { key: key.clone(), left: None, endless: false };
        let state = self.desk.state();
        let seen = keys.iter().map(|key| taken.remove(key).unwrap_or_else(|| gone(key)));
        Ok(seen.filter(|seen| seen.left.is_some() || state.is_external(&seen.key)).collect())
    }

    /// What others were seen to hold was true of the ledger as it was then: somebody may have got it since, and is not to lose it.
    /// What nobody here holds now is still worth knowing, or the same would be tried, and taken, again.
    fn still_true(&self, mut asked: Vec<Asked>) -> Vec<Asked> {
        let state = self.desk.state();
        for asked in &mut asked {
            if let Command::SeeExternal { seen } = &mut asked.command {
                seen.retain(|seen| seen.left.is_some() && state.held_until(&seen.key).is_none());
            }
        }
        asked.retain(|asked| !matches!(&asked.command, Command::SeeExternal { seen } if seen.is_empty()));
        asked
    }

    /// First of all: whoever asks for what went is told that it is lost, not that nobody holds it.
    async fn mourn_before(&mut self, asked: &[Asked]) -> Result<(), String> {
        if asked.iter().any(|asked| matches!(asked.command, Command::Mourn { .. })) {
            return Ok(());
        }
        Box::pin(self.mourn()).await
    }

    /// Writes down what went with a lost past, so that its holders are told. If the engine is away: why.
    pub(super) async fn mourn(&mut self) -> Result<(), String> {
        let Some(lost) = self.mourned.take() else { return Ok(()) };
        let mut parts: Vec<Vec<_>> = lost.known.chunks(MOURNED_AT_ONCE).map(<[_]>::to_vec).collect();
        if parts.is_empty() {
            // The tokens rise even if no lock was lost.
            parts.push(Vec::new());
        }
        self.mourned_lately = lost.known.iter().rev().take(LOST_MAX).cloned().collect();
        for locks in parts {
            let command = Command::Mourn { locks, last_token: lost.last_token };
            let decided = self.decide(vec![Asked { ticket: None, command }]).await;
            if matches!(decided, Decided::Failed | Decided::Away(_)) {
                // Whoever was mourned already is passed over the next time.
                let later = self.mourned.get_or_insert(Rewritten { last_token: lost.last_token, known: Vec::new() });
                later.last_token = later.last_token.max(lost.last_token);
                later.known.extend(lost.known);
                return if let Decided::Away(why) = decided { Err(why) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// The disk is full: whoever wants something is refused, and whoever only frees goes on.
    fn refuse_takers(&mut self, asked: Vec<Asked>) -> Vec<Asked> {
        let only_frees = |command: &Command| match command {
            Command::Release { .. }
            | Command::ForceRelease { .. }
            | Command::CloseSession { .. }
            | Command::CloseRoom { .. }
            | Command::Withdraw { .. }
            | Command::GiveBack { .. }
            | Command::EndFeature { .. }
            | Command::ReleasePorts { .. }
            | Command::Mourn { .. }
            | Command::SeeExternal { .. }
            | Command::Sweep => true,
            Command::Acquire(_)
            | Command::Renew { .. }
            | Command::OpenSession { .. }
            | Command::RestoreSession { .. }
            | Command::OpenRoom { .. }
            | Command::RegisterFeature { .. }
            | Command::AllocatePorts { .. }
            | Command::Announce { .. }
            | Command::Beat { .. } => false,
        };
        let goes_on = |asked: &Asked| only_frees(&asked.command) && !planted::is(Bug::FullRefusesReleases);
        let (freeing, taking): (Vec<_>, Vec<_>) = asked.into_iter().partition(goes_on);
        if taking.is_empty() {
            self.fail(&freeing, &Failure::Full);
            return Vec::new();
        }
        self.fail(&taking, &Failure::Full);
        freeing
    }

    /// Folds what others wrote, and tells whoever was waiting for it. `None`: it can't be read, and all is over.
    pub(super) fn fold(&mut self, delta: Delta) -> Option<Folded> {
        self.contention.seen(&delta);
        let known_until = self.desk.state().stamp().time;
        let mut folded = match self.desk.fold(delta) {
            Ok(folded) => folded,
            Err(error) => {
                // The state may be half folded: nothing may be told from it any more.
                self.stop(&error.to_string());
                return None;
            }
        };
        let position = self.desk.position();
        if let Some(rewritten) = folded.rewritten.take() {
            let (lost, last_token) = (rewritten.known.len(), rewritten.last_token);
            tracing::warn!(space = %self.space, %position, lost, "the ledger was rewritten: what was known of it is void");
            self.outlets.rewrites.fetch_add(1, Ordering::Relaxed);
            // What is new: entries that were told before have other numbers now, or are gone.
            self.published = self.desk.state().history().made_until(known_until);
            self.durable_revision = position.revision;
            folded.unplaced.extend(std::mem::take(&mut self.parked).into_iter().map(|parked| parked.ticket));
            let mourned = self.mourned.get_or_insert(Rewritten { last_token, known: Vec::new() });
            mourned.last_token = mourned.last_token.max(last_token);
            if !planted::is(Bug::LossUntold) {
                mourned.known.extend(rewritten.known);
                // That it was lost may have been lost, too.
                mourned.known.append(&mut self.mourned_lately);
                mourned.known.sort_unstable_by_key(|lock| lock.token);
                mourned.known.dedup_by_key(|lock| (lock.id, lock.token));
            }
        }
        self.durable_revision = self.durable_revision.max(position.revision);
        self.note_epoch();
        self.tell(std::mem::take(&mut folded.told));
        for ticket in &folded.unplaced {
            if let Some(reply) = self.replies.remove(ticket) {
                let _ = reply.send(Err(unseen()));
            }
        }
        Some(folded)
    }

    /// Entry numbers of different epochs, or from before and after a rewriting, have nothing to do with each other.
    fn note_epoch(&self) {
        let epoch = self.desk.position().epoch.wrapping_add(self.outlets.rewrites.load(Ordering::Relaxed));
        self.outlets.epoch.store(epoch, Ordering::Relaxed);
    }
}

/// What came of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    Recorded,
    /// Nothing was written, and what is known now was the end of the ledger a moment ago.
    Confirmed,
    /// All that there was to write down had been seen before the ledger moved.
    Outdated,
    Failed,
    /// The ledger can't be reached, and why.
    Away(String),
}

fn seeing(seen: Vec<External>) -> Asked {
    Asked { ticket: None, command: Command::SeeExternal { seen } }
}

/// Has the rules know what others hold, before everything else and beside what they know already.
fn see_too(asked: &mut Vec<Asked>, taken: Vec<External>) {
    if let Some(Asked { command: Command::SeeExternal { seen }, .. }) = asked.first_mut() {
        seen.retain(|known| taken.iter().all(|taken| taken.key != known.key));
        seen.extend(taken);
    } else {
        asked.insert(0, seeing(taken));
    }
}

fn taken_outside(outside: &[Outside]) -> Failure {
    let names: Vec<&str> = outside.iter().map(|outside| outside.name.as_str()).collect();
    Failure::Unavailable(format!("a client outside of Lockkeeper holds {}", names.join(", ")))
}

fn unseen() -> Failure {
    Failure::OutcomeUnknown("the ledger could not be followed; ask again with the same request id".to_owned())
}

/// Which of many comes next, when only some have their turn at a time.
#[derive(Debug, Default)]
pub(super) struct Round(usize);

impl Round {
    /// Those that have their turn now.
    fn turn(&mut self, mut all: Vec<Key>, most: usize) -> Vec<Key> {
        if all.len() > most {
            let first = self.0 % all.len();
            all.rotate_left(first);
            all.truncate(most);
            self.0 = first + most;
        }
        all
    }
}

/// Names for batches that no other keeper gives.
pub(super) struct BatchIds {
    pub(super) prefix: u128,
    pub(super) count: u64,
}

impl BatchIds {
    fn next(&mut self) -> BatchId {
        self.count += 1;
        BatchId(self.prefix | u128::from(self.count))
    }
}
