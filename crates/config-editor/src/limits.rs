//! Every bound in one place. What is beyond one is refused with its number; nothing is changed then.

use std::time::Duration;

/// Bytes of a file that is read or written.
pub const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How deep lists and maps may lie in one another.
pub const DEPTH_MAX: usize = 64;
/// Values of a document, with every alias expanded.
pub const NODES_MAX: usize = 1_000_000;
/// Bytes of a dotted key as it is written.
pub const KEY_BYTES_MAX: usize = 1024;
/// Links that are followed to a file before they count as a circle.
pub const LINKS_MAX: usize = 40;
/// How long a writer waits for the others, unless told otherwise.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(30);
