//! How far a ledger is known to have come, and telling it to whoever waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use crate::{Durable, Position};

#[derive(Debug)]
pub(crate) struct Standing {
    known: Mutex<Known>,
    moved: watch::Sender<u64>,
    durable: watch::Sender<Durable>,
    /// Payload bytes behind the snapshot.
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Known {
    end: Position,
    /// The ledger was rewritten, and the keeper has not asked since: it must be woken, wherever the end is now.
    is_void: bool,
}

/// What a look found out about the place where the end was thought to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The ledger has passed it.
    Passed,
    /// It is no place of this ledger.
    Void,
}

impl Standing {
    pub(crate) fn new() -> Standing {
        Standing {
            known: Mutex::new(Known { end: Position::ORIGIN, is_void: false }),
            moved: watch::Sender::new(0),
            durable: watch::Sender::new(Durable::Up(0)),
            bytes: AtomicU64::new(0),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no holder panics")
    }

    pub(crate) fn end(&self) -> Position {
        self.known().end
    }

    /// The keeper has an answer, and with it everything up to this end. Was its past void, it knows that, too.
    pub(crate) fn answered(&self, end: Position, was_rewritten: bool) {
        let mut known = self.known();
        if was_rewritten || end.epoch != known.end.epoch || end.revision > known.end.revision {
            known.end = end;
        }
        known.is_void = false;
        self.tell(&known);
    }

    /// Somebody looked whether the end is still where it was thought to be.
    pub(crate) fn looked(&self, at: Position, found: Found, end: Position) {
        let mut known = self.known();
        match found {
            Found::Passed if known.end.epoch == at.epoch && end.revision >= known.end.revision => known.end = end,
            // Whoever came in between knows better; the next look will tell.
            Found::Void if known.end == at => *known = Known { end, is_void: true },
            Found::Passed | Found::Void => return,
        }
        self.tell(&known);
    }

    /// It was said that the ledger has come so far. False: that does not go with what is known, and has to be looked at.
    pub(crate) fn heard(&self, end: Position) -> bool {
        let mut known = self.known();
        if known.end != Position::ORIGIN && known.end.epoch != end.epoch {
            return false;
        }
        if end.revision > known.end.revision {
            known.end = end;
            self.tell(&known);
        }
        true
    }

    fn tell(&self, known: &Known) {
        let end = known.end.revision;
        // A ledger that falls is read from, and then its reader learns that it was rewritten.
        let moved = if known.is_void { 0 } else { end };
        self.durable.send_if_modified(|durable| std::mem::replace(durable, Durable::Up(end)) != Durable::Up(end));
        self.moved.send_if_modified(|last| std::mem::replace(last, moved) != moved);
    }

    pub(crate) fn weigh(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    pub(crate) fn durable(&self) -> watch::Receiver<Durable> {
        self.durable.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn place(epoch: u64, revision: u64) -> Position {
        Position { epoch, revision, digest: revision * 10 + epoch }
    }

    #[test]
    fn a_ledger_that_was_rewritten_falls_even_if_it_is_as_long_as_before() {
        let standing = Standing::new();
        standing.answered(place(1, 57), false);
        let mut moved = standing.moved();
        standing.looked(place(1, 57), Found::Void, place(2, 57));
        assert_eq!(*moved.borrow_and_update(), 0);
        assert!(standing.heard(place(2, 58)));
        assert_eq!(*moved.borrow(), 0, "until the keeper has asked");
        standing.answered(place(2, 58), true);
        assert_eq!(*moved.borrow(), 58);
    }

    #[test]
    fn late_news_change_nothing() {
        let standing = Standing::new();
        standing.answered(place(1, 5), false);
        let mut moved = standing.moved();
        moved.borrow_and_update();
        assert!(standing.heard(place(1, 4)));
        standing.looked(place(1, 3), Found::Passed, place(1, 4));
        standing.looked(place(1, 4), Found::Void, place(2, 1));
        standing.answered(place(1, 4), false);
        assert_eq!((standing.end(), moved.has_changed().expect("lives")), (place(1, 5), false));
        assert!(!standing.heard(place(2, 6)), "another epoch is looked at");
    }

    #[test]
    fn the_first_batch_of_a_ledger_is_no_rewriting() {
        let standing = Standing::new();
        assert!(standing.heard(place(9, 1)));
        assert_eq!(*standing.moved().borrow(), 1);
    }
}
