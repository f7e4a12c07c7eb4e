//! Giving back, and taking away. Both need somebody who may.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Deciding, Refused};
use crate::command::{Actor, Request, Which};
use crate::event::Event;
use crate::history::Entry;
use crate::key::{Key, Target};
use crate::limits::HISTORY_LOOKS_MAX;
use crate::lock::{Lock, LockId, Token};
use crate::mode::Mode;
use crate::outcome::{Answer, NotFound, Outcome, Refusal};
use crate::planted::{self, Bug};
use crate::session::{AgentName, Intention, SessionId};
use crate::span::Span;
use crate::state::State;

impl Deciding<'_> {
    pub(super) fn release(
        &mut self,
        actor: &Actor,
        which: &Which,
        token: Option<Token>,
        request: Option<&Request>,
    ) -> Result<Outcome, Refused> {
        let session = &actor.session;
        self.own_session(actor)?;
        if let Some(replayed) = self.answered_before(session, request)? {
            return Ok(replayed);
        }
        let locks = match self.state.chosen(session, which, token) {
            Ok(locks) => locks,
            Err(refusal) => {
                if let Refusal::LockLost { targets } = &*refusal {
                    self.accept_loss(session, targets.clone(), request);
                }
                return Err(refusal);
            }
        };
        if *which == Which::Everything && token.is_none() {
            // Whoever gives everything back wants nothing of it restored, and need not be told of it any more.
            let targets: Vec<Target> = self.state.lost_of(session).map(|(target, _)| target.clone()).collect();
            if !targets.is_empty() {
                self.record(Event::LossAccepted { session: session.clone(), targets });
            }
        }
        if !locks.is_empty() || request.is_some() {
            let ids = locks.iter().map(|lock| lock.id).collect();
            self.record(Event::Released { session: session.clone(), locks: ids, request: request.cloned() });
            if !planted::is(Bug::HandOverForgotten) {
                self.hand_over(locks.iter().map(|lock| lock.target.clone()).collect());
            }
        }
        Ok(Outcome::Told(Answer::Released { locks }))
    }

    /// Told once, and again to the same request; whoever gives a lost lock back does not want it restored.
    fn accept_loss(&mut self, session: &SessionId, targets: Vec<Target>, request: Option<&Request>) {
        let session = session.clone();
        match request.filter(|_| self.state.session(&session).is_some()) {
            Some(request) => self.record(Event::LossTold { session, targets, request: request.clone() }),
            None if targets.is_empty() => {}
            None => self.record(Event::LossAccepted { session, targets }),
        }
    }

    /// What nobody will use; the request that got it is forgotten, too, and can be made anew.
    pub(super) fn give_back(&mut self, session: &SessionId, locks: &[LockId], even_if_heard: bool) -> Outcome {
        // Whoever renewed it since may have been told of it: a heartbeat names all that is held.
        let unknown = |lock: &Lock| even_if_heard || lock.expires == lock.acquired.plus(lock.ttl);
        let meant = |lock: &&Arc<Lock>| lock.session == *session && unknown(lock);
        let own = |id: &LockId| self.state.lock(*id).filter(meant).cloned();
        let locks: Vec<Arc<Lock>> = locks.iter().filter_map(own).collect();
        if !locks.is_empty() {
            let ids = locks.iter().map(|lock| lock.id).collect();
            self.record(Event::GivenBack { session: session.clone(), locks: ids });
            self.hand_over(locks.iter().map(|lock| lock.target.clone()).collect());
        }
        Outcome::Told(Answer::Released { locks })
    }

    pub(super) fn force_release(
        &mut self,
        by: &AgentName,
        reason: &Intention,
        which: &Which,
        request: Option<&Request>,
    ) -> Result<Outcome, Refused> {
        let operator = SessionId::operator();
        if let Some(replayed) = self.answered_before(&operator, request)? {
            return Ok(replayed);
        }
        let locks = match which {
            Which::Id(id) => self.state.lock(*id).cloned().into_iter().collect(),
            Which::Key(key, span) => self.state.on_key(key, *span, usize::MAX),
            Which::Everything => Vec::new(),
        };
        if locks.is_empty() {
            return Err(not_found(&operator, which));
        }
        // What others have taken elsewhere can't be taken from them here: it would be seen again at once.
        if let Some(theirs) = locks.iter().find(|lock| lock.session.is_external()) {
            return Err(Box::new(Refusal::NotOwner { lock: theirs.clone() }));
        }
        let ids = locks.iter().map(|lock| lock.id).collect();
        let request = request.map(|request| (operator, request.clone()));
        self.record(Event::Forced { locks: ids, by: by.clone(), reason: reason.clone(), request });
        self.hand_over(locks.iter().map(|lock| lock.target.clone()).collect());
        Ok(Outcome::Told(Answer::ForceReleased { locks }))
    }
}

fn not_found(session: &SessionId, which: &Which) -> Refused {
    let what = match which {
        Which::Id(id) => NotFound::Lock(*id),
        Which::Key(key, span) => NotFound::Key(key.clone(), *span),
        Which::Everything => NotFound::Session(session.clone()),
    };
    Box::new(Refusal::NotFound { what })
}

impl State {
    /// The session's own locks that are meant, or why there are none.
    pub(super) fn chosen(
        &self,
        session: &SessionId,
        which: &Which,
        token: Option<Token>,
    ) -> Result<Vec<Arc<Lock>>, Refused> {
        let locks = match which {
            Which::Everything => {
                let own = self.locks_of(session).filter_map(|id| self.lock(id).cloned());
                let unchecked = planted::is(Bug::StaleTokenTaken) || planted::is(Bug::StaleTokenReleasesAll);
                let Some(token) = token.filter(|_| !unchecked) else {
                    return Ok(own.collect());
                };
                // What came with that token, and nothing that another process of the session has got since.
                let own: Vec<_> = own.filter(|lock| lock.token == token).collect();
                if own.is_empty() {
                    return Err(Box::new(Refusal::LockLost { targets: Vec::new() }));
                }
                return Ok(own);
            }
            Which::Id(id) => self.lock(*id).cloned().into_iter().collect(),
            Which::Key(key, span) => {
                let meant = |lock: &&Arc<Lock>| span.is_none_or(|span| lock.target.span == span);
                let own: Vec<_> = self.own_on_key(session, key).filter(meant).cloned().collect();
                if own.is_empty() { self.on_key(key, *span, 1) } else { own }
            }
        };
        let Some(first) = locks.first() else {
            let lost = self.lost_among(session, which, token);
            return if lost.is_empty() {
                Err(not_found(session, which))
            } else {
                Err(Box::new(Refusal::LockLost { targets: lost }))
            };
        };
        if first.session != *session && !planted::is(Bug::OwnerUnchecked) {
            let lost = self.lost_among(session, which, token);
            return if lost.is_empty() {
                Err(Box::new(Refusal::NotOwner { lock: first.clone() }))
            } else {
                Err(Box::new(Refusal::LockLost { targets: lost }))
            };
        }
        let Some(token) = token.filter(|_| !planted::is(Bug::StaleTokenTaken)) else { return Ok(locks) };
        let (meant, others): (Vec<_>, Vec<_>) = locks.into_iter().partition(|lock| lock.token == token);
        if meant.is_empty() {
            let targets = others.iter().map(|lock| lock.target.clone()).collect();
            return Err(Box::new(Refusal::LockLost { targets }));
        }
        Ok(meant)
    }

    /// Whoever's locks on exactly this key, of all spans or the one named.
    fn on_key(&self, key: &Key, span: Option<Span>, most: usize) -> Vec<Arc<Lock>> {
        let mut found = Vec::new();
        let target = Target { key: key.clone(), span: span.unwrap_or(Span::WHOLE) };
        self.all_overlapping(&target, |lock| {
            if lock.target.key == *key && span.is_none_or(|span| lock.target.span == span) {
                found.push(lock.clone());
            }
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found
    }

    fn lost_among(&self, session: &SessionId, which: &Which, token: Option<Token>) -> Vec<Target> {
        let all = self.lost_of(session).map(|(target, _)| target.clone());
        match which {
            Which::Id(id) => self.lost_lock(session, *id, token).into_iter().collect(),
            Which::Key(key, span) => {
                let meant = |target: &Target| target.key == *key && span.is_none_or(|span| span == target.span);
                all.filter(meant).collect()
            }
            Which::Everything => all.collect(),
        }
    }

    /// What a lock was on that the session lost: also if it has got the same again since, under another id. After a rewritten past
    /// an id may name another lock, but not with the same token.
    fn lost_lock(&self, session: &SessionId, id: LockId, token: Option<Token>) -> Option<Target> {
        let known = self.lost_of(session).find(|(_, loss)| loss.lock == id).map(|(target, _)| target.clone());
        known.or_else(|| {
            let same = |entry: &&Arc<Entry>| entry.lock == Some(id) && (token.is_none() || entry.token == token);
            let last = self.history().newest().take(HISTORY_LOOKS_MAX).find(same)?;
            (last.session == *session && last.action.is_loss()).then(|| last.target.clone())
        })
    }

    /// Every lock that overlaps, whoever has it and in whatever mode.
    pub fn all_overlapping(&self, target: &Target, mut visit: impl FnMut(&Arc<Lock>) -> ControlFlow<()>) {
        let nobody = SessionId::nobody();
        let _ = self.held_against(&nobody, target, Mode::Exclusive, |lock| visit(lock));
    }
}
