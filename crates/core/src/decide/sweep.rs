//! What time alone does: leases end, waits are over, rooms are left.

use super::Deciding;
use crate::event::Event;
use crate::lock::WaiterId;
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
        self.leave_rooms(&self.state.overdue_rooms(now), None);
        let ports = self.state.overdue_ports(now);
        if !ports.is_empty() {
            self.free(ports);
        }
        // Some may have left just now, when something came free.
        let leaves = |id: &WaiterId| Some((*id, self.state.waiter(*id)?.leaves(now)?));
        let leaving: Vec<_> = self.state.overdue_waiters(now).iter().filter_map(leaves).collect();
        self.leave_queue(leaving);
    }
}
