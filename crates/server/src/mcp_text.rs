//! Answers as a model reads them: short sentences beside the structured result.

use lockkeeper_wire::operation::Operation;
use serde_json::Value;

use crate::mcp::YOURS;

/// Rows that a list shows in words; the structured result has all.
const ROWS_MAX: usize = 50;

/// What a tool says about an answer.
pub(crate) fn told(operation: Operation, status: u16, answer: &Value, beats: bool) -> String {
    let said = said(operation, status, answer, beats);
    match rows(answer, "lost") {
        [] => said,
        lost => {
            // A heartbeat only names what was lost; whoever watches over it knows why.
            let one = |lost: &Value| match (lost.as_str(), lost["why"].as_str()) {
                (Some(target), _) => target.to_owned(),
                (None, Some(why)) => format!("{} ({why})", text(lost, "file_path")),
                (None, None) => text(lost, "file_path").to_string(),
            };
            let lost: Vec<String> = lost.iter().map(one).collect();
            format!("lock_lost: {}. Stop editing there, and acquire again.\n{said}", lost.join(", "))
        }
    }
}

fn said(operation: Operation, status: u16, answer: &Value, beats: bool) -> String {
    if status != 200 {
        let message = answer["message"].as_str().unwrap_or("The service gave no answer.");
        let word = answer["error"].as_str().unwrap_or("unavailable");
        let hint = answer["hint"].as_str().map(|hint| format!("\nHint: {hint}")).unwrap_or_default();
        return format!("{word}: {message}{hint}");
    }
    match operation {
        Operation::Acquire => acquired(answer, beats),
        Operation::Release => format!("Released {}.", named(answer)),
        Operation::ForceRelease => format!("Taken away: {}.", named(answer)),
        Operation::Renew => match rows(answer, "locks") {
            [] => "You hold nothing.".to_owned(),
            _ => format!("You still hold {}.{}", named(answer), pauses(answer)),
        },
        Operation::Check => checked(answer),
        Operation::Active => listed(answer),
        Operation::History => lines(rows(answer, "events"), "Nothing has happened yet.", |event| {
            format!("{} {} {} by {}", text(event, "time"), text(event, "action"), place(event), text(event, "owner"))
        }),
        Operation::CheckFeature => format!("{}{}", text(answer, "message"), handle(&answer["lock"], beats)),
        Operation::AllocatePorts => {
            let ports = &answer["allocation"];
            format!("These ports are yours:\n{}{}", text(answer, "env_snippet"), handle(ports, beats))
        }
        Operation::KeyStatus
        | Operation::Events
        | Operation::OpenSession
        | Operation::CloseSession
        | Operation::RestoreSession
        | Operation::AttachSession
        | Operation::Sessions
        | Operation::OpenRoom
        | Operation::CloseRoom
        | Operation::Rooms
        | Operation::Audit
        | Operation::Status
        | Operation::RegisterFeature
        | Operation::EndFeature
        | Operation::FeatureConflicts
        | Operation::Features
        | Operation::PauseFeature
        | Operation::ResumeFeature
        | Operation::ReleasePorts
        | Operation::PortsStatus
        | Operation::CheckPolicy
        | Operation::ReloadPolicy
        | Operation::ValidatePackages
        | Operation::AdvisoryLocks
        | Operation::Stop => answer.to_string(),
    }
}

/// Whoever has no session of its own is told the one that it was given.
fn handle(of: &Value, beats: bool) -> String {
    match of["session_id"].as_str().filter(|_| !beats) {
        Some(session) => format!(" Pass session_id \"{session}\" with every later call."),
        None => String::new(),
    }
}

/// What a heartbeat tells of pauses.
fn pauses(answer: &Value) -> String {
    let one = |lock: &Value| {
        format!(" Paused by {}: {}; stop at the next good moment.", text(lock, "owner"), text(lock, "intention"))
    };
    rows(answer, "paused").iter().map(one).collect()
}

fn acquired(answer: &Value, beats: bool) -> String {
    let verb = if answer["action"] == "refreshed" { "Still yours" } else { "Locked" };
    let mut said = format!("{verb}: {}.", named(answer));
    if beats {
        said.push_str(" It renews itself; release it when you are done.");
    } else {
        let session = answer["session_id"].as_str().or_else(|| answer["locks"][0]["session_id"].as_str());
        let until = answer["expires_at"].as_str().or_else(|| answer["locks"][0]["expires_at"].as_str());
        let more = format!(
            " It ends at {} unless you call heartbeat. Pass session_id \"{}\" with every later call.",
            until.unwrap_or("its expiry"),
            session.unwrap_or_default(),
        );
        said.push_str(&more);
    }
    said
}

fn checked(answer: &Value) -> String {
    let conflicts = rows(answer, "conflicts");
    let told = lines(conflicts, "Free.", |conflict| {
        let what = text(conflict, "kind");
        format!("{} is {what} by {}: {}", place(conflict), text(conflict, "owner"), text(conflict, "intention"))
    });
    match rows(answer, "held") {
        [] => told,
        own => format!("{told}\nYours: {}.", places(own)),
    }
}

fn listed(answer: &Value) -> String {
    lines(rows(answer, "locks"), "Nothing is locked.", |lock| {
        format!(
            "{} {} by {} until {}: {}",
            text(lock, "lock_id"),
            place(lock),
            if lock[YOURS] == true { "you" } else { text(lock, "owner") },
            text(lock, "expires_at"),
            text(lock, "intention")
        )
    })
}

fn lines(rows: &[Value], none: &str, line: impl Fn(&Value) -> String) -> String {
    if rows.is_empty() {
        return none.to_owned();
    }
    let mut said: Vec<String> = rows.iter().take(ROWS_MAX).map(line).collect();
    if rows.len() > ROWS_MAX {
        said.push(format!("and {} more", rows.len() - ROWS_MAX));
    }
    said.join("\n")
}

fn rows<'a>(answer: &'a Value, field: &str) -> &'a [Value] {
    answer[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

/// The locks of an answer, each with its id.
fn named(answer: &Value) -> String {
    if answer["lock_id"].is_string() {
        return format!("{} ({})", place(answer), text(answer, "lock_id"));
    }
    match rows(answer, "locks") {
        [] => "nothing".to_owned(),
        locks => places(locks),
    }
}

fn places(locks: &[Value]) -> String {
    let mut said: Vec<String> =
        locks.iter().take(ROWS_MAX).map(|lock| format!("{} ({})", place(lock), text(lock, "lock_id"))).collect();
    if locks.len() > ROWS_MAX {
        said.push(format!("and {} more", locks.len() - ROWS_MAX));
    }
    said.join(", ")
}

fn place(row: &Value) -> String {
    let path = text(row, "file_path");
    match (row["start_line"].as_u64(), row["end_line"].as_u64()) {
        (Some(start), Some(end)) => format!("{path}:{start}-{end}"),
        (Some(start), None) => format!("{path}:{start}-"),
        (None, _) => path.to_owned(),
    }
}
