//! `lockkeeper run KEY... -- CMD`

use std::io::{IsTerminal, Read};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper_client::{Error, Holding, Identity, Lost, Pause};
use lockkeeper_wire::word::Word;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;
use crate::failure::Failure;
use crate::lock::Wanting;
use crate::output::{self, note};

const EXAMPLES: &str = "\
Examples:
  lockkeeper run src/schema.sql -m \"Regenerating\" -- make schema
  lockkeeper run db:migration-slot --wait 5m -- ./migrate
  lockkeeper run 'src/**' --busy-exit-code 0 -- ./format     do nothing when somebody works there";

/// How long a command gets to end by itself after its lock was lost.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// How often the lock is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The command's exit code is passed on. If a lock is lost, the command is ended: SIGTERM, and SIGKILL after 5 s.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    #[command(flatten)]
    wanting: Wanting,
    /// The exit code when a key is taken.
    #[arg(long, value_name = "N", default_value_t = 5)]
    busy_exit_code: u8,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

impl Run {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let request = self.wanting.request(context)?;
        let identity = context.identity()?;
        let holding = Holding::start(context.client()?, identity.clone())?;
        let waiting = context.says_it_waits(Wanting::patience(&request));
        if let Err(error) = holding.take(request) {
            return Err(self.refused(context, error));
        }
        drop(waiting);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(self.supervise(&holding, &identity));
        match ended? {
            Ended::Itself(code) => {
                holding.release()?;
                if code == 0 { Ok(()) } else { Err(Failure::Silent(code)) }
            }
            Ended::Lost(lost) => Err(lock_lost(&lost)),
        }
    }

    fn refused(&self, context: &Context, error: Error) -> Failure {
        let failure = Failure::taken(error, &self.wanting.keys);
        if failure.exit_code() == Word::Busy.exit_code() {
            let _ = failure.report(context);
            return Failure::Silent(self.busy_exit_code);
        }
        failure
    }

    /// Runs the command until it ends, or until a lock is lost.
    async fn supervise(&self, holding: &Holding, identity: &Identity) -> Result<Ended, Failure> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).kill_on_drop(true);
        // What the command asks for, it asks as the same session.
        command.env("SESSION_ID", &identity.session).env("AGENT_ID", &identity.agent);
        if let Some(lock) = holding.locks().first() {
            command.env("LOCKKEEPER_FENCING_TOKEN", lock.fencing_token.to_string());
        }
        die_with_parent(&mut command);
        // What the command leaves behind becomes a child of this program, and is ended with it.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        // From here on signals are for the command; it decides what they mean.
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                note!("{}: {error}", self.command[0]);
                return Ok(Ended::Itself(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }));
            }
        };
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let forward = |what: Signal| {
            if let Some(id) = id {
                let _ = kill_process(id, what);
            }
        };
        loop {
            tokio::select! {
                status = child.wait() => {
                    let status = status?;
                    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
                    return Ok(Ended::Itself(u8::try_from(code).unwrap_or(1)));
                }
                // A terminal sends Ctrl-C to the command as well.
                Some(()) = interrupted.recv() => if !std::io::stdin().is_terminal() { forward(Signal::INT) },
                Some(()) = terminated.recv() => forward(Signal::TERM),
                Some(()) = hung_up.recv() => forward(Signal::HUP),
                () = tokio::time::sleep(LOOK) => {
                    tell_pauses(holding);
                    if let Some(lost) = holding.next_lost() {
                        end(&mut child).await;
                        return Ok(Ended::Lost(Box::new(lost)));
                    }
                }
            }
        }
    }
}

enum Ended {
    Itself(u8),
    Lost(Box<Lost>),
}

/// Ends a command and whatever it started.
async fn end(child: &mut tokio::process::Child) {
    for member in descendants() {
        let _ = kill_process(member, Signal::TERM);
    }
    let _ = tokio::time::timeout(END_TIME_MAX, child.wait()).await;
    let give_up = Instant::now() + END_TIME_MAX;
    while !descendants().is_empty() && Instant::now() < give_up {
        tokio::time::sleep(LOOK).await;
    }
    for member in descendants() {
        let _ = kill_process(member, Signal::KILL);
    }
    let _ = child.wait().await;
}

/// Everything that runs because of this program.
fn descendants() -> Vec<Pid> {
    let own = rustix::process::getpid();
    family(own).into_iter().filter(|member| *member != own).collect()
}

/// A process and its descendants, as the system lists them.
fn family(first: Pid) -> Vec<Pid> {
    let parent_of = |stat: &str| {
        let behind = stat.rsplit_once(')')?.1;
        behind.split_whitespace().nth(1)?.parse::<i32>().ok()
    };
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pairs: Vec<(i32, i32)> = listed
        .filter_map(|entry| {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // One that has ended and was not fetched yet does nothing any more.
            if stat.rsplit_once(')').is_some_and(|(_, behind)| behind.trim_start().starts_with('Z')) {
                return None;
            }
            Some((id, parent_of(&stat)?))
        })
        .collect();
    // A service that this program had to start is a child too, and not to be ended with the command.
    let is_service = |id: i32| {
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

/// Says when somebody pauses what locks are held for: they stay, but nothing new is to be begun.
fn tell_pauses(holding: &Holding) {
    while let Some(pause) = holding.next_pause() {
        match pause {
            Pause::Began(lock) => note!("{}", output::paused(&lock)),
            Pause::Ended(lock) => note!("{} no longer holds {}: go on", output::bold(&lock.owner), lock.file_path),
        }
    }
}

pub(crate) fn lock_lost(lost: &Lost) -> Failure {
    let target = output::target(&lost.lock.file_path, lost.lock.start_line, lost.lock.end_line);
    Failure::Question {
        word: Word::LockLost,
        message: format!("{target} was lost: {}.", lost.why),
        hint: Some(format!("lockkeeper lock list '{}' shows who has it now", lost.lock.file_path)),
    }
}

/// Waits for Ctrl-C, for the end of the input, or for the loss of a lock.
pub(crate) fn until_interrupted_or_lost(holding: &Holding) -> Result<Option<Lost>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ended, mut input_ended) = tokio::sync::mpsc::channel::<()>(1);
    if watches_input() {
        std::thread::spawn(move || {
            let mut sink = [0u8; 4096];
            while std::io::stdin().lock().read(&mut sink).is_ok_and(|read| read > 0) {}
            let _ = ended.blocking_send(());
        });
    } else {
        // Never sent, never dropped: there is no input to end.
        std::mem::forget(ended);
    }
    runtime.block_on(async {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        loop {
            tokio::select! {
                _ = interrupted.recv() => return Ok(None),
                _ = terminated.recv() => return Ok(None),
                _ = hung_up.recv() => return Ok(None),
                _ = input_ended.recv() => return Ok(None),
                () = tokio::time::sleep(LOOK) => {
                    tell_pauses(holding);
                    if let Some(lost) = holding.next_lost() {
                        return Ok(Some(lost));
                    }
                }
            }
        }
    })
}

/// A terminal or a pipe can end; a command in the background reads from /dev/null, which says nothing.
pub(crate) fn watches_input() -> bool {
    use rustix::fs::{FileType, fstat};
    let stdin = std::io::stdin();
    stdin.is_terminal()
        || fstat(&stdin)
            .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
}
