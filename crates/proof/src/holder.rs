//! What a `ledger.lock` says about who holds it, and whether they are still alive. Removes nothing.

use std::io;
use std::sync::LazyLock;

use jiff::Timestamp;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::error::shown;
use crate::place::Folder;

/// Who says that they hold the ledger's lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    pub agent_id: String,
    pub acquired_at: Timestamp,
    /// Only in locks of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}

/// A process, told apart from every other one that had or will have its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// When it began, in ticks since the boot.
    pub pid_start: u64,
    /// The namespace that the number belongs to: in another container it means another process.
    pub pid_namespace: u64,
    pub boot_id: String,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    Dead,
    /// It can't be seen from here: another machine, or another container.
    Unknown,
}

#[derive(Deserialize)]
struct Written {
    agent_id: String,
    acquired_at: Timestamp,
    pid: Option<i32>,
    pid_start: Option<u64>,
    pid_namespace: Option<u64>,
    boot_id: Option<String>,
}

impl Holder {
    /// Reads the content of a lock file that is not empty; or says what is wrong with it.
    pub fn parse(content: &[u8]) -> Result<Holder, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is no text".to_owned())?;
        let written: Written = serde_json::from_str(text).map_err(|error| shown(&error.to_string()))?;
        let Written { agent_id, acquired_at, pid, pid_start, pid_namespace, boot_id } = written;
        let process = match (pid, pid_start, pid_namespace, boot_id) {
            (Some(pid), Some(pid_start), Some(pid_namespace), Some(boot_id)) if pid > 0 => {
                Some(Process { pid, pid_start, pid_namespace, boot_id })
            }
            _ => None,
        };
        Ok(Holder { agent_id, acquired_at, process })
    }

    /// One line: the document's two fields first, then what makes a death provable.
    pub(crate) fn to_line(&self) -> String {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let mut line = format!(r#"{{"agent_id":{},"acquired_at":"{}""#, text(&self.agent_id), self.acquired_at);
        if let Some(Process { pid, pid_start, pid_namespace, boot_id }) = &self.process {
            let boot_id = text(boot_id);
            let more = [("pid", pid.to_string()), ("pid_start", pid_start.to_string())];
            let more = more.into_iter().chain([("pid_namespace", pid_namespace.to_string()), ("boot_id", boot_id)]);
            line.extend(more.map(|(name, value)| format!(",\"{name}\":{value}")));
        }
        line + "}\n"
    }

    /// Whether the holder lives, as far as it can be proved.
    pub(crate) fn life(&self, folder: &Folder) -> Life {
        self.process.as_ref().map_or(Life::Unknown, |process| process.life(folder))
    }
}

impl Process {
    /// This process; `None` where the system does not tell.
    pub(crate) fn own() -> Option<&'static Process> {
        static OWN: LazyLock<Option<Process>> = LazyLock::new(|| {
            let pid = rustix::process::getpid();
            let Ok(Some(Seen { start, ended: false })) = see(pid) else { return None };
            let pid_namespace = namespace()?;
            Some(Process { pid: pid.as_raw_nonzero().get(), pid_start: start, pid_namespace, boot_id: boot_id()? })
        });
        // A process that was forked since is another one; of that one nothing is said, so nobody calls it dead.
        OWN.as_ref().filter(|own| own.pid == rustix::process::getpid().as_raw_nonzero().get())
    }

    pub(crate) fn life(&self, folder: &Folder) -> Life {
        let Some(own) = Process::own() else { return Life::Unknown };
        if self.boot_id != own.boot_id {
            // On a disk of this machine an earlier boot wrote it. On a shared one it may be another machine's.
            return if folder.is_local() { Life::Dead } else { Life::Unknown };
        }
        // One kernel may run many containers, and each counts its processes for itself.
        if self.pid_namespace != own.pid_namespace {
            return Life::Unknown;
        }
        let Some(pid) = Pid::from_raw(self.pid) else { return Life::Unknown };
        match rustix::process::test_kill_process(pid) {
            Err(rustix::io::Errno::SRCH) => Life::Dead,
            Ok(()) | Err(rustix::io::Errno::PERM) => match see(pid) {
                Ok(Some(seen)) if seen.start != self.pid_start || seen.ended => Life::Dead,
                Ok(Some(_)) => Life::Alive,
                // Gone in between, or hidden from us: asked again next time.
                Ok(None) | Err(_) => Life::Unknown,
            },
            Err(_) => Life::Unknown,
        }
    }
}

struct Seen {
    start: u64,
    /// Killed, and its parent has not asked yet.
    ended: bool,
}

/// Looks at `/proc/PID/stat`, whose second field may hold anything, so it is read from the last bracket on.
fn see(pid: Pid) -> io::Result<Option<Seen>> {
    let text = match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // The third field of the line is the first one here.
    let number = |index: usize| fields.get(index - 3).and_then(|field| field.parse::<u64>().ok());
    let (Some(state), Some(threads), Some(start)) = (fields.first(), number(20), number(22)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    // The first thread may have ended before the others.
    Ok(Some(Seen { start, ended: matches!(*state, "Z" | "X") && threads <= 1 }))
}

fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(process: Option<Process>) -> Holder {
        Holder { agent_id: "a\"b".to_owned(), acquired_at: "2026-11-15T19:54:15.2Z".parse().unwrap(), process }
    }

    #[test]
    fn what_is_written_is_read_and_the_documents_fields_come_first() {
        let own = holder(Some(Process::own().unwrap().clone()));
        assert_eq!(Holder::parse(own.to_line().as_bytes()).unwrap(), own);
        let plain = holder(None).to_line();
        assert_eq!(plain, "{\"agent_id\":\"a\\\"b\",\"acquired_at\":\"2026-11-15T19:54:15.2Z\"}\n");
    }

    #[test]
    fn a_foreign_lock_with_a_local_offset_is_understood() {
        let foreign = br#"{"agent_id":"x","acquired_at":"2026-11-15T21:54:15.2+02:00","more":[1]}"#;
        let read = Holder::parse(foreign).unwrap();
        assert_eq!(read, Holder { agent_id: "x".to_owned(), ..holder(None) });
        for odd in
            [&b"null"[..], b"{}", b"\0", b"{\"agent_id\":1}", b"\xff", b"{\"agent_id\":\"x\",\"acquired_at\":\"noon\"}"]
        {
            Holder::parse(odd).unwrap_err();
        }
    }

    #[test]
    fn only_what_is_proved_dead_is_called_dead() {
        let folder = Folder::open(&std::env::temp_dir()).unwrap();
        let own = Process::own().unwrap().clone();
        assert_eq!(own.life(&folder), Life::Alive);
        assert_eq!(Process { pid_start: own.pid_start + 1, ..own.clone() }.life(&folder), Life::Dead);
        assert_eq!(Process { pid_namespace: 1, ..own.clone() }.life(&folder), Life::Unknown);
        assert_eq!(holder(None).life(&folder), Life::Unknown);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let seen = see(pid).unwrap().unwrap();
        let process = Process { pid: child.id() as i32, pid_start: seen.start, ..own };
        // Ended and not asked for, then asked for.
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while process.life(&folder) != Life::Dead {
            assert!(std::time::Instant::now() < give_up, "a process that ended is dead");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(process.life(&folder), Life::Dead);
    }
}
