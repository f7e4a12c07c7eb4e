//! `lockkeeper feature ...`

use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper_wire::answer::{
    Changed, ClaimView, FeatureChanged, FeatureChecked, FeatureConflicts, FeatureList, Granted,
};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{
    FeatureCheckRequest, FeatureConflictsRequest, FeatureEndRequest, FeaturePauseRequest, FeatureRequest,
    FeatureResumeRequest, StatusRequest,
};
use lockkeeper_wire::word::Word;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::{again, config, lock};

/// How long the service lets a pause wait for those who are finishing, unless it is told.
const PAUSE_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Subcommand)]
pub(crate) enum Feature {
    /// Stop the line: nobody else gets anything new for a feature.
    Pause(Pause),
    /// End a pause.
    Resume(Named),
    /// Ask whether a feature is paused, at the start of work and before its finish.
    Check(Check),
    /// Say which keys a feature will change.
    Register(Register),
    /// Ask how far a feature could go beside those that are registered.
    Conflicts(Conflicts),
    /// Say that a feature has ended.
    Deregister(Deregister),
    /// Show the features that are worked on.
    List,
}

/// Which feature is meant.
#[derive(Debug, Args)]
pub(crate) struct Named {
    #[arg(value_name = "ID")]
    id: String,
}

const PAUSE_EXAMPLES: &str = "\
Examples:
  lockkeeper feature pause FEAT-123 -m \"contract revision\"
  lockkeeper feature resume FEAT-123

Acquisitions with --feature FEAT-123 are refused with `paused` meanwhile. What is held stays held and can be renewed.
Whoever is finishing has up to 30 s; the pause begins after that.";

#[derive(Debug, Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub(crate) struct Pause {
    #[arg(value_name = "ID")]
    id: String,
    /// Why, for those who have to wait.
    #[arg(short = 'm', long, visible_alias = "reason", value_name = "TEXT")]
    intention: String,
    /// How long the pause lives without a heartbeat.
    #[arg(long, value_name = "TIME", default_value = "2h")]
    ttl: String,
    /// How long to wait for those who are just finishing, and for the end of another pause [default: 60s, and not for another pause]
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  lockkeeper feature check FEAT-123                 exit 0: go on, exit 5: paused
  lockkeeper feature check FEAT-123 --wait 10m      waits for the end of the pause
  lockkeeper feature check FEAT-123 --finalize      keeps pauses away for 30 s: finish, then
  lockkeeper lock release feature:FEAT-123:pause";

#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct Check {
    #[arg(value_name = "ID")]
    id: String,
    /// Hold the feature's key for up to 30 s, so that no pause can slip in before the finish.
    #[arg(long)]
    finalize: bool,
    /// Wait for the end of a pause.
    #[arg(long, value_name = "TIME")]
    wait: Option<String>,
}

const REGISTER_EXAMPLES: &str = "\
Examples:
  lockkeeper feature register FEAT-123 'src/api/**' db:schema:users --title \"User API\" --branch feat-123
  lockkeeper feature conflicts FEAT-124 src/api/users.py
  lockkeeper feature deregister FEAT-123";

#[derive(Debug, Args)]
#[command(after_help = REGISTER_EXAMPLES)]
pub(crate) struct Register {
    #[arg(value_name = "ID")]
    id: String,
    /// Files, trees and keys that it will change.
    #[arg(value_name = "KEY")]
    claims: Vec<String>,
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// 1 to 10; the greater is merged first.
    #[arg(long, value_name = "N", default_value_t = 5)]
    merge_priority: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Conflicts {
    #[arg(value_name = "ID")]
    id: String,
    /// Files, trees and keys that it would change.
    #[arg(value_name = "KEY", required = true)]
    claims: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Deregister {
    #[arg(value_name = "ID")]
    id: String,
    /// It was given up, not completed.
    #[arg(long)]
    cancelled: bool,
}

impl Feature {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Feature::Pause(verb) => verb.run(context),
            Feature::Resume(verb) => verb.resume(context),
            Feature::Check(verb) => verb.run(context),
            Feature::Register(verb) => verb.run(context),
            Feature::Conflicts(verb) => verb.run(context),
            Feature::Deregister(verb) => verb.run(context),
            Feature::List => list(context),
        }
    }
}

impl Pause {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let (ttl, wait) = (config::ttl(&self.ttl)?, self.wait.as_deref().map(length).transpose()?);
        let request = FeaturePauseRequest {
            feature_id: Some(self.id.clone()),
            intention: Some(self.intention),
            ttl_ms: Some(Whole::from(ttl.0)),
            wait_ms: wait.map(|wait| Whole::from(wait.0)),
            ..FeaturePauseRequest::default()
        };
        let patience = wait.map_or(PAUSE_PATIENCE, |wait| Duration::from_millis(wait.0));
        let asked = context.ask_within(Operation::PauseFeature, request, patience);
        let answer: Granted =
            asked.map_err(|failure| failure.waited().hinting(Word::Paused, |_| again::waiting("10m")))?;
        if context.global.json {
            output::json(&answer);
            return Ok(());
        }
        let more = output::millis(answer.lock.expires_in_ms);
        say!("Feature {} is paused for {more}; lockkeeper feature resume {} ends it", output::bold(&self.id), self.id);
        Ok(())
    }
}

impl Named {
    fn resume(self, context: &Context) -> Result<(), Failure> {
        let request = FeatureResumeRequest { feature_id: Some(self.id.clone()), ..FeatureResumeRequest::default() };
        let asked = context.ask(Operation::ResumeFeature, request);
        // To acquire the key, as is advised for others, would be one more pause.
        let answer: Changed = asked.map_err(|failure: Failure| {
            failure.hinting(Word::NotOwner, |refused| {
                let owner = refused.conflicts.first().map_or("its holder", |conflict| conflict.owner.as_str());
                let key = again::quoted(&format!("feature:{}:pause", self.id));
                format!("ask {owner} to resume it, or as operator: lockkeeper lock force-release {key} -m WHY")
            })
        })?;
        if context.global.json {
            output::json(&answer);
        } else {
            say!("Feature {} goes on", output::bold(&self.id));
        }
        Ok(())
    }
}

impl Check {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let wait = self.wait.as_deref().map(length).transpose()?;
        let request = FeatureCheckRequest {
            feature_id: Some(self.id),
            finalize: Some(self.finalize),
            wait_ms: wait.map(|wait| Whole::from(wait.0)),
            ..FeatureCheckRequest::default()
        };
        let patience = Duration::from_millis(wait.map_or(0, |wait| wait.0));
        let asked = context.ask_within(Operation::CheckFeature, request, patience);
        // The same command, with a wait: whoever finishes still wants to.
        let answer: FeatureChecked =
            asked.map_err(|failure: Failure| failure.hinting(Word::Paused, |_| again::waiting("10m")))?;
        if context.global.json {
            output::json(&answer);
        } else {
            say!("{}", answer.message);
        }
        Ok(())
    }
}

impl Register {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let request = FeatureRequest {
            feature_id: Some(self.id),
            resource_claims: Some(claims(context, &self.claims)?),
            title: self.title,
            branch_name: self.branch,
            merge_priority: Some(Whole::from(self.merge_priority)),
            ..FeatureRequest::default()
        };
        let answer: FeatureChanged = context.ask(Operation::RegisterFeature, request)?;
        if context.global.json {
            output::json(&answer);
            return Ok(());
        }
        say!(
            "Feature {} is registered with {}",
            output::bold(&answer.feature.feature_id),
            output::counted(answer.feature.resource_claims.len(), "claim")
        );
        feasible(answer.feasibility.as_deref().unwrap_or_default(), &answer.conflicts);
        Ok(())
    }
}

impl Conflicts {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let request = FeatureConflictsRequest {
            candidate_feature_id: Some(self.id),
            candidate_claims: Some(claims(context, &self.claims)?),
            ..FeatureConflictsRequest::default()
        };
        let answer: FeatureConflicts = context.look(Operation::FeatureConflicts, request)?;
        if context.global.json {
            output::json(&answer);
        } else {
            feasible(&answer.feasibility, &answer.conflicts);
        }
        Ok(())
    }
}

impl Deregister {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let status = if self.cancelled { "cancelled" } else { "completed" };
        let request = FeatureEndRequest {
            feature_id: Some(self.id),
            status: Some(status.to_owned()),
            ..FeatureEndRequest::default()
        };
        let answer: FeatureChanged = context.ask(Operation::EndFeature, request)?;
        if context.global.json {
            output::json(&answer);
        } else {
            say!("Feature {} is {}", output::bold(&answer.feature.feature_id), answer.action);
        }
        Ok(())
    }
}

fn list(context: &Context) -> Result<(), Failure> {
    let list: FeatureList = context.look(Operation::Features, StatusRequest::default())?;
    if context.global.json {
        output::json(&list);
        return Ok(());
    }
    if list.features.is_empty() {
        say!("No feature is registered; pauses are locks too: lockkeeper lock list");
        return Ok(());
    }
    output::table(
        ["Feature", "Owner", "Title", "Claims", "Paused by"],
        list.features.into_iter().map(|feature| {
            let paused = feature.paused.map_or_else(String::new, |lock| format!("{}: {}", lock.owner, lock.intention));
            let claims = feature.resource_claims.join(" ");
            [feature.feature_id, feature.owner, feature.title.unwrap_or_default(), claims, paused]
        }),
    );
    Ok(())
}

/// How far a feature can go beside the others, for people.
fn feasible(feasibility: &str, conflicts: &[ClaimView]) {
    let told = match feasibility {
        "FULL" => "shares nothing with the others",
        "PARTIAL" => "shares some of its claims",
        _ => "shares more than half of its claims: better one after the other",
    };
    say!("{feasibility}: it {told}");
    for conflict in conflicts {
        say!("  {} meets {} of {}", conflict.claim, conflict.theirs, conflict.feature_id);
    }
}

fn claims(context: &Context, typed: &[String]) -> Result<Vec<String>, Failure> {
    typed.iter().map(|typed| lock::whole_key(context, typed)).collect()
}

fn length(text: &str) -> Result<lockkeeper_core::time::Millis, Failure> {
    config::length(text).map_err(|error| Failure::usage(error.to_string()))
}
