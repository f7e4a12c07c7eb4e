//! How long to wait before something that failed is tried again: a little longer each time, and never all at once.

use std::time::Duration;

use tokio::time::Instant;

use crate::{EngineError, position};

const PAUSE_MIN: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What is known of failures in a row.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    failures: u32,
    last: Option<(Instant, EngineError)>,
}

impl Patience {
    /// Why it is not tried now.
    pub(crate) fn refusal(&self) -> Option<EngineError> {
        self.last.as_ref().filter(|(again, _)| Instant::now() < *again).map(|(_, why)| why.clone())
    }

    /// Takes note of a failure, and tells how long to wait. Whether it is the first in a row comes with it.
    pub(crate) fn failed(&mut self, why: EngineError) -> (Duration, bool) {
        let longest = PAUSE_MIN.saturating_mul(1 << self.failures.min(8)).min(PAUSE_MAX);
        // Half of it is drawn, so that those who were cut off together do not come back together.
        let pause = longest / 2 + (longest / 2).mul_f64((position::draw() >> 11) as f64 / (1u64 << 53) as f64);
        self.failures = self.failures.saturating_add(1);
        self.last = Some((Instant::now() + pause, why));
        (pause, self.failures == 1)
    }

    /// Forgets all failures, and tells whether there were any.
    pub(crate) fn succeeded(&mut self) -> bool {
        self.last = None;
        std::mem::take(&mut self.failures) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_second_and_end_with_a_success() {
        let mut patience = Patience::default();
        let why = EngineError::Unreachable("away".to_owned());
        assert_eq!(patience.refusal(), None);
        for failure in 0..20 {
            let (pause, first) = patience.failed(why.clone());
            assert!(pause >= PAUSE_MIN / 2 && pause <= PAUSE_MAX, "{pause:?}");
            assert_eq!(first, failure == 0);
            assert_eq!(patience.refusal(), Some(why.clone()));
            tokio::time::advance(pause).await;
            assert_eq!(patience.refusal(), None);
        }
        assert!(patience.succeeded() && !patience.succeeded());
        assert!(patience.failed(why).0 <= PAUSE_MIN);
    }
}
