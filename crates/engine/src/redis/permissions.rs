//! Whether the user may do all that the scripts do: one that fails in the middle has changed half of what it should.

use super::connection::Connection;
use super::examine::ask;
use super::script::{self, Call};
use crate::EngineError;

/// What a user needs, as docs/engines.md says it.
const NEEDED: &str = "~lockkeeper:* &lockkeeper:* +@read +@write +@pubsub +@connection +eval +evalsha +info +config|get +cluster|slots +time";
/// What it needs besides, where files are shared with other clients.
const NEEDED_TO_SHARE: &str = "~lock:file:*";

/// All that is done with a ledger, with keys of a space that nobody has.
const COMMANDS: [&str; 16] = [
    "HMGET lockkeeper:{}:head format",
    "HSET lockkeeper:{}:head format 1",
    "XLEN lockkeeper:{}:log",
    "XRANGE lockkeeper:{}:log - +",
    "XADD lockkeeper:{}:log 1-0 h x p x",
    "XTRIM lockkeeper:{}:log MINID = 1-0",
    "LLEN lockkeeper:{}:snapshot:x",
    "LINDEX lockkeeper:{}:snapshot:x 0",
    "RPUSH lockkeeper:{}:snapshot:x x",
    "EXPIRE lockkeeper:{}:snapshot:x 1",
    "PERSIST lockkeeper:{}:snapshot:x",
    "UNLINK lockkeeper:{}:snapshot:x",
    "SPUBLISH lockkeeper:{}:moved:0 x",
    "SSUBSCRIBE lockkeeper:{}:moved:0",
    "EVALSHA x 1 lockkeeper:{}:head",
    "TIME",
];

/// All that is done with files that are shared.
const COMMANDS_TO_SHARE: [&str; 4] =
    ["GET lock:file:x", "PTTL lock:file:x", "SET lock:file:x x PX 1", "DEL lock:file:x"];

/// Refuses a user who may not do all of it, with what is missing.
pub(super) async fn check(connection: &Connection, shares: bool) -> Result<(), EngineError> {
    let more: &[&str] = if shares { &COMMANDS_TO_SHARE } else { &[] };
    let commands: Vec<&[u8]> = COMMANDS.iter().chain(more).map(|command| command.as_bytes()).collect();
    let call = script::PERMISSIONS.by_text(&Call { keys: &[], args: &commands });
    let denied = ask(connection, call).await?;
    if denied.is_empty() {
        return Ok(());
    }
    let denied = denied.lines().collect::<Vec<_>>().join(", ");
    let needed = if shares { format!("{NEEDED} {NEEDED_TO_SHARE}") } else { NEEDED.to_owned() };
    Err(EngineError::Invalid(format!(
        "Redis at {} does not let its user run {denied}; the user needs `{needed}`, as docs/engines.md says",
        connection.host()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_scripts_is_checked() {
        let checked: Vec<&str> =
            COMMANDS.iter().chain(&COMMANDS_TO_SHARE).filter_map(|command| command.split(' ').next()).collect();
        let mut found = 0;
        for part in script::all().iter().flat_map(|text| text.split("call('").skip(1)) {
            let command = part.split('\'').next().expect("a quoted word");
            assert!(checked.contains(&command), "{command} is used and not checked");
            found += 1;
        }
        assert!(found > 20, "{found} calls were found");
    }

    #[test]
    fn what_is_needed_is_what_the_document_says() {
        let document = include_str!("../../../../docs/engines.md");
        assert!(document.lines().any(|line| line == NEEDED));
        assert!(document.contains(&format!("`{NEEDED_TO_SHARE}`")));
    }
}
