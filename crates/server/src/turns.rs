//! Turns among the requests that one thread serves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

/// So many requests are no crowd.
const FEW: usize = 4;

/// Knows how many requests are to be answered soon.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    open: AtomicUsize,
}

/// A request that is to be answered soon: until it is, or waits for something.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    /// Told when it is over.
    over: Option<&'a AtomicBool>,
}

impl Turns {
    pub(crate) fn begin(&self) -> Turn<'_> {
        self.turn(None)
    }

    /// As [`Turns::begin`], for somebody who wants to know when it is over.
    pub(crate) fn begin_telling<'a>(&'a self, over: &'a AtomicBool) -> Turn<'a> {
        self.turn(Some(over))
    }

    fn turn<'a>(&'a self, over: Option<&'a AtomicBool>) -> Turn<'a> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Turn { turns: self, over }
    }

    /// Before an answer is written: whoever is answered by the same batch makes theirs first, and then all are written in one
    /// go. A client with several connections is woken once by that, and waking costs more than all the rest. A few do not wait
    /// for each other.
    pub(crate) async fn let_others_answer(&self) {
        if self.open.load(Ordering::Relaxed) > FEW {
            after_others().await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(over) = self.over {
            over.store(true, Ordering::Relaxed);
        }
    }
}

/// Comes back when everything that is ready now has had its turn.
async fn after_others() {
    let mut came_back = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut came_back, true) {
            return Poll::Ready(());
        }
        // Not tokio's own yielding, which asks the system for news before.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
