//! Every bound in one place. What is beyond one is refused with its number, never trimmed silently.

use std::time::Duration;

/// One event, as it lies on the disk.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// How deep arrays and objects of an event may lie in each other.
pub const EVENT_DEPTH_MAX: usize = 128;
/// `ledger.lock`, `meta.json` and a file in `locks/`.
pub const SMALL_FILE_BYTES_MAX: usize = 64 * 1024;
/// Entries of the ledger's folder, whatever they are.
pub const ENTRIES_MAX: usize = 5_000_000;
/// Files in `locks/`.
pub const CLAIM_FILES_MAX: usize = 100_000;
/// The greatest number that an event may have: twelve digits.
pub const SEQUENCE_MAX: u64 = 999_999_999_999;

pub const NODE_BYTES_MAX: usize = 128;
pub const NODE_DEPTH_MAX: usize = 32;
/// Nodes that one event names.
pub const NODES_EACH_MAX: usize = 10_000;
pub const OWNER_BYTES_MAX: usize = 256;

pub const CLAIM_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5 * 60);
pub const CLAIM_TIMEOUT_MIN: Duration = Duration::from_secs(1);
pub const CLAIM_TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

pub const LOCK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
pub const LOCK_TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);
pub const LOCK_POLL: Duration = Duration::from_millis(10);
/// From this age on the holder of a lock that cannot be asked may be called dead, by whoever says so.
pub const STALE_AGE_DEFAULT: Duration = Duration::from_secs(30);
/// How long a lock file without a word in it is watched before it is taken for what a crash of ours left.
pub const EMPTY_LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Between noting that a lock is about to be created, and creating it; an empty one of another time is somebody else's.
pub const CREATION_MAX: Duration = Duration::from_secs(1);
/// For so long the lock is held for reaping at a stretch; then others get in.
pub const HOLD_MAX: Duration = Duration::from_secs(1);
/// How long the guard of removals is waited for by whoever frees a lock, or recovers one.
pub const GUARD_PATIENCE: Duration = Duration::from_secs(2);
pub const GUARD_POLL: Duration = Duration::from_millis(1);

/// For so long ours may follow each other without a pause in which somebody who polls can get in.
pub const RUN_MAX: Duration = Duration::from_millis(500);
/// The pause: longer than one poll.
pub const RUN_PAUSE: Duration = Duration::from_millis(13);
/// How often it is looked during a pause whether somebody got in.
pub const PAUSE_LOOK: Duration = Duration::from_millis(1);
/// Pauses that follow each other, as long as somebody gets in during each: where one stranger waits, others may.
pub const PAUSES_MAX: u32 = 16;
/// Threads of one process that wait for their turn; whoever comes then polls.
pub const WAITING_THREADS_MAX: usize = 64;

/// Tries of an optimistic append, as in the protocol's example.
pub const TRIES_DEFAULT: u32 = 3;
pub const TRIES_MAX: u32 = 10_000;
pub const BACKOFF_FIRST: Duration = Duration::from_millis(1);
pub const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// A temporary file of this age belongs to nobody any more.
pub const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);
/// Findings that one verification tells; the rest is counted.
pub const FINDINGS_MAX: usize = 1_000;
/// Characters of an offending text that a message repeats.
pub const SHOWN_CHARS_MAX: usize = 80;
