//! The settings there are: what else names them, what they are by default, and who may say them.

use lockkeeper_config_editor::Key;
use lockkeeper_core::text::distance;

use super::dotted;
use crate::config;

/// One setting.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) key: &'static str,
    /// Variables that come before the files, the first one first.
    variables: &'static [&'static str],
    /// A variable that comes behind them.
    late_variable: Option<&'static str>,
    /// Empty: there is none, or it is told elsewhere.
    pub(super) default: &'static str,
    /// Whether a repository may say it, too.
    of_repository: bool,
    reader: Reader,
}

/// Who reads a setting, and so when it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// Each command, whenever it runs.
    Command,
    /// A service, when it starts.
    Service,
    /// A service, when it starts and when it is told to.
    Reload,
}

const fn setting(key: &'static str, variables: &'static [&'static str], default: &'static str) -> Known {
    Known { key, variables, late_variable: None, default, of_repository: false, reader: Reader::Service }
}

const fn shared(known: Known) -> Known {
    Known { of_repository: true, ..known }
}

const fn by_commands(known: Known) -> Known {
    Known { reader: Reader::Command, ..known }
}

const fn reloaded(known: Known) -> Known {
    Known { reader: Reader::Reload, ..known }
}

pub(super) const ALL: [Known; 25] = [
    by_commands(shared(setting("space", &["LOCKKEEPER_SPACE"], ""))),
    by_commands(shared(setting("worktrees", &[], "shared"))),
    by_commands(shared(setting("lock.default_ttl", &["LOCK_TTL_MS"], "30s"))),
    shared(setting("lock.heartbeat_interval", &[], "10s")),
    setting("lock.history_ttl", &["LOCK_HISTORY_TTL_SEC"], "7d"),
    by_commands(setting("url", &["LOCKKEEPER_URL"], "")),
    Known { late_variable: Some("REDIS_URL"), ..setting("engine", &["LOCKKEEPER_ENGINE", "LOCK_REDIS_URL"], "") },
    setting("durability", &["LOCKKEEPER_DURABILITY"], "always"),
    setting("quota.limit", &["LOCK_RATE_LIMIT_PER_MIN"], "60"),
    setting("quota.window", &["LOCK_RATE_LIMIT_WINDOW_MS"], "60s"),
    setting("ports.base", &[], "10000"),
    setting("ports.stride", &[], "100"),
    setting("ports.sessions", &[], "20"),
    setting("ports.ttl", &[], "2h"),
    setting("redis.shared_space", &["LOCKKEEPER_REDIS_SHARED_SPACE"], ""),
    setting("redis.attempts", &[], "3"),
    setting("redis.backoff", &[], "100ms"),
    by_commands(setting("advisory.database_url", &["DATABASE_URL"], "")),
    by_commands(shared(setting("advisory.namespaces", &[], ""))),
    setting("proof.directories", &[], ""),
    reloaded(setting("policy", &[], "")),
    reloaded(setting("policy_file", &["LOCKKEEPER_POLICY"], "")),
    setting("listen", &["LOCKKEEPER_LISTEN"], "127.0.0.1:5625"),
    setting("allowed_hosts", &[], ""),
    setting("credentials", &[], ""),
];

impl Known {
    /// The variable that has the last word, if one is set.
    pub(super) fn variable(&self) -> Option<&'static str> {
        self.variables.iter().copied().find(|name| is_set(name))
    }

    /// Whether it is a length of time, as its default is.
    pub(super) fn is_length(&self) -> bool {
        config::length(self.default).is_ok()
    }

    pub(super) fn late_variable(&self) -> Option<&'static str> {
        self.late_variable.filter(|name| is_set(name))
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

pub(super) fn find(key: &Key) -> Option<&'static Known> {
    let key = dotted(key)?;
    ALL.iter().find(|known| known.key == key)
}

/// Who reads what a key names, or something in it: `credentials[0].file` is read by whoever reads `credentials`.
pub(super) fn reader(key: &Key) -> Option<Reader> {
    let key = key.to_string();
    let within = |known: &&Known| {
        key.strip_prefix(known.key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    ALL.iter().find(within).map(|known| known.reader)
}

pub(super) fn of_repository(key: &Key) -> bool {
    let Some(key) = dotted(key) else { return false };
    let within =
        |known: &Known| key.strip_prefix(known.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    ALL.iter().any(|known| known.of_repository && within(known))
}

/// What the reader of settings says, with the name that was probably meant.
pub(super) fn explained(message: &str) -> String {
    let Some((_, names)) = message.split_once("unknown field ") else { return message.to_owned() };
    let mut names = names.split('`').skip(1).step_by(2);
    let Some(wrong) = names.next() else { return message.to_owned() };
    match closest(wrong, names) {
        Some(name) => format!("there is no setting '{wrong}'; did you mean '{name}'?"),
        None => format!("there is no setting '{}'", lockkeeper_core::text::one_line(wrong)),
    }
}

/// The setting that is spelt most like it.
pub(super) fn nearest(wrong: &str) -> Option<&'static str> {
    closest(wrong, ALL.iter().map(|known| known.key))
}

/// Half of the letters may be wrong. Only short names are worth comparing letter by letter.
fn closest<'n>(wrong: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let (far, name) = names.filter(|_| wrong.len() <= 64).map(|name| (distance(wrong, name), name)).min()?;
    (far <= name.len().max(wrong.len()) / 2).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_gets_the_right_one() {
        let message = "unknown field `defalt_ttl`, expected one of `default_ttl`, `heartbeat_interval`, `history_ttl`";
        assert_eq!(explained(message), "there is no setting 'defalt_ttl'; did you mean 'default_ttl'?");
        assert_eq!(explained("unknown field `x`, expected `something`"), "there is no setting 'x'");
        assert_eq!(explained("anything else"), "anything else");
        assert_eq!(nearest("lock.defaultttl"), Some("lock.default_ttl"));
    }
}
