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

/// How long a service may take to accept a connection; one that can't is full, or hangs.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a service may take to make room for a question; one that can't hangs.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// The id of an answer that is to no question, but to the connection.
const NO_QUESTION: u64 = 0;

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
    /// What the service said before it closed the connection, to whoever asked and to whoever asks.
    farewell: Mutex<Option<Answered>>,
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
        let writer = connect(path)?;
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
    pub(crate) fn ask(
        &self,
        operation: Operation,
        body: &RawValue,
        traceparent: Option<&str>,
    ) -> std::io::Result<Receiver<Answered>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        lock(&self.shared.waiting).insert(id, sender);
        let question = Question {
            id,
            op: operation.row().name.into(),
            body: Some(body),
            traceparent: traceparent.map(Into::into),
        };
        let mut line = serde_json::to_vec(&question)?;
        line.push(b'\n');
        let mut writer = lock(&self.writer);
        if let Err(error) = writer.write_all(&line)
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            // A part of a line may have gone out, and nothing can follow it.
            let _ = writer.shutdown(std::net::Shutdown::Both);
            lock(&self.shared.waiting).remove(&id);
            return Err(error);
        }
        drop(writer);
        // Whoever closed may have said why: the reader finds that, or the end, and this may be too late for it.
        if self.has_ended() {
            let unanswered = lock(&self.shared.waiting).remove(&id);
            if let (Some(sender), Some(said)) = (unanswered, lock(&self.shared.farewell).clone()) {
                let _ = sender.send(said);
            }
        }
        Ok(receiver)
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
            if reply.id == NO_QUESTION {
                // It was said to the connection: nobody's question will be answered.
                waiting.drain().for_each(|(_, sender)| drop(sender.send(answered.clone())));
                *lock(&self.farewell) = Some(answered);
                continue;
            }
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

/// Whether there is a service, also one that is too busy to take a connection.
pub fn listens(path: &Path) -> bool {
    connect(path).map_or_else(|error| error.kind() == std::io::ErrorKind::TimedOut, |_| true)
}

/// Connects, within a time: a service whose queue of connections is full would keep one waiting for ever.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CONNECT_TIME_MAX))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {}
        Err(rustix::io::Errno::AGAIN) => {
            return Err(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "the service is there, but takes no connection",
            ));
        }
        Err(error) => return Err(error.into()),
    }
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(WRITE_TIME_MAX))?;
    Ok(UnixStream::from(socket))
}

/// A thread that panicked while it held one of these left it whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
