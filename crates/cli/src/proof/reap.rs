//! `lockkeeper proof reap DIR [--dry-run]`

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::{Where, claim_body};

#[derive(Debug, Args)]
pub(crate) struct Reap {
    #[command(flatten)]
    place: Where,
    /// Only say what would be ended.
    #[arg(long)]
    dry_run: bool,
}

impl Reap {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let reaped = if self.dry_run { ledger.reapable()? } else { ledger.reap()? };
        if context.global.json {
            let claims: Vec<_> = reaped.claims.iter().map(|claim| claim_body(claim, ledger.now())).collect();
            output::json(&json!({
                "success": reaped.stopped.is_none(), "dry_run": self.dry_run, "claims": claims, "events": reaped.events,
                "files": reaped.files, "stopped": reaped.stopped,
            }));
            return if reaped.stopped.is_some() { Err(Failure::Silent(1)) } else { Ok(()) };
        }
        let verb = if self.dry_run { "would be reaped" } else { "is reaped" };
        for claim in &reaped.claims {
            say!("{} of {} {verb}, expired at {}", claim.node, claim.owner, claim.expires_at);
        }
        for file in &reaped.files {
            say!("locks/{file} {}", if self.dry_run { "would be removed" } else { "is removed" });
        }
        if let Some(why) = reaped.stopped {
            return Err(Failure::Other(anyhow::anyhow!("the rest was not reaped: {why}")));
        }
        if reaped.claims.is_empty() && reaped.files.is_empty() {
            say!("Nothing is expired.");
        }
        Ok(())
    }
}
