//! The advisory locks of a database, for whoever looks. Takes none.

use std::sync::Arc;

use lockkeeper_advisory::{AdvisoryLockError, LockRow, Monitor};
use lockkeeper_wire::answer::{AdvisoryLockList, AdvisoryLockView};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::StatusRequest;
use lockkeeper_wire::word::Word;

use super::{Body, Caller, Service, json};
use crate::refusal::{self, No};

const HOW: &str =
    "set DATABASE_URL for the service, or database_url under [advisory] in the user's settings, and start it again";

/// The database whose advisory locks are shown.
#[derive(Debug, Default)]
pub enum Advisory {
    #[default]
    NotConfigured,
    /// What is configured can't be used, and why. A variable that other programs read, too, must not keep a service from starting.
    Unusable(String),
    Watched(Arc<Monitor>),
}

impl Service {
    /// Shows the advisory locks of a database.
    #[must_use]
    pub fn with_advisory(self, advisory: Advisory) -> Service {
        Service { advisory, ..self }
    }

    pub(super) async fn advisory_locks(&self, body: StatusRequest, caller: &Caller) -> Body {
        self.permit_look(Operation::AdvisoryLocks, caller, &body, None)?;
        let monitor = match &self.advisory {
            Advisory::Watched(monitor) => monitor,
            Advisory::NotConfigured => {
                let message = "No database is configured, so there are no advisory locks to show.";
                return Err(No::new(Word::NotFound, message).hint(HOW));
            }
            Advisory::Unusable(why) => {
                return Err(No::new(Word::InvalidRequest, refusal::sentence(why)).hint(HOW));
            }
        };
        let report = monitor.locks().await.map_err(|error| away(&error))?;
        let locks = report.locks.into_iter().map(view).collect();
        json(&AdvisoryLockList { status: report.status, total: report.total, locks })
    }

    /// Brings the counts of advisory locks up to date. Does not wait for a database that is away.
    pub(crate) async fn count_advisory_locks(&self) {
        if let Advisory::Watched(monitor) = &self.advisory {
            let counts = monitor.counts().await;
            self.metrics.advisory(counts.up, &counts.by_namespace);
        }
    }
}

fn away(error: &AdvisoryLockError) -> No {
    No::new(Word::Unavailable, refusal::sentence(&error.to_string()))
        .hint("lockkeeper advisory list, with the same DATABASE_URL, tries it from where you are")
}

fn view(row: LockRow) -> AdvisoryLockView {
    let LockRow { pid, application_name, state, query_start, namespace, entity_id, .. } = row;
    let LockRow { form, mode, granted, duration_seconds, waiting_for, .. } = row;
    AdvisoryLockView {
        pid,
        application_name,
        state,
        query_start,
        namespace,
        entity_id,
        form,
        mode,
        granted,
        duration_seconds,
        waiting_for,
    }
}
