//! What is asked again gets the same answer, and what is lost is told by name.

use std::sync::Arc;

use lockkeeper_core::key::Target;
use lockkeeper_core::lock::{Lock, LockId, Token};
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::session::SessionId;

use super::{Ask, Auditor};
use crate::ends::{EndAsked, Ends};

/// What somebody who asked for an end was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Not with their tokens: a lock that was granted in the batch of its release is told with that of the proposed stamp.
    Locks(Vec<LockId>),
    /// They were lost before.
    Lost(Vec<Target>),
    /// Something that is not remembered.
    Otherwise(String),
}

impl Auditor {
    /// Another body was granted something under an id that was answered when it was first sent.
    pub(crate) fn mismatched(&mut self, session: &SessionId, sent: u64, how: impl FnOnce() -> String) {
        if self.keeps_everything() && !self.may_be_closed(session, sent) {
            self.breaks("P7", how);
        }
    }

    /// The same request, first sent then, was answered twice.
    pub(crate) fn answered_again(
        &mut self,
        session: &SessionId,
        sent: u64,
        first: &[(LockId, Token)],
        again: &[(LockId, Token)],
    ) {
        let closed = self.may_be_closed(session, sent);
        if first != again && !closed && self.keeps_everything() {
            self.breaks("P7", || format!("one request, two answers: {first:?} and {again:?}"));
        }
    }

    /// With a session goes what it asked. Its end may come late, by a server that stood still meanwhile.
    fn may_be_closed(&self, session: &SessionId, sent: u64) -> bool {
        let closes = |end: &EndAsked| matches!(&end.ends, Ends::Closed(closed) if closed == session);
        self.ends.iter().any(|end| closes(end) && end.until >= sent)
    }

    /// A release is told before it is durable: the power may take it, and with it what was told.
    fn may_be_forgotten(&self, session: Option<&SessionId>, sent: u64, told: u64) -> bool {
        let closed = session.is_some_and(|session| self.may_be_closed(session, sent));
        closed || self.power_lost.iter().any(|lost| sent <= *lost && *lost <= told + self.unsynced)
    }

    /// Whether the answer to a release is remembered, whatever comes.
    pub(crate) fn surely_remembers(&self, now: u64, session: Option<&SessionId>, sent: u64, told: u64) -> bool {
        self.keeps_everything() && told + self.unsynced < now && !self.may_be_forgotten(session, sent, told)
    }

    /// The same release, first sent and first told then, was answered twice.
    pub(crate) fn ended_again(
        &mut self,
        session: Option<&SessionId>,
        (sent, told): (u64, u64),
        first: &Ended,
        again: &Ended,
    ) {
        if first != again && self.keeps_everything() && !self.may_be_forgotten(session, sent, told) {
            self.breaks("P7", || format!("one release, two answers: {first:?} and {again:?}"));
        }
    }

    /// Somebody meant all that came with a token that nobody has: it is told that this is lost, and nothing else.
    pub(crate) fn stale_answered(&mut self, session: &SessionId, answer: &Answer) {
        if !matches!(answer, Answer::Refused(Refusal::LockLost { .. })) {
            self.breaks("P5", || format!("{session} came with a stale token and was told {answer:?}"));
        }
    }

    /// Who renews all it has is told by name what it has no longer, unless its end was asked for.
    pub(crate) fn names_lost(&mut self, session: &SessionId, id: LockId, held: &[Arc<Lock>], lost: &[Target]) {
        let gone = self.known.values().find(|known| known.lock.id == id && known.lock.session == *session);
        let Some(gone) = gone.filter(|known| known.end_asked.is_none() && !known.lock.is_finish()) else { return };
        let (target, token) = (gone.lock.target.clone(), gone.lock.token);
        let told = lost.contains(&target) || held.iter().any(|lock| lock.target == target);
        // Who took it again meanwhile lost nothing that it has to hear of.
        let later = |lock: &Lock| lock.session == *session && lock.target == target && lock.token > token;
        let open = |ask: &Ask| ask.session == *session && !ask.granted && ask.refused.is_none();
        let taken = self.known.values().any(|known| later(&known.lock))
            || self.asks.iter().any(|ask| open(ask) && ask.wants.iter().any(|want| want.target == target));
        if !told && !taken && self.keeps_everything() {
            self.breaks("P6", || format!("{session} lost {target:?}, and was told of {lost:?}"));
        }
    }
}
