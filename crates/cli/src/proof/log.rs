//! `lockkeeper proof log DIR`

use clap::Args;
use lockkeeper_proof::{Event, Sequence};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::proof::{Where, event_body};

/// Events that one call shows at most.
const SHOWN_MAX: u64 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Log {
    #[command(flatten)]
    place: Where,
    /// Only events behind this number; without it the last ones are shown.
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=SHOWN_MAX))]
    limit: u64,
}

impl Log {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let sequence = ledger.sequence()?;
        let after = Sequence(self.after.unwrap_or_else(|| sequence.0.saturating_sub(self.limit)));
        let events = ledger.events_after(after).take(self.limit as usize);
        let events = events.collect::<lockkeeper_proof::Result<Vec<Event>>>()?;
        if context.global.json {
            let events: Vec<_> = events.iter().map(event_body).collect();
            output::json(&json!({ "success": true, "sequence": sequence, "events": events }));
            return Ok(());
        }
        for event in &events {
            say!("{:>6}  {}", event.sequence, event.json.trim_end());
        }
        let shown = events.last().map_or(after, |event| event.sequence);
        if events.is_empty() {
            say!("No events.");
        } else if shown < sequence {
            note!("Shown up to {shown} of {sequence}; --after {shown} goes on.");
        }
        Ok(())
    }
}
