//! What time alone does: leases end, waits are over, rooms are left.

use super::Deciding;
use crate::event::Event;
use crate::planted::{self, Bug};
use crate::time::Millis;

impl Deciding<'_> {
    pub(super) fn sweep(&mut self) {
        let now = if planted::is(Bug::ExpiresEarly) { self.now().plus(Millis(1)) } else { self.now() };
        let now = if planted::is(Bug::SweptLate) { now.minus(Millis(3000)) } else { now };
        if self.state.next_wake().is_none_or(|wake| wake > now) {
            return;
        }
        let locks = self.state.overdue_locks(now);
        if !locks.is_empty() {
            let freed = locks.iter().filter_map(|id| self.state.lock(*id)).map(|lock| lock.target.clone()).collect();
            self.record(Event::Expired { locks });
            if !planted::is(Bug::ExpiryNotHandedOver) {
                self.hand_over(freed);
            }
        }
        for key in self.state.overdue_rooms(now) {
            self.leave_room(&key, None);
        }
        let ports = self.state.overdue_ports(now);
        if !ports.is_empty() {
            self.free(ports);
        }
        for id in self.state.overdue_waiters(now) {
            // It may have left just now, when something came free.
            let Some(why) = self.state.waiter(id).and_then(|waiter| waiter.leaves(now)) else { continue };
            self.leave_queue(id, why);
        }
    }
}
