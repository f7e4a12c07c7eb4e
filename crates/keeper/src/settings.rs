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
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { rules: Rules::default(), default_ttl: TTL_DEFAULT, heartbeat_interval: Millis::from_secs(10) }
    }
}
