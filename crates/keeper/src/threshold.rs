//! How much a log has to grow before a snapshot pays, and for whom: of several who serve a ledger, one is to write it.

#[derive(Debug)]
pub(crate) struct Threshold {
    /// Payload bytes behind a snapshot before a new one is thought of.
    bytes_min: u64,
    /// How large the last snapshot was.
    snapshot_bytes: u64,
    /// By which part of it this one waits longer than the threshold, of all that fits.
    spread: u32,
}

impl Threshold {
    pub(crate) fn new(bytes_min: u64, writer: u64) -> Threshold {
        let mut threshold = Threshold { bytes_min, snapshot_bytes: 0, spread: (writer ^ (writer >> 32)) as u32 };
        threshold.draw();
        threshold
    }

    /// Another one is first the next time.
    fn draw(&mut self) {
        // A step of splitmix32, which has no short cycles.
        let mut mixed = self.spread.wrapping_add(0x9E37_79B9);
        mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x21F0_AAAD);
        mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x735A_2D97);
        self.spread = mixed ^ (mixed >> 15);
    }

    /// A snapshot of this size was left.
    pub(crate) fn left(&mut self, bytes: u64) {
        self.snapshot_bytes = bytes;
        self.draw();
    }

    /// Whether a log of so many bytes is worth a snapshot from here. Where others may write it too, each waits for another
    /// while, up to twice the bytes: they would all write it at once, and all but one for nothing.
    pub(crate) fn is_reached(&self, bytes: u64, has_others: bool) -> bool {
        let worth = self.bytes_min.max(self.snapshot_bytes.saturating_mul(2));
        let spread = if has_others { (worth >> 16).saturating_mul(u64::from(self.spread >> 16)) } else { 0 };
        bytes > worth.saturating_add(spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MIN: u64 = 32 << 20;

    #[test]
    fn a_ledger_of_ones_own_is_worth_a_snapshot_as_soon_as_it_is_large_enough() {
        for writer in 0..100 {
            let mut threshold = Threshold::new(BYTES_MIN, writer);
            assert!(!threshold.is_reached(BYTES_MIN, false) && threshold.is_reached(BYTES_MIN + 1, false));
            threshold.left(BYTES_MIN);
            assert!(!threshold.is_reached(2 * BYTES_MIN, false) && threshold.is_reached(2 * BYTES_MIN + 1, false));
        }
    }

    #[test]
    fn of_several_who_serve_a_ledger_few_think_of_a_snapshot_at_once() {
        let mut servers: Vec<Threshold> = (0..16).map(|writer| Threshold::new(BYTES_MIN, writer)).collect();
        for _ in 0..50 {
            let reached = |bytes: u64| servers.iter().filter(|server| server.is_reached(bytes, true)).count();
            assert_eq!((reached(BYTES_MIN), reached(2 * BYTES_MIN)), (0, servers.len()), "within bounds");
            let first = (0..128).map(|step| BYTES_MIN + step * (1 << 18)).find(|bytes| reached(*bytes) > 0);
            assert!(reached(first.expect("somebody") + (1 << 20)) <= 6, "not all within a moment");
            // Only one left it; the others saw it.
            for server in &mut servers {
                server.left(0);
            }
        }
    }
}
