//! How many questions are taken from the mailbox at once: one that takes long to decide keeps others waiting, hundreds of them
//! would keep heartbeats waiting for longer than locks live.

use std::time::Duration;

/// Questions that are decided together, at most.
const QUESTIONS_MAX: usize = 1024;
/// As long as nothing is known of what they take.
const QUESTIONS_FIRST: usize = 64;
/// How long all of them together may take.
const TIME_MAX: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Portion {
    questions: usize,
    /// How long the rules took for the last batch.
    time: Duration,
}

impl Default for Portion {
    fn default() -> Portion {
        Portion { questions: QUESTIONS_FIRST, time: Duration::ZERO }
    }
}

impl Portion {
    pub(crate) fn questions(&self) -> usize {
        self.questions
    }

    /// A batch was judged: what is judged again because the ledger moved counts once.
    pub(crate) fn judged(&mut self, time: Duration) {
        self.time = self.time.max(time);
    }

    /// So many were taken from the mailbox, and so many of them judged. `alone`: nothing that nobody asked for was judged with them,
    /// which says nothing of what comes next.
    pub(crate) fn answered(&mut self, taken: usize, questions: usize, alone: bool) {
        if questions == 0 {
            return;
        }
        if self.time > TIME_MAX {
            let fit = questions as u128 * TIME_MAX.as_nanos() / self.time.as_nanos();
            let least = if alone { 1 } else { QUESTIONS_FIRST.min(self.questions) };
            self.questions = (fit as usize).clamp(least, QUESTIONS_MAX);
        } else if taken >= self.questions && self.time < TIME_MAX / 2 {
            self.questions = (self.questions * 2).min(QUESTIONS_MAX);
        }
    }

    /// Whether others should have a turn before the next.
    pub(crate) fn is_over(&mut self) -> bool {
        std::mem::take(&mut self.time) > TIME_MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_than_are_decided_within_a_moment() {
        let mut portion = Portion::default();
        let mut took = |questions: usize, time: Duration| {
            portion.judged(time);
            portion.answered(questions, questions, true);
            (portion.is_over(), portion.questions())
        };
        for _ in 0..10 {
            assert!(!took(QUESTIONS_MAX, Duration::from_micros(100)).0);
        }
        assert_eq!(took(1000, Duration::from_secs(1)), (true, 10));
        assert_eq!(took(10, Duration::from_secs(60)), (true, 1), "one is always taken");
        assert_eq!(took(1, Duration::from_millis(7)), (true, 1), "the others first");
        assert_eq!(took(1, Duration::from_millis(1)), (false, 2));
        assert_eq!(took(1, Duration::ZERO), (false, 2), "nobody waited for more");
    }

    #[test]
    fn what_nobody_asked_for_makes_less_difference_to_those_who_ask() {
        let mut portion = Portion::default();
        for (questions, alone) in [(0, true), (0, false), (1, false), (500, false)] {
            portion.judged(Duration::from_secs(1));
            portion.answered(questions, questions, alone);
            assert!(portion.is_over(), "others have a turn all the same");
            assert_eq!(portion.questions(), QUESTIONS_FIRST);
        }
        for _ in 0..4 {
            portion.answered(QUESTIONS_MAX, 1, true);
        }
        assert_eq!(portion.questions(), QUESTIONS_MAX, "whoever only looks was taken from the mailbox, too");
        portion.judged(Duration::from_secs(5));
        portion.answered(QUESTIONS_MAX, QUESTIONS_MAX, false);
        assert_eq!(portion.questions(), QUESTIONS_FIRST, "also when somebody always beats");
    }
}
