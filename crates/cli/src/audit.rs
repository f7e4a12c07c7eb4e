//! `lockkeeper audit`

use clap::Args;
use lockkeeper_wire::answer::AuditList;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::AuditRequest;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};

/// Requests and refusals, newest first. With --json one object a line, as in the file.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// How many rows.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    limit: u64,
    /// Only this outcome, such as busy or ok.
    #[arg(long, value_name = "WORD")]
    outcome: Option<String>,
}

impl Audit {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let limit = Some(Whole::from(self.limit));
        let audit: AuditList = context
            .look(Operation::Audit, AuditRequest { outcome: self.outcome.clone(), limit, ..AuditRequest::default() })?;
        if context.global.json {
            audit.lines.iter().for_each(output::json);
            return Ok(());
        }
        if audit.lines.is_empty() {
            say!("{}", if self.outcome.is_some() { "Nothing had that outcome." } else { "Nothing was asked yet." });
            return Ok(());
        }
        output::table(
            ["Time", "Action", "Outcome", "State", "Key", "Session", "Agent"],
            audit.lines.iter().map(|line| {
                let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
                let outcome = if line["reason"].is_string() {
                    format!("{} ({})", text("outcome"), text("reason"))
                } else {
                    text("outcome")
                };
                let refused = line["action"] == "locks/acquire" && line["outcome"] != "ok";
                let state = if refused { "rejected" } else { "" };
                [
                    output::moment(&text("time")),
                    text("action"),
                    outcome,
                    state.to_owned(),
                    text("key"),
                    text("sessionId"),
                    text("agentId"),
                ]
            }),
        );
        Ok(())
    }
}
