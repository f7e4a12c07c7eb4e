//! What the rules tell, in the words of the wire. Times become wall-clock times here and nowhere else.

use lockkeeper_core::history::Entry;
use lockkeeper_core::key::Target;
use lockkeeper_core::lock::Lock;
use lockkeeper_core::outcome::{Blocker, Conflict, CycleStep, Room};
use lockkeeper_core::span::Span;
use lockkeeper_core::state::{Session, State};
use lockkeeper_core::time::{Stamp, Time};
use lockkeeper_core::waiter::Waiter;
use lockkeeper_keeper::wall::wall_time;
use lockkeeper_wire::answer::{
    ConflictView, CycleView, EventView, LinesView, LockView, RoomView, SessionView, WaiterView,
};

/// Turns points of the engine's time into what people read, seen from now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Viewer {
    pub(crate) now: Stamp,
}

/// The lines of a span as the wire has them: none for a whole file.
pub(crate) fn lines(span: Span) -> (Option<u32>, Option<u32>) {
    if span.is_whole() { (None, None) } else { (Some(span.start()), span.last()) }
}

pub(crate) fn lines_view(span: Span) -> LinesView {
    LinesView { start_line: span.start(), end_line: span.last() }
}

impl Viewer {
    pub(crate) fn time(self, time: Time) -> String {
        wall_time(self.wall(time))
    }

    /// In microseconds of the Unix epoch.
    pub(crate) fn wall(self, time: Time) -> u64 {
        if time >= self.now.time {
            self.now.wall.saturating_add(time.0 - self.now.time.0)
        } else {
            self.now.wall.saturating_sub(self.now.time.0 - time.0)
        }
    }

    pub(crate) fn lock(self, lock: &Lock) -> LockView {
        let (start_line, end_line) = lines(lock.target.span);
        LockView {
            lock_id: lock.id.to_string(),
            file_path: lock.target.key.shared_text(),
            start_line,
            end_line,
            mode: lock.mode.word().into(),
            intention: lock.intention.shared_text(),
            owner: lock.agent.shared_text(),
            session_id: lock.session.shared_text(),
            feature_id: lock.feature.clone(),
            fencing_token: lock.token.0,
            created_at: self.time(lock.acquired),
            expires_at: self.time(lock.expires),
            ttl_ms: lock.ttl.0,
            expires_in_ms: lock.expires.since(self.now.time).0,
        }
    }

    pub(crate) fn locks<'a>(self, locks: impl IntoIterator<Item = &'a std::sync::Arc<Lock>>) -> Vec<LockView> {
        locks.into_iter().map(|lock| self.lock(lock)).collect()
    }

    pub(crate) fn conflict(self, conflict: &Conflict) -> ConflictView {
        let wanted = &conflict.wanted;
        let base = |kind: &str, target: &Target, created: Time| {
            let (start_line, end_line) = lines(target.span);
            let overlap = target.span.intersection(wanted.span).filter(|span| !span.is_whole()).map(lines_view);
            ConflictView {
                kind: kind.to_owned(),
                lock_id: None,
                file_path: target.key.to_string(),
                start_line,
                end_line,
                overlap,
                mode: "exclusive".to_owned(),
                owner: conflict.with.agent().to_string(),
                session_id: conflict.with.session().to_string(),
                intention: String::new(),
                created_at: self.time(created),
                expires_at: None,
                expires_in_ms: None,
                wanted: wanted.to_string(),
                message: crate::refusal::conflict_sentence(conflict, self),
            }
        };
        match &conflict.with {
            Blocker::Held(lock) => ConflictView {
                lock_id: Some(lock.id.to_string()),
                mode: lock.mode.to_string(),
                intention: lock.intention.to_string(),
                expires_at: Some(self.time(lock.expires)),
                expires_in_ms: Some(lock.expires.since(self.now.time).0),
                ..base("held", &lock.target, lock.acquired)
            },
            Blocker::Waiting { waiter, target } => {
                ConflictView { intention: waiter.asked.intention.to_string(), ..base("waiting", target, waiter.queued) }
            }
            Blocker::Room(room) => {
                let target = Target { key: room.key.clone(), span: Span::WHOLE };
                ConflictView {
                    intention: "a person is editing".to_owned(),
                    expires_at: Some(self.time(room.until)),
                    expires_in_ms: Some(room.until.since(self.now.time).0),
                    ..base("room", &target, room.opened)
                }
            }
        }
    }

    pub(crate) fn waiter(self, waiter: &Waiter) -> WaiterView {
        WaiterView {
            wants: waiter.asked.wants.iter().map(|want| want.target.to_string()).collect(),
            owner: waiter.asked.agent.to_string(),
            session_id: waiter.asked.session.to_string(),
            intention: waiter.asked.intention.to_string(),
            priority: waiter.asked.priority,
            queued_at: self.time(waiter.queued),
            until: self.time(waiter.deadline()),
        }
    }

    pub(crate) fn room(self, room: &Room) -> RoomView {
        RoomView {
            room_id: Room::id(&room.key),
            file_path: room.key.to_string(),
            owner: room.agent.to_string(),
            session_id: room.session.to_string(),
            opened_at: self.time(room.opened),
            until: self.time(room.until),
            busy_for_ms: room.until.since(self.now.time).0,
        }
    }

    pub(crate) fn session(self, state: &State, session: &Session) -> SessionView {
        let held = state.locks_of(&session.id).filter_map(|id| state.lock(id));
        SessionView {
            session_id: session.id.to_string(),
            owner: session.agent.to_string(),
            agent_type: session.agent_type.as_ref().map(ToString::to_string),
            alive: session.is_alive(self.now.time),
            opened_at: self.time(session.opened),
            seen_at: self.time(session.seen),
            holds: held.take(100).map(|lock| lock.target.to_string()).collect(),
            lost: state.lost_of(&session.id).take(100).map(|(target, _)| target.to_string()).collect(),
        }
    }
}

/// Who waits for whom, as a circle.
pub(crate) fn cycle(steps: &[CycleStep]) -> Vec<CycleView> {
    let next = |n: usize| {
        let (step, next) = (&steps[n], &steps[(n + 1) % steps.len()]);
        // Of a long circle some are left out, and with them their agents.
        if next.session == step.blocker { next.agent.to_string() } else { step.blocker.to_string() }
    };
    let step = |(n, step): (usize, &CycleStep)| CycleView {
        session_id: step.session.to_string(),
        owner: step.agent.to_string(),
        wants: step.wanted.to_string(),
        held_by: next(n),
    };
    steps.iter().enumerate().map(step).collect()
}

/// The id of an entry in the stream of its ledger.
pub(crate) fn event_id(epoch: u64, number: u64) -> String {
    format!("{epoch:x}-{number}")
}

pub(crate) fn event(epoch: u64, entry: &Entry) -> EventView {
    let (start_line, end_line) = lines(entry.target.span);
    EventView {
        id: event_id(epoch, entry.number),
        time: wall_time(entry.wall),
        action: entry.action.word().to_owned(),
        state: entry.action.state().to_owned(),
        file_path: entry.target.key.to_string(),
        start_line,
        end_line,
        mode: entry.mode.to_string(),
        owner: entry.agent.to_string(),
        session_id: entry.session.to_string(),
        intention: entry.intention.to_string(),
        lock_id: entry.lock.map(|id| id.to_string()),
        fencing_token: entry.token.map(|token| token.0),
        note: entry.note.as_ref().map(ToString::to_string),
    }
}
