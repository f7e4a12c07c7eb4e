//! The service as a process that can be killed, and a client that speaks lines with it.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::house::House;

/// Whether the long campaigns are asked for.
pub(crate) fn deep() -> bool {
    std::env::var_os("LOCKKEEPER_DEEP").is_some()
}

/// A service in the foreground, and where it is found.
pub(crate) struct Service {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    /// From the start of the process to its first answer.
    pub(crate) took: Duration,
}

impl Service {
    /// Starts it on the socket alone, and waits for its first answer.
    pub(crate) fn start(house: &House) -> Service {
        Service::start_with(house, &["--listen", "none"], |command| command)
    }

    /// Starts it with more arguments, and in whatever way `dress` makes of the command.
    pub(crate) fn start_with(house: &House, arguments: &[&str], dress: impl FnOnce(Command) -> Command) -> Service {
        match Service::try_start_with(house, arguments, dress) {
            Ok(service) => service,
            Err(mut ended) => panic!("it ended with {:?}: {}", ended.child.try_wait(), ended.logged()),
        }
    }

    /// The same; one that ended before it answered comes back as an error.
    fn try_start_with(
        house: &House,
        arguments: &[&str],
        dress: impl FnOnce(Command) -> Command,
    ) -> Result<Service, Service> {
        let mut all = vec!["serve"];
        all.extend(arguments);
        let log = house.path().join("service.log");
        let output = OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let mut command = dress(house.command("server", &all));
        let began = Instant::now();
        let child = command.stdout(Stdio::null()).stderr(output).spawn().expect("the program runs");
        let mut service = Service { child, socket: house.home().join("socket"), log, took: Duration::ZERO };
        let answers = service.wait_until_it_answers();
        service.took = began.elapsed();
        if answers { Ok(service) } else { Err(service) }
    }

    /// Starts it until its engine lets it: one that can't be reached in time keeps a service from starting, and whoever runs
    /// one on a busy machine starts it again.
    pub(crate) fn start_until_it_runs(
        house: &House,
        arguments: &[&str],
        dress: impl Fn(Command) -> Command,
    ) -> Service {
        let give_up = Instant::now() + Duration::from_secs(20);
        loop {
            match Service::try_start_with(house, arguments, &dress) {
                Ok(service) => return service,
                Err(mut ended) => {
                    let code = ended.child.try_wait().expect("a child").and_then(|status| status.code());
                    assert!(code == Some(3) && Instant::now() < give_up, "it ended with {code:?}: {}", ended.logged());
                }
            }
        }
    }

    /// Whether it does; `false`: it ended.
    fn wait_until_it_answers(&mut self) -> bool {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            // An answer of this very process: the socket of one that was killed is still there.
            if let Ok((200, status)) = self.try_line().and_then(|mut line| line.ask("status", json!({})))
                && status["pid"].as_u64() == Some(self.child.id().into())
            {
                return true;
            }
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            assert!(Instant::now() < give_up, "it never answered: {}", self.logged());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn try_line(&self) -> io::Result<Line> {
        Line::connect(&self.socket)
    }

    pub(crate) fn line(&self) -> Line {
        self.try_line().expect("a connection")
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Waits until it ends by itself, and gives back its exit code.
    pub(crate) fn ends(&mut self, within: Duration) -> Option<i32> {
        let give_up = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < give_up, "it goes on: {}", self.logged());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What it wrote to its log, and those before it.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Memory that it has in use, in mebibytes.
    pub(crate) fn resident_mib(&self) -> f64 {
        self.size_mib("VmRSS:")
    }

    /// The most that it ever had in use, in mebibytes.
    pub(crate) fn peak_mib(&self) -> f64 {
        self.size_mib("VmHWM:")
    }

    /// Forgets the peak, so that the next one counts from now; gives back what is in use now.
    pub(crate) fn forget_peak_mib(&self) -> f64 {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("the peak is forgotten");
        self.peak_mib()
    }

    fn size_mib(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
        line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") / 1024.0
    }

    /// Processor time that it has used.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("a process");
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("a signal");
}

/// One connection to the socket.
pub(crate) struct Line {
    reader: BufReader<UnixStream>,
    id: u64,
}

impl Line {
    pub(crate) fn connect(socket: &Path) -> io::Result<Line> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Line { reader: BufReader::new(stream), id: 0 })
    }

    /// Asks, and waits for the answer to this question.
    pub(crate) fn ask(&mut self, operation: &str, body: Value) -> io::Result<(u16, Value)> {
        let id = self.send(operation, body)?;
        loop {
            let answer = self.read()?;
            if answer["id"] == id {
                return Ok((answer["status"].as_u64().unwrap_or(0) as u16, answer["body"].clone()));
            }
        }
    }

    pub(crate) fn send(&mut self, operation: &str, body: Value) -> io::Result<u64> {
        self.id += 1;
        let mut question = json!({ "id": self.id, "op": operation, "body": body }).to_string();
        question.push('\n');
        self.reader.get_mut().write_all(question.as_bytes())?;
        Ok(self.id)
    }

    /// The next answer, to whichever question.
    pub(crate) fn read(&mut self) -> io::Result<Value> {
        let mut answer = String::new();
        if self.reader.read_line(&mut answer)? == 0 || !answer.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&answer).map_err(io::Error::other)
    }
}

/// A small generator, so that a failure can be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// One that another seed would make different, and that says which seed it was when a test fails.
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }
}
