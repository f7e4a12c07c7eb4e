//! What a `ledger.lock` says about who holds it, and whether they are still alive. Removes nothing.

use std::io;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
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
    /// The machine, as far as it has a name that outlives a boot; not that name itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The namespace that the ticks are counted in, where the kernel has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_namespace: Option<u64>,
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
    machine: Option<String>,
    time_namespace: Option<u64>,
}

impl Holder {
    /// Reads the content of a lock file that is not empty; or says what is wrong with it.
    pub fn parse(content: &[u8]) -> Result<Holder, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is no text".to_owned())?;
        let written: Written = serde_json::from_str(text).map_err(|error| shown(&error.to_string()))?;
        let Written { agent_id, acquired_at, pid, pid_start, pid_namespace, boot_id, machine, time_namespace } =
            written;
        let process = match (pid, pid_start, pid_namespace, boot_id) {
            (Some(pid), Some(pid_start), Some(pid_namespace), Some(boot_id)) if pid > 0 => {
                Some(Process { pid, pid_start, pid_namespace, boot_id, machine, time_namespace })
            }
            _ => None,
        };
        Ok(Holder { agent_id, acquired_at, process })
    }

    /// One line: the document's two fields first, then what makes a death provable.
    pub(crate) fn to_line(&self) -> String {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let mut line = format!(r#"{{"agent_id":{},"acquired_at":"{}""#, text(&self.agent_id), self.acquired_at);
        if let Some(Process { pid, pid_start, pid_namespace, boot_id, machine, time_namespace }) = &self.process {
            let more = [
                ("pid", Some(pid.to_string())),
                ("pid_start", Some(pid_start.to_string())),
                ("pid_namespace", Some(pid_namespace.to_string())),
                ("boot_id", Some(text(boot_id))),
                ("machine", machine.as_deref().map(text)),
                ("time_namespace", time_namespace.map(|number| number.to_string())),
            ];
            line.extend(more.into_iter().filter_map(|(name, value)| Some(format!(",\"{name}\":{}", value?))));
        }
        line + "}\n"
    }

    /// Whether the holder of a lock that was written then lives, as far as it can be proved.
    pub(crate) fn life(&self, folder: &Folder, written: SystemTime) -> Life {
        self.process.as_ref().map_or(Life::Unknown, |process| process.life(folder, written))
    }
}

impl Process {
    /// This process; `None` where the system does not tell.
    pub(crate) fn own() -> Option<&'static Process> {
        static OWN: LazyLock<Option<Process>> = LazyLock::new(|| {
            let pid = rustix::process::getpid();
            let Ok(Some(Seen { start, ended: false })) = see(pid) else { return None };
            Some(Process {
                pid: pid.as_raw_nonzero().get(),
                pid_start: start,
                pid_namespace: namespace("pid")?,
                boot_id: boot_id()?,
                machine: machine(),
                time_namespace: namespace("time"),
            })
        });
        // A process that was forked since is another one; of that one nothing is said, so nobody calls it dead.
        OWN.as_ref().filter(|own| own.pid == rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Whether it lives, which said so in something that was written then.
    pub(crate) fn life(&self, folder: &Folder, written: SystemTime) -> Life {
        let Some(own) = Process::own() else { return Life::Unknown };
        if self.boot_id != own.boot_id {
            let over = folder.is_local() && self.ended_with_its_boot(own, written, boot_began(own));
            return if over { Life::Dead } else { Life::Unknown };
        }
        // One kernel may run many containers, and each counts its processes, and its time, for itself.
        if self.pid_namespace != own.pid_namespace || self.time_namespace != own.time_namespace {
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

impl Process {
    /// Whether it ran on this machine before it was started the last time. Another boot id alone does not say so: a
    /// container may have one of its own, and a folder may be served to other machines, or come from one.
    fn ended_with_its_boot(&self, own: &Process, written: SystemTime, began: Option<SystemTime>) -> bool {
        let same = self.machine.is_some() && self.machine == own.machine;
        same && self.boot_id != own.boot_id && began.is_some_and(|began| written < began)
    }
}

/// When this machine was started, by the wall clock. A namespace of time may say anything, so there it is not known.
fn boot_began(own: &Process) -> Option<SystemTime> {
    const FIRST_TIME_NAMESPACE: u64 = 0xEFFF_FFFA;
    if own.time_namespace.is_some_and(|number| number != FIRST_TIME_NAMESPACE) {
        return None;
    }
    let up = clock_gettime(ClockId::Boottime);
    SystemTime::now().checked_sub(Duration::new(up.tv_sec as u64, up.tv_nsec as u32))
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

fn namespace(kind: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
    link.to_str()?.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

/// A mark of the machine that is the same after a boot. The machine's id is for its own programs only, so a sum of it is
/// written (FNV-1a), from which it can't be told.
fn machine() -> Option<String> {
    let id = std::fs::read_to_string("/etc/machine-id").ok()?;
    let id = id.trim();
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let add = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Some(format!("{:016x}", b"lockkeeper proof ".iter().copied().chain(id.bytes()).fold(0xcbf2_9ce4_8422_2325, add)))
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
        assert_eq!(own.life(&folder, SystemTime::now()), Life::Alive);
        assert_eq!(
            Process { pid_start: own.pid_start + 1, ..own.clone() }.life(&folder, SystemTime::now()),
            Life::Dead
        );
        assert_eq!(Process { pid_namespace: 1, ..own.clone() }.life(&folder, SystemTime::now()), Life::Unknown);
        let elsewhere = Process { time_namespace: Some(1), pid_start: own.pid_start + 1, ..own.clone() };
        assert_eq!(elsewhere.life(&folder, SystemTime::now()), Life::Unknown);
        assert_eq!(holder(None).life(&folder, SystemTime::now()), Life::Unknown);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let seen = see(pid).unwrap().unwrap();
        let process = Process { pid: child.id() as i32, pid_start: seen.start, ..own };
        // Ended and not asked for, then asked for.
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while process.life(&folder, SystemTime::now()) != Life::Dead {
            assert!(std::time::Instant::now() < give_up, "a process that ended is dead");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(process.life(&folder, SystemTime::now()), Life::Dead);
    }

    #[test]
    fn another_boot_is_over_only_on_this_machine_and_if_it_was_before_this_one() {
        let own = Process { machine: Some("m".to_owned()), ..Process::own().unwrap().clone() };
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let (before, since) = (began - Duration::from_secs(1), began + Duration::from_secs(1));
        let earlier = Process { boot_id: "another".to_owned(), ..own.clone() };
        assert!(earlier.ended_with_its_boot(&own, before, Some(began)));
        assert!(!earlier.ended_with_its_boot(&own, since, Some(began)), "a container with a boot id of its own");
        assert!(!earlier.ended_with_its_boot(&own, before, None));
        for machine in [None, Some("other".to_owned())] {
            let foreign = Process { machine, ..earlier.clone() };
            assert!(!foreign.ended_with_its_boot(&own, before, Some(began)), "another machine");
        }
        assert!(boot_began(&own).is_none_or(|began| began < SystemTime::now()));
        assert_eq!(boot_began(&Process { time_namespace: Some(7), ..own }), None);
    }
}
