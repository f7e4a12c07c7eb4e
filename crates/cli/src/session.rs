//! `lockkeeper session ...`

use clap::Subcommand;
use lockkeeper_wire::answer::{SessionClosed, SessionList, SessionOpened};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{SessionRequest, StatusRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::lock;
use crate::output::{self, say};

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Open a session, and get back what it lost while it was away.
    Open,
    /// Show sessions, what they hold and what they lost.
    List,
    /// Acquire again what the session lost, as far as it is free.
    Restore,
    /// Release all that the session holds, and forget it.
    Close,
}

impl Session {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Session::Open => opened(context, Operation::OpenSession),
            Session::Restore => opened(context, Operation::RestoreSession),
            Session::Close => close(context),
            Session::List => list(context),
        }
    }
}

fn opened(context: &Context, operation: Operation) -> Result<(), Failure> {
    let answer: SessionOpened = context.ask(operation, SessionRequest::default())?;
    if context.global.json {
        output::json(&answer);
        return Ok(());
    }
    say!("Session {} of {} is open", answer.session_id, answer.owner);
    answer.refreshed.iter().for_each(|kept| say!("  still holds {}", lock::described(kept)));
    answer
        .restored
        .iter()
        .for_each(|back| say!("  got back {}, fencing token {}", lock::described(back), back.fencing_token));
    for skipped in &answer.skipped {
        let target = output::target(&skipped.file_path, skipped.start_line, skipped.end_line);
        say!("  did not get back {target}: {}", skipped.message);
    }
    Ok(())
}

fn close(context: &Context) -> Result<(), Failure> {
    let answer: SessionClosed = context.ask(Operation::CloseSession, SessionRequest::default())?;
    if context.global.json {
        output::json(&answer);
        return Ok(());
    }
    answer.released.iter().for_each(|released| say!("Released {}", lock::described(released)));
    say!("Session {} is closed", answer.session_id);
    Ok(())
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
