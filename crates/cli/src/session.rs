//! `lockkeeper session ...`

use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper_core::limits::{LOST_PER_SESSION_MAX, WAITERS_PER_SESSION_MAX};
use lockkeeper_core::time::Millis;
use lockkeeper_wire::answer::{RoomList, SessionClosed, SessionList, SessionOpened};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{RestoreRequest, SessionRequest, StatusRequest};

use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::lock;
use crate::output::{self, note, say};

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Open a session, and get back what it lost while it was away.
    Open(Back),
    /// Show sessions, what they hold and what they lost.
    List,
    /// Acquire again what the session lost, as far as it is free.
    Restore(Back),
    /// Release all that the session holds, and forget it.
    Close,
}

#[derive(Debug, Args)]
pub(crate) struct Back {
    /// Stand in the queue for so long, for each lock that another holds now.
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
}

impl Session {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Session::Open(back) => back.run(context, Operation::OpenSession),
            Session::Restore(back) => back.run(context, Operation::RestoreSession),
            Session::Close => close(context),
            Session::List => list(context),
        }
    }
}

impl Back {
    fn run(self, context: &Context, operation: Operation) -> Result<(), Failure> {
        let wait = self.wait.as_deref().map_or(Ok(Millis(0)), config::length);
        let wait = wait.map_err(|error| Failure::usage(error.to_string()))?;
        let request = RestoreRequest { wait_ms: Some(Whole::from(wait.0)), ..RestoreRequest::default() };
        // Only so many are waited for at once; the others begin their time when these are done with theirs.
        let rounds = LOST_PER_SESSION_MAX.div_ceil(WAITERS_PER_SESSION_MAX) as u32;
        opened(context, &context.ask_in_rounds(operation, request, Duration::from_millis(wait.0), rounds)?);
        Ok(())
    }
}

fn opened(context: &Context, answer: &SessionOpened) {
    if context.global.json {
        output::json(answer);
        return;
    }
    say!("Session {} of {} is open", answer.session_id, answer.owner);
    answer.refreshed.iter().for_each(|kept| say!("  still holds {}", lock::described(kept)));
    answer
        .restored
        .iter()
        .for_each(|back| say!("  got back {}, fencing token {}", lock::described(back), back.fencing_token));
    for pause in &answer.paused {
        note!("{}", output::paused(pause));
    }
    for skipped in &answer.skipped {
        let target = output::target(&skipped.file_path, skipped.start_line, skipped.end_line);
        say!("  did not get back {target}: {}", skipped.message);
    }
}

fn close(context: &Context) -> Result<(), Failure> {
    let close = || context.ask(Operation::CloseSession, SessionRequest::default());
    if context.global.json {
        output::json(&close()?);
        return Ok(());
    }
    // What is closed is forgotten.
    let before = all(context);
    let answer: SessionClosed = close()?;
    let id = &answer.session_id;
    if answer.released.is_empty() && before.is_some_and(|before| !before.contains(id)) {
        note!(
            "There was no session {id}, or it was closed before: lockkeeper session list shows those that there are."
        );
    }
    answer.released.iter().for_each(|released| say!("Released {}", lock::described(released)));
    say!("Session {} is closed", answer.session_id);
    Ok(())
}

/// All sessions that there are, and those that only a room is left of, if that can be known: a list tells no more than so many,
/// and not to everybody.
fn all(context: &Context) -> Option<Vec<String>> {
    let SessionList { sessions, total } = context.look(Operation::Sessions, StatusRequest::default()).ok()?;
    let rooms: RoomList = context.look(Operation::Rooms, StatusRequest::default()).ok()?;
    let is_whole = sessions.len() == total && rooms.rooms.len() == rooms.total;
    let sessions = sessions.into_iter().map(|session| session.session_id);
    is_whole.then(|| sessions.chain(rooms.rooms.into_iter().map(|room| room.session_id)).collect())
}

fn list(context: &Context) -> Result<(), Failure> {
    let list: SessionList = context.look(Operation::Sessions, StatusRequest::default())?;
    if context.global.json {
        output::json(&list);
        return Ok(());
    }
    if list.sessions.is_empty() {
        say!("There is no session.");
        return Ok(());
    }
    output::table(
        ["Session", "Owner", "Alive", "Seen", "Holds", "Lost"],
        list.sessions.into_iter().map(|session| {
            let alive = if session.alive { "yes" } else { "no" };
            [
                session.session_id,
                session.owner,
                alive.to_owned(),
                output::moment(&session.seen_at),
                session.holds.join(" "),
                session.lost.join(" "),
            ]
        }),
    );
    Ok(())
}
