//! Appends to a proof's ledger by several processes: by our library, and by the plain loop of the protocol's document.
//!
//! Both find the end of the ledger in the same way, and both sync the event and its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use lockkeeper_proof::{NewEvent, Options, Profile};

use crate::Load;
use crate::flood::Times;

const EVENT: &str = r#"{"type":"custom_event","timestamp":"2024-01-15T10:30:00Z"}"#;
const POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Way {
    Ours,
    Plain,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Ours => "ours",
            Way::Plain => "plain",
        }
    }
}

/// Lets so many processes append to one new ledger for a while.
pub(crate) fn appends(folder: &Path, way: Way, load: Load) -> anyhow::Result<Times> {
    let proof = folder.join(format!("proof-{}", std::process::id()));
    Options { profile: Some(Profile::Doc), ..Options::default() }.init(&proof, None)?;
    let start = |_| {
        let mut worker = Command::new(std::env::current_exe()?);
        worker.arg("proof-worker").arg(&proof).args([way.word(), "--seconds", &load.seconds.to_string()]);
        worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut workers = (0..load.clients).map(start).collect::<io::Result<Vec<_>>>()?;
    std::thread::sleep(Duration::from_millis(200));
    // All begin when their input ends.
    workers.iter_mut().for_each(|worker| drop(worker.stdin.take()));
    let mut times = Times::default();
    for worker in workers {
        let output = worker.wait_with_output()?;
        anyhow::ensure!(output.status.success(), "a writer failed: {}", output.status);
        for line in String::from_utf8(output.stdout)?.lines() {
            times.rounds.push(line.parse()?);
        }
    }
    times.elapsed = load.length();
    let events = fs::read_dir(proof.join("ledger"))?.flatten();
    let events = events.filter(|entry| entry.file_name().to_string_lossy().starts_with("event-")).count();
    anyhow::ensure!(events == times.rounds.len(), "{events} events of {} appends", times.rounds.len());
    fs::remove_dir_all(&proof)?;
    Ok(times)
}

/// One process: the nanoseconds that each append took, one a line.
pub(crate) fn work(proof: &Path, way: Way, length: Duration) -> anyhow::Result<()> {
    let patience = Duration::from_secs(60);
    let ledger = Options { lock_timeout: patience, ..Options::default() }.open(proof)?;
    let event = NewEvent::parse(EVENT, Profile::Doc)?;
    let mut plain = Plain { ledger: proof.join("ledger"), last: 0 };
    io::stdin().read_to_end(&mut Vec::new())?;
    let mut took = Vec::new();
    let began = Instant::now();
    while began.elapsed() < length {
        let asked = Instant::now();
        match way {
            Way::Ours => drop(ledger.append(&event)?),
            Way::Plain => plain.append()?,
        }
        took.push(asked.elapsed().as_nanos() as u64);
    }
    let lines: Vec<String> = took.iter().map(u64::to_string).collect();
    io::stdout().write_all((lines.join("\n") + "\n").as_bytes())?;
    Ok(())
}

/// The document's loop: lock file, temporary file, sync, rename, sync of the folder, and the lock file away.
struct Plain {
    ledger: std::path::PathBuf,
    last: u64,
}

impl Plain {
    fn append(&mut self) -> io::Result<()> {
        let lock = self.ledger.join("ledger.lock");
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock) {
                Ok(mut file) => {
                    file.write_all(b"{\"agent_id\":\"plain\",\"acquired_at\":\"2024-01-15T10:30:00Z\"}\n")?;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => std::thread::sleep(POLL),
                Err(error) => return Err(error),
            }
        }
        let name = |number: u64| self.ledger.join(format!("event-{number:06}.json"));
        let mut last = self.last;
        while name(last + 1).exists() {
            last += 1;
        }
        let temporary = self.ledger.join(format!(".event-{}.tmp", std::process::id()));
        let mut file = File::create(&temporary)?;
        file.write_all(EVENT.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, name(last + 1))?;
        File::open(&self.ledger)?.sync_all()?;
        fs::remove_file(&lock)?;
        self.last = last + 1;
        Ok(())
    }
}
