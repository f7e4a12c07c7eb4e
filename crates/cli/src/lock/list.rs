//! `lockkeeper lock list [KEY]`

use clap::Args;
use lockkeeper_wire::answer::LockList;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::ListRequest;

use crate::context::Context;
use crate::failure::Failure;
use crate::lock;
use crate::output::{self, note, say};

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only what overlaps this file, tree or key.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// Also mode, session, fencing token and expiry.
    #[arg(short, long)]
    verbose: bool,
    /// How many rows at most.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl List {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let file_path = self.key.as_deref().map(|key| lock::spec(context, key)).transpose()?.map(|spec| spec.file_path);
        let limit = self.limit.map(Whole::from);
        let request = ListRequest { file_path, limit, waiting: Some(true), ..ListRequest::default() };
        let list: LockList = context.look(Operation::Active, request)?;
        if context.global.json {
            output::json(&list);
            return Ok(());
        }
        if list.locks.is_empty() && !list.outside.locks.is_empty() {
            say!("Nothing of ours is locked.");
        } else if list.locks.is_empty() {
            say!("{}", if self.key.is_some() { "Nothing of that is locked." } else { "Nothing is locked." });
        } else if self.verbose {
            output::table(
                ["ID", "File", "Lines", "Intention", "Owner", "Session", "Mode", "Token", "Expires in"],
                list.locks.iter().map(|listed| {
                    let lock = &listed.lock;
                    [
                        lock.lock_id.clone(),
                        lock.file_path.to_string(),
                        output::lines(lock.start_line, lock.end_line),
                        lock.intention.to_string(),
                        lock.owner.to_string(),
                        lock.session_id.to_string(),
                        lock.mode.to_string(),
                        lock.fencing_token.to_string(),
                        output::millis(lock.expires_in_ms),
                    ]
                }),
            );
        } else {
            output::table(
                ["ID", "File", "Lines", "Intention", "Owner"],
                list.locks.iter().map(|listed| {
                    let lock = &listed.lock;
                    let lines = output::lines(lock.start_line, lock.end_line);
                    [
                        lock.lock_id.clone(),
                        lock.file_path.to_string(),
                        lines,
                        lock.intention.to_string(),
                        lock.owner.to_string(),
                    ]
                }),
            );
        }
        if list.total > list.locks.len() {
            note!("{} of {} shown; --limit N shows more.", list.locks.len(), list.total);
        }
        for held in &list.outside.locks {
            let more = output::millis(held.expires_in_ms);
            say!("Elsewhere, read-only: {} is held by {} for {more}", held.key, held.owner);
        }
        list.outside.problems.iter().for_each(|problem| note!("{problem}"));
        for waiter in &list.waiting {
            say!("Waiting: {} for {} until {}", waiter.owner, waiter.wants.join(", "), output::moment(&waiter.until));
        }
        Ok(())
    }
}
