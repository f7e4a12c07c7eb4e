//! How many grants a session may have in a while. Refreshes and renewals cost nothing; a set counts once,
//! and so does all that a restore brings back.

use super::{Deciding, Refused};
use crate::command::Acquire;
use crate::outcome::Refusal;
use crate::planted::{self, Bug};
use crate::session::SessionId;
use crate::time::Time;

impl Deciding<'_> {
    pub(super) fn within_quota(&self, session: &SessionId) -> Result<(), Refused> {
        let (limit, window) = (self.cx.rules.quota_limit, self.cx.rules.quota_window);
        if limit == 0 {
            return Ok(());
        }
        let since = self.now().minus(window);
        // A session that was never granted anything has refusals all the same.
        let granted = self.state.entry(session).into_iter().flat_map(|entry| entry.quota.iter());
        let refused = self.cx.refused_lately.iter();
        let mut recent: Vec<Time> = granted.chain(refused).copied().filter(|at| *at > since).collect();
        // What is waited for counts as well: all of it may be granted at one moment.
        let counts = |kept: u32| kept > 0 && !planted::is(Bug::QuotaIgnoresQueue);
        let waits = self.state.waiters_of(session).filter(|waiter| counts(waiter.asked.quota_kept)).count();
        let most = limit as usize + usize::from(planted::is(Bug::QuotaOneMore));
        let Some(too_many) = (recent.len() + waits).checked_sub(most) else { return Ok(()) };
        recent.sort_unstable();
        // When so many are no longer recent that there is room for one more.
        let leaves = recent.get(too_many).map_or(self.now().plus(window), |last| last.plus(window));
        Err(Box::new(Refusal::RateLimited { limit, window, retry_after: leaves.since(self.now()) }))
    }

    /// How many grants the quota has to remember when this is granted; zero: it is not counted.
    pub(super) fn counted(&self, acquire: &Acquire) -> u32 {
        // A grant does not say that it restores: a mistake that needs to know reads it from here.
        let restored = u32::from(planted::is(Bug::RestoredTokenReused));
        if acquire.restores { restored } else { self.cx.rules.quota_limit }
    }
}
