//! What one Redis tells without being asked: that ledgers moved. Subscribes anew when the connection is lost, and has
//! everybody look who may have missed something.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::address::Host;
use super::connection::{Connection, Pushed};
use super::dial::Dial;
use super::reply::{hex, number, read_stored};
use super::trouble::Trouble;
use crate::Position;
use crate::remote::{Ear, Patience, Stored};

/// How often a silent connection is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The channels of one Redis that somebody listens on.
#[derive(Debug)]
pub(super) struct Notices {
    shared: Arc<Shared>,
    task: tokio::task::AbortHandle,
}

#[derive(Debug)]
struct Shared {
    dial: Arc<Dial>,
    host: Option<Host>,
    ears: Mutex<HashMap<String, Weak<dyn Ear>>>,
    /// Somebody came or left.
    changed: Notify,
    /// The connection is lost, or a channel is.
    lost: Notify,
}

impl Notices {
    pub(super) fn start(dial: Arc<Dial>, host: Option<Host>) -> Notices {
        let shared =
            Arc::new(Shared { dial, host, ears: Mutex::default(), changed: Notify::new(), lost: Notify::new() });
        let task = tokio::spawn(run(shared.clone())).abort_handle();
        Notices { shared, task }
    }

    /// Lets somebody listen; as soon as that works, it is told to look once.
    pub(super) fn listen(&self, channel: &str, ear: Weak<dyn Ear>) {
        self.shared.ears().insert(channel.to_owned(), ear);
        self.shared.changed.notify_one();
    }

    /// Ends that, unless somebody else listens there by now.
    pub(super) fn leave(&self, channel: &str, ear: &Weak<dyn Ear>) {
        let mut ears = self.shared.ears();
        if ears.get(channel).is_some_and(|listening| Weak::ptr_eq(listening, ear)) {
            ears.remove(channel);
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn ears(&self) -> MutexGuard<'_, HashMap<String, Weak<dyn Ear>>> {
        self.ears.lock().expect("no holder panics")
    }

    fn ear(&self, channel: &str) -> Option<Arc<dyn Ear>> {
        self.ears().get(channel).and_then(Weak::upgrade)
    }

    fn pushed(&self, info: &PushInfo) {
        let heard = match info.data.first() {
            Some(Value::BulkString(channel)) => std::str::from_utf8(channel).ok().and_then(|channel| self.ear(channel)),
            _ => None,
        };
        match (&info.kind, heard, info.data.get(1)) {
            (PushKind::SMessage, Some(ear), Some(Value::BulkString(note))) => match read_note(note) {
                Some((end, record)) => ear.hear(end, record),
                None => ear.look(),
            },
            // A cluster that moves a slot ends what was subscribed there.
            (PushKind::SUnsubscribe, Some(_), _) | (PushKind::Disconnection, _, _) => self.lost.notify_one(),
            _ => {}
        }
    }

    /// Serves until the connection is lost.
    async fn follow(&self, connection: &Connection, mut settled: impl FnMut()) -> Result<(), Trouble> {
        let mut subscribed = HashSet::new();
        loop {
            self.settle(connection, &mut subscribed).await?;
            settled();
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.lost.notified() => return Ok(()),
                () = tokio::time::sleep(PING_EVERY) => {
                    connection.ask(&redis::cmd("PING"), 0).await?;
                }
            }
        }
    }

    /// Subscribes to what somebody listens to, and to nothing else.
    async fn settle(&self, connection: &Connection, subscribed: &mut HashSet<String>) -> Result<(), Trouble> {
        let wanted: HashSet<String> = {
            let mut ears = self.ears();
            ears.retain(|_, ear| ear.strong_count() > 0);
            ears.keys().cloned().collect()
        };
        for channel in wanted.difference(subscribed) {
            let mut command = redis::cmd("SSUBSCRIBE");
            command.arg(channel);
            match connection.ask(&command, 0).await {
                Ok(_) => {}
                // Another node has it by now, which whoever looks finds out.
                Err(trouble) if trouble.is_wrong_place() => {}
                Err(trouble) => return Err(trouble),
            }
            if let Some(ear) = self.ear(channel) {
                ear.look();
            }
        }
        for channel in subscribed.difference(&wanted) {
            let mut command = redis::cmd("SUNSUBSCRIBE");
            command.arg(channel);
            connection.ask(&command, 0).await?;
        }
        *subscribed = wanted;
        Ok(())
    }
}

async fn run(shared: Arc<Shared>) {
    let mut patience = Patience::default();
    loop {
        while shared.ears().is_empty() {
            shared.changed.notified().await;
        }
        let heard = Arc::downgrade(&shared);
        let pushed: Pushed = Box::new(move |info| {
            if let Some(shared) = heard.upgrade() {
                shared.pushed(&info);
            }
        });
        let place = &shared.dial.address;
        let lost = match shared.dial.listen(shared.host.as_ref(), pushed).await {
            Err(error) => error,
            Ok(connection) => {
                // Not before it is subscribed: some may connect and nothing more.
                let settled = || {
                    if patience.succeeded() {
                        tracing::info!(%place, "changes are heard again");
                    }
                };
                match shared.follow(&connection, settled).await {
                    Ok(()) => crate::EngineError::Unreachable("the connection was lost".to_owned()),
                    Err(trouble) => trouble.into_error(""),
                }
            }
        };
        let (pause, first) = patience.failed(lost.clone());
        if first {
            tracing::info!(%place, error = %lost, "changes are not heard any more; looking instead");
        }
        tokio::time::sleep(pause).await;
    }
}

/// What is said when a ledger moves: where its end is now, and the last record if it is small.
pub(super) fn read_note(note: &[u8]) -> Option<(Position, Option<Stored>)> {
    let line_end = note.iter().position(|byte| *byte == b'\n').unwrap_or(note.len());
    let mut words = std::str::from_utf8(&note[..line_end]).ok()?.splitn(4, ' ');
    let (epoch, revision, digest) = (hex(words.next()?)?, number(words.next()?)?, hex(words.next()?)?);
    let record = match words.next() {
        Some(header) => Some(read_stored(revision, header, note.get(line_end + 1..)?.to_vec())?),
        None => None,
    };
    Some((Position { epoch, revision, digest }, record))
}
