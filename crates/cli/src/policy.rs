//! `lockkeeper policy ...`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lockkeeper_wire::answer::{PolicyReloaded, PolicyVerdict};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{PolicyCheckRequest, StatusRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::{config, lock, who};

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Ask what the policy in force says, and which rule says it.
    Check(Check),
    /// Read the policy anew. A broken one changes nothing.
    Reload,
    /// Look whether a file is a policy.
    Validate(Validate),
}

const EXAMPLES: &str = "\
Examples:
  lockkeeper policy check contract:openapi/v1.yaml --agent ci-bot       exit 0: allowed, exit 6: not
  lockkeeper policy check src/auth.rs --operation force-release --agent intern";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The file or key that is meant; left out: no key.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// acquire, release, check, force-release, ...
    #[arg(long, value_name = "NAME", default_value = "acquire")]
    operation: String,
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Policy {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Policy::Check(check) => check.run(context),
            Policy::Reload => reload(context),
            Policy::Validate(validate) => validate.run(context),
        }
    }
}

impl Check {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let file_path = match &self.key {
            // A policy speaks of whole keys: lines of a file are judged as the file.
            Some(key) => Some(lock::spec(context, key)?.file_path),
            None => None,
        };
        let session = who::session(context.global.session.as_deref()).unwrap_or_default();
        let agent = who::agent(context.global.agent.as_deref(), &session);
        let request = PolicyCheckRequest {
            operation: Some(self.operation),
            file_path,
            agent_id: Some(agent).filter(|agent| !agent.is_empty()),
            ..PolicyCheckRequest::default()
        };
        let verdict: PolicyVerdict = context.look(Operation::CheckPolicy, request)?;
        if context.global.json {
            output::json(&verdict);
        } else {
            let word = if verdict.allowed { "Allowed" } else { "Not permitted" };
            say!("{word}: {} (trust {})", verdict.message, verdict.trust);
        }
        if verdict.allowed { Ok(()) } else { Err(Failure::Silent(6)) }
    }
}

impl Validate {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let policy = config::read_policy(&self.file).map_err(|error| Failure::usage(format!("{error:#}")))?;
        let rules: Vec<&str> = policy.rule_names().collect();
        if context.global.json {
            output::json(&PolicyReloaded { success: true, rules: rules.iter().map(ToString::to_string).collect() });
        } else {
            say!("{} is a policy with {} rules", self.file.display(), rules.len());
        }
        Ok(())
    }
}

fn reload(context: &Context) -> Result<(), Failure> {
    let answer: PolicyReloaded = context.look(Operation::ReloadPolicy, StatusRequest::default())?;
    if context.global.json {
        output::json(&answer);
    } else {
        say!("The policy was read anew; it has {} rules", answer.rules.len());
    }
    Ok(())
}
