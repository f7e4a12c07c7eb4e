//! The audit log: one JSON object a line for each request and refusal. A file, not a fold.
//!
//! Gathered for a moment and written beside everything else, so that a slow disk holds up nobody. What can't be written is
//! counted.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockkeeper_core::text::one_line;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::json;
use crate::metrics::Metrics;
use crate::wall::wall_time_bytes;

/// A file that has grown this large is put aside as `audit.jsonl.1`, and the one before is gone.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Lines that may wait for the disk.
const QUEUE_BYTES_MAX: usize = 8 << 20;
const BUFFER_BYTES: usize = 1 << 16;
/// How long lines are gathered before they are written.
const GATHERED: Duration = Duration::from_millis(20);
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

/// A line as it is written: the same fields as [`Line`], none of them copied.
#[derive(Clone, Copy, Debug)]
pub struct Noted<'a> {
    /// In microseconds of the Unix epoch.
    pub time: u64,
    pub space: &'a str,
    pub action: &'a str,
    pub outcome: &'a str,
    pub reason: Option<&'a str>,
    pub key: Option<Harmless<'a>>,
    pub intention: Option<Harmless<'a>>,
    pub session_id: Option<&'a str>,
    pub agent_id: Option<&'a str>,
    pub request_id: Option<Harmless<'a>>,
    pub trace_id: Option<&'a str>,
    pub span_id: Option<&'a str>,
}

impl Noted<'_> {
    /// By hand, as every request has a line: the names need no second look.
    fn write(&self, out: &mut Vec<u8>) {
        let [key, intention, request_id] =
            [self.key, self.intention, self.request_id].map(|text| text.map(Harmless::text));
        out.extend_from_slice(b"{\"time\":");
        json::plain(&wall_time_bytes(self.time), out);
        for (name, value) in [
            (",\"space\":", Some(self.space)),
            (",\"action\":", Some(self.action)),
            (",\"outcome\":", Some(self.outcome)),
            (",\"reason\":", self.reason),
            (",\"key\":", key.as_deref()),
            (",\"intention\":", intention.as_deref()),
            (",\"sessionId\":", self.session_id),
            (",\"agentId\":", self.agent_id),
            (",\"requestId\":", request_id.as_deref()),
            (",\"traceId\":", self.trace_id),
            (",\"spanId\":", self.span_id),
        ] {
            let Some(value) = value else { continue };
            out.extend_from_slice(name.as_bytes());
            json::text(value, out);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// What a stranger wrote, written as one harmless line of bounded length.
#[derive(Clone, Copy, Debug)]
pub struct Harmless<'a>(pub &'a str);

impl<'a> Harmless<'a> {
    fn text(self) -> Cow<'a, str> {
        // All of it at once: most are plain to the end.
        let is_plain = || self.0.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte));
        if self.0.len() <= TEXT_CHARS_MAX && is_plain() {
            return Cow::Borrowed(self.0);
        }
        Cow::Owned(one_line(&self.0.chars().take(TEXT_CHARS_MAX).collect::<String>()).into_owned())
    }
}

/// Where audit lines go.
#[derive(Clone, Debug)]
pub struct Audit {
    open: Option<Arc<Open>>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Open {
    pending: Mutex<Pending>,
    /// Told of the first line that is pending.
    filled: Notify,
    file: Mutex<Target>,
    path: PathBuf,
}

/// Lines that are not written yet, as bytes.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    lines: u64,
}

/// The file, and whether its last line may be a part of one.
#[derive(Debug)]
struct Target {
    file: File,
    torn: bool,
}

impl Target {
    fn open(path: &Path) -> std::io::Result<Target> {
        let file = open_file(path)?;
        let (length, mut last) = (file.metadata()?.len(), [0]);
        // The power may have gone in the middle of a line.
        let torn = length > 0 && file.read_at(&mut last, length - 1)? == 1 && last != *b"\n";
        Ok(Target { file, torn })
    }

    /// What was torn stays a line of its own, so that it costs no other.
    fn write(&mut self, lines: &[u8]) -> std::io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
        }
        self.torn = true;
        self.file.write_all(lines)?;
        self.torn = false;
        Ok(())
    }
}

impl Audit {
    /// Appends to `audit.jsonl` in a directory. Needs a tokio runtime, on which lines are gathered.
    pub fn open(directory: &Path, metrics: Arc<Metrics>) -> std::io::Result<Audit> {
        let path = directory.join("audit.jsonl");
        let file = Mutex::new(Target::open(&path)?);
        let open = Arc::new(Open { pending: Mutex::default(), filled: Notify::new(), file, path });
        let audit = Audit { open: Some(open.clone()), metrics };
        let gathering = audit.clone();
        tokio::spawn(async move {
            loop {
                open.filled.notified().await;
                // Nobody is woken for the disk before the answers are on their way.
                tokio::time::sleep(GATHERED).await;
                let writing = gathering.clone();
                let _ = tokio::task::spawn_blocking(move || writing.flush()).await;
            }
        });
        Ok(audit)
    }

    /// Keeps nothing.
    pub fn none(metrics: Arc<Metrics>) -> Audit {
        Audit { open: None, metrics }
    }

    /// Has a line written soon. Waits for no disk.
    pub fn write(&self, noted: &Noted<'_>) {
        let Some(open) = &self.open else { return };
        let mut pending = open.pending();
        if pending.bytes.len() >= QUEUE_BYTES_MAX {
            drop(pending);
            self.metrics.audit_dropped();
            return;
        }
        noted.write(&mut pending.bytes);
        pending.lines += 1;
        if pending.lines == 1 {
            drop(pending);
            open.filled.notify_one();
        }
    }

    /// Writes what is pending. Waits for the disk: not for an async task.
    pub fn flush(&self) {
        let Some(open) = &self.open else { return };
        // Taken before the lines are, so that they are written in their order.
        let mut file = open.file.lock().expect("no holder panics");
        let room = Pending { bytes: Vec::with_capacity(BUFFER_BYTES), lines: 0 };
        let Pending { bytes, lines } = std::mem::replace(&mut *open.pending(), room);
        if let Err(error) = open.rotate_if_large(&mut file.file).and_then(|()| file.write(&bytes)) {
            tracing::warn!(%error, lines, "audit lines could not be written");
            (0..lines).for_each(|_| self.metrics.audit_dropped());
        }
    }

    /// The last lines that `keep` wants, newest first. Reads files: not for an async task.
    pub fn last(&self, most: usize, keep: impl Fn(&Line) -> bool) -> std::io::Result<Vec<Line>> {
        let mut found = Vec::new();
        let Some(open) = &self.open else { return Ok(found) };
        self.flush();
        for path in [open.path.clone(), rotated(&open.path)] {
            let lines = match File::open(&path) {
                Ok(file) => end_of(file, most - found.len(), &keep)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => VecDeque::new(),
                Err(error) => return Err(error),
            };
            found.extend(lines.into_iter().rev());
            if found.len() >= most {
                break;
            }
        }
        Ok(found)
    }
}

fn open_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)
}

fn rotated(path: &Path) -> PathBuf {
    path.with_extension("jsonl.1")
}

/// The last readable lines of a file that are to be kept. A torn one is passed over.
fn end_of(mut file: File, most: usize, keep: impl Fn(&Line) -> bool) -> std::io::Result<VecDeque<Line>> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut reader = BufReader::new(file.take(READ_BYTES_MAX));
    if start > 0 {
        reader.read_until(b'\n', &mut Vec::new())?;
    }
    let mut lines = VecDeque::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        lines.extend(serde_json::from_slice::<Line>(&line).ok().filter(|line| keep(line)));
        if lines.len() > most {
            lines.pop_front();
        }
        line.clear();
    }
    Ok(lines)
}

impl Open {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no holder panics")
    }

    /// Also if somebody else has put it aside, or removed it.
    fn rotate_if_large(&self, file: &mut File) -> std::io::Result<()> {
        let written = file.metadata()?;
        let is_there = std::fs::metadata(&self.path).is_ok_and(|found| found.ino() == written.ino());
        if is_there && written.len() >= FILE_BYTES_MAX {
            std::fs::rename(&self.path, rotated(&self.path))?;
        } else if is_there {
            return Ok(());
        }
        *file = open_file(&self.path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read_and_strangers_words_are_harmless() {
        let long = "x".repeat(5000);
        let noted = Noted {
            time: 1_700_000_000_000_000,
            space: "s",
            action: "locks/acquire",
            outcome: "busy",
            reason: Some("lock_contended"),
            key: Some(Harmless("a \x1b[2J\n")),
            intention: Some(Harmless(&long)),
            session_id: Some("one"),
            agent_id: Some("Grace Hopper"),
            request_id: Some(Harmless("r-1")),
            trace_id: Some("t"),
            span_id: Some("u"),
        };
        let mut line = Vec::new();
        noted.write(&mut line);
        let read: Line = serde_json::from_slice(&line).unwrap();
        let expected = Line {
            time: "2023-11-14T22:13:20.000Z".to_owned(),
            space: "s".to_owned(),
            action: "locks/acquire".to_owned(),
            outcome: "busy".to_owned(),
            reason: Some("lock_contended".to_owned()),
            key: Some(one_line("a \x1b[2J\n").into_owned()),
            intention: Some("x".repeat(TEXT_CHARS_MAX)),
            session_id: Some("one".to_owned()),
            agent_id: Some("Grace Hopper".to_owned()),
            request_id: Some("r-1".to_owned()),
            trace_id: Some("t".to_owned()),
            span_id: Some("u".to_owned()),
        };
        assert_eq!(read, expected);
        assert!(!read.key.unwrap().contains('\x1b'));
    }

    fn released() -> Noted<'static> {
        Noted {
            time: 0,
            space: "s",
            action: "locks/release",
            outcome: "ok",
            reason: None,
            key: Some(Harmless("x")),
            intention: None,
            session_id: None,
            agent_id: None,
            request_id: None,
            trace_id: None,
            span_id: None,
        }
    }

    #[tokio::test]
    async fn a_file_that_somebody_put_aside_or_removed_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(folder.path(), Arc::default()).unwrap();
        std::fs::rename(&path, folder.path().join("aside")).unwrap();
        audit.write(&released());
        assert_eq!(audit.last(10, |_| true).unwrap().len(), 1);
        std::fs::remove_file(&path).unwrap();
        audit.write(&released());
        assert_eq!(audit.last(10, |_| true).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn lines_are_in_the_file_soon_and_whoever_reads_finds_the_last_ones() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path(), Arc::default()).unwrap();
        let noted = released();
        (0..5000).for_each(|_| audit.write(&noted));
        let path = folder.path().join("audit.jsonl");
        let written = async {
            while std::fs::read_to_string(&path).unwrap().lines().count() < 5000 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), written).await.expect("all lines");
        audit.write(&Noted { action: "locks/renew", ..noted });
        let last = audit.last(1, |_| true).unwrap();
        assert_eq!(last[0].action, "locks/renew");
    }

    #[test]
    fn a_line_that_was_torn_costs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut target = Target::open(&path).unwrap();
        target.write(b"{\"one\":1}\n").unwrap();
        // The disk took a part of it, and then no more.
        target.file.write_all(b"{\"tw").unwrap();
        target.torn = true;
        target.write(b"{\"three\":3}\n").unwrap();
        target.write(b"{\"four\":4}\n").unwrap();
        // Then the power goes in the middle of a line.
        target.file.write_all(b"{\"fi").unwrap();
        let mut target = Target::open(&path).unwrap();
        target.write(b"{\"six\":6}\n").unwrap();
        Target::open(&path).unwrap().write(b"{\"seven\":7}\n").unwrap();
        let lines = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            ["{\"one\":1}", "{\"tw", "{\"three\":3}", "{\"four\":4}", "{\"fi", "{\"six\":6}", "{\"seven\":7}"]
        );
    }
}
