//! The private socket: many questions on one connection, each answer by its id.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_wire::frame::{Question, Reply};
use lockkeeper_wire::operation::Operation;
use serde_json::value::RawValue;

/// Status and body of an answer.
pub(crate) type Answered = (u16, Vec<u8>);

#[derive(Debug)]
pub(crate) struct Lines {
    writer: Mutex<UnixStream>,
    shared: Arc<Shared>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Who waits for which answer. Emptied when the connection ends, which wakes them all.
    waiting: Mutex<HashMap<u64, Sender<Answered>>>,
    ended: AtomicBool,
}

/// The answers of a stream, until the connection ends.
#[derive(Debug)]
pub struct Answers(pub(crate) Receiver<Answered>);

impl Answers {
    /// The next answer's body; `None` when the stream has ended or the time is over.
    pub fn next(&self, within: Duration) -> Result<Option<Vec<u8>>, StreamEnded> {
        match self.0.recv_timeout(within) {
            Ok((200, body)) => Ok(Some(body)),
            Ok((_, body)) => Err(StreamEnded(Some(body))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(StreamEnded(None)),
        }
    }
}

/// A stream is over; the service may have said why.
#[derive(Debug)]
pub struct StreamEnded(pub Option<Vec<u8>>);

impl Lines {
    pub(crate) fn connect(path: &Path) -> std::io::Result<Lines> {
        let writer = UnixStream::connect(path)?;
        let reader = BufReader::new(writer.try_clone()?);
        let shared = Arc::new(Shared::default());
        let of_reader = shared.clone();
        std::thread::Builder::new().name("answers".into()).spawn(move || of_reader.read(reader))?;
        Ok(Lines { writer: Mutex::new(writer), shared, next_id: AtomicU64::new(1) })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// Asks. The answers come to the receiver; it disconnects when the connection ends.
    pub(crate) fn ask(&self, operation: Operation, body: &RawValue) -> std::io::Result<Receiver<Answered>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        lock(&self.shared.waiting).insert(id, sender);
        let question = Question { id, op: operation.row().name, body: Some(body), traceparent: None };
        let mut line = serde_json::to_vec(&question)?;
        line.push(b'\n');
        let written = lock(&self.writer).write_all(&line);
        if written.is_err() || self.has_ended() {
            lock(&self.shared.waiting).remove(&id);
        }
        written.map(|()| receiver)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // Ends the reader's thread too.
        let _ = lock(&self.writer).shutdown(std::net::Shutdown::Both);
    }
}

impl Shared {
    fn read(&self, mut reader: BufReader<UnixStream>) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let Ok(reply) = serde_json::from_slice::<Reply<'_>>(&line) else { break };
            let answered = (reply.status, reply.body.get().as_bytes().to_vec());
            let mut waiting = lock(&self.waiting);
            let sent = match waiting.get(&reply.id) {
                Some(sender) => sender.send(answered).is_ok(),
                None => false,
            };
            if !reply.more || !sent {
                waiting.remove(&reply.id);
            }
        }
        self.ended.store(true, Ordering::Release);
        lock(&self.waiting).clear();
    }
}

/// A thread that panicked while it held one of these left it whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
