//! `lockkeeper proof recover DIR`

use std::time::Duration;

use clap::Args;
use lockkeeper_proof::Recovery;
use lockkeeper_proof::limits::STALE_AGE_DEFAULT;
use lockkeeper_wire::word::Word;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::{Where, length};

const EXAMPLES: &str = "\
Examples:
  lockkeeper proof recover DIR                    removes the lock of a process that is proved dead
  lockkeeper proof recover DIR --holder-is-dead   also one that proves nothing and is older than 30 s

A lock whose holder lives is never removed.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Recover {
    #[command(flatten)]
    place: Where,
    /// Say that the holder of a lock that proves nothing is dead. If it is not, events may be lost.
    #[arg(long)]
    holder_is_dead: bool,
    /// How old such a lock has to be.
    #[arg(long, value_name = "T", requires = "holder_is_dead")]
    older_than: Option<String>,
}

impl Recover {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let age = self.older_than.as_deref().map(length).transpose()?.unwrap_or(STALE_AGE_DEFAULT);
        let called_dead: Option<Duration> = self.holder_is_dead.then_some(age);
        let recovery = ledger.recover(called_dead)?;
        let leftovers = ledger.remove_leftovers()?;
        if context.global.json {
            let kept = matches!(recovery, Recovery::Kept { .. });
            output::json(&json!({ "success": !kept, "lock": recovery, "leftovers": leftovers }));
            return if kept { Err(Failure::Silent(Word::Busy.exit_code())) } else { Ok(()) };
        }
        for name in &leftovers {
            say!("Removed ledger/{name}");
        }
        match recovery {
            Recovery::Free => say!("There is no lock."),
            Recovery::Removed { was } => say!("Removed the lock: {}", was.describe()),
            Recovery::Kept { is, why } => {
                let hint = "lockkeeper proof recover DIR --holder-is-dead, if you know that it is";
                let lives = why == "its holder lives";
                return Err(Failure::Question {
                    word: Word::Busy,
                    message: format!("The lock was left alone, because {why}: {}.", is.describe()),
                    hint: (!self.holder_is_dead && !lives).then(|| hint.to_owned()),
                });
            }
        }
        Ok(())
    }
}
