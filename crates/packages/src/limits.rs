//! Every bound in one place. What is beyond one is refused with its number, never trimmed silently.

pub const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Nodes of the document once every alias stands for what it names.
pub const NODES_MAX: usize = 1_000_000;
/// Bytes of text once every alias stands for what it names.
pub const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
pub const DEPTH_MAX: usize = 64;

pub const PACKAGES_MAX: usize = 10_000;
/// Locks of one package, files and keys together: as many as one acquisition takes.
pub const LOCKS_MAX: usize = lockkeeper_core::limits::SET_MAX;
/// Entries of each list of a scope.
pub const SCOPE_MAX: usize = 256;
pub const GLOB_BYTES_MAX: usize = lockkeeper_core::limits::KEY_BYTES_MAX;
pub const CONTRACT_FILES_MAX: usize = 1_000;

pub const NAME_CHARS_MAX: usize = lockkeeper_core::limits::NAME_CHARS_MAX;
pub const TITLE_CHARS_MAX: usize = 500;
pub const DESCRIPTION_CHARS_MAX: usize = 10_000;
pub const REASON_CHARS_MAX: usize = lockkeeper_core::limits::INTENTION_CHARS_MAX;

pub const REVISION_MAX: u32 = 1_000_000;
pub const PRIORITY_MAX: u8 = lockkeeper_core::limits::PRIORITY_MAX;
pub const TTL_MINUTES_MAX: u16 = 480;
pub const TIMEOUT_MINUTES_MAX: u16 = 10_080;
pub const RETRY_BUDGET_MAX: u8 = 100;
pub const TRUST_LEVEL_MAX: u8 = 4;

/// Problems that one report tells; the rest is counted.
pub const PROBLEMS_MAX: usize = 1_000;
/// Collisions that one plan tells; the rest is counted.
pub const COLLISIONS_MAX: usize = 10_000;
/// Steps that may be spent on comparing the scopes of one document.
pub const SCOPE_STEPS_MAX: u64 = 10_000_000;
/// Steps that may be spent on comparing `contract:` keys with generated artifacts.
pub const CONTRACT_STEPS_MAX: u64 = 10_000_000;
/// Characters of an offending text that a problem repeats.
pub const SHOWN_CHARS_MAX: usize = 80;
