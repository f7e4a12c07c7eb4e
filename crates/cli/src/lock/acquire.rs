//! `lockkeeper lock acquire KEY...`

use clap::Args;
use lockkeeper_client::Holding;
use lockkeeper_wire::answer::LockView;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AcquireRequest, ModeWord};
use serde_json::Value;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::{config, lock};

const EXAMPLES: &str = "\
Examples:
  lockkeeper lock acquire src/auth.rs:10-50 -m \"Adding JWT validation\"
  lockkeeper lock acquire src/auth.rs:25-40 --wait 20s      stand in the queue
  lockkeeper lock acquire 'src/api/**' db:schema:users      all or nothing
  lockkeeper lock acquire docs/plan.md --shared --ttl 10m
  lockkeeper lock acquire src/auth.rs --hold                until Ctrl-C";

/// Several keys are granted together or not at all. Asking again for what the session holds renews it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Acquire {
    #[command(flatten)]
    wanting: Wanting,
    /// Keep it alive until this command is interrupted, or its terminal or pipe ends; then release it.
    #[arg(long)]
    hold: bool,
}

/// What is wanted, and how.
#[derive(Debug, Args)]
pub(crate) struct Wanting {
    /// A file, with lines behind a colon (src/auth.rs:10-50), a tree (src/**), or a key (api:GET /v1/users).
    #[arg(value_name = "KEY", required_unless_present = "file_path")]
    pub(crate) keys: Vec<String>,
    /// The same as KEY.
    #[arg(long, value_name = "KEY", hide = true)]
    pub(crate) file_path: Vec<String>,
    /// Why, for others to read.
    #[arg(short = 'm', long, visible_alias = "reason", value_name = "TEXT")]
    pub(crate) intention: Option<String>,
    /// How long it lives without a heartbeat, 1s to 8h.
    #[arg(long, value_name = "TIME", conflicts_with = "ttl_minutes")]
    pub(crate) ttl: Option<String>,
    /// The same in minutes.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) ttl_minutes: Option<u64>,
    /// Stand in the queue for so long if it is taken.
    #[arg(long, value_name = "TIME")]
    pub(crate) wait: Option<String>,
    /// 0 to 10; ten seconds of waiting outweigh one step.
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u64>,
    /// Together with others who only read.
    #[arg(long)]
    pub(crate) shared: bool,
    /// The feature that the work belongs to.
    #[arg(long, value_name = "ID")]
    pub(crate) feature: Option<String>,
}

impl Wanting {
    pub(crate) fn request(&self, context: &Context) -> Result<AcquireRequest, Failure> {
        let specs = self.keys.iter().chain(&self.file_path).map(|key| lock::spec(context, key));
        let mut specs = specs.collect::<Result<Vec<_>, _>>()?;
        let ttl = self.ttl.as_deref().map(config::ttl).transpose()?;
        let wait =
            self.wait.as_deref().map(config::length).transpose().map_err(|error| Failure::usage(error.to_string()))?;
        let default_ttl = match (ttl, self.ttl_minutes) {
            (None, None) => context.config()?.default_ttl().map_err(|error| Failure::usage(format!("{error:#}")))?,
            _ => None,
        };
        let base = AcquireRequest {
            intention: self.intention.clone(),
            ttl_ms: ttl.or(default_ttl).map(|ttl| Whole::from(ttl.0)),
            ttl_minutes: self.ttl_minutes.map(Whole::from),
            wait_ms: wait.map(|wait| Whole::from(wait.0)),
            priority: self.priority.map(Whole::from),
            mode: self.shared.then_some(ModeWord::Shared),
            feature_id: self.feature.clone(),
            ..AcquireRequest::default()
        };
        Ok(match (specs.len(), specs.pop()) {
            (1, Some(spec)) => AcquireRequest {
                file_path: Some(spec.file_path),
                start_line: spec.start_line,
                end_line: spec.end_line,
                ..base
            },
            (_, last) => {
                specs.extend(last);
                AcquireRequest { locks: Some(specs), ..base }
            }
        })
    }

    /// How long an answer may take.
    pub(crate) fn patience(request: &AcquireRequest) -> std::time::Duration {
        let ms = request.wait_ms.map_or(0, |wait| u64::try_from(wait.0).unwrap_or(0));
        std::time::Duration::from_millis(ms)
    }

    /// Tells what was granted.
    fn told(&self, context: &Context, answer: &Value) -> Result<(), Failure> {
        if context.global.json {
            output::json(answer);
            return Ok(());
        }
        let locks: Vec<LockView> = match answer.get("locks") {
            Some(locks) => serde_json::from_value(locks.clone()),
            None => serde_json::from_value(answer.clone()).map(|lock| vec![lock]),
        }
        .map_err(anyhow::Error::from)?;
        // Of a set, some may have been held before.
        let refreshed: Vec<String> = serde_json::from_value(answer["refreshed"].clone()).unwrap_or_default();
        for lock in &locks {
            let had = answer["action"] == "refreshed" || refreshed.contains(&lock.lock_id);
            let verb = if had { "Refreshed" } else { "Acquired" };
            say!(
                "{verb} {} as {} for {}, fencing token {}",
                lock::described(lock),
                lock.owner,
                output::millis(lock.ttl_ms),
                lock.fencing_token
            );
            if self.shared && lock.mode == "exclusive" {
                let id = &lock.lock_id;
                note!(
                    "It stays exclusive, as this session has it. To only read: lockkeeper lock release {id}, and again"
                );
            }
        }
        let paused: Vec<LockView> = serde_json::from_value(answer["paused"].clone()).unwrap_or_default();
        for pause in &paused {
            note!("{}", output::paused(pause));
        }
        Ok(())
    }
}

impl Acquire {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let request = self.wanting.request(context)?;
        let identity = context.identity()?;
        let client = context.client()?;
        if !self.hold {
            let patience = Wanting::patience(&request);
            let _waiting = context.says_it_waits(&client, patience);
            let asked = client.call_within(Operation::Acquire, &identity.sign(request), patience);
            let answer: Value = asked.map_err(|error| Failure::taken(error, &self.wanting.keys))?;
            self.wanting.told(context, &answer)?;
            return Ok(());
        }
        let holding = Holding::start(client.clone(), identity)?;
        let waiting = context.says_it_waits(&client, Wanting::patience(&request));
        let answer = holding.take(request).map_err(|error| Failure::taken(error, &self.wanting.keys))?;
        drop(waiting);
        self.wanting.told(context, &answer)?;
        if !context.global.json {
            let or = if crate::run::watches_input() { " or the end of the input" } else { "" };
            note!("Holding. Ctrl-C{or} releases.");
        }
        match crate::run::until_interrupted_or_lost(&holding)? {
            None => {
                holding.release()?;
                if !context.global.json {
                    note!("Released.");
                }
                Ok(())
            }
            Some(lost) => Err(crate::run::lock_lost(&lost)),
        }
    }
}
