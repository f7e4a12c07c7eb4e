//! Heartbeats in the loop: gathered, written down together, and answered with what is held from then on.

use lockkeeper_core::command::Command;
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::planted::{self, Bug};
use lockkeeper_core::session::SessionId;
use lockkeeper_core::time::Time;
use tokio::time::Instant;

use super::Running;
use crate::desk::{Asked, Ticket, Told};
use crate::keeper::Beat;

impl Running {
    pub(super) fn gather(&mut self, beat: Beat) {
        let Beat { actor, ticket, reply } = beat;
        match self.desk.state().own_session(&actor) {
            Err(refusal) => {
                let _ = reply.send(Ok(Answer::Refused(refusal)));
            }
            Ok(()) => {
                self.replies.insert(ticket, reply);
                self.beats.gather(actor.session, ticket);
            }
        }
    }

    pub(super) fn add_beats(&mut self, now: Time, asked: &mut Vec<Asked>) -> Vec<(SessionId, Ticket)> {
        let waiting: Vec<_> = self.desk.waiting().collect();
        // After a while in which nothing could be written down, the next batch says first who is alive.
        let now = now.max(self.desk.state().stamp().time);
        let mut silent = if waiting.is_empty() { Vec::new() } else { self.desk.state().silent_waiters(now) };
        silent.retain(|id| waiting.binary_search(id).is_ok());
        let due = self.beats.due(Instant::now(), &waiting);
        if due.is_none() && silent.is_empty() {
            return Vec::new();
        }
        let due = due.unwrap_or_default();
        let mut sessions: Vec<SessionId> = due.beaten.iter().map(|(session, _)| session.clone()).collect();
        sessions.sort_unstable();
        sessions.dedup();
        let waiters = if due.waiters { waiting } else { silent };
        if planted::is(Bug::BeatUnrecorded) {
            sessions.clear();
        }
        // First of all: what time does with the others comes with whatever is decided next.
        asked.insert(0, Asked { ticket: None, command: Command::Beat { sessions, waiters } });
        due.beaten
    }

    /// Everybody who beat is told what is held from now on.
    pub(super) fn tell_beaten(&mut self, beaten: Vec<(SessionId, Ticket)>) {
        let after = self.desk.position().revision;
        let failure = self.beat_failure.take();
        let mut told = Vec::with_capacity(beaten.len());
        if failure.is_some() {
            self.beats.failed(Instant::now());
        }
        for (session, ticket) in beaten {
            if let Some(failure) = &failure {
                if let Some(reply) = self.replies.remove(&ticket) {
                    let _ = reply.send(Err(failure.clone()));
                }
                continue;
            }
            let state = self.desk.state();
            let locks: Vec<_> = state.locks_of(&session).filter_map(|id| state.lock(id).cloned()).collect();
            let named = !planted::is(Bug::LossUnnamed);
            let lost = state.lost_of(&session).filter(|_| named).map(|(target, _)| target.clone()).collect();
            let paused = state.pauses_of(&locks);
            told.push(Told { ticket, answer: Answer::Renewed { locks, lost, paused }, after, alone: false });
        }
        self.tell(told);
    }
}
