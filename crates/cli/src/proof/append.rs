//! `lockkeeper proof append DIR --json-event JSON`

use clap::Args;
use lockkeeper_proof::{NewEvent, Sequence};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::Where;

const EXAMPLES: &str = "\
Examples:
  lockkeeper proof append DIR --json-event '{\"type\":\"note\",\"text\":\"began\"}'
  lockkeeper proof append DIR --json-event \"$EVENT\" --expect 41     only if 41 is the last number; else exit 5";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Append {
    #[command(flatten)]
    place: Where,
    /// The event: a JSON object with a type.
    #[arg(long, value_name = "JSON")]
    json_event: String,
    /// Only if this is the last number.
    #[arg(long, value_name = "SEQ")]
    expect: Option<u64>,
}

impl Append {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let event = NewEvent::parse(&self.json_event, ledger.profile())?;
        let sequence = match self.expect {
            Some(expected) => ledger.append_if_sequence(&event, Sequence(expected))?,
            None => ledger.append(&event)?,
        };
        if context.global.json {
            output::json(&json!({ "success": true, "sequence": sequence }));
        } else {
            say!("Appended event {sequence}");
        }
        Ok(())
    }
}
