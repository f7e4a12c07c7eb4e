//! `lockkeeper lock force-release KEY -m WHY`

use clap::Args;
use lockkeeper_wire::answer::Changed;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::ForceReleaseRequest;

use crate::context::Context;
use crate::failure::Failure;
use crate::lock;
use crate::output::{self, say};

const EXAMPLES: &str = "\
Examples:
  lockkeeper lock force-release src/auth.rs -m crashed          every lock on the file, your own too
  lockkeeper lock force-release src/auth.rs:10-50 -m crashed    only the lock on just these lines
  lockkeeper lock force-release lock-2757c6049058 -m crashed    only this lock

Holders are told, and the history says who did it and why.";

/// Its holder is told, and the history says who did it and why.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ForceRelease {
    /// A file, a file with lines, a key, or an id such as lock-2757c6049058.
    #[arg(value_name = "KEY|ID")]
    what: String,
    /// Why, for its holder to read.
    #[arg(short = 'm', long, visible_alias = "intention", value_name = "TEXT")]
    reason: String,
}

impl ForceRelease {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let reason = Some(self.reason);
        let request = if lock::is_lock_id(&self.what) {
            ForceReleaseRequest { lock_id: Some(self.what), reason, ..ForceReleaseRequest::default() }
        } else {
            let spec = lock::spec(context, &self.what)?;
            let (start_line, end_line) = (spec.start_line, spec.end_line);
            ForceReleaseRequest {
                file_path: Some(spec.file_path),
                start_line,
                end_line,
                reason,
                ..ForceReleaseRequest::default()
            }
        };
        let answer: Changed = context.ask(Operation::ForceRelease, request)?;
        if context.global.json {
            output::json(&answer);
        } else {
            answer.locks.iter().for_each(|taken| say!("Took {} away from {}", lock::described(taken), taken.owner));
        }
        Ok(())
    }
}
