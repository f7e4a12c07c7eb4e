//! `serve`, `watch`, `doctor`, and the service over HTTP with a client that is not ours.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::time::Duration;

use serde_json::Value;

use crate::house::{House, Serving, finish, kill_child, wait_for};

#[test]
fn a_service_in_the_foreground_takes_over_from_one_in_the_background() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x", "--ttl", "10m"]);
    let before = house.service_pid();
    let serving = house.serve(&[]);
    assert_ne!(house.service_pid(), before);
    assert_eq!(house.held(), ["a x"]);
    let second = house.say("x", &["serve"]);
    assert!(second.code != 0 && second.err.contains("runs already"), "{second:?}");
    let (code, health) = serving.curl_bare("/healthz", &[]);
    assert_eq!((code, health.trim()), (200, "ok"));
}

#[test]
fn http_speaks_with_the_words_of_existing_clients() {
    let house = House::new();
    let serving = house.serve(&[]);
    let post = |path: &str, body: &str| {
        let (code, text) = serving.curl(path, &["-H", "Content-Type: application/json", "-d", body]);
        (code, serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    };
    let (code, granted) =
        post("/locks/acquire", r#"{"file_path":"src/a.rs","agent_id":"claude","reason":"x","ttl_minutes":5}"#);
    assert_eq!((code, granted["action"].as_str()), (200, Some("acquired")));
    let (code, refused) = post("/locks/acquire", r#"{"file_path":"src/a.rs","agent_id":"gemini"}"#);
    assert_eq!((code, refused["conflicts"][0]["owner"].as_str()), (409, Some("claude")));
    let (code, status) = serving.curl_bare("/locks/status/src/a.rs", &[]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((code, status["lock"]["locked_by"].as_str()), (200, Some("claude")), "no credential is needed for that");
    let (code, active) = serving.curl("/locks/active", &[]);
    assert_eq!((code, active.contains("\"total\":1")), (200, true), "{active}");
    assert_eq!(post("/locks/release", r#"{"file_path":"src/a.rs","agent_id":"gemini"}"#).0, 403);
    assert_eq!(post("/locks/release", r#"{"file_path":"src/a.rs","agent_id":"claude"}"#).0, 200);
    assert_eq!(post("/locks/release", r#"{"file_path":"src/b.rs","agent_id":"claude"}"#).0, 404);
    let (code, openapi) = serving.curl_bare("/openapi.json", &[]);
    let openapi: Value = serde_json::from_str(&openapi).unwrap();
    assert_eq!(
        (code, openapi["paths"]["/locks/acquire"]["post"]["operationId"].as_str()),
        (200, Some("locks_acquire"))
    );
    let (code, metrics) = serving.curl("/metrics", &[]);
    assert!(
        code == 200 && metrics.contains("lockkeeper_requests_total{operation=\"locks/acquire\",outcome=\"busy\"} 1"),
        "{metrics}"
    );
}

#[test]
fn contention_quota_and_releases_are_counted_by_what_came_of_them() {
    let house = House::new();
    let serving = house.serve_in(&[], &[("LOCK_RATE_LIMIT_PER_MIN", "2")]);
    let code = |session: &str, arguments: &[&str]| house.say(session, arguments).code;
    assert_eq!(code("a", &["lock", "acquire", "x"]), 0);
    assert_eq!(code("b", &["lock", "acquire", "x"]), 5);
    assert_eq!(code("c", &["lock", "acquire", "x", "--wait", "50ms"]), 5);
    assert_eq!(code("person", &["room", "open", "src/auth.rs"]), 0);
    assert_eq!(code("d", &["lock", "acquire", "src/auth.rs"]), 5);
    assert_eq!(code("a", &["lock", "acquire", "y"]), 0);
    assert_eq!(code("a", &["lock", "acquire", "z"]), 7);
    assert_eq!(code("b", &["lock", "release", "x"]), 4);
    assert_eq!(code("a", &["lock", "release", "x"]), 0);
    assert_eq!(code("a", &["lock", "release", "y"]), 0);
    let (_, metrics) = serving.curl("/metrics", &[]);
    for line in [
        "lockkeeper_contention_total{reason=\"lock_contended\"} 1",
        "lockkeeper_contention_total{reason=\"lock_timeout\"} 1",
        "lockkeeper_contention_total{reason=\"room_busy\"} 1",
        "lockkeeper_requests_total{operation=\"locks/acquire\",outcome=\"rate_limited\"} 1",
        "lockkeeper_requests_total{operation=\"locks/acquire\",outcome=\"ok\"} 2",
        "lockkeeper_requests_total{operation=\"locks/release\",outcome=\"not_owner\"} 1",
        "lockkeeper_requests_total{operation=\"locks/release\",outcome=\"ok\"} 2",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line} is missing:\n{metrics}");
    }
}

#[test]
fn a_trace_of_the_caller_is_in_the_audit_log() {
    let house = House::new();
    let serving = house.serve(&[]);
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = r#"{"file_path":"x","session_id":"s","agent_id":"a","request_id":"r1"}"#;
    serving.curl("/locks/acquire", &["-H", "Content-Type: application/json", "-H", trace, "-d", body]);
    let line = wait_for("the audit line", || {
        let path = house.home().join("audit.jsonl");
        std::fs::read_to_string(path).ok()?.lines().find(|line| line.contains("r1")).map(str::to_owned)
    });
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (line["traceId"].as_str(), line["spanId"].as_str()),
        (Some("0af7651916cd43dd8448eb211c80319c"), Some("b7ad6b7169203331"))
    );
    assert_eq!(
        (line["sessionId"].as_str(), line["agentId"].as_str(), line["outcome"].as_str()),
        (Some("s"), Some("a"), Some("ok"))
    );
}

#[test]
fn a_trace_that_the_environment_names_goes_on_through_every_door() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let house = House::new();
    let serving = house.serve(&[]);
    let traced = |session: &str, trace: String, arguments: &[&str]| {
        let ran = house.command(session, arguments).env("TRACEPARENT", trace).output().expect("the program runs");
        assert!(ran.status.success(), "{ran:?}");
        let line = wait_for("the audit line", || {
            let text = std::fs::read_to_string(house.home().join("audit.jsonl")).ok()?;
            text.lines().find(|line| line.contains(&format!("\"{session}\""))).map(str::to_owned)
        });
        serde_json::from_str::<Value>(&line).expect("JSON")["traceId"].as_str().map(str::to_owned)
    };
    let good = format!("00-{TRACE}-b7ad6b7169203331-01");
    assert_eq!(traced("by-socket", good.clone(), &["lock", "acquire", "x"]).as_deref(), Some(TRACE));
    let url = ["--url", &serving.url];
    assert_eq!(
        traced("by-http", good.clone(), &[&url[..], &["lock", "acquire", "y"]].concat()).as_deref(),
        Some(TRACE)
    );
    // What is no trace is nobody's failure.
    assert_ne!(traced("by-nobody", good.to_uppercase(), &["lock", "acquire", "z"]).as_deref(), Some(TRACE));
}

#[test]
fn events_resume_where_they_stopped() {
    let house = House::new();
    let serving = house.serve(&[]);
    house.say("a", &["lock", "acquire", "x"]);
    house.say("a", &["lock", "release", "x"]);
    house.say("a", &["lock", "acquire", "y"]);
    let history = house.json("x", &["lock", "history"]);
    let ids: Vec<&str> =
        history["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect();
    let [last, _, first] = ids[..] else { panic!("{ids:?}") };
    let resume = format!("Last-Event-ID: {first}");
    let (_, stream) = serving.curl("/events", &["-m", "1", "-N", "-H", &resume]);
    assert!(stream.contains(&format!("id: {last}")) && !stream.contains(&format!("id: {first}")), "{stream}");
    let (code, gone) = serving.curl("/events?after=dead-1", &[]);
    assert_eq!((code, gone.contains("compacted")), (410, true), "{gone}");
}

#[test]
fn watch_goes_on_after_a_restart_without_losing_anything() {
    let house = House::new();
    house.say("a", &["lock", "list"]);
    let mut watching = house.start("w", &["--json", "watch"]);
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let (sender, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    let next = || -> Value {
        let line = seen.recv_timeout(Duration::from_secs(20)).expect("an event");
        serde_json::from_str(&line).expect("JSON")
    };
    std::thread::sleep(Duration::from_millis(300));
    house.say("a", &["lock", "acquire", "x"]);
    assert_eq!(next()["file_path"], "x");
    house.kill_service();
    house.say("a", &["lock", "acquire", "y"]);
    assert_eq!(next()["file_path"], "y");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn doctor_finds_an_open_home() {
    use std::os::unix::fs::PermissionsExt;
    let house = House::new();
    let said = house.say("a", &["doctor"]);
    assert_eq!(said.code, 0, "{said:?}");
    house.say("a", &["lock", "list"]);
    assert_eq!(house.say("a", &["doctor"]).code, 0);
    std::fs::set_permissions(house.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = house.say("a", &["doctor"]);
    assert!(said.code == 1 && said.out.contains("chmod go-rwx"), "{said:?}");
}

#[test]
fn help_teaches_and_completions_complete() {
    let house = House::new();
    for arguments in
        [&["--help"][..], &["lock", "acquire", "--help"], &["run", "--help"], &["serve", "--help"], &["mcp", "--help"]]
    {
        let said = house.say("a", arguments);
        assert!(said.code == 0 && (said.out.contains("Examples:") || said.out.contains("settings:")), "{said:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(house.say("a", &["completions", shell]).out.contains("lockkeeper"));
    }
    assert_eq!(house.say("a", &["lock", "acquire"]).code, 2);
}

#[test]
fn a_service_ends_on_a_signal_and_leaves_no_socket() {
    let house = House::new();
    let serving = house.serve(&["--engine", "memory:"]);
    kill_child(&serving.child, "TERM");
    wait_for("the end", || (!house.home().join("socket").exists()).then_some(()));
    drop(serving);
    for (engine, code) in [("ftp://me:secret@h", 2), ("redis://me:secret@h:x", 2), ("redis://me:secret@127.0.0.1:1", 3)]
    {
        let mut named = house.command("a", &["serve"]);
        named.env("LOCKKEEPER_ENGINE", engine);
        for (refused, code) in [
            (crate::house::said(named.output().expect("the program runs")), code),
            (finish(house.start("a", &["serve", "--engine", engine])), 2),
        ] {
            assert_eq!(refused.code, code, "{refused:?}");
            assert!(!refused.err.contains("secret"), "{refused:?}");
        }
    }
}

#[test]
fn whoever_names_another_engine_than_the_service_has_is_warned() {
    let house = House::new();
    let named = |arguments: &[&str]| {
        let mut command = house.command("a", arguments);
        crate::house::said(command.env("LOCKKEEPER_ENGINE", "memory:").output().expect("the program runs"))
    };
    assert_eq!(house.say("a", &["lock", "acquire", "f"]).code, 0);
    let warned = named(&["lock", "list"]);
    let (from, to) =
        (format!("file:{}", house.home().join("ledgers").display()), "would use memory: from LOCKKEEPER_ENGINE");
    assert!(warned.code == 0 && warned.err.contains(&from) && warned.err.contains(to), "{warned:?}");
    assert!(warned.err.contains("lockkeeper stop"), "{warned:?}");
    assert_eq!(house.say("a", &["lock", "list"]).err, "", "who names none is not warned");
    named(&["stop"]);
    let followed = named(&["lock", "list"]);
    assert!(followed.code == 0 && followed.err.is_empty(), "{followed:?}");
}

#[test]
fn a_password_on_the_command_line_is_refused_with_the_way_out() {
    let house = House::new();
    for engine in ["redis://me:secret@127.0.0.1:1", "postgres://127.0.0.1:1/db?password=secret"] {
        for command in [&["serve", "--engine", engine][..], &["bench", "--engine", engine, "--for", "1s"]] {
            let refused = house.say("a", command);
            assert_eq!(refused.code, 2, "{refused:?}");
            assert!(refused.err.contains("_ENGINE, and leave") && !refused.err.contains("secret"), "{refused:?}");
        }
    }
}

#[test]
fn a_lock_is_taken_away_in_the_space_that_is_named() {
    let house = House::new();
    let serving = house.serve(&[]);
    let acquire = |space: &str| {
        let body = format!(r#"{{"file_path":"x","agent_id":"a","space":"{space}"}}"#);
        assert_eq!(serving.curl("/locks/acquire", &["-H", "Content-Type: application/json", "-d", &body]).0, 200);
    };
    acquire("one");
    acquire("two");
    assert_eq!(serving.curl("/locks/x?space=two", &["-X", "DELETE"]).0, 200);
    let held = |space: &str| serving.curl(&format!("/locks/active?space={space}"), &[]).1;
    assert!(
        held("one").contains(r#""total":1"#) && held("two").contains(r#""total":0"#),
        "{} {}",
        held("one"),
        held("two")
    );
}

#[test]
#[cfg(target_env = "gnu")]
fn a_service_sets_its_allocator_up_and_leaves_what_somebody_else_has_set() {
    let environment = |house: &House| {
        let text = std::fs::read_to_string(format!("/proc/{}/environ", house.service_pid())).unwrap();
        text.split('\0').find_map(|entry| entry.strip_prefix("GLIBC_TUNABLES=")).map(str::to_owned)
    };
    let house = House::new();
    house.say("a", &["lock", "list"]);
    assert_eq!(environment(&house).as_deref(), Some("glibc.malloc.tcache_count=256"));
    let house = House::new();
    let theirs = "glibc.malloc.check=0";
    let said = house.command("a", &["lock", "list"]).env("GLIBC_TUNABLES", theirs).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(environment(&house).as_deref(), Some(theirs));
}

#[test]
fn one_connection_follows_so_many_streams_and_no_more() {
    let house = House::new();
    house.say("a", &["status"]);
    let mut stream = std::os::unix::net::UnixStream::connect(house.home().join("socket")).unwrap();
    for id in 1..=65 {
        writeln!(stream, r#"{{"id":{id},"op":"events","body":{{}}}}"#).unwrap();
    }
    let answers = BufReader::new(stream).lines().take(65).map(|line| line.unwrap());
    let answers: Vec<Value> = answers.map(|line| serde_json::from_str(&line).unwrap()).collect();
    assert_eq!(answers.iter().filter(|answer| answer["status"] == 200).count(), 64);
    assert_eq!(answers[64]["body"]["error"], "limit_exceeded", "{}", answers[64]);
}

#[test]
fn lists_that_are_asked_for_together_are_answered_one_after_the_other() {
    let house = House::new();
    let keys: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
    let keys: Vec<&str> = ["lock", "acquire"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(house.say("a", &keys).code, 0);
    let mut stream = std::os::unix::net::UnixStream::connect(house.home().join("socket")).unwrap();
    let mut asked = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for id in 1..=200 {
        // Every fourth is refused at once, with lines behind it that have come already.
        let (op, body) = match id % 4 {
            0 => ("locks/check", r#"{"file_path":"f1"}"#),
            1 => ("locks/active", r#"{"limit":0}"#),
            _ => ("locks/active", "{}"),
        };
        writeln!(asked, r#"{{"id":{id},"op":"{op}","body":{body}}}"#).unwrap();
    }
    stream.write_all(asked.as_bytes()).unwrap();
    let answers = BufReader::new(stream).lines().take(200).map(|line| line.unwrap());
    let mut ids: Vec<u64> =
        answers.map(|line| serde_json::from_str::<Value>(&line).unwrap()["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=200).collect::<Vec<u64>>(), "each once");
}

#[test]
fn two_spaces_that_ask_for_ports_at_once_get_different_ones() {
    let house = House::new();
    house.say("a", &["status"]);
    let stream = std::os::unix::net::UnixStream::connect(house.home().join("socket")).unwrap();
    let mut asked = String::new();
    for id in 1..=20 {
        // They are there already, and take no time to open.
        house.line(&format!(r#"{{"id":1,"op":"locks/check","body":{{"file_path":"x","space":"space-{id}"}}}}"#));
        let body = format!(r#"{{"session_id":"s{id}","space":"space-{id}"}}"#);
        writeln!(asked, r#"{{"id":{id},"op":"ports/allocate","body":{body}}}"#).unwrap();
    }
    (&stream).write_all(asked.as_bytes()).unwrap();
    let answers = BufReader::new(stream).lines().take(20).map(|line| line.unwrap());
    let mut ports: Vec<u64> = answers
        .map(|line| {
            let answer: Value = serde_json::from_str(&line).unwrap();
            answer["body"]["allocation"]["db_port"].as_u64().unwrap_or_else(|| panic!("{answer}"))
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 20, "{ports:?}");
}

#[test]
fn a_service_that_a_long_command_started_is_stopped_and_said_to_be() {
    let house = House::new();
    let mut child = house.start("a", &["run", "x", "--", "sleep", "979"]);
    wait_for("the lock", || (!house.held().is_empty()).then_some(()));
    let pid = house.service_pid();
    let said = house.say("b", &["stop"]);
    assert!(said.code == 0 && said.out.contains(&format!("pid {pid}")), "{said:?}");
    kill_child(&child, "KILL");
    child.wait().unwrap();
}

#[test]
fn a_body_is_an_object_with_names() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x"]);
    let said = house.line(r#"{"id":1,"op":"sessions/close","body":["a"]}"#);
    assert_eq!(said["body"]["error"], "malformed", "{said}");
    let body = r#"{"session_id":"b","locks":[["y",1,2]]}"#;
    let said = house.line(&format!(r#"{{"id":1,"op":"locks/acquire","body":{body}}}"#));
    assert_eq!(said["body"]["error"], "malformed", "{said}");
    assert_eq!(house.held(), ["a x"]);
    let serving = house.serve(&[]);
    let (code, text) = serving.curl("/locks/status/%ff", &[]);
    assert!(code == 400 && text.contains(r#""error":"malformed""#), "{code} {text}");
}

#[test]
fn doctor_finds_what_keeps_a_service_from_starting() {
    let house = House::new();
    let settings = house.path().join("config/lockkeeper");
    std::fs::create_dir_all(&settings).unwrap();
    for line in ["listen = \"nonsense\"", "durability = \"maybe\"", "[[credentials]]\nfile = \"missing\""] {
        std::fs::write(settings.join("lockkeeper.toml"), format!("{line}\n")).unwrap();
        let said = house.say("a", &["doctor"]);
        assert_eq!(said.code, 1, "{line}: {said:?}");
    }
}

/// A stream that binds a lock to its connection, once it is open.
fn attach(serving: &Serving, holder: &str, lock_id: &str) -> BufReader<std::net::TcpStream> {
    let address = serving.url.trim_start_matches("http://");
    let body = format!(r#"{{"session_id":"a","holder":"{holder}","lock_ids":["{lock_id}"]}}"#);
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(8))).expect("a time");
    let head = format!(
        "POST /sessions/attach HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        serving.credential,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("asked");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("attached") {
        line.clear();
        assert!(reader.read_line(&mut line).expect("an answer") > 0, "it ended");
    }
    reader
}

#[test]
fn over_http_a_holder_whose_connection_breaks_has_a_moment_to_come_back() {
    let house = House::new();
    let serving = house.serve(&[]);
    let granted = house.json("a", &["lock", "acquire", "x", "--ttl", "10m"]);
    let lock_id = granted["locks"][0]["lock_id"].as_str().or(granted["lock_id"].as_str()).expect("an id");
    let first = attach(&serving, "h", lock_id);
    drop(first);
    std::thread::sleep(Duration::from_millis(300));
    let mut second = attach(&serving, "h", lock_id);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(house.held(), ["a x"], "it came back in time");
    let third = attach(&serving, "h", lock_id);
    second.read_to_string(&mut String::new()).expect("the place of the second is taken, and its stream ends");
    assert_eq!(house.held(), ["a x"]);
    drop(third);
    wait_for("the release", || house.held().is_empty().then_some(()));
}

#[test]
fn a_slip_in_a_query_or_a_second_name_of_the_host_changes_nothing() {
    let house = House::new();
    let serving = house.serve(&[]);
    assert_eq!(house.say("a", &["lock", "acquire", "cfg"]).code, 0);
    for query in ["?spcae=other", "?Space=other", "?space=a&space=b"] {
        assert_eq!(serving.curl(&format!("/locks/cfg{query}"), &["-X", "DELETE"]).0, 400, "{query}");
    }
    let address = serving.url.trim_start_matches("http://");
    let raw = |first: &str, more: &str| {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        let credential = &serving.credential;
        let head = format!(
            "{first}\r\nHost: {address}\r\nAuthorization: Bearer {credential}\r\nConnection: close\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    assert_eq!(raw("GET http://evil.example/locks/active HTTP/1.1", ""), "403");
    assert_eq!(raw(&format!("GET http://{address}/locks/active HTTP/1.1"), ""), "200");
    let own = format!("Origin: http://{address}\r\n");
    assert_eq!(raw("GET /locks/active HTTP/1.1", &own), "200");
    assert_eq!(raw("GET /locks/active HTTP/1.1", &format!("{own}Origin: http://evil.example\r\n")), "403");
    assert_eq!(house.held(), ["a cfg"]);
    let ledgers = || std::fs::read_dir(house.home().join("ledgers")).expect("ledgers").count();
    let before = ledgers();
    assert_eq!(serving.curl("/locks/status/x?space=nobody-was-here", &[]).0, 200);
    assert_eq!(ledgers(), before, "whoever looks makes no space");
    let reason = ["-X", "DELETE", "-H", "X-Agent-Id: jürgen", "-H", "X-Reason: räumt auf"];
    assert_eq!(serving.curl("/locks/cfg", &reason).0, 200);
    let said = house.say("a", &["lock", "renew", "cfg"]);
    assert!(said.code == 4 && said.err.contains("jürgen: räumt auf"), "{said:?}");
}
