//! `lockkeeper advisory run NAMESPACE ID -- CMD`

use std::time::Duration;

use clap::Args;
use lockkeeper_advisory::{AdvisoryLockError, Guard, LockId, Locks, TIMEOUT_MAX};
use lockkeeper_wire::word::Word;
use tokio::process::Command;

use super::{Database, failed};
use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::note;
use crate::supervise::{Ended, supervise};

/// A wait that is shorter is not worth a word.
const MOMENT: Duration = Duration::from_millis(300);

const EXAMPLES: &str = "\
Examples:
  lockkeeper advisory run AGENT 42 -- ./process-event           (1, 42) in pg_locks, waits for up to 15 s
  lockkeeper advisory run AGENT 42 --timeout 2m -- ./migrate
  lockkeeper advisory run 7 'nightly report' --skip -- ./report    a text is hashed
  lockkeeper advisory run AGENT 42 --skip --busy-exit-code 0 -- ./reap   taken is no failure

The database is in DATABASE_URL. Exit codes: that of the command; 5 when the lock is taken, 4 when it was lost and the command
ended, 3 when the database can't be reached, 2 when the question is wrong.";

/// The command's exit code is passed on. If the lock is lost, the command is ended: SIGTERM, and SIGKILL after 5 s.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// AGENT, a name under [advisory.namespaces] in lockkeeper.toml, or a number.
    #[arg(value_name = "NAMESPACE", allow_negative_numbers = true)]
    namespace: String,
    /// A whole number, or a text, which is hashed.
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: String,
    /// How long to wait for the lock.
    #[arg(long, value_name = "TIME", default_value = "15s")]
    timeout: String,
    /// Do not wait: if the lock is taken, do nothing.
    #[arg(long, conflicts_with = "timeout")]
    skip: bool,
    /// The exit code when the lock is taken.
    #[arg(long, value_name = "N", default_value_t = 5)]
    busy_exit_code: u8,
    #[command(flatten)]
    database: Database,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

impl Run {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let names = context.config()?.namespaces().map_err(|error| Failure::usage(format!("{error:#}")))?;
        let namespace = names.parse(&self.namespace).map_err(|error| Failure::usage(error.to_string()))?;
        let id = LockId::parse(&self.id).map_err(|error| Failure::usage(error.to_string()))?;
        let timeout = config::length(&self.timeout).map_err(|error| Failure::usage(error.to_string()))?;
        let timeout = Duration::from_millis(timeout.0);
        if timeout > TIMEOUT_MAX {
            return Err(Failure::usage("the timeout is at most 24h"));
        }
        let address = self.database.address(context)?.named("lockkeeper-run");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let locks = Locks::open(address, 1).map_err(|error| failed(&error))?;
            let taken = if self.skip {
                locks.lock_or_skip(namespace, id).await
            } else {
                let asked = locks.lock(namespace, id, timeout).into_future();
                said_if_it_waits(context, timeout, asked).await.map(Some)
            };
            match taken {
                Ok(Some(guard)) => self.under(guard).await,
                Ok(None) => Err(self.busy(context, skipped(&self.namespace, &self.id))),
                Err(error @ AdvisoryLockError::Timeout { .. }) => Err(self.busy(context, failed(&error))),
                Err(error) => Err(failed(&error)),
            }
        })
    }

    fn busy(&self, context: &Context, failure: Failure) -> Failure {
        let _ = failure.report(context);
        Failure::Silent(self.busy_exit_code)
    }

    async fn under(&self, guard: Guard) -> Result<(), Failure> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        match supervise(command, guard.lost()).await? {
            Ended::Itself(code) => {
                // A lock that was lost in the last moment leaves the command's work unprotected, whatever it says itself.
                guard.release().await.map_err(|error| failed(&error))?;
                if code == 0 { Ok(()) } else { Err(Failure::Silent(code)) }
            }
            Ended::Lost(lost) => Err(failed(&lost)),
        }
    }
}

fn skipped(namespace: &str, id: &str) -> Failure {
    Failure::Question {
        word: Word::Busy,
        message: format!("{namespace} {id} is held by another session; the command was not run."),
        hint: Some("lockkeeper advisory list shows who holds it".to_owned()),
    }
}

async fn said_if_it_waits<T>(context: &Context, patience: Duration, asked: impl Future<Output = T>) -> T {
    let mut asked = std::pin::pin!(asked);
    match tokio::time::timeout(MOMENT, &mut asked).await {
        Ok(answer) => answer,
        Err(_) => {
            if !context.global.json {
                note!("Waiting for up to {patience:?}; lockkeeper advisory list shows who holds it.");
            }
            asked.await
        }
    }
}
