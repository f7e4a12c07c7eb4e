//! `lockkeeper lock history`

use clap::Args;
use lockkeeper_wire::answer::{AuditList, EventView, HistoryList};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AuditRequest, HistoryRequest};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::lock;
use crate::output::{self, say};

#[derive(Debug, Args)]
pub(crate) struct History {
    /// Only what overlaps this file, tree or key.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// How many rows.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    limit: u64,
    /// Also what was refused, from the audit log.
    #[arg(long)]
    all: bool,
}

/// One row, from the history or from the audit log.
struct Row {
    time: String,
    file: String,
    lines: String,
    action: String,
    state: String,
    agent: String,
}

impl History {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let file_path = self.key.as_deref().map(|key| lock::spec(context, key)).transpose()?.map(|spec| spec.file_path);
        let limit = Some(Whole::from(self.limit));
        let request = HistoryRequest { file_path: file_path.clone(), limit, ..HistoryRequest::default() };
        let history: HistoryList = context.look(Operation::History, request)?;
        let refused = if self.all { self.refused(context, file_path.as_deref())? } else { Vec::new() };
        if context.global.json {
            let events = &history.events;
            output::json(&if self.all { json!({ "events": events, "rejected": refused }) } else { json!(history) });
            return Ok(());
        }
        let mut rows: Vec<Row> = history.events.iter().map(of_event).chain(refused.iter().map(of_audit)).collect();
        rows.sort_by(|one, other| other.time.cmp(&one.time));
        rows.truncate(usize::try_from(self.limit).unwrap_or(usize::MAX));
        if rows.is_empty() {
            say!("Nothing has happened yet.");
            return Ok(());
        }
        say!("Recent lock activity (last {}):", rows.len());
        output::table(
            ["Time", "File", "Lines", "Action", "State then", "Agent"],
            rows.into_iter()
                .map(|row| [output::moment(&row.time), row.file, row.lines, row.action, row.state, row.agent]),
        );
        Ok(())
    }

    /// Acquisitions that were refused.
    fn refused(&self, context: &Context, key: Option<&str>) -> Result<Vec<serde_json::Value>, Failure> {
        let request = AuditRequest { limit: Some(Whole::from(1000u64)), ..AuditRequest::default() };
        let audit: AuditList = context.look(Operation::Audit, request)?;
        let refused =
            audit.lines.into_iter().filter(|line| line["action"] == "locks/acquire" && line["outcome"] != "ok");
        let of_key = |line: &serde_json::Value| split(line["key"].as_str().unwrap_or_default()).0.to_owned();
        let meant = refused.filter(|line| key.is_none_or(|key| of_key(line) == key));
        Ok(meant.take(usize::try_from(self.limit).unwrap_or(usize::MAX)).collect())
    }
}

fn of_event(event: &EventView) -> Row {
    Row {
        time: event.time.clone(),
        file: event.file_path.clone(),
        lines: output::lines(event.start_line, event.end_line),
        action: event.action.clone(),
        state: event.state.clone(),
        agent: event.owner.clone(),
    }
}

fn of_audit(line: &serde_json::Value) -> Row {
    let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let why = if line["reason"].is_string() { text("reason") } else { text("outcome") };
    let key = text("key");
    let (file, lines) = split(&key);
    Row {
        time: text("time"),
        file: file.to_owned(),
        lines: lines.to_owned(),
        action: why,
        state: "rejected".to_owned(),
        agent: if line["agentId"].is_string() { text("agentId") } else { text("sessionId") },
    }
}

/// A file and its lines, as the audit log has them in one.
fn split(key: &str) -> (&str, &str) {
    match key.rsplit_once(':') {
        Some((file, lines)) if lines.starts_with(|c: char| c.is_ascii_digit()) => (file, lines.trim_end_matches('-')),
        Some(_) | None => (key, "all"),
    }
}
