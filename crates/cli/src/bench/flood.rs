//! A load of many clients from one thread: each has one question open at a time, written down beforehand.
//!
//! Shares the machine with what it measures, and so does as little as possible: one write, one read and a look at the
//! answer for each question. Knows no protocol but how its answers end, and not what is locked. `bench/` drives its
//! other contenders with this file too, so that all of them are driven alike.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

/// How long an answer may take that is not a wait's.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How much of an answer is shown that should have been another.
const SHOWN_BYTES: usize = 300;
const READ_BYTES: usize = 256 << 10;

/// The first answer in what has come.
pub(crate) struct Answer<'a> {
    /// Its bytes, with everything around the body.
    pub(crate) length: usize,
    pub(crate) success: bool,
    pub(crate) body: &'a [u8],
}

/// Finds the first whole answer of a protocol; none: more is to come.
pub(crate) type Framing = fn(&[u8]) -> Option<Answer<'_>>;

/// A question, and how the body of its answer begins if it is the one that is expected.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) question: Vec<u8>,
    pub(crate) expected: &'static str,
}

/// Whether an answer is the one that is expected; if not, what it says.
pub(crate) type Verdict = Result<(), String>;

/// Asks its steps in turn, again and again.
#[derive(Debug)]
pub(crate) struct Client {
    stream: OwnedFd,
    steps: Vec<Step>,
    framing: Framing,
    at: usize,
    /// The part of an answer that has come.
    come: Vec<u8>,
    round_began: Instant,
    asked: Instant,
}

/// When to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Elapsed(Duration),
    /// Each client has asked all its steps once.
    Once,
}

/// How long everything took, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) elapsed: Duration,
    pub(crate) rounds: Vec<u64>,
    pub(crate) steps: Vec<Vec<u64>>,
    pub(crate) failures: u64,
    pub(crate) first_failure: Option<String>,
}

impl Times {
    pub(crate) fn failed(&mut self, why: impl FnOnce() -> String) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(why);
    }
}

impl Client {
    pub(crate) fn new(stream: impl Into<OwnedFd>, framing: Framing, steps: Vec<Step>) -> Client {
        let now = Instant::now();
        let stream = stream.into();
        Client { stream, steps, framing, at: 0, come: Vec::new(), round_began: now, asked: now }
    }

    /// Writes the question of a step.
    pub(crate) fn ask(&mut self, at: usize) -> io::Result<()> {
        self.at = at;
        let mut left = self.steps[at].question.as_slice();
        while !left.is_empty() {
            let written = rustix::io::write(&self.stream, left)?;
            left = &left[written..];
        }
        Ok(())
    }

    /// Waits for the answer to what was asked last.
    pub(crate) fn answered(&mut self, space: &mut [u8]) -> io::Result<Verdict> {
        loop {
            let read = self.read(space)?;
            if let Some(verdict) = self.judge(&space[..read]) {
                return Ok(verdict);
            }
        }
    }

    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.stream, space)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the service closed a connection")),
            read => Ok(read),
        }
    }

    /// Looks at an answer, if it is whole.
    fn judge(&mut self, read: &[u8]) -> Option<Verdict> {
        if !self.come.is_empty() {
            self.come.extend_from_slice(read);
        }
        let bytes = if self.come.is_empty() { read } else { self.come.as_slice() };
        let Some(Answer { length, success, body }) = (self.framing)(bytes) else {
            if self.come.is_empty() {
                self.come.extend_from_slice(read);
            }
            return None;
        };
        let expected = success && body.starts_with(self.steps[self.at].expected.as_bytes()) && length == bytes.len();
        let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]).into_owned();
        let verdict = if expected { Ok(()) } else { Err(shown()) };
        self.come.clear();
        Some(verdict)
    }
}

/// Lets all clients ask until it is time, and waits for what is open then. Only what was answered in time counts.
pub(crate) fn run(clients: &mut [Client], until: Until, stop: &AtomicBool) -> io::Result<Times> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (client, number) in clients.iter().zip(0..) {
        epoll::add(&poll, &client.stream, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    let most = clients.iter().map(|client| client.steps.len()).max().unwrap_or_default();
    let mut times = Times { steps: vec![Vec::new(); most], ..Times::default() };
    let mut space = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(clients.len());
    let began = Instant::now();
    let end = match until {
        Until::Elapsed(length) => Some(began + length),
        Until::Once => None,
    };
    for client in clients.iter_mut() {
        (client.round_began, client.asked) = (began, began);
        client.ask(0)?;
    }
    let mut asking = clients.len();
    let mut last = began;
    while asking > 0 {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&LOOK))?;
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        if events.is_empty() && last.elapsed() > PATIENCE {
            times.failed(|| format!("{asking} clients had no answer within {} s", PATIENCE.as_secs()));
            break;
        }
        for event in &events {
            let data = event.data;
            let client = &mut clients[data.u64() as usize];
            let read = client.read(&mut space)?;
            let Some(verdict) = client.judge(&space[..read]) else { continue };
            last = Instant::now();
            if !client.proceed(verdict, last, end, &mut times)? {
                asking -= 1;
            }
        }
    }
    times.elapsed = end.map_or_else(|| began.elapsed(), |end| end - began);
    Ok(times)
}

impl Client {
    /// Notes an answer and asks what comes next. `false`: nothing does.
    fn proceed(&mut self, verdict: Verdict, now: Instant, end: Option<Instant>, times: &mut Times) -> io::Result<bool> {
        let in_time = end.is_none_or(|end| now <= end);
        if let Err(answer) = verdict {
            times.failed(|| answer);
        } else if in_time {
            times.steps[self.at].push(nanos(now - self.asked));
        }
        self.asked = now;
        let next = self.at + 1;
        if next < self.steps.len() {
            self.ask(next)?;
            return Ok(true);
        }
        if in_time {
            times.rounds.push(nanos(now - self.round_began));
        }
        self.round_began = now;
        let again = end.is_some() && in_time;
        if again {
            self.ask(0)?;
        }
        Ok(again)
    }
}

/// How long it takes from a release to the grant of the one who waits: two clients, in turn. Their first step takes,
/// their second gives back; the first of them has it already.
pub(crate) fn hand_over(
    clients: &mut [Client; 2],
    length: Duration,
    pause: Duration,
    stop: &AtomicBool,
) -> io::Result<Times> {
    let mut space = vec![0; READ_BYTES];
    let mut times = Times { steps: vec![Vec::new(); 2], ..Times::default() };
    let began = Instant::now();
    let [holder, waiter] = clients;
    let (mut holder, mut waiter) = (holder, waiter);
    while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
        waiter.ask(0)?;
        // Until it stands in the queue and everything is quiet.
        std::thread::sleep(pause);
        let asked = Instant::now();
        holder.ask(1)?;
        let granted = waiter.answered(&mut space)?;
        let handed_over = nanos(asked.elapsed());
        let released = holder.answered(&mut space)?;
        match granted.and(released) {
            Err(answer) => times.failed(|| answer),
            Ok(()) => times.rounds.push(handed_over),
        }
        std::mem::swap(&mut holder, &mut waiter);
    }
    times.elapsed = began.elapsed();
    Ok(times)
}

/// One step of one client, and its answer.
pub(crate) fn once(client: &mut Client, at: usize) -> io::Result<Verdict> {
    client.ask(at)?;
    client.answered(&mut vec![0; READ_BYTES])
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A line of the private socket: `{"id":1,"status":200,"body":{...}}`.
pub(crate) fn line(bytes: &[u8]) -> Option<Answer<'_>> {
    const SUCCESS: &[u8] = br#"{"id":1,"status":200,"body":"#;
    // A question at a time: an answer ends where the bytes end.
    let (b'\n', whole) = bytes.split_last()? else { return None };
    let body = whole.strip_prefix(SUCCESS);
    Some(Answer { length: bytes.len(), success: body.is_some(), body: body.unwrap_or_default() })
}

/// An answer of HTTP/1.1 that says how long it is.
pub(crate) fn http(bytes: &[u8]) -> Option<Answer<'_>> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let named = |line: &&[u8]| line.get(..15).is_some_and(|name| name.eq_ignore_ascii_case(b"content-length:"));
    let length = bytes[..head].split(|byte| *byte == b'\n').find(named)?;
    let length: usize = std::str::from_utf8(&length[15..]).ok()?.trim().parse().ok()?;
    let body = bytes.get(head..head + length)?;
    Some(Answer { length: head + length, success: bytes.starts_with(b"HTTP/1.1 200"), body })
}
