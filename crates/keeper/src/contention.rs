//! Manners among the writers of one ledger: of those who append at the same moment one wins, and the others try again.
//!
//! Losing costs nobody else anything, so losers try again at once. Whoever wins after a struggle waits a while before
//! the next batch: otherwise a writer with a short way to the ledger would win every time, and one with a long way
//! would never find the ledger as it left it.

use std::collections::VecDeque;
use std::time::Duration;

use lockkeeper_engine::Delta;
use tokio::time::Instant;

/// Records that are looked back on to count the other writers.
const LOOKED_BACK: usize = 128;
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How many appends of every other writer fit into the longest pause.
const TURNS: u32 = 6;

#[derive(Debug)]
pub(crate) struct Contention {
    own: u64,
    /// Who wrote the last records.
    writers: VecDeque<u64>,
    /// How long an append takes, smoothed.
    usual: Duration,
    /// When somebody was last faster than us.
    struggled: Option<Instant>,
    random: u64,
}

impl Contention {
    pub(crate) fn new(own: u64) -> Contention {
        Contention { own, writers: VecDeque::new(), usual: Duration::ZERO, struggled: None, random: own | 1 }
    }

    /// Takes note of who wrote what was read.
    pub(crate) fn seen(&mut self, delta: &Delta) {
        for record in &delta.records {
            if self.writers.len() == LOOKED_BACK {
                self.writers.pop_front();
            }
            self.writers.push_back((record.batch.0 >> 64) as u64);
        }
    }

    /// One that took unusually long does not make it usual; several do.
    pub(crate) fn took(&mut self, elapsed: Duration) {
        self.usual = if self.usual.is_zero() { elapsed } else { (self.usual * 7 + elapsed.min(self.usual * 2)) / 8 };
    }

    /// Waits as long as manners ask before the nth try of a batch: not at all as long as nobody is in the way.
    pub(crate) async fn before_append(&mut self, tries: u32) {
        if tries > 1 {
            self.struggled = Some(Instant::now());
        } else if self.struggled.take().is_some_and(|then| then.elapsed() < PAUSE_MAX) {
            let pause = self.pause();
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// A random part of the time in which every other writer could append a few times.
    fn pause(&mut self) -> Duration {
        let mut others: Vec<u64> = self.writers.iter().copied().filter(|writer| *writer != self.own).collect();
        others.sort_unstable();
        others.dedup();
        let longest = (self.usual * (TURNS * others.len() as u32)).min(PAUSE_MAX);
        // xorshift64: only to keep writers apart.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        longest.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::time::Stamp;
    use lockkeeper_engine::{Base, BatchId, Position, Record};

    use super::*;

    #[test]
    fn one_slow_append_makes_nobody_wait_longer_and_many_do() {
        let mut contention = Contention::new(7);
        let (position, batch, stamp) = (Position::ORIGIN, BatchId(8 << 64), Stamp::default());
        let other = Record { position, batch, stamp, payload: Vec::new() };
        contention.seen(&Delta { base: Base::Asked, records: vec![other] });
        let longest = |contention: &mut Contention| (0..100).map(|_| contention.pause()).max();
        (0..100).for_each(|_| contention.took(Duration::from_millis(1)));
        contention.took(Duration::from_secs(5));
        assert!(longest(&mut contention) < Some(Duration::from_millis(8)));
        (0..100).for_each(|_| contention.took(Duration::from_millis(100)));
        assert!(longest(&mut contention) > Some(Duration::from_millis(300)), "what is usual is followed");
    }
}
