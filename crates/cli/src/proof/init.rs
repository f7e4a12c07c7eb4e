//! `lockkeeper proof init DIR --profile doc|af`

use std::path::PathBuf;

use clap::Args;
use lockkeeper_proof::{Options, Profile};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::proof::length;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The folder of the proof; it is made if it is not there.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// doc: the protocol's document; af: what the program af writes and accepts.
    #[arg(long, value_name = "PROFILE")]
    profile: Profile,
    /// How long claims last: 1s to 1h.
    #[arg(long, value_name = "T", default_value = "5m")]
    timeout: String,
    /// Keep a file in locks/ for every claim (doc only).
    #[arg(long)]
    claim_files: bool,
}

impl Init {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        if self.claim_files && self.profile == Profile::Af {
            return Err(Failure::usage("The program af keeps its own files; --claim-files is for the profile doc."));
        }
        let timeout = length(&self.timeout)?;
        let options = Options { profile: Some(self.profile), claim_files: self.claim_files, ..Options::default() };
        let ledger = options.init(&self.dir, Some(timeout))?;
        let (dir, profile) = (self.dir.display().to_string(), ledger.profile());
        let sequence = ledger.sequence()?;
        if context.global.json {
            output::json(&json!({ "success": true, "dir": dir, "profile": profile, "sequence": sequence }));
        } else {
            say!("{} is a proof of the profile {profile}, at sequence {sequence}", output::bold(&dir));
        }
        Ok(())
    }
}
