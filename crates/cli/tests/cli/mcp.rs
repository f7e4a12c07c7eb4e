//! The tools, with the official client.

use std::process::{Command, Stdio};

use crate::house::{House, PROGRAM, said, wait_for};

#[test]
fn the_official_client_works_over_stdio_and_http() {
    let python = std::env::var("LOCKKEEPER_TEST_PYTHON")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python").to_owned());
    let house = House::new();
    let serving = house.serve(&[]);
    let output = Command::new(&python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/mcp_client.py"))
        .arg(PROGRAM)
        .arg(house.repository())
        .arg(house.home())
        .args([&serving.url, &serving.credential])
        .output()
        .unwrap_or_else(|error| panic!("{python}: {error}; ./test makes it"));
    let said = said(output);
    assert!(said.code == 0 && said.out.contains("all well"), "{}\n{}", said.out, said.err);
}

#[test]
fn p8_a_killed_mcp_server_frees_its_locks_and_ports_at_once() {
    use std::io::Write;
    let house = House::new();
    let mut command = house.command("agent-1", &["mcp"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"acquire_lock","arguments":{"file_path":"x","intention":"i","ttl_minutes":60}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"allocate_ports","arguments":{}}}"#,
    ] {
        writeln!(input, "{message}").unwrap();
    }
    let ports = || house.json("x", &["ports", "status"])["allocations"].as_array().expect("a list").len();
    wait_for("the lock", || (house.held() == ["agent-1 x"]).then_some(()));
    wait_for("the ports", || (ports() == 1).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the release", || (house.held().is_empty() && ports() == 0).then_some(()));
}

#[test]
fn over_http_a_tool_refuses_what_has_the_wrong_type_in_place_of_passing_over_it() {
    let house = House::new();
    let serving = house.serve(&[]);
    let call = |arguments: &str| {
        let params = format!(r#"{{"name":"acquire_lock","arguments":{arguments}}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let headers = ["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"];
        serving.curl("/mcp", &[&headers[..], &["-d", &message]].concat()).1
    };
    for (wrong, word) in [
        (r#"{"file_path":"x","intention":"i","wait_seconds":"20"}"#, "wait_seconds is a number"),
        (r#"{"file_path":"x","intention":"i","session_id":5}"#, "session_id is a text"),
        (r#"{"file_path":"x","intention":"i","agent_id":["a"]}"#, "agent_id is a text"),
        (r#"{"file_path":"x","intention":"i","waiting":1}"#, "unknown field `waiting`"),
    ] {
        let said = call(wrong);
        assert!(said.contains(word) && said.contains("\"isError\":true"), "{said}");
    }
    assert!(house.held().is_empty());
    let said = call(r#"{"file_path":"x","intention":"i","agent_id":"grace","wait_seconds":1}"#);
    assert!(said.contains("Locked") && said.contains("\"owner\":\"grace\""), "{said}");
    let deep =
        format!(r#"{{"feature_id":"F","agent_id":"a","metadata":{{"a":{}1{}}}}}"#, "[".repeat(40), "]".repeat(40));
    let (code, said) = serving.curl("/features/register", &["-H", "Content-Type: application/json", "-d", &deep]);
    assert!(code == 422 && said.contains("limit_exceeded"), "{said}");
}

#[test]
fn tools_that_were_started_beside_a_repository_lock_nothing_in_it() {
    use std::io::Write;
    let house = House::new();
    let mut command = house.command("a", &["mcp"]);
    let mut child = command.current_dir(house.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let file = house.repository().join("src/auth.rs:1-5").display().to_string();
    let call = r#"{"name":"acquire_lock","arguments":{"file_path":"FILE","intention":"i"}}"#.replace("FILE", &file);
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        &format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{call}}}"#),
    ] {
        writeln!(input, "{message}").unwrap();
    }
    let mut answers = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut answer = String::new();
    while !answer.contains("\"id\":2") {
        answer.clear();
        assert!(std::io::BufRead::read_line(&mut answers, &mut answer).unwrap() > 0, "it ended");
    }
    drop(input);
    child.wait().unwrap();
    let top = house.repository().canonicalize().unwrap().display().to_string();
    assert!(answer.contains("\"isError\":true") && answer.contains("where nobody would see that"), "{answer}");
    assert!(answer.contains(&format!("start lockkeeper mcp in {top}, and ask for src/auth.rs:1-5")), "{answer}");
}

#[test]
fn agents_of_one_kind_are_told_apart_and_know_what_is_theirs() {
    use std::io::{BufRead, Write};
    let house = House::new();
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"claude-code","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"acquire_lock","arguments":{"file_path":"FILE","intention":"i"}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_locks","arguments":{}}}"#,
    ];
    let agents = ["one", "other"].map(|file| {
        let mut command = house.command("nobody", &["mcp"]);
        let command = command.env_remove("SESSION_ID").env_remove("AGENT_ID");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut answers = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut answer = String::new();
        for line in lines {
            writeln!(input, "{}", line.replace("FILE", file)).unwrap();
            while line.contains("\"id\"") && !answer.contains(&line[16..23]) {
                answer.clear();
                assert!(answers.read_line(&mut answer).unwrap() > 0, "it ended");
            }
        }
        let list: serde_json::Value = serde_json::from_str(&answer).unwrap();
        (child, input, list["result"].clone())
    });
    let list = &agents[1].2;
    let told = list["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("one by claude-code-") && told.contains("other by you"), "{told}");
    let locks = list["structuredContent"]["locks"].as_array().unwrap();
    assert!(
        locks[0]["owner"] != locks[1]["owner"] && locks[0]["yours"].is_null() && locks[1]["yours"] == true,
        "{list}"
    );
    for (mut child, input, _) in agents {
        drop(input);
        child.wait().unwrap();
    }
}
