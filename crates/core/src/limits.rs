//! Every bound in one place. What is beyond one is refused with its number, never trimmed silently.

use crate::time::Millis;

pub const SPACE_BYTES_MAX: usize = 1024;
pub const KEY_BYTES_MAX: usize = 1024;
pub const INTENTION_CHARS_MAX: usize = 500;
pub const NAME_CHARS_MAX: usize = 128;
pub const REQUEST_ID_CHARS_MAX: usize = 128;

/// Keys in one acquisition.
pub const SET_MAX: usize = 256;
pub const LOCKS_MAX: usize = 2_000_000;
pub const LOCKS_PER_SESSION_MAX: usize = 100_000;
pub const SESSIONS_MAX: usize = 100_000;
pub const WAITERS_MAX: usize = 10_000;
/// Keys that all of them wait for: whoever is served by one release is recorded in one batch.
pub const AWAITED_MAX: usize = 250_000;
pub const WAITERS_PER_SESSION_MAX: usize = 64;
/// Keys that one session waits for: whatever is decided about one of them may look at all of them.
pub const AWAITED_PER_SESSION_MAX: usize = 1024;
/// Servers of one ledger that are remembered.
pub const SERVERS_MAX: usize = 256;
pub const ROOMS_MAX: usize = 10_000;

pub const TTL_MIN: Millis = Millis::from_secs(1);
pub const TTL_MAX: Millis = Millis::from_minutes(480);
pub const TTL_DEFAULT: Millis = Millis::from_secs(30);
pub const WAIT_MAX: Millis = Millis::from_minutes(480);

pub const PRIORITY_MAX: u8 = 10;
pub const PRIORITY_DEFAULT: u8 = 5;
/// How long a waiter of one priority less has to wait to draw level.
pub const PRIORITY_STEP: Millis = Millis::from_secs(10);

/// How long a session counts as alive after it was last heard.
pub const SESSION_ALIVE: Millis = Millis::from_secs(30);

/// Answers that are remembered by request id,
pub const REQUESTS_PER_SESSION_MAX: usize = 256;
/// and the locks in all of them together: an answer may name hundreds.
pub const REQUESTS_LOCKS_MAX: usize = 200_000;
pub const REQUEST_MEMORY: Millis = Millis::from_minutes(10);

/// What a session lost and may restore, and what all of them did.
pub const LOST_PER_SESSION_MAX: usize = 1024;
pub const LOST_MAX: usize = 200_000;
pub const HISTORY_MAX: usize = 100_000;
/// Entries that are looked through for what became of one lock.
pub const HISTORY_LOOKS_MAX: usize = 1000;
pub const HISTORY_KEPT: Millis = Millis::from_secs(7 * 24 * 3600);
/// As long as there is room.
pub const HISTORY_KEPT_MAX: Millis = Millis(u64::MAX);

pub const QUOTA_LIMIT_DEFAULT: u32 = 60;
pub const QUOTA_LIMIT_MAX: u32 = 10_000;
pub const QUOTA_WINDOW_DEFAULT: Millis = Millis::from_secs(60);

/// Conflicts that one refusal names.
pub const CONFLICTS_SHOWN_MAX: usize = 16;
/// Those ahead in the queue that one refusal counts.
pub const AHEAD_COUNTED_MAX: usize = 256;

/// Locks and waiters that a refusal looks at to say who else stands in the way,
pub const CONFLICT_LOOKS_MAX: usize = 20_000;
/// and to say which lines are free.
pub const FREE_LOOKS_MAX: usize = 10_000;
/// How often each waiter may be found, by whatever somebody wants or leaves, before all of them are looked at instead.
pub const LOOKS_A_WAITER: usize = 4;
/// A session's spans of one file that are looked at one by one.
pub const FEW_SPANS: usize = 64;
/// Own locks of whoever joins the queue, of which it is asked whether somebody else wants them; whoever has more is taken for wanted.
pub const OWN_LOCKS_ASKED_MAX: usize = 2000;
/// Waiters that a set looks at by what they wait for, before it looks at them one after the other.
pub const SET_LOOKS_MAX: usize = 1000;
/// Locks and waiters that a pause looks at to find out what it makes free at once: the rest is looked for in the queue.
pub const FREED_LOOKS_MAX: usize = 100_000;
/// Locks and waiters that a decision looks at to find waits that became circles,
pub const CIRCLE_LOOKS_MAX: usize = 20_000;
/// and for each such wait at least, however many there are.
pub const CIRCLE_LOOKS_MIN: usize = 32;
/// Places in the queue at which a newcomer may come to stand, by its stamp, that are looked at for circles.
pub const CIRCLE_PLACES_MAX: usize = 16;
/// How much later than it was decided a batch may be stamped, as far as circles are concerned.
pub const STAMP_DELAY_MAX: Millis = Millis::from_secs(2);
/// Steps of a circle that are recorded and told: of a longer one its beginning and its end.
pub const CIRCLE_STEPS_MAX: usize = 16;

pub const ROOM_BUSY_DEFAULT: Millis = Millis::from_secs(5);

pub const POLICY_RULES_MAX: usize = 1000;
pub const POLICY_PATTERNS_MAX: usize = 256;

/// How long a feature's key is held for a finish, at most.
pub const FINALIZE_TTL: Millis = Millis::from_secs(30);
pub const FEATURES_MAX: usize = 1000;
pub const CLAIMS_MAX: usize = 100;
/// Claims that are named of those that features share.
pub const SHARED_CLAIMS_MAX: usize = 1000;

pub const PORT_BASE_MIN: u16 = 1024;
pub const PORT_BASE_DEFAULT: u16 = 10_000;
pub const PORT_STRIDE_DEFAULT: u16 = 100;
/// Ports of one allocation.
pub const PORTS_EACH: u16 = 4;
pub const PORT_SESSIONS_DEFAULT: u16 = 20;
pub const PORT_TTL_DEFAULT: Millis = Millis::from_minutes(120);
/// Ports that one request may call taken.
pub const PORTS_TAKEN_MAX: usize = 65_536;
