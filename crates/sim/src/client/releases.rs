//! How a client gives back, and how an operator takes away: sometimes under an id, and then asked again.

use lockkeeper_core::command::{Command, Which};
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::session::{AgentName, Intention, SessionId};

use super::renewals::STALE;
use super::{Client, Heard};
use crate::auditor::Ended;
use crate::ends::Ends;
use crate::wishes::{drawn_target, shown};

/// A release, or a forced one, and what it got.
#[derive(Clone)]
pub(super) struct Release {
    command: Command,
    ends: Ends,
    /// Who gives back; nobody: an operator takes away.
    session: Option<SessionId>,
    first_sent: u64,
    /// What it was told first, and when. Only what is remembered for its id.
    told: Option<(u64, Ended)>,
}

impl Release {
    fn is_named(&self) -> bool {
        match &self.command {
            Command::Release { request, .. } | Command::ForceRelease { request, .. } => request.is_some(),
            other => unreachable!("no release: {other:?}"),
        }
    }
}

impl Client {
    pub(super) async fn release(&self) {
        let actor = self.actor();
        let session = actor.session.clone();
        let (which, ends, token) = match (self.draw(12), self.some_held()) {
            (0, _) => {
                let asked_for = self.mind().asked_for.clone();
                if asked_for.is_empty() {
                    return;
                }
                // Perhaps it lost that.
                let key = asked_for[self.draw(asked_for.len() as u64) as usize].key.clone();
                (Which::Key(key.clone(), None), Ends::Key(Some(session.clone()), key), None)
            }
            (_, None) => return,
            (1, Some(_)) => return self.release_stale().await,
            (2, Some((lock, _))) => (Which::Everything, Ends::Lock(lock.id), Some(lock.token)),
            (3..5, Some(_)) => (Which::Everything, Ends::Session(session.clone()), None),
            (5..7, Some((lock, _))) => {
                let key = lock.target.key.clone();
                (Which::Key(key.clone(), None), Ends::Key(Some(session.clone()), key), None)
            }
            (_, Some((lock, _))) => (Which::Id(lock.id), Ends::Lock(lock.id), Some(lock.token)),
        };
        self.mind().held.retain(|_, (lock, _)| !ends.ends(lock));
        let request = (self.draw(2) == 0).then(|| self.new_request());
        let command = Command::Release { actor, which, token, request };
        self.end(command, ends, Some(session)).await;
    }

    /// Gives back all that came with a token that is none of its own: that is nothing.
    async fn release_stale(&self) {
        let (actor, request) = (self.actor(), (self.draw(2) == 0).then(|| self.new_request()));
        let session = actor.session.clone();
        let command = Command::Release { actor, which: Which::Everything, token: Some(STALE), request };
        if let Heard::Told(answer) = self.call(command, 0).await {
            self.audit().stale_answered(&session, &answer);
        }
    }

    pub(super) async fn force(&self) {
        let key = drawn_target(&mut self.world.air.rng(), &self.world.air.weather).key;
        let (by, reason) = (AgentName::parse("operator").expect("a name"), Intention::default());
        let request = (self.draw(2) == 0).then(|| self.new_request());
        let command = Command::ForceRelease { by, reason, which: Which::Key(key.clone(), None), request };
        self.end(command, Ends::Key(None, key), None).await;
    }

    /// Asks for the end of locks. Under an id it asks again when nothing comes back, and now and then although something came.
    async fn end(&self, command: Command, ends: Ends, session: Option<SessionId>) {
        let mut release = Release { command, ends, session, first_sent: self.now(), told: None };
        let life = self.mind().session.clone();
        for _ in 0..3 {
            let answered = self.send_release(&mut release).await;
            if !release.is_named() || self.mind().session != life || (answered && self.draw(3) > 0) {
                break;
            }
        }
        if release.told.is_some() && release.is_named() && self.mind().session == life {
            self.mind().releases.push(release);
        }
    }

    /// Asks once more for an end that was told long ago: it is told again, and nothing ends by it.
    pub(super) async fn release_again(&self) {
        let releases = self.mind().releases.clone();
        if releases.is_empty() {
            return;
        }
        let mut release = releases[self.draw(releases.len() as u64) as usize].clone();
        let (now, Some((told, _))) = (self.now(), &release.told) else { return };
        if self.audit().surely_remembers(now, release.session.as_ref(), release.first_sent, *told) {
            self.send_release(&mut release).await;
        }
    }

    /// `true`: there was an answer.
    async fn send_release(&self, release: &mut Release) -> bool {
        let sent = self.now();
        // What was told already is not done again.
        let asked = release.told.is_none().then(|| self.audit().end_asked(sent, release.ends.clone()));
        let heard = self.call(release.command.clone(), 0).await;
        let now = self.now();
        let told = match heard {
            Heard::Told(Answer::Released { locks } | Answer::ForceReleased { locks }) => {
                self.audit().note(now, self.number, locks.len(), || format!("released {}", shown(&locks)));
                if let Some(session) = &release.session {
                    self.audit().released(now, session, &locks);
                }
                Some(Ended::Locks(locks.iter().map(|lock| lock.id).collect()))
            }
            Heard::Told(Answer::Refused(Refusal::LockLost { targets })) => {
                self.audit().note(now, self.number, targets.len(), || format!("had lost {targets:?}"));
                Some(Ended::Lost(targets))
            }
            Heard::Told(other) => {
                self.audit().note(now, self.number, "unreleased", || "released nothing".to_owned());
                Some(Ended::Otherwise(format!("{other:?}")))
            }
            Heard::Nothing => None,
            Heard::Unknown => {
                self.audit().note(now, self.number, "perhaps", || "released perhaps".to_owned());
                return false;
            }
        };
        if let Some(asked) = asked {
            self.audit().end_answered(now, asked);
        }
        match (&release.told, told) {
            (_, None) | (None, Some(Ended::Otherwise(_))) => {}
            (None, Some(told)) => release.told = Some((now, told)),
            (Some((at, first)), Some(again)) if release.is_named() => {
                self.audit().ended_again(release.session.as_ref(), (release.first_sent, *at), first, &again);
            }
            (Some(_), Some(_)) => {}
        }
        true
    }
}
