//! `lockkeeper proof claim DIR NODE` and `lockkeeper proof refresh DIR NODE`

use std::time::Duration;

use clap::Args;
use lockkeeper_proof::{Claim, Ledger, NodeId, Owner};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::{Where, claim_body, length, remaining};

#[derive(Debug, Args)]
pub(crate) struct ClaimNode {
    #[command(flatten)]
    wanted: Wanted,
}

#[derive(Debug, Args)]
pub(crate) struct Refresh {
    #[command(flatten)]
    wanted: Wanted,
}

#[derive(Debug, Args)]
struct Wanted {
    #[command(flatten)]
    place: Where,
    /// The node, such as 1.2.3.
    #[arg(value_name = "NODE")]
    node: String,
    /// Who holds it.
    #[arg(long, value_name = "OWNER")]
    owner: String,
    /// How long: 1s to 1h [default: lock_timeout of meta.json, else 5m]
    #[arg(long, value_name = "T")]
    timeout: Option<String>,
}

impl ClaimNode {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        self.wanted.ask(context, "claimed", Ledger::claim)
    }
}

impl Refresh {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        self.wanted.ask(context, "refreshed", Ledger::refresh)
    }
}

impl Wanted {
    fn ask(
        &self,
        context: &Context,
        action: &str,
        ask: impl FnOnce(&Ledger, &NodeId, &Owner, Option<Duration>) -> lockkeeper_proof::Result<Claim>,
    ) -> Result<(), Failure> {
        let ledger = self.place.open()?;
        let (node, owner) = (NodeId::parse(&self.node, ledger.profile())?, Owner::parse(&self.owner)?);
        let timeout = self.timeout.as_deref().map(length).transpose()?;
        let claim = ask(&ledger, &node, &owner, timeout)?;
        let now = ledger.now();
        if context.global.json {
            let mut body = claim_body(&claim, now);
            body["success"] = true.into();
            body["action"] = action.into();
            output::json(&json!(body));
        } else {
            let node = output::bold(claim.node.as_str());
            say!("{node} is {action} by {owner} for {} (until {})", remaining(&claim, now), claim.expires_at);
        }
        Ok(())
    }
}
