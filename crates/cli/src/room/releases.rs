//! What agents held until a moment ago, so that what they changed is not taken for a person's work. Reads no clock: a look
//! comes later than the change that it is about.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use lockkeeper_core::key::Key;
use lockkeeper_wire::answer::EventView;

/// An agent that has just given a file back may have changed it last.
const AFTER_RELEASE: Duration = Duration::from_secs(2);
/// How much later than it happened something may be heard of.
const HEARD_WITHIN: Duration = Duration::from_millis(250);
/// How long a change may be looked at after it happened: a service that is away keeps one waiting.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(60);
/// Releases that are kept, and locks whose beginning is.
const KEPT_MAX: usize = 65_536;

/// What was given back, and since when it had been held.
#[derive(Debug, Default)]
pub(super) struct Releases {
    released: VecDeque<Held>,
    /// When the locks began that are held now, by their ids.
    begun: HashMap<String, Instant>,
}

#[derive(Debug)]
struct Held {
    key: Key,
    /// None: before anybody listened.
    from: Option<Instant>,
    until: Instant,
}

impl Releases {
    /// Some events were missed: what is held began at a time that nobody knows.
    pub(super) fn listen_anew(&mut self) {
        self.begun.clear();
    }

    pub(super) fn note(&mut self, event: &EventView, now: Instant) {
        let lock_id = event.lock_id.as_deref().unwrap_or_default();
        match event.action.as_str() {
            "acquired" if self.begun.len() < KEPT_MAX => {
                self.begun.insert(lock_id.to_owned(), now);
            }
            // Not by its state: a room that is left is released, too.
            "released" | "expired" | "force_released" | "lost" => {
                let from = self.begun.remove(lock_id);
                let Ok(key) = Key::parse(&event.file_path) else { return };
                self.drop_old(now);
                self.released.push_back(Held { key, from, until: now });
            }
            _ => {}
        }
    }

    fn drop_old(&mut self, now: Instant) {
        let kept = AFTER_RELEASE + LOOKED_AT_WITHIN;
        let is_old = |held: &Held| now.saturating_duration_since(held.until) > kept;
        while self.released.len() >= KEPT_MAX || self.released.front().is_some_and(is_old) {
            self.released.pop_front();
        }
    }

    /// Whether a change of then may be an agent's, who has given the file back since or shortly before.
    pub(super) fn explain(&self, key: &Key, changed: Instant) -> bool {
        self.released.iter().any(|held| held.may_have_changed(changed) && held.key.overlaps(key))
    }
}

impl Held {
    fn may_have_changed(&self, at: Instant) -> bool {
        // Whoever got it may have written before anybody else heard of the grant.
        let had_begun = self.from.is_none_or(|from| at + HEARD_WITHIN >= from);
        had_begun && at <= self.until + AFTER_RELEASE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: &str, lock_id: &str, path: &str) -> EventView {
        serde_json::from_value(serde_json::json!({
            "id": "1-1", "time": "", "action": action, "state": "", "file_path": path, "start_line": null,
            "end_line": null, "mode": "exclusive", "owner": "a", "session_id": "a", "intention": "",
            "lock_id": lock_id,
        }))
        .expect("an event")
    }

    fn key(path: &str) -> Key {
        Key::parse(path).expect("a key")
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_change_is_judged_by_when_it_happened_and_not_by_when_it_is_looked_at() {
        let (start, mut releases) = (Instant::now(), Releases::default());
        releases.note(&event("acquired", "l", "src/**"), start + ms(10_000));
        releases.note(&event("released", "l", "src/**"), start + ms(20_000));
        let explain = |path: &str, at: u64| releases.explain(&key(path), start + ms(at));
        assert!(explain("src/a.rs", 21_800), "a moment after, whenever it is looked at");
        assert!(explain("src/a.rs", 15_000), "while it was held");
        assert!(explain("src/a.rs", 9_900), "the grant was heard of late");
        assert!(!explain("src/a.rs", 5_000), "before it was held");
        assert!(!explain("src/a.rs", 22_100), "long after");
        assert!(!explain("other/a.rs", 21_000), "another file");
    }

    #[test]
    fn a_release_is_known_for_as_long_as_a_change_may_be_looked_at() {
        let (start, mut releases) = (Instant::now(), Releases::default());
        // Held since before anybody listened.
        releases.note(&event("released", "l", "a.rs"), start + ms(1000));
        releases.note(&event("released", "m", "b.rs"), start + ms(31_000));
        assert!(releases.explain(&key("a.rs"), start) && releases.explain(&key("a.rs"), start + ms(2900)));
        releases.note(&event("released", "n", "c.rs"), start + ms(64_000));
        assert!(!releases.explain(&key("a.rs"), start + ms(2900)), "nobody looks at that any more");
        assert!(releases.explain(&key("b.rs"), start + ms(32_000)));
    }

    #[test]
    fn no_more_is_kept_than_is_allowed() {
        let (now, mut releases) = (Instant::now(), Releases::default());
        for number in 0..=KEPT_MAX {
            releases.note(&event("acquired", &number.to_string(), "a.rs"), now);
        }
        assert_eq!(releases.begun.len(), KEPT_MAX);
        for number in 0..=KEPT_MAX {
            releases.note(&event("expired", &number.to_string(), "a.rs"), now);
        }
        assert_eq!((releases.begun.len(), releases.released.len()), (0, KEPT_MAX));
    }

    #[test]
    fn the_end_of_a_room_is_no_release() {
        let (now, mut releases) = (Instant::now(), Releases::default());
        releases.note(&event("room_closed", "l", "a.rs"), now);
        assert!(!releases.explain(&key("a.rs"), now));
    }
}
