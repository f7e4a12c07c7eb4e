//! How a client closes its session, or opens it again to get back what it lost.

use lockkeeper_core::command::{Command, Want};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::Answer;

use super::{Client, Heard};
use crate::ends::Ends;
use crate::wishes::shown;

impl Client {
    pub(super) async fn close_or_open(&self) {
        let actor = self.actor();
        let (sent, session) = (self.now(), actor.session.clone());
        if self.draw(2) == 0 {
            let asked = self.audit().end_asked(sent, Ends::Closed(session.clone()));
            self.audit().forget_quota(&session);
            self.audit().ports_end_asked(&session);
            self.mind().held.clear();
            self.mind().requests.clear();
            self.mind().releases.clear();
            if let Heard::Told(Answer::Closed { released, .. }) = self.call(Command::CloseSession { actor }, 0).await {
                let now = self.now();
                self.audit().note(now, self.number, released.len(), || format!("closed: {}", shown(&released)));
                self.audit().released(now, &session, &released);
                self.audit().end_answered(now, asked);
            } else {
                self.audit().may_be_closed_yet(&session);
            }
            return;
        }
        // What was lost may be given back, all of it.
        let asked_for = self.mind().asked_for.clone();
        let wants: Vec<Want> = asked_for.into_iter().map(|target| Want { target, mode: Mode::Exclusive }).collect();
        let ask = self.audit().asks(sent, &session, &wants);
        if let Heard::Told(Answer::Opened { restored, refreshed, .. }) =
            self.call(Command::OpenSession { actor }, 0).await
        {
            let now = self.now();
            self.audit().note(now, self.number, restored.len(), || format!("restored {}", shown(&restored)));
            self.audit().restored(now, ask, &restored);
            for lock in &restored {
                self.believe(sent, lock);
            }
            for lock in &refreshed {
                self.audit().knows(now, sent, lock);
            }
        }
    }
}
