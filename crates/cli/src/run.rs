//! `lockkeeper run KEY... -- CMD`

use std::io::{IsTerminal, Read};
use std::time::Duration;

use clap::Args;
use lockkeeper_client::{Error, Holding, Identity, Lost, Pause};
use lockkeeper_wire::word::Word;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;
use crate::failure::Failure;
use crate::lock::Wanting;
use crate::output::{self, note};
use crate::supervise::{Ended, supervise};

const EXAMPLES: &str = "\
Examples:
  lockkeeper run src/schema.sql -m \"Regenerating\" -- make schema
  lockkeeper run db:migration-slot --wait 5m -- ./migrate
  lockkeeper run 'src/**' --busy-exit-code 0 -- ./format     do nothing when somebody works there";

/// How often the lock is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The command's exit code is passed on. If a lock is lost, the command is ended: SIGTERM, and SIGKILL after 5 s. It finds the fencing
/// token in LOCKKEEPER_FENCING_TOKEN.
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
        let client = context.client()?;
        let holding = Holding::start(client.clone(), identity.clone())?;
        let waiting = context.says_it_waits(&client, Wanting::patience(&request));
        if let Err(error) = holding.take(request) {
            return Err(self.refused(context, error));
        }
        drop(waiting);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(self.watched(&holding, &identity));
        match ended? {
            Ended::Itself(code) => {
                // It may have been lost a moment before the command ended.
                if let Some(lost) = holding.next_lost() {
                    return Err(lock_lost(&lost));
                }
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

    /// Runs the command until it ends, or until a lock is lost, and says meanwhile who pauses.
    async fn watched(&self, holding: &Holding, identity: &Identity) -> Result<Ended<Box<Lost>>, Failure> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        // What the command asks for, it asks as the same session.
        command.env("SESSION_ID", &identity.session).env("AGENT_ID", &identity.agent);
        // Of several, the latest: whatever any of them protects has seen no greater one.
        if let Some(token) = holding.locks().iter().map(|lock| lock.fencing_token).max() {
            command.env("LOCKKEEPER_FENCING_TOKEN", token.to_string());
        }
        let lost = async {
            loop {
                tokio::time::sleep(LOOK).await;
                tell_pauses(holding);
                if let Some(lost) = holding.next_lost() {
                    return Box::new(lost);
                }
            }
        };
        supervise(command, lost).await
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
        hint: Some("lockkeeper lock list".to_owned()),
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
