//! Who asks: a flag, the environment, else the session of the terminal.

use std::io::IsTerminal;

use lockkeeper_wire::word::Word;

use crate::failure::Failure;

/// The session of this command.
pub(crate) fn session(flag: Option<&str>) -> Result<String, Failure> {
    let given = flag.map(str::to_owned).or_else(|| variable("SESSION_ID"));
    if let Some(session) = given {
        if let Err(error) = lockkeeper_core::session::SessionId::parse(&session) {
            return Err(Failure::Question { word: Word::InvalidSessionId, message: format!("{error}."), hint: None });
        }
        return Ok(session);
    }
    terminal().ok_or_else(|| {
        let name = new_name();
        Failure::Question {
            word: Word::InvalidSessionId,
            message: "Nobody knows who asks: there is no terminal, and no session was named.".to_owned(),
            hint: Some(format!(
                "export SESSION_ID={name}, or add --session {name}; the same one for every command, and another for another agent"
            )),
        }
    })
}

/// A name that no other agent has: what is suggested is copied as it stands, and two with one name would share their locks.
pub(crate) fn new_name() -> String {
    let id = uuid::Uuid::now_v7().simple().to_string();
    // It begins with the time, and ends with what is drawn by lot.
    format!("agent-{}", &id[id.len() - 6..])
}

/// The name that others see.
pub(crate) fn agent(flag: Option<&str>, session: &str) -> String {
    flag.map(str::to_owned).or_else(|| variable("AGENT_ID")).unwrap_or_else(|| session.to_owned())
}

pub(crate) fn agent_type() -> Option<String> {
    variable("AGENT_TYPE")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The same for every command of one terminal window, another for the next: its session leader, by number and birth.
fn terminal() -> Option<String> {
    if !(std::io::stdin().is_terminal() || std::io::stdout().is_terminal() || std::io::stderr().is_terminal()) {
        return None;
    }
    let leader = rustix::process::getsid(None).ok()?.as_raw_nonzero();
    let born = started(&format!("/proc/{leader}/stat")).unwrap_or_default();
    let user = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "user".to_owned());
    let user: String = user.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(40).collect();
    Some(format!("{user}-{leader}-{born}"))
}

/// The start time of a process, in clock ticks since boot: the 22nd field, counted behind the name in parentheses.
fn started(stat: &str) -> Option<String> {
    let text = std::fs::read_to_string(stat).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(19).map(str::to_owned)
}
