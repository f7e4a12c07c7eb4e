//! `lockkeeper advisory watch`

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use lockkeeper_advisory::{AdvisoryLockError, LockRow};
use serde::Serialize;

use super::{Database, failed, shown};
use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};

const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Looks again and again, and says what is new; what comes and goes between two looks is not seen.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    database: Database,
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: String,
}

/// One change.
#[derive(Serialize)]
struct Change<'a> {
    time: String,
    /// `held`, `waits` or `gone`.
    action: &'static str,
    #[serde(flatten)]
    lock: &'a LockRow,
}

/// A lock of one session.
type Place = (i32, Option<String>, i64, String);

impl Watch {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let interval = config::length(&self.interval).map_err(|error| Failure::usage(error.to_string()))?;
        let interval = Duration::from_millis(interval.0);
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
            return Err(Failure::usage("the interval is 100ms to 1h"));
        }
        let monitor = self.database.monitor(context)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut known: BTreeMap<Place, LockRow> = BTreeMap::new();
        let (mut first, mut away) = (true, false);
        while !output::is_over() {
            match runtime.block_on(monitor.locks()) {
                Ok(report) => {
                    if away {
                        note!("The database is back.");
                    }
                    (first, away) = (false, false);
                    let now = report.locks.into_iter().map(|row| (place(&row), row)).collect();
                    tell(context, &known, &now);
                    known = now;
                }
                Err(AdvisoryLockError::Unavailable(why)) if !first => {
                    if !away {
                        note!("The database went away ({why}); waiting for it.");
                    }
                    away = true;
                }
                Err(error) => return Err(failed(&error)),
            }
            // The runtime goes on meanwhile, and notices when the connection ends.
            runtime.block_on(async { tokio::time::sleep(interval).await });
        }
        Ok(())
    }
}

fn place(row: &LockRow) -> Place {
    (row.pid, row.namespace.clone(), row.entity_id, row.mode.clone())
}

fn tell(context: &Context, before: &BTreeMap<Place, LockRow>, now: &BTreeMap<Place, LockRow>) {
    for (place, row) in before {
        if !now.contains_key(place) {
            show(context, "gone", row);
        }
    }
    for (place, row) in now {
        if before.get(place).is_none_or(|old| old.granted != row.granted) {
            show(context, if row.granted { "held" } else { "waits" }, row);
        }
    }
}

fn show(context: &Context, action: &'static str, lock: &LockRow) {
    let time = jiff::Timestamp::now().to_string();
    if context.global.json {
        output::json(&Change { time, action, lock });
        return;
    }
    let application = lock.application_name.as_deref().unwrap_or_default().escape_debug();
    let behind: Vec<String> = lock.waiting_for.iter().map(|pid| format!("  waits for {pid}")).collect();
    say!("{}  {action:<5}  {}  pid {}  {application}{}", output::moment(&time), shown(lock), lock.pid, behind.concat());
}
