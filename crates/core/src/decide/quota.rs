//! How many grants a session may have in a while. Refreshes and renewals cost nothing; a set counts once,
//! and so does all that a restore brings back.

use super::{Deciding, Refused};
use crate::command::Acquire;
use crate::outcome::Refusal;
use crate::planted::{self, Bug};
use crate::session::SessionId;

impl Deciding<'_> {
    pub(super) fn within_quota(&self, session: &SessionId) -> Result<(), Refused> {
        let (limit, window) = (self.cx.rules.quota_limit, self.cx.rules.quota_window);
        if limit == 0 {
            return Ok(());
        }
        let since = self.now().minus(window);
        // A session that was never granted anything has refusals all the same.
        let granted = self.state.entry(session).into_iter().flat_map(|entry| entry.quota.iter());
        let recent = granted.filter(|granted| **granted > since);
        let used = recent.clone().count() as u64 + u64::from(self.cx.refused_lately);
        if used < u64::from(limit) + u64::from(planted::is(Bug::QuotaOneMore)) {
            return Ok(());
        }
        let retry_after = recent.clone().next().map_or(window, |oldest| oldest.plus(window).since(self.now()));
        Err(Box::new(Refusal::RateLimited { limit, window, retry_after }))
    }

    /// How many grants the quota has to remember when this is granted; zero: it is not counted.
    pub(super) fn counted(&self, acquire: &Acquire) -> u32 {
        if acquire.restores { 0 } else { self.cx.rules.quota_limit }
    }
}
