//! `lockkeeper lock renew [KEY]`

use clap::Args;
use lockkeeper_wire::answer::Changed;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::RenewRequest;
use lockkeeper_wire::word::Word;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::{config, lock};

/// Without a key: all that the session holds.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// A file, a file with lines, a key, or an id such as lock-2757c6049058.
    #[arg(value_name = "KEY|ID")]
    what: Option<String>,
    /// Another time to live from now on.
    #[arg(long, value_name = "TIME")]
    ttl: Option<String>,
    /// Only if the lock still has this fencing token.
    #[arg(long, value_name = "N")]
    token: Option<u64>,
}

impl Renew {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ttl = self.ttl.as_deref().map(config::ttl).transpose()?;
        let base = RenewRequest {
            ttl_ms: ttl.map(|ttl| Whole::from(ttl.0)),
            fencing_token: self.token.map(Whole::from),
            ..RenewRequest::default()
        };
        let request = match &self.what {
            None => base,
            Some(id) if lock::is_lock_id(id) => RenewRequest { lock_id: Some(id.clone()), ..base },
            Some(key) => {
                let spec = lock::spec(context, key)?;
                let (start_line, end_line) = (spec.start_line, spec.end_line);
                RenewRequest { file_path: Some(spec.file_path), start_line, end_line, ..base }
            }
        };
        let answer: Changed = context.ask(Operation::Renew, request)?;
        if context.global.json {
            output::json(&answer);
        } else if answer.locks.is_empty() && answer.lost.is_empty() {
            say!("Nothing to renew");
        } else {
            for renewed in &answer.locks {
                say!("Renewed {} for {}", lock::described(renewed), output::millis(renewed.expires_in_ms));
            }
            for pause in &answer.paused {
                note!("{}", output::paused(pause));
            }
        }
        if answer.lost.is_empty() {
            return Ok(());
        }
        if context.global.json {
            return Err(Failure::Silent(Word::LockLost.exit_code()));
        }
        Err(Failure::Question {
            word: Word::LockLost,
            message: match answer.lost.as_slice() {
                [one] => format!("{one} was lost and is not yours any more."),
                several => format!("{} were lost and are not yours any more.", several.join(", ")),
            },
            hint: Some(
                "lockkeeper session restore asks again for what ran out; lockkeeper lock release --all accepts the loss"
                    .to_owned(),
            ),
        })
    }
}
