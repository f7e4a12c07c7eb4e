//! The memory allocator, set up for questions that are decided in batches.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// What glibc reads when a program starts, and never again.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// So many free pieces of each size are kept at hand, in place of seven: a batch needs as many as it has questions, and beyond
/// what is at hand each costs a search. Bounds what is kept for nothing, too. And large pages where the system has them: a
/// million locks lie on a hundred thousand small ones.
const SET_UP: &str = "glibc.malloc.tcache_count=256:glibc.malloc.hugetlb=1";

/// Starts this program anew in the same process, once, so that the allocator is set up. Nothing may have begun yet. What
/// somebody else has set stays.
pub(crate) fn set_up_for_batches() {
    if cfg!(not(target_env = "gnu")) || std::env::var_os(TUNABLES).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let (Some(name), Ok(program)) = (arguments.next(), std::env::current_exe()) else { return };
    if program.file_name().is_none_or(|file| file.to_string_lossy().starts_with("ld")) {
        // Started through the loader, which would take the first argument for a program.
        return;
    }
    let error = Command::new(program).arg0(name).args(arguments).env(TUNABLES, SET_UP).exec();
    // Slower, and as good as before.
    tracing::debug!(%error, "the allocator is as it was");
}
