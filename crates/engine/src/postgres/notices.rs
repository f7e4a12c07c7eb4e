//! Telling others that ledgers moved, and hearing it from them: `NOTIFY` and `LISTEN`.
//!
//! What is told comes after the commit and in a transaction of its own: while one that notifies commits, no other
//! that notifies can, in the whole server. It may be lost: whoever hears nothing for a second looks.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use lockkeeper_core::time::{Stamp, Time};
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};

use super::dial::{Dial, Told};
use crate::remote::{Ear, Patience, Stored};
use crate::{BatchId, EngineError, Position, Record};

const CHANNEL: &str = "lockkeeper_moved";
/// How often a silent connection is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Records up to this size are told whole; for larger ones others have to ask. PostgreSQL takes 8,000 bytes in all.
const RECORD_BYTES_MAX: usize = 3700;

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
    untold: Mutex<HashMap<String, String>>,
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
    pub(super) fn announce(&self, tag: &str, before: Position, record: Record) {
        let mut untold = self.shared.untold();
        match untold.get_mut(tag) {
            // What comes in between is read by whoever wants it.
            Some(note) => *note = write_note(tag, &record, None),
            None => {
                untold.insert(tag.to_owned(), write_note(tag, &record, Some(before)));
            }
        }
        drop(untold);
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

    fn untold(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.untold.lock().expect("no holder panics")
    }

    fn heard(&self, message: &AsyncMessage) {
        let AsyncMessage::Notification(note) = message else { return };
        let Some((tag, note)) = note.payload().split_once(' ') else { return };
        let Some(ear) = self.ears().get(tag).and_then(Weak::upgrade) else { return };
        match read_note(note) {
            Some((end, record)) => ear.hear(end, record),
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
        for note in untold.into_values() {
            connected = told(&shared, connected.take(), &note).await;
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

/// Where the end is now; and the record that led there, if others may know what is before it.
fn write_note(tag: &str, record: &Record, before: Option<Position>) -> String {
    let Position { epoch, revision, digest } = record.position;
    let mut note = format!("{tag} {epoch:016x} {revision} {digest:016x}");
    if let Some(before) = before.filter(|_| record.payload.len() <= RECORD_BYTES_MAX) {
        let Stamp { time, wall } = record.stamp;
        let _ = write!(note, " {:016x} {:032x} {} {wall} ", before.digest, record.batch.0, time.0);
        for byte in &record.payload {
            let _ = write!(note, "{byte:02x}");
        }
    }
    note
}

fn read_note(note: &str) -> Option<(Position, Option<Stored>)> {
    let mut words = note.split(' ');
    let mut hex = |radix| u128::from_str_radix(words.next()?, radix).ok();
    let (epoch, revision, digest) =
        (u64::try_from(hex(16)?).ok()?, u64::try_from(hex(10)?).ok()?, u64::try_from(hex(16)?).ok()?);
    let end = Position { epoch, revision, digest };
    let Some(before) = hex(16) else { return Some((end, None)) };
    let (before, batch) = (u64::try_from(before).ok()?, BatchId(hex(16)?));
    let stamp = Stamp { time: Time(u64::try_from(hex(10)?).ok()?), wall: u64::try_from(hex(10)?).ok()? };
    let payload = words.next()?;
    let bytes = |index: usize| u8::from_str_radix(payload.get(index..index + 2)?, 16).ok();
    let payload = (0..payload.len()).step_by(2).map(bytes).collect::<Option<Vec<u8>>>()?;
    Some((end, Some(Stored { revision, before, batch, stamp, payload })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: Vec<u8>) -> Record {
        let position = Position { epoch: 1, revision: 7, digest: u64::MAX };
        Record { position, batch: BatchId(u128::MAX - 5), stamp: Stamp { time: Time(17), wall: 18 }, payload }
    }

    #[test]
    fn a_note_says_what_was_written() {
        let before = Position { epoch: 1, revision: 6, digest: 99 };
        for payload in [Vec::new(), (0..=255).collect(), vec![7; RECORD_BYTES_MAX]] {
            let record = record(payload);
            let note = write_note("tag", &record, Some(before));
            assert!(note.len() < 8000, "{}", note.len());
            let (end, stored) = read_note(note.strip_prefix("tag ").expect("its tag")).expect("a note");
            let Record { position, batch, stamp, payload } = record;
            let stored = stored.expect("small");
            assert_eq!((end, stored.before(1)), (position, before));
            assert_eq!((stored.batch, stored.stamp, stored.payload), (batch, stamp, payload));
        }
    }

    #[test]
    fn what_is_large_or_follows_something_untold_is_only_named() {
        let end = |note: &str| read_note(note.strip_prefix("tag ").expect("its tag")).expect("a note");
        let (large, small) = (record(vec![7; RECORD_BYTES_MAX + 1]), record(vec![7]));
        assert_eq!(end(&write_note("tag", &large, Some(Position::ORIGIN))), (large.position, None));
        assert_eq!(end(&write_note("tag", &small, None)), (small.position, None));
    }

    #[test]
    fn what_nobody_of_us_wrote_is_not_believed() {
        for note in
            ["", "x", "1", "1 2", "1 2 g", "1 2 3 4", "1 2 3 4 5 6 7 0", "1 2 3 4 5 6 7 zz", "1 2 3 4 5 6 7 \u{fc}"]
        {
            assert_eq!(read_note(note), None, "{note}");
        }
    }
}
