//! `lockkeeper proof watch DIR`

use std::time::Duration;

use clap::Args;
use lockkeeper_proof::Sequence;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::{Where, event_body};

/// How often is looked whether anybody still reads.
const READER_LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    place: Where,
    /// From behind this number on [default: from now on]
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// End after so many events.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl Watch {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let mut at = self.after.map_or_else(|| ledger.sequence(), |after| Ok(Sequence(after)))?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 && !output::is_over() {
            if ledger.wait_beyond(at, READER_LOOK)? <= at {
                continue;
            }
            for event in ledger.events_after(at) {
                let event = event?;
                if context.global.json {
                    output::json(&event_body(&event));
                } else {
                    say!("{:>6}  {}", event.sequence, event.json.trim_end());
                }
                at = event.sequence;
                left -= 1;
                if left == 0 || output::is_over() {
                    break;
                }
            }
        }
        Ok(())
    }
}
