//! `lockkeeper lock check KEY...`

use clap::Args;
use lockkeeper_wire::answer::Checked;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{Asker, CheckRequest, ModeWord};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::{lock, who};

const EXAMPLES: &str = "\
Examples:
  lockkeeper lock check src/auth.rs:10-50                 exit 0: free or yours, exit 5: taken
  lockkeeper lock check src/auth.rs --token 1700000000    exit 4: that token does not count any more";

/// Changes nothing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
    /// Is the lock with this fencing token still held?
    #[arg(long, value_name = "N")]
    token: Option<u64>,
    /// As somebody who would only read.
    #[arg(long)]
    shared: bool,
}

impl Check {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let specs = self.keys.iter().map(|key| lock::spec(context, key)).collect::<Result<Vec<_>, _>>()?;
        let mut request = CheckRequest {
            locks: Some(specs),
            fencing_token: self.token.map(Whole::from),
            mode: self.shared.then_some(ModeWord::Shared),
            ..CheckRequest::default()
        };
        // Without a session everything belongs to others; that is an answer too.
        *request.who_mut().session_id = who::session(context.global.session.as_deref()).ok();
        let checked: Checked = context.look(Operation::Check, request)?;
        if context.global.json {
            output::json(&checked);
        } else {
            say!("{}", checked.message);
            for more in checked.conflicts.iter().skip(1) {
                say!("{}", more.message);
            }
        }
        if checked.free { Ok(()) } else { Err(Failure::Silent(5)) }
    }
}
