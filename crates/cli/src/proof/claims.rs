//! `lockkeeper proof claims DIR`

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::{Where, claim_body, remaining};

#[derive(Debug, Args)]
pub(crate) struct ListClaims {
    #[command(flatten)]
    place: Where,
    /// Also those that are expired and keep nobody out any more.
    #[arg(long)]
    all: bool,
}

impl ListClaims {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let (claims, now) = (ledger.claims()?, ledger.now());
        let shown = if self.all { claims.all() } else { claims.taken(now) };
        if context.global.json {
            let bodies: Vec<_> = shown.iter().map(|claim| claim_body(claim, now)).collect();
            output::json(&json!({ "success": true, "sequence": claims.at(), "claims": bodies, "total": shown.len() }));
        } else if shown.is_empty() {
            say!("Nothing is claimed.");
        } else {
            output::table(
                ["Node", "Owner", "For", "Until", "Event"],
                shown.iter().map(|claim| {
                    let until = output::moment(&claim.expires_at.to_string());
                    let (node, owner) = (claim.node.to_string(), claim.owner.to_string());
                    [node, owner, remaining(claim, now), until, claim.sequence.to_string()]
                }),
            );
        }
        Ok(())
    }
}
