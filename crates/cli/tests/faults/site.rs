//! A service with all its doors, and one way to ask through each.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::house::{House, Serving};

/// The ways in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Door {
    Cli,
    Socket,
    Http,
    /// The tools over HTTP.
    Mcp,
    /// The tools of `lockkeeper mcp`, which sees the file system as the command line does.
    Stdio,
}

pub(crate) const DOORS: [Door; 5] = [Door::Cli, Door::Socket, Door::Http, Door::Mcp, Door::Stdio];

const JSON: [&str; 2] = ["-H", "Content-Type: application/json"];

/// A service with all its doors.
pub(crate) struct Site {
    pub(crate) house: House,
    pub(crate) serving: Serving,
}

impl Site {
    pub(crate) fn open() -> Site {
        let house = House::new();
        let serving = house.serve(&[]);
        Site { house, serving }
    }

    /// Asks for a lock, and gives back the word of the refusal, or `granted`.
    pub(crate) fn acquire(&self, door: Door, session: &str, body: &Value) -> String {
        let answer = match door {
            Door::Cli => self.cli(session, body),
            Door::Socket => self.socket("locks/acquire", session, body),
            Door::Http => self.http("/locks/acquire", session, body),
            Door::Mcp => self.mcp("acquire_lock", session, body),
            Door::Stdio => self.stdio("acquire_lock", session, body),
        };
        match (answer["success"].as_bool(), answer["error"].as_str()) {
            (Some(true), _) => "granted".to_owned(),
            (_, Some(word)) => word.to_owned(),
            _ => panic!("{door:?} {body}: {answer}"),
        }
    }

    pub(crate) fn socket(&self, operation: &str, session: &str, body: &Value) -> Value {
        let mut body = body.clone();
        body["session_id"] = json!(session);
        self.house.line(&json!({ "id": 1, "op": operation, "body": body }).to_string())["body"].clone()
    }

    pub(crate) fn http(&self, path: &str, session: &str, body: &Value) -> Value {
        let mut body = body.clone();
        body["session_id"] = json!(session);
        let (code, text) = self.send(path, &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{code} {error}: {text}"));
        if let Some(word) = answer["error"].as_str() {
            let word = lockkeeper_wire::word::Word::parse(word).unwrap_or_else(|| panic!("{answer}"));
            assert_eq!(code, word.status(), "{answer}");
        }
        answer
    }

    /// From a file: it may be longer than a command line.
    pub(crate) fn send(&self, path: &str, body: &str) -> (u16, String) {
        let file = self.house.path().join(format!("body-{:?}.json", std::thread::current().id()));
        std::fs::write(&file, body).expect("written");
        let data = format!("@{}", file.display());
        let accept = ["-H", "Accept: application/json, text/event-stream", "-H", "MCP-Protocol-Version: 2025-06-18"];
        self.serving.curl(path, &[&JSON[..], &accept, &["-H", "Expect:", "--data-binary", &data]].concat())
    }

    pub(crate) fn mcp(&self, tool: &str, session: &str, body: &Value) -> Value {
        let mut arguments = body.clone();
        arguments["session_id"] = json!(session);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments } });
        let (code, text) = self.send("/mcp", &call.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{code} {error}: {text}"));
        answer["result"]["structuredContent"].clone()
    }

    /// A server of its own for each call, as each agent has one. What it took is free again when it ends.
    pub(crate) fn stdio(&self, tool: &str, session: &str, body: &Value) -> Value {
        call_tool(self.house.command(session, &["mcp"]), tool, body)
    }

    fn cli(&self, session: &str, body: &Value) -> Value {
        let mut arguments = vec!["--json".to_owned(), "lock".into(), "acquire".into()];
        let number = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let lines = match (&body["start_line"], &body["end_line"]) {
            (Value::Null, _) => String::new(),
            (start, Value::Null) => format!(":{}-", number(start)),
            (start, end) => format!(":{}-{}", number(start), number(end)),
        };
        let paths = body["locks"].as_array().into_iter().flatten().map(|lock| &lock["file_path"]);
        for path in paths.chain(body.get("file_path")) {
            arguments.push(format!("{}{lines}", path.as_str().expect("a path")));
        }
        if let Some(why) = body["intention"].as_str() {
            arguments.extend(["-m".into(), why.to_owned()]);
        }
        if let Some(ttl) = body.get("ttl_ms") {
            arguments.push(format!("--ttl={}", number(ttl)));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = self.house.say(session, &arguments);
        let answer: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        if let Some(word) = answer["error"].as_str() {
            let word = lockkeeper_wire::word::Word::parse(word).unwrap_or_else(|| panic!("{answer}"));
            assert_eq!(said.code, i32::from(word.exit_code()), "{said:?}");
        }
        answer
    }

    /// All that is told of the locks, but for what changes by itself.
    pub(crate) fn locks(&self) -> Value {
        let mut locks = self.house.json("looker", &["lock", "list"])["locks"].take();
        for lock in locks.as_array_mut().expect("a list") {
            lock.as_object_mut().expect("a lock").remove("expires_in_ms");
        }
        locks
    }

    pub(crate) fn nothing_is_held(&self) {
        assert!(self.house.held().is_empty(), "{:?}", self.house.held());
    }
}

/// Starts `lockkeeper mcp` in whatever environment the command has, and uses one of its tools.
pub(crate) fn call_tool(mut command: Command, tool: &str, body: &Value) -> Value {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = piped.spawn().expect("the program runs");
    let mut input = child.stdin.take().expect("piped");
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": tool, "arguments": body } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for message in [hello, ready, call] {
        writeln!(input, "{message}").expect("written");
    }
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let answers = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2).expect("an answer");
    drop(input);
    child.wait().expect("ends");
    answer["result"]["structuredContent"].clone()
}
