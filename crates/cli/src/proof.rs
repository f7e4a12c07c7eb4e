//! `lockkeeper proof ...`: the ledgers of proofs on disk. No service is asked; the folder is all there is.

mod append;
mod claim;
mod claims;
mod init;
mod log;
mod outside;
mod reap;
mod recover;
mod release;
mod status;
mod verify;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper_proof::{Claim, Error, Event, Ledger, Options, Profile};
use lockkeeper_wire::word::Word;
use serde_json::{Value, json};

use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;

pub(crate) use outside::Outside;

const EXAMPLES: &str = "\
Examples:
  lockkeeper proof init proofs/sqrt2 --profile doc
  lockkeeper proof append proofs/sqrt2 --json-event '{\"type\":\"note\",\"text\":\"began\"}'
  lockkeeper proof claim proofs/sqrt2 1.2 --owner prover-1 --timeout 5m
  lockkeeper proof claims proofs/sqrt2
  lockkeeper proof release proofs/sqrt2 1.2 --owner prover-1

A proof is a folder with a ledger of events, one file each, that several programs write by one protocol. Its profile is seen
from its files: doc is the protocol's document, af is what the program af writes and accepts.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Proof {
    /// Make an empty proof.
    Init(init::Init),
    /// Append an event, if the ledger is where you saw it.
    Append(append::Append),
    /// Claim a node to work on it.
    Claim(claim::ClaimNode),
    /// Make a claim last longer.
    Refresh(claim::Refresh),
    /// Give a claim back.
    Release(release::Release),
    /// End the claims that are expired.
    Reap(reap::Reap),
    /// Show the profile, the last number, and who holds the ledger's lock.
    Status(Where),
    /// Show the last events.
    Log(log::Log),
    /// Show who holds which node.
    Claims(claims::ListClaims),
    /// Look for gaps, duplicates and what can't be, and say what it means. Changes nothing.
    Verify(Where),
    /// Remove the ledger's lock if its holder is dead, and what crashed writers left.
    Recover(recover::Recover),
    /// Follow events as they are appended.
    Watch(watch::Watch),
}

/// Which proof, and how long to wait for its lock.
#[derive(Clone, Debug, Args)]
pub(crate) struct Where {
    /// The folder of the proof.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// doc or af, where the files do not say it.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// How long to wait for the ledger's lock.
    #[arg(long, value_name = "T", default_value = "5s")]
    lock_timeout: String,
}

impl Proof {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Proof::Init(verb) => verb.run(context),
            Proof::Append(verb) => verb.run(context),
            Proof::Claim(verb) => verb.run(context),
            Proof::Refresh(verb) => verb.run(context),
            Proof::Release(verb) => verb.run(context),
            Proof::Reap(verb) => verb.run(context),
            Proof::Status(place) => status::run(context, &place),
            Proof::Log(verb) => verb.run(context),
            Proof::Claims(verb) => verb.run(context),
            Proof::Verify(place) => verify::run(context, &place),
            Proof::Recover(verb) => verb.run(context),
            Proof::Watch(verb) => verb.run(context),
        }
    }
}

impl Where {
    fn options(&self) -> Result<Options, Failure> {
        let lock_timeout = length(&self.lock_timeout)?;
        // Files of claims are kept where somebody wants them: where their folder is.
        let claim_files = self.dir.join("locks").symlink_metadata().is_ok_and(|there| there.is_dir());
        Ok(Options { profile: self.profile, lock_timeout, claim_files, ..Options::default() })
    }

    fn open(&self) -> Result<Ledger, Failure> {
        Ok(self.options()?.open(&self.dir)?)
    }
}

fn length(text: &str) -> Result<Duration, Failure> {
    let millis = config::length(text).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Duration::from_millis(millis.0))
}

/// A claim, as programs read it.
fn claim_body(claim: &Claim, now: jiff::Timestamp) -> Value {
    json!({
        "node_id": claim.node,
        "owner": claim.owner,
        "acquired_at": claim.acquired_at.map(|at| at.to_string()),
        "expires_at": claim.expires_at.to_string(),
        "expires_in_ms": u64::try_from(claim.expires_at.duration_since(now).as_millis()).unwrap_or(0),
        "expired": !claim.is_active(now),
        "sequence": claim.sequence,
    })
}

fn event_body(event: &Event) -> Value {
    let body: Value = serde_json::from_str(&event.json).unwrap_or_else(|_| Value::from(event.json.as_str()));
    json!({ "sequence": event.sequence, "event": body })
}

/// How long a claim has still to go, for people.
fn remaining(claim: &Claim, now: jiff::Timestamp) -> String {
    match u64::try_from(claim.expires_at.duration_since(now).as_millis()) {
        Ok(ms) if ms > 0 => output::rounded(ms).to_string(),
        _ => "expired".to_owned(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        if let Some(sequence) = error.sequence() {
            let (message, hint) = (format!("{error}."), error.hint().map(str::to_owned));
            return Failure::Written { sequence: sequence.0, message, hint };
        }
        let word = match &error {
            Error::SequenceMismatch { .. } | Error::RetriesExceeded { .. } => Word::SequenceMismatch,
            Error::LockTimeout { .. } | Error::NodeLocked(..) | Error::LockLost => Word::Busy,
            Error::NotOwner { .. } => Word::NotOwner,
            Error::NotClaimed(_) | Error::UnknownNode(_) | Error::NotAProof(_) => Word::NotFound,
            Error::ClaimExpired { .. } => Word::LockLost,
            Error::InvalidNode { .. } => Word::InvalidKey,
            Error::InvalidTimeout(_) => Word::InvalidTtl,
            Error::TooMany { .. } => Word::LimitExceeded,
            Error::InvalidOwner { .. }
            | Error::InvalidEvent(_)
            | Error::Invalid(_)
            | Error::ProfileUnknown(_)
            | Error::ProfileMismatch { .. }
            | Error::ProfileMixed(_) => Word::InvalidRequest,
            // Of the machine, and not of the question.
            _ => return Failure::Other(told(error)),
        };
        Failure::Question { word, message: format!("{error}."), hint: error.hint().map(str::to_owned) }
    }
}

fn told(error: Error) -> anyhow::Error {
    match error.hint() {
        Some(hint) => anyhow::anyhow!("{error}\nHint: {hint}"),
        // Its text has its cause already.
        None => anyhow::anyhow!("{error}"),
    }
}
