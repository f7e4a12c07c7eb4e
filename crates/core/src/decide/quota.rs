//! How many grants a session may have in a while. Refreshes and renewals cost nothing; a set counts once.

use super::{Deciding, Refused};
use crate::outcome::Refusal;
use crate::session::SessionId;

impl Deciding<'_> {
    pub(super) fn within_quota(&self, session: &SessionId) -> Result<(), Refused> {
        let (limit, window) = (self.cx.rules.quota_limit, self.cx.rules.quota_window);
        let Some(entry) = self.state.entry(session).filter(|_| limit > 0) else { return Ok(()) };
        let since = self.now().minus(window);
        let recent = entry.quota.iter().filter(|granted| **granted > since);
        let used = recent.clone().count() as u64 + u64::from(self.cx.refused_lately);
        if used < u64::from(limit) {
            return Ok(());
        }
        let retry_after = recent.clone().next().map_or(window, |oldest| oldest.plus(window).since(self.now()));
        Err(Box::new(Refusal::RateLimited { limit, window, retry_after }))
    }
}
