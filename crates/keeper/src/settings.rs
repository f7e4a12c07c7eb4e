//! What a service is set to, wherever it was written down.

use lockkeeper_core::limits::{HISTORY_KEPT_MAX, TTL_DEFAULT};
use lockkeeper_core::state::Rules;
use lockkeeper_core::time::Millis;

const SNAPSHOT_BYTES_DEFAULT: u64 = 32 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub rules: Rules,
    /// For acquisitions that name none.
    pub default_ttl: Millis,
    /// How often clients should beat; they take a third of the TTL if that is shorter.
    pub heartbeat_interval: Millis,
    /// How often an engine that can't be reached is tried for one batch, and how long to wait in between, roughly.
    pub attempts: u32,
    pub backoff: Millis,
    /// By which others who serve the same ledger know this server; `None`: they are not told.
    pub server: Option<String>,
    /// Names this writer among those of one ledger; `None`: drawn at random.
    pub writer: Option<u64>,
    /// Payload bytes behind a snapshot before a new one is thought of.
    pub snapshot_bytes: u64,
    /// Long work is done on another thread; a simulation has only one.
    pub has_threads: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let heartbeat_interval = Millis::from_secs(10);
        Settings {
            rules: Rules::default(),
            default_ttl: TTL_DEFAULT,
            heartbeat_interval,
            attempts: 1,
            backoff: Millis(100),
            server: None,
            writer: None,
            snapshot_bytes: SNAPSHOT_BYTES_DEFAULT,
            has_threads: true,
        }
    }
}

impl Settings {
    /// What decides about locks, in words: those who serve one ledger should agree on it.
    pub fn in_words(&self) -> String {
        let Settings { rules, default_ttl, heartbeat_interval, .. } = self;
        let Rules { quota_limit, quota_window, history_kept, ports } = rules;
        let ports =
            format!("{} for {} sessions, {} apart, for {}", ports.base, ports.sessions, ports.stride, ports.ttl);
        let history = if *history_kept == HISTORY_KEPT_MAX { "kept".to_owned() } else { history_kept.to_string() };
        format!(
            "ttl {default_ttl}, heartbeat {heartbeat_interval}, quota {quota_limit} in {quota_window}, \
             history {history}, ports from {ports}"
        )
    }
}
