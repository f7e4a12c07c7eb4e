//! Streams: what happens, as it happens; and what happens to the locks that a connection holds.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lockkeeper_core::command::Actor;
use lockkeeper_core::history::Entry;
use lockkeeper_core::lock::LockId;
use lockkeeper_core::session::AgentName;
use lockkeeper_keeper::Keeper;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{Asker, AttachRequest, EventsRequest};
use lockkeeper_wire::word::Word;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::binding::Binding;
use crate::door;
use crate::refusal::No;
use crate::service::{Caller, Service};
use crate::view;

/// Entries that a reader gets at once after it fell behind.
const PAGE: usize = 1024;
/// How long a reader may leave what it is sent unread.
pub(crate) const UNREAD_MAX: Duration = Duration::from_secs(30);

/// A reader's place in the stream of one ledger.
#[derive(Debug)]
pub(crate) struct Events {
    keeper: Keeper,
    /// The ledger that the numbers belong to; zero: not known yet, it was empty.
    epoch: u64,
    seen: u64,
    live: Receiver<Arc<Entry>>,
    /// Read from the history, not yet handed out.
    page: VecDeque<Arc<Entry>>,
    /// The history has more than the page.
    behind: bool,
    /// Who reads, as far as they said.
    caller: Caller,
    agent: Option<AgentName>,
}

impl Events {
    /// Starts behind the given id, or with what comes next.
    pub(crate) async fn open(service: &Service, body: &EventsRequest, caller: &Caller) -> Result<Events, No> {
        let named = body.who().agent_id.map(AgentName::parse).transpose()?;
        let (caller, agent) = (caller.clone(), caller.agent.clone().or(named));
        service.permit(Operation::Events, &caller, agent.as_ref(), None)?;
        let keeper = service.keeper(body).await?;
        // Listen first, then look: nothing falls between.
        let live = keeper.entries();
        let epoch = keeper.epoch();
        let (made, oldest) = keeper
            .read(|state, _| (state.history().made(), state.history().made() - state.history().len() as u64))
            .await?;
        let seen = match body.after.as_deref().filter(|after| !after.is_empty()) {
            None => made,
            Some(after) => match place(after) {
                Some((of, number)) if of == epoch && (oldest..=made).contains(&number) => number,
                Some(_) => return Err(compacted()),
                None => return Err(No::new(Word::InvalidRequest, "That is no id of an event.")),
            },
        };
        Ok(Events { keeper, epoch, seen, live, page: VecDeque::new(), behind: seen < made, caller, agent })
    }

    /// The next entry, if whoever reads still may: the policy may have changed since.
    pub(crate) async fn next_permitted(&mut self, service: &Service) -> Result<Arc<Entry>, No> {
        let entry = self.next().await?;
        service.permit(Operation::Events, &self.caller, self.agent.as_ref(), None)?;
        Ok(entry)
    }

    /// Asked each time: a ledger that was empty gets its name with its first entry.
    pub(crate) fn epoch(&self) -> u64 {
        self.keeper.epoch()
    }

    /// The next entry; an error when it is no longer kept.
    async fn next(&mut self) -> Result<Arc<Entry>, No> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                self.seen = entry.number;
                return Ok(entry);
            }
            if self.behind {
                self.read_page().await?;
                continue;
            }
            let received = self.live.recv().await;
            self.same_past()?;
            match received {
                Ok(entry) if entry.number == self.seen + 1 => {
                    self.seen = entry.number;
                    return Ok(entry);
                }
                Ok(entry) if entry.number <= self.seen => {}
                Ok(_) | Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return Err(No::new(Word::Unavailable, "The service is stopping.")),
            }
        }
    }

    /// In a ledger that was rewritten, numbers mean something else.
    fn same_past(&mut self) -> Result<(), No> {
        let before = std::mem::replace(&mut self.epoch, self.keeper.epoch());
        if before == 0 || before == self.epoch { Ok(()) } else { Err(compacted()) }
    }

    async fn read_page(&mut self) -> Result<(), No> {
        let seen = self.seen;
        let read = self.keeper.read(move |state, _| {
            let history = state.history();
            let page = history.after(seen).map(|entries| entries.take(PAGE).cloned().collect::<VecDeque<_>>());
            (page, history.made())
        });
        let (page, made) = read.await?;
        self.same_past()?;
        self.page = page.map_err(|_| compacted())?;
        self.behind = self.page.back().is_some_and(|last| last.number < made);
        Ok(())
    }
}

fn compacted() -> No {
    No::new(Word::Compacted, "The events behind that id are no longer kept.")
        .hint("read the present state (GET /locks/active), then follow without an id")
}

fn place(id: &str) -> Option<(u64, u64)> {
    let (epoch, number) = id.split_once('-')?;
    Some((u64::from_str_radix(epoch, 16).ok()?, number.parse().ok()?))
}

/// A session whose locks live as long as a connection.
#[derive(Debug)]
pub(crate) struct Attached {
    keeper: Keeper,
    pub(crate) actor: Actor,
    locks: Vec<LockId>,
    used: Vec<LockId>,
    live: Receiver<Arc<Entry>>,
    holder: Option<String>,
}

impl Attached {
    pub(crate) async fn open(service: &Service, body: &AttachRequest, caller: &Caller) -> Result<Attached, No> {
        let actor = door::actor(body, caller)?;
        service.permit(Operation::AttachSession, caller, Some(&actor.agent), None)?;
        let keeper = service.keeper(body).await?;
        let parsed = |ids: &Option<Vec<String>>| {
            let id =
                |id: &String| LockId::parse(id).ok_or_else(|| No::new(Word::InvalidRequest, "That is no lock_id."));
            ids.iter().flatten().map(id).collect::<Result<Vec<_>, _>>()
        };
        let (locks, used) = (parsed(&body.lock_ids)?, parsed(&body.used_ids)?);
        let live = keeper.entries();
        let (locks, used) = held(&keeper, &actor, locks, used).await;
        Ok(Attached { keeper, actor, locks, used, live, holder: body.holder.clone() })
    }

    /// The locks that are bound from the start.
    pub(crate) fn binding(&self, service: &Service) -> Binding {
        let mut binding = Binding::new(self.keeper.clone(), self.actor.clone(), service.users.clone());
        binding.add(&self.locks, &self.used, false);
        binding
    }

    /// Whether a later connection can take the place of this one.
    pub(crate) fn is_named(&self) -> bool {
        self.holder.is_some()
    }

    /// Takes the place of an earlier connection of the same holder, which then ends and releases nothing.
    pub(crate) fn supersede(&self, service: &Service) -> CancellationToken {
        let token = CancellationToken::new();
        if let Some(holder) = &self.holder {
            let name = (self.keeper.space().clone(), self.actor.session.clone(), holder.chars().take(64).collect());
            let mut holders = service.holders.lock().unwrap_or_else(PoisonError::into_inner);
            holders.retain(|_, earlier| !earlier.is_cancelled());
            if let Some(earlier) = holders.insert(name, token.clone()) {
                earlier.cancel();
            }
        }
        token
    }

    /// The next of the session's locks that it holds no more. Released, too: another of its programs may use it.
    pub(crate) async fn next_loss(&mut self) -> Result<lockkeeper_wire::answer::EventView, No> {
        loop {
            match self.live.recv().await {
                Ok(entry) if entry.session == self.actor.session && entry.action.is_end() => {
                    return Ok(view::event(self.keeper.epoch(), &entry));
                }
                // Too far behind to say what was lost: a beat will tell.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(No::new(Word::Unavailable, "The service is stopping.")),
            }
        }
    }
}

/// Those of the session's own locks that are held: whoever names others, or what never was, takes no memory by that. If nobody can
/// look now, as they were named.
async fn held(keeper: &Keeper, actor: &Actor, locks: Vec<LockId>, used: Vec<LockId>) -> (Vec<LockId>, Vec<LockId>) {
    if locks.is_empty() && used.is_empty() {
        return (locks, used);
    }
    let (session, mut looked_at) = (actor.session.clone(), (locks.clone(), used.clone()));
    let look = keeper.read(move |state, _| {
        let own = |id: &LockId| state.lock(*id).is_some_and(|lock| lock.session == session);
        looked_at.0.retain(own);
        looked_at.1.retain(own);
        looked_at
    });
    look.await.unwrap_or((locks, used))
}
