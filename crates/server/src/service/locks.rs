//! Acquiring, giving back, renewing and looking at locks.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use lockkeeper_core::command::{Actor, Command, Want, Which};
use lockkeeper_core::history::{Action, Entry};
use lockkeeper_core::key::{Cover, Key, KeyKind, Target};
use lockkeeper_core::lock::{Lock, Token};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Answer, Blocker, Conflict, NotFound, Refusal};
use lockkeeper_core::session::{Intention, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::state::State;
use lockkeeper_core::time::Millis;
use lockkeeper_keeper::Keeper;
use lockkeeper_wire::answer::{
    Changed, Checked, Granted, HistoryList, HolderView, KeyStatus, Listed, LockList, LockView, OutsideList,
};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{
    AcquireRequest, CheckRequest, ForceReleaseRequest, HistoryRequest, ListRequest, ReleaseRequest, RenewRequest,
};
use lockkeeper_wire::word::Word;

use super::{Acquired, Body, Caller, HISTORY_DEFAULT, LIST_DEFAULT, LIST_MAX, Noted, Service, json, unexpected};
use crate::door;
use crate::refusal::{self, No};
use crate::view::{self, Viewer};
use crate::written;

impl Service {
    pub(super) async fn acquire(&self, body: Box<AcquireRequest>, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        noted.key = named(&body);
        noted.intention.clone_from(&body.intention);
        self.note_space(&*body, noted)?;
        // First: what can't be asked for makes no space.
        let acquire = door::acquire(&body, caller, self.settings.default_ttl)?;
        let keeper = self.keeper_noted(&*body, noted).await?;
        noted.actor(&acquire.actor);
        noted.ttl = Some(acquire.ttl);
        let keys = acquire.wants.iter().map(|want| &want.target.key);
        self.permit(Operation::Acquire, caller, Some(&acquire.actor.agent), keys)?;
        let (set, actor, waits) = (body.locks.is_some(), acquire.actor.clone(), acquire.wait.0 > 0);
        if waits {
            // Nobody makes room for an answer that may come in hours.
            noted.turn = None;
        }
        let acquire = Command::Acquire(acquire);
        // Over the socket, whoever is gone has no use for a grant.
        let answer = if caller.local { keeper.ask_bound(acquire).await? } else { keeper.ask(acquire).await? };
        let viewer = Viewer { now: keeper.now() };
        let Answer::Granted { locks, fresh } = answer else { return Err(unexpected(answer, viewer)) };
        let action = if fresh == 0 { "refreshed" } else { "acquired" };
        let (new, had) = locks.split_at(fresh);
        let ids = |locks: &[Arc<Lock>]| locks.iter().map(|lock| lock.id).collect::<Vec<_>>();
        // Whoever hangs up while something more is looked at is told nothing.
        let asks_more = caller.local && (waits || !had.is_empty());
        let comes_back = body.request_id.is_some();
        let unheard = asks_more.then(|| keeper.unheard(actor.session.clone(), ids(new), comes_back));
        if waits {
            Box::pin(self.permit_granted(Operation::Acquire, &keeper, caller, &actor, new)).await?;
        }
        let strength = keeper.strength().word();
        let heartbeat =
            locks.iter().map(|lock| self.heartbeat(lock.ttl)).min().unwrap_or(self.settings.heartbeat_interval.0);
        // It is granted, whether that can be told or not.
        let paused = if fresh < locks.len() { Box::pin(pauses_of(&keeper, had)).await } else { Ok(Vec::new()) };
        let paused = paused.unwrap_or_default();
        let space = keeper.space().clone();
        noted.granted = Some(Acquired { space, actor, locks: ids(new), had: ids(had), named: true, ports: false });
        if let Some(unheard) = unheard {
            unheard.heard();
        }
        match locks.as_slice() {
            [lock] if !set && paused.is_empty() => Ok(written::granted(viewer, action, lock, strength, heartbeat)),
            [lock] if !set => json(&Granted {
                success: true,
                action: action.into(),
                lock: viewer.lock(lock),
                strength: strength.into(),
                heartbeat_interval_ms: heartbeat,
                paused: viewer.locks(&paused),
            }),
            _ => json(&Changed {
                success: true,
                action: action.into(),
                locks: viewer.locks(&locks),
                refreshed: had.iter().map(|lock| lock.id.to_string()).collect(),
                lost: Vec::new(),
                paused: viewer.locks(&paused),
                file_path: None,
                strength: Some(strength.into()),
                heartbeat_interval_ms: Some(heartbeat),
            }),
        }
    }

    /// The policy may have changed while somebody waited: what it denies by now is given back at once.
    pub(super) async fn permit_granted(
        &self,
        operation: Operation,
        keeper: &Keeper,
        caller: &Caller,
        actor: &Actor,
        new: &[Arc<Lock>],
    ) -> Result<(), No> {
        let keys = new.iter().map(|lock| &lock.target.key);
        let permitted = self.permit(operation, caller, Some(&actor.agent), keys);
        if permitted.is_err() {
            keeper.give_back(actor.session.clone(), new.iter().map(|lock| lock.id).collect()).await;
        }
        permitted
    }

    /// How often to beat for a lock: often enough that two lost beats do no harm.
    pub(super) fn heartbeat(&self, ttl: Millis) -> u64 {
        self.settings.heartbeat_interval.0.min(ttl.0 / 3).max(100)
    }

    pub(super) async fn release(&self, body: Box<ReleaseRequest>, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        noted.key = body.file_path.clone().or_else(|| body.lock_id.clone());
        let keeper = self.keeper_noted(&*body, noted).await?;
        let actor = door::actor(&*body, caller)?;
        noted.actor(&actor);
        let which =
            match door::which(body.lock_id.as_deref(), body.file_path.as_deref(), body.start_line, body.end_line)? {
                Some(which) => which,
                None if body.all == Some(true) => Which::Everything,
                None => {
                    return Err(No::new(Word::InvalidRequest, "Say what to release: a file_path, a lock_id, or all."));
                }
            };
        self.permit(Operation::Release, caller, Some(&actor.agent), key_of(&which))?;
        let token = door::token(body.fencing_token)?;
        let request = door::request("locks/release", &*body)?;
        if let (Which::Id(id), Some(true)) = (&which, body.unless_used)
            && self.users.outlives_one(&(keeper.space().clone(), actor.session.clone(), *id))
        {
            // Its connection uses it no more; whoever else does gives it back, or its TTL ends it.
            noted.released = vec![*id];
            let viewer = Viewer { now: keeper.now() };
            return Ok(written::changed(viewer, "released", &[], body.file_path.as_deref()));
        }
        let session = actor.session.clone();
        match keeper.ask(Command::Release { actor, which, token, request }).await? {
            Answer::Released { locks } => {
                noted.released = locks.iter().map(|lock| lock.id).collect();
                Ok(written::changed(Viewer { now: keeper.now() }, "released", &locks, body.file_path.as_deref()))
            }
            other => Err(Box::pin(explained(&keeper, session, other)).await),
        }
    }

    pub(super) async fn renew(&self, body: Box<RenewRequest>, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        noted.key = body.file_path.clone().or_else(|| body.lock_id.clone());
        let keeper = self.keeper_noted(&*body, noted).await?;
        let actor = door::actor(&*body, caller)?;
        noted.actor(&actor);
        let which = door::which(body.lock_id.as_deref(), body.file_path.as_deref(), body.start_line, body.end_line)?;
        let which = which.unwrap_or(Which::Everything);
        self.permit(Operation::Renew, caller, Some(&actor.agent), key_of(&which))?;
        let (ttl, token) = (door::ttl(body.ttl_ms, body.ttl_minutes)?, door::token(body.fencing_token)?);
        let session = actor.session.clone();
        let answer = keeper.ask(Command::Renew { actor, which, ttl, token }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::Renewed { locks, lost, paused } if lost.is_empty() && paused.is_empty() => {
                Ok(written::changed(viewer, "renewed", &locks, body.file_path.as_deref()))
            }
            Answer::Renewed { locks, lost, paused } => json(&Changed {
                paused: viewer.locks(&paused),
                lost: lost.iter().map(ToString::to_string).collect(),
                ..changes("renewed", viewer.locks(&locks), body.file_path)
            }),
            other => Err(Box::pin(explained(&keeper, session, other)).await),
        }
    }

    pub(super) async fn force_release(
        &self,
        body: ForceReleaseRequest,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Body {
        noted.key = body.file_path.clone().or_else(|| body.lock_id.clone());
        noted.intention.clone_from(&body.reason);
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller)?;
        noted.actor(&actor);
        let reason = Intention::parse(body.reason.as_deref().unwrap_or_default())?;
        if reason.is_empty() {
            return Err(No::new(Word::InvalidRequest, "Taking a lock away needs a reason, for its holder to read."));
        }
        let which = door::which(body.lock_id.as_deref(), body.file_path.as_deref(), body.start_line, body.end_line)?;
        let Some(which) = which else {
            return Err(No::new(Word::InvalidRequest, "Say what to take away: a file_path or a lock_id."));
        };
        let named = match &which {
            Which::Id(id) => {
                let id = *id;
                keeper.read(move |state, _| state.lock(id).map(|lock| lock.target.key.clone())).await?
            }
            Which::Key(key, _) => Some(key.clone()),
            Which::Everything => None,
        };
        self.permit(Operation::ForceRelease, caller, Some(&actor.agent), named.as_ref())?;
        let request = door::request("locks/force-release", &body)?;
        let session = actor.session.clone();
        let answer = keeper.ask(Command::ForceRelease { by: actor.agent, reason, which, request }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::ForceReleased { locks } => {
                Ok(written::changed(viewer, "force_released", &locks, body.file_path.as_deref()))
            }
            other => Err(explained(&keeper, session, other).await),
        }
    }

    pub(super) async fn check(&self, body: CheckRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        noted.key.clone_from(&body.file_path);
        let keeper = self.keeper_noted(&body, noted).await?;
        let actor = door::actor(&body, caller).ok();
        let wants = door::checked(&body)?;
        let keys = wants.iter().map(|want| &want.target.key);
        // Whoever can't say well who they are is still who the credential says.
        let named = actor.as_ref().map(|actor| &actor.agent);
        self.permit(Operation::Check, caller, caller.agent.as_ref().or(named), keys)?;
        keeper.look_outside(files(wants.iter().map(|want| &want.target.key))).await?;
        let token = door::token(body.fencing_token)?;
        let session = actor.map(|actor| actor.session);
        if wants.is_empty() && (token.is_none() || session.is_none()) {
            return Err(No::new(Word::InvalidRequest, "Say what to check: a file_path, or file_paths."));
        }
        keeper
            .read(move |state, now| {
                let viewer = Viewer { now };
                if let Some(token) = token {
                    return token_checked(state, token, session.as_ref(), &wants, viewer);
                }
                let nobody = SessionId::nobody();
                let busy = state.conflicts(session.as_ref().unwrap_or(&nobody), &wants);
                let held: Vec<_> = session.iter().flat_map(|session| own_locks(state, session, &wants)).collect();
                let all_own = session.as_ref().is_some_and(|session| {
                    wants.iter().all(|want| state.covered_by_own(session, &want.target, want.mode))
                });
                let message = match busy.conflicts.first() {
                    None if all_own => "Yours.".to_owned(),
                    None if held.is_empty() => "Free.".to_owned(),
                    None => {
                        let held: Vec<String> = held.iter().map(|lock| lock.target.to_string()).collect();
                        format!("Free; you hold {}.", held.join(", "))
                    }
                    Some(first) => refusal::conflict_sentence(first, viewer),
                };
                Ok(Checked {
                    success: true,
                    free: busy.conflicts.is_empty(),
                    message,
                    conflicts: busy.conflicts.iter().map(|conflict| viewer.conflict(conflict)).collect(),
                    more_conflicts: busy.more,
                    held: viewer.locks(&held),
                })
            })
            .await?
            .and_then(|checked| json(&checked))
    }

    pub(super) async fn active(&self, body: ListRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let about = body.file_path.as_deref().map(|path| door::key(Some(path))).transpose()?;
        self.permit_look(Operation::Active, caller, &body, about.as_ref())?;
        let most = door::limit(body.limit, LIST_DEFAULT, LIST_MAX)?;
        let waiting = body.waiting == Some(true);
        keeper.look_outside(files(&about)).await?;
        let outside = if about.is_none() { self.outside().await } else { OutsideList::default() };
        let look = keeper.read(move |state, now| {
            let meant = |key: &Key| about.as_ref().is_none_or(|about| about.overlaps(key));
            let (locks, total) = state.locks_in_order(about.as_ref(), most);
            let mut waiters: Vec<_> = state.waiters().filter(|_| waiting).cloned().collect();
            waiters.retain(|waiter| waiter.asked.wants.iter().any(|want| meant(&want.target.key)));
            waiters.sort_unstable_by_key(|waiter| waiter.rank());
            waiters.truncate(most);
            (locks, total, waiters, Viewer { now })
        });
        let (locks, total, waiters, viewer) = look.await?;
        let rows = locks.len() + waiters.iter().map(|waiter| waiter.asked.wants.len()).sum::<usize>();
        let make = move || {
            let listed = |lock: &Arc<Lock>| Listed { id: lock.id.to_string(), lock: viewer.lock(lock) };
            let waiting = waiters.iter().map(|waiter| viewer.waiter(waiter)).collect();
            Ok(LockList { locks: locks.iter().map(listed).collect(), total, waiting, outside })
        };
        self.list(rows, noted, make).await
    }

    pub(super) async fn key_status(&self, body: CheckRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.known_keeper(&body, caller).await?;
        noted.space = Some(keeper.space().clone());
        let key = door::key(body.file_path.as_deref())?;
        self.permit_look(Operation::KeyStatus, caller, &body, Some(&key))?;
        if !caller.known && key.cover() != Cover::One {
            return Err(No::new(Word::Unauthorized, "To ask about more than one key needs a credential."));
        }
        let shows_all = caller.known;
        keeper.look_outside(files([&key])).await?;
        let target = Target { key, span: Span::WHOLE };
        let status = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let mut locks = Vec::new();
            state.all_overlapping(&target, |lock| {
                locks.push(viewer.lock(lock));
                if locks.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            let lock = locks.first().map(|first| HolderView {
                locked_by: first.owner.to_string(),
                agent_type: SessionId::parse(&first.session_id)
                    .ok()
                    .and_then(|id| state.session(&id)?.agent_type.as_ref().map(ToString::to_string)),
                locked_at: first.created_at.clone(),
                expires_at: first.expires_at.clone(),
                reason: first.intention.to_string(),
            });
            // Who only asks in passing learns who holds it, and nothing that could be used.
            let locks = if shows_all { locks } else { Vec::new() };
            KeyStatus { locked: lock.is_some(), file_path: target.key.to_string(), lock, locks }
        });
        json(&status.await?)
    }

    pub(super) async fn history(&self, body: HistoryRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        let about = body.file_path.as_deref().map(|path| door::key(Some(path))).transpose()?;
        self.permit_look(Operation::History, caller, &body, about.as_ref())?;
        let most = door::limit(body.limit, HISTORY_DEFAULT, LIST_MAX)?;
        let epoch = keeper.epoch();
        let look = keeper.read(move |state, _| {
            let meant = |entry: &&Arc<Entry>| about.as_ref().is_none_or(|about| about.overlaps(&entry.target.key));
            let entries: Vec<_> = state.history().newest().filter(meant).take(most).cloned().collect();
            (entries, state.history().len())
        });
        let (entries, total) = look.await?;
        let rows = entries.len();
        let make =
            move || Ok(HistoryList { events: entries.iter().map(|entry| view::event(epoch, entry)).collect(), total });
        self.list(rows, noted, make).await
    }
}

/// The session's own locks on the keys that are asked about.
fn own_locks(state: &State, session: &SessionId, wants: &[Want]) -> Vec<Arc<Lock>> {
    const SHOWN_MAX: usize = 100;
    const LOOKS_MAX: usize = 10_000;
    let of_each = wants.iter().map(|want| (want.target.span, state.own_on_key(session, &want.target.key)));
    let own = of_each.flat_map(|(span, own)| own.map(move |lock| (span, lock))).take(LOOKS_MAX);
    own.filter(|(span, lock)| lock.target.span.overlaps(*span)).take(SHOWN_MAX).map(|(_, lock)| lock.clone()).collect()
}

/// Whether a fencing token is that of a lock which is held now.
fn token_checked(
    state: &State,
    token: Token,
    session: Option<&SessionId>,
    wants: &[Want],
    viewer: Viewer,
) -> Result<Checked, No> {
    let meant = |lock: &Lock| wants.is_empty() || wants.iter().any(|want| want.target.overlaps(&lock.target));
    let mut own = session.into_iter().flat_map(|session| state.locks_of(session)).filter_map(|id| state.lock(id));
    let mut found = own.find(|lock| lock.token == token && meant(lock)).cloned();
    // Whoever names what it protects asks for whoever has it. What lies in something else that is named is looked at with that.
    let named: BTreeSet<&Key> = wants.iter().map(|want| &want.target.key).collect();
    let lies_in_another = |key: &Key| named.iter().any(|other| *other != key && other.reaches(key));
    let keys = named.iter().filter(|key| !lies_in_another(key));
    for key in keys {
        if found.is_some() {
            break;
        }
        state.all_overlapping(&Target { key: (*key).clone(), span: Span::WHOLE }, |lock| {
            if lock.token != token || !meant(lock) {
                return ControlFlow::Continue(());
            }
            found = Some(lock.clone());
            ControlFlow::Break(())
        });
    }
    match found {
        Some(lock) => Ok(Checked {
            success: true,
            free: true,
            message: format!("Fencing token {token} is the one of {}, held by {}.", lock.target, lock.agent),
            conflicts: Vec::new(),
            more_conflicts: false,
            held: vec![viewer.lock(&lock)],
        }),
        None => {
            let targets = wants.iter().map(|want| want.target.clone()).collect();
            Err(refusal::refused(&Refusal::LockLost { targets }, viewer))
        }
    }
}

/// A refusal; if it is that a lock was lost, with what became of it and who has it now, as far as the history says; and if nobody
/// holds just this, with who holds what is around it.
async fn explained(keeper: &Keeper, session: SessionId, answer: Answer) -> No {
    const LOOKED_AT_MAX: usize = 10_000;
    let (lost, part) = match &answer {
        Answer::Refused(Refusal::LockLost { targets }) => (targets.first().cloned(), None),
        Answer::Refused(Refusal::NotFound { what: NotFound::Key(key, span) }) => {
            (None, Some(Target { key: key.clone(), span: span.unwrap_or(Span::WHOLE) }))
        }
        _ => (None, None),
    };
    let no = unexpected(answer, Viewer { now: keeper.now() });
    if let Some(wanted) = part {
        return around(keeper, session, wanted, no).await;
    }
    let Some(target) = lost else { return no };
    let story = keeper.read(move |state, now| {
        let is_loss =
            |entry: &&Arc<Entry>| entry.session == session && entry.target == target && entry.action.is_loss();
        let entry = state.history().newest().take(LOOKED_AT_MAX).find(is_loss)?;
        let ago = now.time.since(entry.time);
        let what = match (entry.action, &entry.note) {
            (Action::ForceReleased, Some(note)) => format!("{target} was taken away from you {ago} ago ({note})."),
            (Action::Expired, _) => format!("{target} expired {ago} ago: no heartbeat came in time."),
            (_, _) => format!("{target} was lost {ago} ago."),
        };
        let wants = [Want { target, mode: Mode::Exclusive }];
        let viewer = Viewer { now };
        let busy = state.conflicts(&session, &wants);
        let holder = busy.conflicts.first().map(|first| refusal::conflict_sentence(first, viewer));
        Some(holder.map_or_else(|| what.clone(), |holder| format!("{what} {holder}")))
    });
    match story.await {
        Ok(Some(message)) => no.told(message),
        Ok(None) | Err(_) => no,
    }
}

/// A lock is named as it was taken. Whoever names a part of one, or what lies in a tree that is held, is told which it is and whose.
async fn around(keeper: &Keeper, session: SessionId, wanted: Target, no: No) -> No {
    const LOOKED_AT_MAX: usize = 1000;
    let found = keeper.read(move |state, now| {
        let (mut looked_at, mut found) = (0, None::<Arc<Lock>>);
        state.all_overlapping(&wanted, |lock| {
            looked_at += 1;
            let own = lock.session == session;
            if own || found.is_none() {
                found = Some(lock.clone());
            }
            if own || looked_at == LOOKED_AT_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let held = found?;
        // Its id is the same in every folder.
        let hint = format!("name it as it is, {}, or by its id: {}", held.target, held.id);
        if held.session == session {
            return Some((format!("You hold {} as one lock; on {wanted} alone there is none.", held.target), hint));
        }
        let none = format!("No lock is on {wanted} alone.");
        let holder = refusal::conflict_sentence(&Conflict { wanted, with: Blocker::Held(held) }, Viewer { now });
        Some((format!("{none} {holder}"), hint))
    });
    match found.await {
        Ok(Some((message, hint))) => no.told(message).hint(hint),
        Ok(None) | Err(_) => no,
    }
}

/// The key that is named, if one is.
fn key_of(which: &Which) -> Option<&Key> {
    match which {
        Which::Key(key, _) => Some(key),
        Which::Id(_) | Which::Everything => None,
    }
}

fn changes(action: &'static str, locks: Vec<LockView>, file_path: Option<String>) -> Changed {
    Changed {
        success: true,
        action: action.into(),
        locks,
        refreshed: Vec::new(),
        lost: Vec::new(),
        paused: Vec::new(),
        file_path,
        strength: None,
        heartbeat_interval_ms: None,
    }
}

/// Who pauses the features that these locks are held for.
pub(super) async fn pauses_of(keeper: &Keeper, locks: &[Arc<Lock>]) -> Result<Vec<Arc<Lock>>, No> {
    let locks = locks.to_vec();
    Ok(keeper.read(move |state, _| state.pauses_of(&locks)).await?)
}

/// The files among some keys: what others may hold outside of the ledger.
fn files<'k>(keys: impl IntoIterator<Item = &'k Key>) -> Vec<Key> {
    keys.into_iter().filter(|key| key.kind() == KeyKind::Path && key.cover() == Cover::One).cloned().collect()
}

/// What was asked for, in one line.
fn named(body: &AcquireRequest) -> Option<String> {
    const KEYS_MAX: usize = 16;
    let one = |path: &str, start: Option<Whole>, end: Option<Whole>| match (start, end) {
        (None, _) => path.to_owned(),
        (Some(start), None | Some(Whole(-1))) => format!("{path}:{}-", start.0),
        (Some(start), Some(end)) => format!("{path}:{}-{}", start.0, end.0),
    };
    if let Some(path) = &body.file_path {
        return Some(one(path, body.start_line, body.end_line));
    }
    let specs = body.locks.iter().flatten().take(KEYS_MAX);
    let keys: Vec<String> = specs.map(|spec| one(&spec.file_path, spec.start_line, spec.end_line)).collect();
    (!keys.is_empty()).then(|| keys.join(" "))
}
