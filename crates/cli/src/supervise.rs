//! A command that runs under a lock: signals go on to it, and it is ended with whatever it started when the lock is lost.

use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::output::note;

/// How long a command gets to end by itself after its lock was lost.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// How often is looked whether all have ended.
const LOOK: Duration = Duration::from_millis(50);

/// How a command ended.
pub(crate) enum Ended<L> {
    /// By itself, with this exit code.
    Itself(u8),
    /// It was ended, because its lock was lost.
    Lost(L),
}

/// Runs a command until it ends, or until the lock is lost.
pub(crate) async fn supervise<L>(mut command: Command, lost: impl Future<Output = L>) -> Result<Ended<L>, Failure> {
    command.kill_on_drop(true);
    die_with_parent(&mut command);
    // What the command leaves behind becomes a child of this program, and is ended with it.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    // From here on signals are for the command; it decides what they mean.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut orphaned = signal(SignalKind::child())?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            note!("{}: {error}", command.as_std().get_program().display());
            return Ok(Ended::Itself(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }));
        }
    };
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let forward = |what: Signal| {
        if let Some(id) = id {
            let _ = kill_process(id, what);
        }
    };
    let mut lost = std::pin::pin!(lost);
    loop {
        tokio::select! {
            status = child.wait() => {
                let status = status?;
                let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
                return Ok(Ended::Itself(u8::try_from(code).unwrap_or(1)));
            }
            // A terminal sends Ctrl-C to the command as well.
            Some(()) = interrupted.recv() => if !is_in_the_foreground() { forward(Signal::INT) },
            Some(()) = orphaned.recv() => fetch_orphans(id),
            Some(()) = terminated.recv() => forward(Signal::TERM),
            Some(()) = hung_up.recv() => forward(Signal::HUP),
            lost = &mut lost => {
                end(&mut child).await;
                return Ok(Ended::Lost(lost));
            }
        }
    }
}

/// Whether a terminal has this program, and with it the command, in its foreground, wherever their input comes from.
fn is_in_the_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| {
        rustix::termios::tcgetpgrp(terminal).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
    })
}

/// What the command left behind and has ended is fetched, or it would stay in the table of processes; the command itself is waited for.
fn fetch_orphans(command: Option<Pid>) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let orphans = processes().filter(|process| process.parent == own && process.has_ended);
    for orphan in orphans.filter_map(|process| Pid::from_raw(process.id)).filter(|orphan| Some(*orphan) != command) {
        let _ = rustix::process::waitpid(Some(orphan), rustix::process::WaitOptions::NOHANG);
    }
}

/// A process, as the system lists it.
struct Process {
    id: i32,
    parent: i32,
    /// It does nothing any more, and was not fetched yet.
    has_ended: bool,
}

fn processes() -> impl Iterator<Item = Process> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut behind = stat.rsplit_once(')')?.1.split_whitespace();
        let has_ended = behind.next()? == "Z";
        Some(Process { id, parent: behind.next()?.parse().ok()?, has_ended })
    })
}

/// Ends a command and whatever it started.
async fn end(child: &mut tokio::process::Child) {
    for member in descendants() {
        let _ = kill_process(member, Signal::TERM);
    }
    // One time for all: what the command left behind does not get another one.
    let give_up = Instant::now() + END_TIME_MAX;
    let _ = tokio::time::timeout_at(give_up.into(), child.wait()).await;
    while !descendants().is_empty() && Instant::now() < give_up {
        tokio::time::sleep(LOOK).await;
    }
    for member in descendants() {
        let _ = kill_process(member, Signal::KILL);
    }
    // Whatever it looks like, it was started here.
    let _ = child.start_kill();
    let _ = child.wait().await;
}

/// Everything that runs because of this program.
fn descendants() -> Vec<Pid> {
    let own = rustix::process::getpid();
    family(own).into_iter().filter(|member| *member != own).collect()
}

/// A process and its descendants, as the system lists them.
fn family(first: Pid) -> Vec<Pid> {
    let pairs: Vec<(i32, i32)> =
        processes().filter(|process| !process.has_ended).map(|process| (process.id, process.parent)).collect();
    // A service that this program had to start is a child too, and not to be ended with the command. Not by its words alone: a
    // command may have the same.
    let own = std::fs::read_link("/proc/self/exe").ok();
    let is_service = |id: i32| {
        if own.is_none() || std::fs::read_link(format!("/proc/{id}/exe")).ok() != own {
            return false;
        }
        let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"serve") && words.next() == Some(b"--background")
    };
    let mut members = vec![first.as_raw_nonzero().get()];
    let mut at = 0;
    while let Some(&parent) = members.get(at) {
        members.extend(pairs.iter().filter(|(id, of)| *of == parent && !is_service(*id)).map(|(id, _)| *id));
        at += 1;
    }
    members.into_iter().filter_map(Pid::from_raw).collect()
}

/// If this program is killed, its locks are freed at once: the command must not outlive it.
///
/// The system tells the direct child only. What that child started goes on, unless it notices by itself.
#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let set = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that was set.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(std::io::Error::other("the parent is gone"))
        }
    };
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated and no lock is taken on the
    // way that succeeds, and on the other the process is about to end.
    unsafe {
        command.pre_exec(set);
    }
}
