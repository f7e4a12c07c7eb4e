//! `lockkeeper proof release DIR NODE --owner OWNER`

use clap::Args;
use lockkeeper_proof::{NodeId, Owner};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::proof::Where;

#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    place: Where,
    /// The node, such as 1.2.3.
    #[arg(value_name = "NODE")]
    node: String,
    /// Who holds it; nobody else can give it back.
    #[arg(long, value_name = "OWNER")]
    owner: String,
}

impl Release {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let (node, owner) = (NodeId::parse(&self.node, ledger.profile())?, Owner::parse(&self.owner)?);
        let released = ledger.release(&node, &owner)?;
        let (sequence, expired) = (released.sequence, released.expired);
        if context.global.json {
            output::json(&json!({
                "success": true, "action": "released", "node_id": node, "owner": owner,
                "sequence": sequence, "expired": expired,
            }));
            return Ok(());
        }
        say!("{} is released by {owner}", output::bold(node.as_str()));
        if expired {
            note!("It had expired at {}: others may have taken it for free.", released.claim.expires_at);
        }
        Ok(())
    }
}
