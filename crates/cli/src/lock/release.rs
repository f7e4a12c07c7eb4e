//! `lockkeeper lock release KEY...`

use clap::Args;
use lockkeeper_wire::answer::Changed;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::ReleaseRequest;

use crate::context::Context;
use crate::failure::Failure;
use crate::lock;
use crate::output::{self, say};

/// A file releases all of the session's lines in it; a file with lines, those.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// A file, a file with lines, a key, or an id such as lock-2757c6049058.
    #[arg(value_name = "KEY|ID", required_unless_present_any = ["all", "file_path"])]
    what: Vec<String>,
    /// The same as KEY.
    #[arg(long, value_name = "KEY", hide = true)]
    file_path: Vec<String>,
    /// All that the session holds.
    #[arg(long, conflicts_with = "what")]
    all: bool,
    /// Only if the lock still has this fencing token.
    #[arg(long, value_name = "N")]
    token: Option<u64>,
}

impl Release {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let token = self.token.map(Whole::from);
        let mut requests = Vec::new();
        if self.all {
            requests.push(ReleaseRequest { all: Some(true), fencing_token: token, ..ReleaseRequest::default() });
        }
        for what in self.what.iter().chain(&self.file_path) {
            requests.push(if lock::is_lock_id(what) {
                ReleaseRequest { lock_id: Some(what.clone()), fencing_token: token, ..ReleaseRequest::default() }
            } else {
                let spec = lock::spec(context, what)?;
                ReleaseRequest {
                    file_path: Some(spec.file_path),
                    start_line: spec.start_line,
                    end_line: spec.end_line,
                    fencing_token: token,
                    ..ReleaseRequest::default()
                }
            });
        }
        let (client, identity) = (context.client()?, context.identity()?);
        let mut failed: Option<Failure> = None;
        for request in requests {
            let answer: Changed = match client.call(Operation::Release, &identity.sign(request)) {
                Ok(answer) => answer,
                // The others are released all the same.
                Err(error) => {
                    let failure = Failure::from(error);
                    let code = failure.exit_code();
                    let _ = failure.report(context);
                    failed = Some(failed.unwrap_or(Failure::Silent(code)));
                    continue;
                }
            };
            if context.global.json {
                output::json(&answer);
            } else if answer.locks.is_empty() {
                say!("Nothing to release");
            } else {
                answer.locks.iter().for_each(|released| say!("Released {}", lock::described(released)));
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
