//! `lockkeeper room ...`

mod folders;
mod releases;
mod watch;

use clap::{Args, Subcommand};
use lockkeeper_core::time::Millis;
use lockkeeper_wire::answer::{RoomChanged, RoomList};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{RoomRequest, StatusRequest};
use lockkeeper_wire::word::Word;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::{again, config, lock};

#[derive(Debug, Subcommand)]
pub(crate) enum Room {
    /// Say that you are editing a file: agents keep out.
    Open(Open),
    /// Say that you are done.
    Close(Close),
    /// Show which files are being edited.
    List,
    /// See which files people change, and keep agents out of them for a moment.
    Watch(watch::Watch),
}

#[derive(Debug, Args)]
pub(crate) struct Open {
    #[arg(value_name = "FILE")]
    file: String,
    /// How long agents keep out.
    #[arg(long = "for", value_name = "TIME", default_value = "30m")]
    busy: String,
}

#[derive(Debug, Args)]
pub(crate) struct Close {
    #[arg(value_name = "FILE")]
    file: String,
}

impl Room {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Room::Open(open) => open.run(context),
            Room::Close(close) => close.run(context),
            Room::List => list(context),
            Room::Watch(watch) => watch.run(context),
        }
    }
}

impl Open {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let busy = config::length(&self.busy).map_err(|error| Failure::usage(error.to_string()))?;
        let file_path = Some(lock::whole_key(context, &self.file)?);
        let request = RoomRequest { file_path, busy_ms: Some(Whole::from(busy.0)), ..RoomRequest::default() };
        let answer: RoomChanged = context.ask(Operation::OpenRoom, request)?;
        if context.global.json {
            output::json(&answer);
            return Ok(());
        }
        let own = context.identity()?.session;
        let others = answer.room.as_ref().filter(|room| room.session_id != own);
        match others {
            None => told_own(&answer, &self.file, busy),
            Some(room) => {
                let (file, left) = (output::bold(&answer.file_path), output::millis(room.busy_for_ms));
                say!(
                    "{} is in the room of {file} already: agents keep out for {left}, or until {0} closes it",
                    room.owner
                );
            }
        }
        for lock in &answer.present {
            let target = output::target(&lock.file_path, lock.start_line, lock.end_line);
            let why = if lock.intention.is_empty() { String::new() } else { format!(": {}", lock.intention) };
            say!("  {} holds {target} for {} more{why}", lock.owner, output::millis(lock.expires_in_ms));
        }
        Ok(())
    }
}

/// A room that is open for longer already stays open for longer.
fn told_own(answer: &RoomChanged, typed: &str, asked: Millis) {
    let left = answer.room.as_ref().map_or(asked.0, |room| room.busy_for_ms);
    let before = if left > asked.0 {
        format!(", as it was opened before; lockkeeper room close {} ends it", again::quoted(typed))
    } else {
        String::new()
    };
    say!("Agents keep out of {} for {}{before}", output::bold(&answer.file_path), output::rounded(left));
}

impl Close {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let file_path = Some(lock::whole_key(context, &self.file)?);
        let asked = context.ask(Operation::CloseRoom, RoomRequest { file_path, ..RoomRequest::default() });
        let answer: RoomChanged = asked.map_err(|failure: Failure| {
            failure.hinting(Word::NotOwner, |refused| match refused.conflicts.first() {
                // From another terminal, a person is another session.
                Some(room) => format!(
                    "if that is you: lockkeeper --session {} room close {}",
                    again::quoted(&room.session_id),
                    again::quoted(&self.file)
                ),
                None => "lockkeeper room list".to_owned(),
            })
        })?;
        if context.global.json {
            output::json(&answer);
        } else {
            say!("Agents may work on {} again", output::bold(&answer.file_path));
        }
        Ok(())
    }
}

fn list(context: &Context) -> Result<(), Failure> {
    let list: RoomList = context.look(Operation::Rooms, StatusRequest::default())?;
    if context.global.json {
        output::json(&list);
        return Ok(());
    }
    if list.rooms.is_empty() {
        say!("Nobody is editing.");
        return Ok(());
    }
    output::table(
        ["File", "Owner", "Since", "Busy for"],
        list.rooms.into_iter().map(|room| {
            [room.file_path, room.owner, output::moment(&room.opened_at), output::millis(room.busy_for_ms)]
        }),
    );
    Ok(())
}
