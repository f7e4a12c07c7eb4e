//! Rooms: a person is never refused, but agents keep out while one is in.

use std::ops::ControlFlow;

use super::acquire::exceeded;
use super::{Deciding, Refused};
use crate::command::Actor;
use crate::event::Event;
use crate::key::{Key, Target};
use crate::limits::{CONFLICTS_SHOWN_MAX, ROOMS_MAX};
use crate::outcome::{Answer, Limit, NotFound, Outcome, Refusal};
use crate::span::Span;
use crate::time::Millis;

impl Deciding<'_> {
    pub(super) fn open_room(&mut self, actor: &Actor, key: &Key, busy: Millis) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        if self.state.room(key).is_none() && self.state.rooms().count() >= ROOMS_MAX {
            return Err(exceeded(Limit::Rooms));
        }
        let mut present = Vec::new();
        self.state.all_overlapping(&whole(key), |lock| {
            if lock.session != actor.session {
                present.push(lock.clone());
            }
            if present.len() < CONFLICTS_SHOWN_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let (session, agent) = (actor.session.clone(), actor.agent.clone());
        self.record(Event::RoomOpened { key: key.clone(), session, agent, busy });
        Ok(Outcome::RoomOpened { key: key.clone(), present })
    }

    pub(super) fn close_room(&mut self, actor: &Actor, key: &Key) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        match self.state.room(key) {
            None => return Err(Box::new(Refusal::NotFound { what: NotFound::Room(key.clone()) })),
            // An agent must not show a person out.
            Some(room) if room.session != actor.session => {
                return Err(Box::new(Refusal::NotInRoom { room: room.clone() }));
            }
            Some(_) => {}
        }
        self.leave_rooms(std::slice::from_ref(key), Some(actor));
        Ok(Outcome::Told(Answer::RoomClosed { key: key.clone() }))
    }

    /// All of them are left before anybody is looked for who may come in.
    pub(super) fn leave_rooms(&mut self, keys: &[Key], by: Option<&Actor>) {
        for key in keys {
            self.record(Event::RoomClosed { key: key.clone(), by: by.map(|actor| actor.session.clone()) });
        }
        self.hand_over(keys.iter().map(whole).collect());
    }
}

fn whole(key: &Key) -> Target {
    Target { key: key.clone(), span: Span::WHOLE }
}
