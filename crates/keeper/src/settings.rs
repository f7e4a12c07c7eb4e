//! What a service is set to, wherever it was written down.

use lockkeeper_core::limits::TTL_DEFAULT;
use lockkeeper_core::state::Rules;
use lockkeeper_core::time::Millis;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub rules: Rules,
    /// For acquisitions that name none.
    pub default_ttl: Millis,
    /// How often clients should beat; they take a third of the TTL if that is shorter.
    pub heartbeat_interval: Millis,
    /// Names this writer among those of one ledger; `None`: drawn at random.
    pub writer: Option<u64>,
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
            writer: None,
            has_threads: true,
        }
    }
}
