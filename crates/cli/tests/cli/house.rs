//! A repository and a home of its own for each test, and the program in it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lockkeeper");

pub(crate) struct House {
    folder: tempfile::TempDir,
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl House {
    pub(crate) fn new() -> House {
        let folder = tempfile::Builder::new().prefix("lk").tempdir_in("/tmp").expect("a folder");
        let house = House { folder };
        std::fs::create_dir_all(house.repository().join("src")).expect("a folder");
        let made = Command::new("git").args(["init", "-q", "."]).current_dir(house.repository()).status();
        assert!(made.expect("git runs").success());
        std::fs::write(house.repository().join("src/auth.rs"), "fn main() {}\n").expect("a file");
        house
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The program with a clean environment, as a session.
    pub(crate) fn command(&self, session: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .current_dir(self.repository())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LOCKKEEPER_HOME", self.home())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("HOME", self.path())
            .env("SESSION_ID", session)
            .env("LOCK_RATE_LIMIT_PER_MIN", "0")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn say(&self, session: &str, arguments: &[&str]) -> Said {
        said(self.command(session, arguments).output().expect("the program runs"))
    }

    /// Expects success, and gives back the JSON answer.
    pub(crate) fn json(&self, session: &str, arguments: &[&str]) -> Value {
        let mut with_json = arguments.to_vec();
        // Behind `--` it would be the command's own.
        with_json.insert(0, "--json");
        let said = self.say(session, &with_json);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }

    pub(crate) fn start(&self, session: &str, arguments: &[&str]) -> Child {
        let mut command = self.command(session, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
    }

    /// git, in the repository.
    pub(crate) fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        let done = Command::new("git").args(identity).args(arguments).current_dir(self.repository()).output();
        assert!(done.as_ref().expect("git runs").status.success(), "{done:?}");
    }

    /// One question over the socket, as it stands.
    pub(crate) fn line(&self, question: &str) -> Value {
        use std::io::{BufRead, BufReader, Write};
        let mut socket = std::os::unix::net::UnixStream::connect(self.home().join("socket")).expect("a service");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        writeln!(socket, "{question}").expect("written");
        let mut answer = String::new();
        BufReader::new(socket).read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// What is held, as `session path`.
    pub(crate) fn held(&self) -> Vec<String> {
        let list = self.json("looker", &["lock", "list"]);
        let rows = list["locks"].as_array().expect("a list").iter();
        rows.map(|lock| format!("{} {}", lock["session_id"].as_str().unwrap(), lock["file_path"].as_str().unwrap()))
            .collect()
    }

    /// Until so many wait in the queue.
    pub(crate) fn wait_for_waiters(&self, count: usize) {
        let waiting = || self.json("looker", &["lock", "list"])["waiting"].as_array().map_or(0, Vec::len);
        wait_for(&format!("{count} in the queue"), || (waiting() == count).then_some(()));
    }

    pub(crate) fn service_pid(&self) -> i32 {
        let status = self.json("looker", &["status"]);
        i32::try_from(status["pid"].as_i64().expect("a pid")).expect("a pid")
    }

    pub(crate) fn kill_service(&self) {
        kill(self.service_pid(), "KILL");
    }

    /// Starts a service that listens on HTTP, and gives back its URL and credential.
    pub(crate) fn serve(&self, more: &[&str]) -> Serving {
        self.serve_in(more, &[])
    }

    /// The same with something in its environment.
    pub(crate) fn serve_in(&self, more: &[&str], environment: &[(&str, &str)]) -> Serving {
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        let mut command = self.command("server", &arguments);
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program runs");
        let mut serving = Serving { child, url: String::new(), credential: String::new() };
        let url = wait_for("the service", || {
            if let Some(ended) = serving.child.try_wait().expect("a child") {
                let mut said = String::new();
                let _ = serving.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
                panic!("the service ended with {ended}: {said}");
            }
            let said = self.say("looker", &["--json", "status"]);
            let status: Value = serde_json::from_str(&said.out).ok()?;
            status["listen"].as_str().map(str::to_owned)
        });
        serving.url = url;
        serving.credential =
            std::fs::read_to_string(self.home().join("credential")).expect("a credential").trim().to_owned();
        serving
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.command("looker", &["stop"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

pub(crate) struct Serving {
    pub child: Child,
    pub url: String,
    pub credential: String,
}

/// A request as it goes over the wire, with one more header.
pub(crate) fn request(route: &str, host: &str, credential: &str, odd: &str, body: &str) -> Vec<u8> {
    let head = format!(
        "POST /{route} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n{odd}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        credential.trim(),
        body.len()
    );
    head.into_bytes()
}

impl Serving {
    /// curl, with the credential; the status and the body.
    pub(crate) fn curl(&self, path: &str, more: &[&str]) -> (u16, String) {
        let bearer = format!("Authorization: Bearer {}", self.credential);
        let mut arguments = vec!["-H", &bearer];
        arguments.extend(more);
        self.curl_bare(path, &arguments)
    }

    /// Sends a request, with one more header, and hears nothing of it yet.
    pub(crate) fn send(&self, route: &str, odd: &str, body: &str) -> TcpStream {
        let host = self.url.strip_prefix("http://").expect("an address");
        let mut stream = TcpStream::connect(host).expect("a service");
        stream.write_all(&request(route, host, &self.credential, odd, body)).expect("a request");
        stream
    }

    pub(crate) fn curl_bare(&self, path: &str, more: &[&str]) -> (u16, String) {
        let out = Command::new("curl")
            .args(["-s", "-m", "20", "-w", "\n%{http_code}"])
            .args(more)
            .arg(format!("{}{path}", self.url))
            .output()
            .expect("curl runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap_or(("", "0"));
        (code.trim().parse().unwrap_or(0), body.to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn said(output: Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Waits for a command's end; one that does not end is a failure, not a test that hangs.
pub(crate) fn finish(mut child: Child) -> Said {
    let give_up = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() >= give_up {
            let _ = child.kill();
            panic!("it did not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    said(child.wait_with_output().expect("it ends"))
}

pub(crate) fn kill(pid: i32, signal: &str) {
    let done = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().expect("kill runs");
    assert!(done.success(), "kill -{signal} {pid}");
}

pub(crate) fn kill_child(child: &Child, signal: &str) {
    kill(i32::try_from(child.id()).expect("a pid"), signal);
}

/// Looks again and again until something is there; fails after a while.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
