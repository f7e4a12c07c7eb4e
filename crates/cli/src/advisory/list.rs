//! `lockkeeper advisory list`

use clap::Args;
use lockkeeper_advisory::LockRow;

use super::{Database, failed, shown};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};

const EXAMPLES: &str = "\
Examples:
  DATABASE_URL=postgres://me:secret@db/app lockkeeper advisory list
  lockkeeper advisory list --json | jq '.locks[] | select(.granted | not)'

Names of namespaces are AGENT (1), and those under [advisory.namespaces] in lockkeeper.toml.";

/// Who holds and who waits for advisory locks in the database, whatever program they are of.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct List {
    #[command(flatten)]
    database: Database,
}

impl List {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let monitor = self.database.monitor(context)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = runtime.block_on(monitor.locks()).map_err(|error| failed(&error))?;
        if context.global.json {
            output::json(&report);
            return Ok(());
        }
        if report.locks.is_empty() {
            say!("No advisory lock is held.");
            return Ok(());
        }
        output::table(
            ["Lock", "Mode", "State", "For", "Pid", "Application", "Waits for"],
            report.locks.iter().map(row),
        );
        if report.total > report.locks.len() as u64 {
            note!("{} of {} shown.", report.locks.len(), report.total);
        }
        Ok(())
    }
}

fn row(lock: &LockRow) -> [String; 7] {
    let pids: Vec<String> = lock.waiting_for.iter().map(ToString::to_string).collect();
    [
        shown(lock),
        lock.mode.trim_end_matches("Lock").to_lowercase(),
        if lock.granted { "held" } else { "waits" }.to_owned(),
        lock.duration_seconds.map(|seconds| format!("{seconds:.1} s")).unwrap_or_default(),
        lock.pid.to_string(),
        lock.application_name.as_deref().unwrap_or_default().escape_debug().to_string(),
        pids.join(", "),
    ]
}
