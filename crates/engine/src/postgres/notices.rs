//! Telling others that ledgers moved, and hearing it from them: `NOTIFY` and `LISTEN`.
//!
//! What is told comes after the commit and in a transaction of its own: while one that notifies commits, no other
//! that notifies can, in the whole server. It may be lost: whoever hears nothing for a second looks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};

use super::dial::{Dial, Told};
use crate::remote::{Ear, Patience};
use crate::{EngineError, Position};

const CHANNEL: &str = "lockkeeper_moved";
/// How often a silent connection is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Notices {
    shared: Arc<Shared>,
    tasks: [tokio::task::AbortHandle; 2],
}

#[derive(Debug)]
struct Shared {
    dial: Arc<Dial>,
    /// By the tag of their space.
    ears: Mutex<HashMap<String, Weak<dyn Ear>>>,
    /// What is still to be told, by tag: only the last of each.
    untold: Mutex<HashMap<String, Position>>,
    something: Notify,
}

impl Notices {
    pub(super) fn start(dial: Arc<Dial>) -> Notices {
        let shared =
            Arc::new(Shared { dial, ears: Mutex::default(), untold: Mutex::default(), something: Notify::new() });
        let tasks =
            [tokio::spawn(hear(shared.clone())).abort_handle(), tokio::spawn(tell(shared.clone())).abort_handle()];
        Notices { shared, tasks }
    }

    /// Lets somebody listen.
    pub(super) fn listen(&self, tag: &str, ear: Weak<dyn Ear>) {
        self.shared.ears().insert(tag.to_owned(), ear);
    }

    /// Ends that, unless somebody else listens there by now.
    pub(super) fn leave(&self, tag: &str, ear: &Weak<dyn Ear>) {
        let mut ears = self.shared.ears();
        if ears.get(tag).is_some_and(|listening| Weak::ptr_eq(listening, ear)) {
            ears.remove(tag);
        }
    }

    /// Tells the others as soon as possible.
    pub(super) fn announce(&self, tag: &str, end: Position) {
        self.shared.untold().insert(tag.to_owned(), end);
        self.shared.something.notify_one();
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn ears(&self) -> MutexGuard<'_, HashMap<String, Weak<dyn Ear>>> {
        self.ears.lock().expect("no holder panics")
    }

    fn untold(&self) -> MutexGuard<'_, HashMap<String, Position>> {
        self.untold.lock().expect("no holder panics")
    }

    fn heard(&self, message: &AsyncMessage) {
        let AsyncMessage::Notification(note) = message else { return };
        let Some((tag, note)) = note.payload().split_once(' ') else { return };
        let Some(ear) = self.ears().get(tag).and_then(Weak::upgrade) else { return };
        match read_note(note) {
            Some(end) => ear.hear(end, None),
            None => ear.look(),
        }
    }

    /// Listens until the connection is lost.
    async fn follow(self: &Arc<Shared>, mut settled: impl FnMut()) -> Result<(), EngineError> {
        let heard = Arc::downgrade(self);
        let told: Told = Box::new(move |message| {
            if let Some(shared) = heard.upgrade() {
                shared.heard(&message);
            }
        });
        let (client, mut driver) = self.dial.listen(told).await?;
        self.ask(&client, &format!("listen {CHANNEL}")).await?;
        settled();
        let ears: Vec<_> = self.ears().values().filter_map(Weak::upgrade).collect();
        for ear in ears {
            ear.look();
        }
        loop {
            tokio::select! {
                _ = &mut driver => return Ok(()),
                () = tokio::time::sleep(PING_EVERY) => self.ask(&client, "").await?,
            }
        }
    }

    async fn ask(&self, client: &Client, statement: &str) -> Result<(), EngineError> {
        let lost = || EngineError::Unreachable("the connection was lost".to_owned());
        match tokio::time::timeout(self.dial.time_limit(), client.batch_execute(statement)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(lost()),
        }
    }
}

async fn hear(shared: Arc<Shared>) {
    let mut patience = Patience::default();
    loop {
        let place = &shared.dial.address;
        let settled = || {
            if patience.succeeded() {
                tracing::info!(%place, "changes are heard again");
            }
        };
        let lost = match shared.follow(settled).await {
            Ok(()) => EngineError::Unreachable("the connection was lost".to_owned()),
            Err(error) => error,
        };
        let (pause, first) = patience.failed(lost.clone());
        if first {
            tracing::info!(%place, error = %lost, "changes are not heard any more; looking instead");
        }
        tokio::time::sleep(pause).await;
    }
}

async fn tell(shared: Arc<Shared>) {
    let mut connected: Option<Client> = None;
    loop {
        shared.something.notified().await;
        let untold = std::mem::take(&mut *shared.untold());
        for (tag, end) in untold {
            connected = told(&shared, connected.take(), &write_note(&tag, end)).await;
            if connected.is_none() {
                // Whoever hears nothing looks; what is told much later helps nobody.
                break;
            }
        }
    }
}

/// Tells something, and keeps the connection if that worked. What can't be told is found by those who look.
async fn told(shared: &Shared, connected: Option<Client>, note: &str) -> Option<Client> {
    let client = match connected.filter(|client| !client.is_closed()) {
        Some(client) => client,
        None => {
            let (client, _) = shared.dial.listen(Box::new(|_| {})).await.ok()?;
            // Nothing is lost with a notice.
            shared.ask(&client, "set synchronous_commit = off").await.ok()?;
            client
        }
    };
    // Safe to put into the statement: a note has nothing but letters, digits and spaces.
    shared.ask(&client, &format!("notify {CHANNEL}, '{note}'")).await.ok()?;
    Some(client)
}

/// Where the end is now. Not what was written: everybody who can connect may listen, and tell.
fn write_note(tag: &str, end: Position) -> String {
    let Position { epoch, revision, digest } = end;
    format!("{tag} {epoch:016x} {revision} {digest:016x}")
}

pub(super) fn read_note(note: &str) -> Option<Position> {
    let mut words = note.split(' ');
    let mut number = |radix| u64::from_str_radix(words.next()?, radix).ok();
    Some(Position { epoch: number(16)?, revision: number(10)?, digest: number(16)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_where_the_end_is() {
        let end = Position { epoch: 1, revision: 7, digest: u64::MAX };
        let note = write_note("tag", end);
        assert_eq!(read_note(note.strip_prefix("tag ").expect("its tag")), Some(end));
        for strange in ["", "x", "1", "1 2", "1 2 g", "1 -2 3", "1 2 \u{fc}"] {
            assert_eq!(read_note(strange), None, "{strange}");
        }
    }
}
