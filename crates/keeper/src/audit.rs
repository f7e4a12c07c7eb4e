//! The audit log: one JSON object a line for each request and refusal. A file, not a fold.
//!
//! Written by a thread of its own, so that a slow disk holds up nobody. What can't be written is counted.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use lockkeeper_core::session::{AgentName, SessionId};
use lockkeeper_core::space::Space;
use lockkeeper_core::text::one_line;
use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;
use crate::trace::TraceParent;

/// A file that has grown this large is put aside as `audit.jsonl.1`, and the one before is gone.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Lines that may wait for the disk. The queue has room for all of them from the start, so they are boxed.
const QUEUE_MAX: usize = 16_384;
const BUFFER_BYTES: usize = 1 << 16;
/// How long lines are gathered before they are written.
const GATHERED: Duration = Duration::from_millis(2);
const TEXT_CHARS_MAX: usize = 1024;
/// How much of the end of the files a reader looks through.
const READ_BYTES_MAX: u64 = 16 << 20;

/// One request and what came of it. The names are those that services around it already log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    pub time: String,
    pub space: String,
    pub action: String,
    pub outcome: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub intention: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub span_id: Option<String>,
}

/// What the thread that writes makes a line of: whoever asks does not wait for that.
#[derive(Clone, Debug)]
pub struct Noted {
    pub time: jiff::Timestamp,
    pub space: Option<Space>,
    pub action: &'static str,
    pub outcome: &'static str,
    pub reason: Option<String>,
    pub key: Option<String>,
    pub intention: Option<String>,
    pub session: Option<SessionId>,
    pub agent: Option<AgentName>,
    pub request: Option<String>,
    pub trace: Option<TraceParent>,
}

/// A line as it is written: the same fields as [`Line`], none of them copied.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    #[serde(serialize_with = "as_text")]
    time: jiff::Timestamp,
    space: &'a str,
    action: &'a str,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intention: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<&'a str>,
}

fn as_text<S: serde::Serializer>(time: &jiff::Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(time)
}

/// What a stranger wrote, as one harmless line of bounded length.
fn shown(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_CHARS_MAX && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(one_line(&text.chars().take(TEXT_CHARS_MAX).collect::<String>()))
}

impl Noted {
    fn written(&self) -> Written<'_> {
        Written {
            time: self.time,
            space: self.space.as_ref().map(Space::as_str).unwrap_or_default(),
            action: self.action,
            outcome: self.outcome,
            reason: self.reason.as_deref(),
            key: self.key.as_deref().map(shown),
            intention: self.intention.as_deref().map(shown),
            session_id: self.session.as_ref().map(SessionId::as_str),
            agent_id: self.agent.as_ref().map(AgentName::as_str),
            request_id: self.request.as_deref().map(shown),
            trace_id: self.trace.as_ref().map(|trace| trace.trace_id.as_str()),
            span_id: self.trace.as_ref().map(|trace| trace.span_id.as_str()),
        }
    }
}

/// Where audit lines go.
#[derive(Clone, Debug)]
pub struct Audit {
    lines: Option<SyncSender<Box<Noted>>>,
    path: PathBuf,
    metrics: Arc<Metrics>,
}

impl Audit {
    /// Appends to `audit.jsonl` in a directory.
    pub fn open(directory: &Path, metrics: Arc<Metrics>) -> std::io::Result<Audit> {
        let path = directory.join("audit.jsonl");
        let file = open_file(&path)?;
        let (lines, queue) = sync_channel(QUEUE_MAX);
        let writer = Writer { file, path: path.clone(), metrics: metrics.clone() };
        std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&queue))?;
        Ok(Audit { lines: Some(lines), path, metrics })
    }

    /// Keeps nothing.
    pub fn none(metrics: Arc<Metrics>) -> Audit {
        Audit { lines: None, path: PathBuf::new(), metrics }
    }

    pub fn write(&self, noted: Noted) {
        let Some(lines) = &self.lines else { return };
        match lines.try_send(Box::new(noted)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.metrics.audit_dropped(),
        }
    }

    /// The last lines that `keep` wants, newest first. Reads files: not for an async task.
    pub fn last(&self, most: usize, keep: impl Fn(&Line) -> bool) -> std::io::Result<Vec<Line>> {
        let mut found = Vec::new();
        if self.lines.is_none() {
            return Ok(found);
        }
        for path in [self.path.clone(), rotated(&self.path)] {
            let mut lines: Vec<Line> = match File::open(&path) {
                Ok(file) => end_of(file)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error),
            };
            lines.reverse();
            found.extend(lines.into_iter().filter(|line| keep(line)).take(most - found.len()));
            if found.len() >= most {
                break;
            }
        }
        Ok(found)
    }
}

fn open_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn rotated(path: &Path) -> PathBuf {
    path.with_extension("jsonl.1")
}

/// The readable lines at the end of a file. A torn one is passed over.
fn end_of(mut file: File) -> std::io::Result<Vec<Line>> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut reader = BufReader::new(file.take(READ_BYTES_MAX));
    if start > 0 {
        reader.read_until(b'\n', &mut Vec::new())?;
    }
    let mut lines = Vec::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        lines.extend(serde_json::from_slice::<Line>(&line));
        line.clear();
    }
    Ok(lines)
}

struct Writer {
    file: File,
    path: PathBuf,
    metrics: Arc<Metrics>,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Box<Noted>>) {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        while let Ok(first) = queue.recv() {
            // Lines are written together, and soon: whoever looks sees what just happened. Nobody wakes this thread
            // meanwhile, so that a busy service does not spend its time on that.
            std::thread::sleep(GATHERED);
            let mut count = 0;
            for noted in std::iter::once(first).chain(queue.try_iter()) {
                serde_json::to_writer(&mut buffer, &noted.written()).expect("writing to memory");
                buffer.push(b'\n');
                count += 1;
                if buffer.len() >= BUFFER_BYTES {
                    self.flush(&mut buffer, &mut count);
                }
            }
            self.flush(&mut buffer, &mut count);
        }
    }

    fn flush(&mut self, buffer: &mut Vec<u8>, count: &mut u64) {
        if buffer.is_empty() {
            return;
        }
        let written = self.rotate_if_large().and_then(|()| self.file.write_all(buffer));
        if let Err(error) = written {
            tracing::warn!(%error, lines = *count, "audit lines could not be written");
            (0..*count).for_each(|_| self.metrics.audit_dropped());
        }
        buffer.clear();
        *count = 0;
    }

    fn rotate_if_large(&mut self) -> std::io::Result<()> {
        if self.file.metadata()?.len() >= FILE_BYTES_MAX {
            std::fs::rename(&self.path, rotated(&self.path))?;
            self.file = open_file(&self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read_and_strangers_words_are_harmless() {
        let noted = Noted {
            time: jiff::Timestamp::from_second(1_700_000_000).unwrap(),
            space: Some(Space::parse("s").unwrap()),
            action: "locks/acquire",
            outcome: "busy",
            reason: Some("lock_contended".to_owned()),
            key: Some("a \x1b[2J\n".to_owned()),
            intention: Some("x".repeat(5000)),
            session: Some(SessionId::parse("one").unwrap()),
            agent: Some(AgentName::parse("Grace Hopper").unwrap()),
            request: Some("r-1".to_owned()),
            trace: TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        };
        let read: Line = serde_json::from_slice(&serde_json::to_vec(&noted.written()).unwrap()).unwrap();
        let expected = Line {
            time: "2023-11-14T22:13:20Z".to_owned(),
            space: "s".to_owned(),
            action: "locks/acquire".to_owned(),
            outcome: "busy".to_owned(),
            reason: Some("lock_contended".to_owned()),
            key: Some(one_line("a \x1b[2J\n")),
            intention: Some("x".repeat(TEXT_CHARS_MAX)),
            session_id: Some("one".to_owned()),
            agent_id: Some("Grace Hopper".to_owned()),
            request_id: Some("r-1".to_owned()),
            trace_id: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
            span_id: Some("b7ad6b7169203331".to_owned()),
        };
        assert_eq!(read, expected);
        assert!(!read.key.unwrap().contains('\x1b'));
    }
}
