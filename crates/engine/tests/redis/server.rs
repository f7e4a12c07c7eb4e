//! A Redis of a test's own: on a free port, with a directory of its own, ended with the test.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How often another port is tried, if somebody else was faster.
const PORTS_TRIED: usize = 20;
const START_TIME_MAX: Duration = Duration::from_secs(20);

pub(crate) struct RedisServer {
    process: Option<Child>,
    pub(crate) port: u16,
    options: Vec<String>,
    dir: tempfile::TempDir,
}

impl RedisServer {
    /// One that keeps nothing on the disk.
    pub(crate) fn start() -> RedisServer {
        RedisServer::with(&[])
    }

    /// One that keeps everything: a grant is acknowledged when it is synced.
    pub(crate) fn durable() -> RedisServer {
        RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A node of a cluster, which has no slot and knows no other node yet.
    pub(crate) fn cluster_node() -> RedisServer {
        let bus = free_port().to_string();
        RedisServer::with(&["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "2000"])
    }

    /// A Sentinel that watches one master, under the name `mymaster`, and decides alone.
    pub(crate) fn sentinel(master: u16) -> RedisServer {
        RedisServer::with(&["--sentinel", &master.to_string()])
    }

    pub(crate) fn with(options: &[&str]) -> RedisServer {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        for _ in 0..PORTS_TRIED {
            let dir = tempfile::tempdir().expect("a directory");
            let mut server = RedisServer { process: None, port: free_port(), options: options.clone(), dir };
            if server.run() {
                return server;
            }
        }
        panic!("redis-server does not start with {options:?}");
    }

    fn command(&self) -> Command {
        let mut command = Command::new("redis-server");
        let port = self.port.to_string();
        if let [kind, master] = self.options.as_slice()
            && kind == "--sentinel"
        {
            let config = self.dir.path().join("sentinel.conf");
            let watched = [
                format!("sentinel monitor mymaster 127.0.0.1 {master} 1"),
                "sentinel down-after-milliseconds mymaster 500".to_owned(),
                "sentinel failover-timeout mymaster 3000".to_owned(),
            ];
            std::fs::write(&config, watched.join("\n")).expect("a file");
            command.arg(config).args(["--sentinel", "--port", &port]);
        } else {
            command.args(["--save", ""]);
            let (plain, encrypted) = if self.has_tls() { ("0", port.as_str()) } else { (port.as_str(), "0") };
            command.args(["--port", plain, "--tls-port", encrypted]);
            command.args(&self.options);
        }
        command.args(["--bind", "127.0.0.1", "--daemonize", "no", "--logfile", "log", "--dir"]).arg(self.dir.path());
        command
    }

    fn has_tls(&self) -> bool {
        self.options.iter().any(|option| option == "--tls-cert-file")
    }

    /// Whether it came up; if not, the port was taken.
    fn run(&mut self) -> bool {
        let mut command = self.command();
        command.current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("redis-server is missing; install the package redis-server");
        self.process = Some(process);
        let give_up = Instant::now() + START_TIME_MAX;
        while Instant::now() < give_up {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                // Somebody else may have taken the port meanwhile, and ours ends then.
                std::thread::sleep(Duration::from_millis(10));
                return self.lives();
            }
            if !self.lives() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server does not listen; its log: {}", self.log());
    }

    fn lives(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it as a power loss would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Starts it again, with what it kept.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none(), "it was ended before");
        let give_up = Instant::now() + START_TIME_MAX;
        while !self.run() {
            assert!(Instant::now() < give_up, "its port is taken: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        kill_process(Pid::from_child(process), signal).expect("it can be signalled");
    }

    /// Lets it stand still: connections stay, and nothing is answered.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks something over a connection of its own, and gives back the answer as text. Asks again if the connection is
    /// cut: tests and Sentinels cut all there are.
    pub(crate) fn ask(&self, command: &[&str]) -> String {
        for _ in 0..20 {
            if let Ok(answer) = ask(self.port, command) {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{command:?} is not answered: {}", self.log());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// One line for each part of the answer.
fn ask(port: u16, command: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut sent = format!("*{}\r\n", command.len());
    for word in command {
        let _ = write!(sent, "${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(sent.as_bytes())?;
    let mut lines = Vec::new();
    answer(&mut BufReader::new(stream), &mut lines)?;
    Ok(lines.join("\n"))
}

fn answer(reader: &mut BufReader<TcpStream>, lines: &mut Vec<String>) -> io::Result<()> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let rest = line[1..].trim_end().to_owned();
    match line.as_bytes()[0] {
        b'$' => {
            let Ok(length) = rest.parse::<usize>() else {
                lines.push("(nil)".to_owned());
                return Ok(());
            };
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes)?;
            lines.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        b'*' => {
            for _ in 0..rest.parse::<usize>().unwrap_or(0) {
                answer(reader, lines)?;
            }
        }
        _ => lines.push(rest),
    }
    Ok(())
}
