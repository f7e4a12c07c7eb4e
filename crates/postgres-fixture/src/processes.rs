//! Processes, as the system lists them: who is whose child, who lives, and signals to them.

use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn signal(ids: &[u32], signal: Signal) {
    for pid in ids.iter().filter_map(|id| Pid::from_raw(id.cast_signed())) {
        // One that has just ended is none to tell.
        let _ = kill_process(pid, signal);
    }
}

/// The processes that this one started; a PostgreSQL starts all of its own directly.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let listed = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    listed
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| stat(*id).is_some_and(|(_, of)| of == parent))
        .collect()
}

/// Whether it still does something: one that has ended and was not fetched yet does not.
pub(crate) fn lives(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != "Z")
}

/// Whether it was stopped, or has ended.
pub(crate) fn stands_still(id: u32) -> bool {
    stat(id).is_none_or(|(state, _)| matches!(state.as_str(), "T" | "t" | "Z" | "X"))
}

/// The state of a process, and its parent.
fn stat(id: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.to_owned();
    Some((state, words.next()?.parse().ok()?))
}
