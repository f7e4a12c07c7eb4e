//! Who is kept out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::house::{House, request, wait_for};

const JSON: [&str; 2] = ["-H", "Content-Type: application/json"];

#[test]
fn without_the_right_credential_nothing_opens() {
    let house = House::new();
    let serving = house.serve(&[]);
    let paths = [
        "/locks/active",
        "/locks/history",
        "/sessions",
        "/rooms",
        "/audit",
        "/status",
        "/metrics",
        "/events",
        "/mcp",
        "/nonsense",
    ];
    for path in paths {
        assert_eq!(serving.curl_bare(path, &[]).0, 401, "{path}");
        assert_eq!(serving.curl_bare(path, &["-H", "Authorization: Bearer wrong"]).0, 401, "{path}");
        assert_eq!(serving.curl_bare(path, &["-H", "X-API-Key: "]).0, 401, "{path}");
    }
    let acquire = ["-H", "Content-Type: application/json", "-d", r#"{"file_path":"x","agent_id":"a"}"#];
    assert_eq!(serving.curl_bare("/locks/acquire", &acquire).0, 401);
    assert!(house.held().is_empty());
    assert_eq!(
        serving.curl("/stop", &["-X", "POST", "-H", "Content-Type: application/json", "-d", "{}"]).0,
        403,
        "only over the socket"
    );
    let mode = std::fs::metadata(house.home().join("credential")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_page_of_another_origin_can_neither_read_nor_change() {
    let house = House::new();
    let serving = house.serve(&[]);
    for origin in ["Origin: http://evil.example", "Origin: null", "Origin: http://127.0.0.1:1"] {
        for path in ["/healthz", "/locks/status/x", "/locks/active", "/mcp"] {
            assert_eq!(serving.curl(path, &["-H", origin]).0, 403, "{origin} {path}");
        }
        let body = [JSON[0], JSON[1], "-H", origin, "-d", r#"{"file_path":"x","agent_id":"a"}"#];
        assert_eq!(serving.curl("/locks/acquire", &body).0, 403);
    }
    for host in ["Host: evil.example", "Host: 127.0.0.1.evil.example:5625", "Host: "] {
        assert_eq!(serving.curl("/healthz", &["-H", host]).0, 403, "{host}");
    }
    let form = ["-H", "Content-Type: text/plain", "-d", r#"{"file_path":"x","agent_id":"a"}"#];
    assert_eq!(serving.curl("/locks/acquire", &form).0, 415);
    let preflight = serving.curl_bare(
        "/locks/acquire",
        &["-X", "OPTIONS", "-i", "-H", "Origin: http://evil.example", "-H", "Access-Control-Request-Method: POST"],
    );
    assert_eq!(preflight.0, 403);
    assert!(!preflight.1.to_lowercase().contains("access-control-allow"), "{}", preflight.1);
    assert!(house.held().is_empty());
}

#[test]
fn a_stranger_makes_no_space_and_sees_one_key_at_a_time() {
    let house = House::new();
    let serving = house.serve(&[]);
    house.say("a", &["lock", "acquire", "x", "-m", "why"]);
    let (code, told) = serving.curl_bare("/locks/status/x", &[]);
    assert_eq!((code, told.contains("\"locked_by\":\"a\"")), (200, true), "{told}");
    assert!(!told.contains("fencing_token") && !told.contains("session_id"), "{told}");
    assert_eq!(serving.curl_bare("/locks/status/**", &[]).0, 401);
    let spaces = || std::fs::read_dir(house.home().join("ledgers")).unwrap().count();
    let before = spaces();
    assert_eq!(serving.curl_bare("/locks/status/x?space=junk", &[]).0, 401);
    assert_eq!(spaces(), before);
    assert_eq!(serving.curl_bare("/locks/status/x", &["-H", "Sec-Fetch-Site: cross-site"]).0, 403);
    let log = || std::fs::metadata(house.home().join("audit.jsonl")).unwrap().len();
    let before = log();
    (0..5).for_each(|_| assert_eq!(serving.curl_bare("/locks/status/..", &["--path-as-is"]).0, 422));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(log(), before, "strangers do not fill the audit log");
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced() {
    let house = House::new();
    let precious = house.path().join("precious.txt");
    std::fs::write(&precious, "text").unwrap();
    let said = house.say("a", &["serve", "--listen", "none", "--socket", precious.to_str().unwrap()]);
    assert_ne!(said.code, 0);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text");
}

#[test]
fn a_home_that_is_open_to_others_is_not_used() {
    let house = House::new();
    std::fs::create_dir(house.home()).unwrap();
    std::fs::set_permissions(house.home(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let said = house.say("a", &["lock", "list"]);
    assert_eq!((said.code, said.err.contains("chmod go-rwx")), (3, true), "{said:?}");
}

/// Settings with a credential that speaks for claude, and whatever else.
fn bound_to_claude(house: &House, more: &str) {
    let secret = house.path().join("claude-secret");
    std::fs::write(&secret, "claudes-own-secret\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let settings = house.path().join("config/lockkeeper");
    std::fs::create_dir_all(&settings).unwrap();
    let text = format!("[[credentials]]\nfile = \"{}\"\nagent_id = \"claude\"\n{more}", secret.display());
    std::fs::write(settings.join("lockkeeper.toml"), text).unwrap();
}

const CLAUDE: [&str; 2] = ["-H", "Authorization: Bearer claudes-own-secret"];

#[test]
fn a_bound_credential_begins_with_mcp_in_a_session_of_its_own_name() {
    let house = House::new();
    bound_to_claude(&house, "");
    let serving = house.serve(&[]);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"allocate_ports","arguments":{}}}"#;
    let accept = ["-H", "Accept: application/json, text/event-stream", "-H", "MCP-Protocol-Version: 2025-06-18"];
    let (code, text) = serving.curl_bare("/mcp", &[&CLAUDE[..], &JSON, &accept, &["-d", call]].concat());
    assert!(code == 200 && text.contains(r#""session_id":"claude-"#), "{code} {text}");
    assert!(text.contains("Pass session_id"), "and it is told which: {text}");
}

#[test]
fn whoever_does_not_say_well_who_they_are_is_judged_as_the_credential_says() {
    let house = House::new();
    bound_to_claude(&house, "[policy.trust]\nclaude = 0\n");
    let serving = house.serve(&[]);
    for body in
        [r#"{"file_path":"x"}"#, r#"{"file_path":"x","session_id":"!!"}"#, r#"{"file_path":"x","agent_id":"other"}"#]
    {
        let (code, text) = serving.curl_bare("/locks/check", &[&CLAUDE[..], &JSON, &["-d", body]].concat());
        assert!(code == 403 && text.contains("suspended"), "{body}: {code} {text}");
    }
}

#[test]
fn a_bound_credential_speaks_for_its_agent_only() {
    let house = House::new();
    bound_to_claude(&house, "");
    let serving = house.serve(&[]);
    let ask = |path: &str, body: &str| {
        serving.curl_bare(path, &["-H", "Authorization: Bearer claudes-own-secret", JSON[0], JSON[1], "-d", body])
    };
    assert_eq!(ask("/locks/acquire", r#"{"file_path":"x"}"#).0, 200);
    assert_eq!(ask("/locks/acquire", r#"{"file_path":"y","agent_id":"gemini"}"#).0, 403);
    house.say("gemini", &["lock", "acquire", "z"]);
    assert_eq!(ask("/locks/release", r#"{"file_path":"z","session_id":"gemini"}"#).0, 403);
    assert_eq!(ask("/locks/renew", r#"{"session_id":"gemini"}"#).0, 403);
    assert_eq!(ask("/sessions/close", r#"{"session_id":"gemini"}"#).0, 403);
    assert_eq!(ask("/locks/force-release", r#"{"file_path":"z","reason":"r"}"#).0, 403, "no operator");
    assert_eq!(house.held().len(), 2);
}

#[test]
fn a_bound_credential_can_not_take_the_session_of_an_agent_whose_name_begins_alike() {
    let house = House::new();
    let secret = house.path().join("second-secret");
    std::fs::write(&secret, "second-secret\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    bound_to_claude(&house, &format!("[[credentials]]\nfile = \"{}\"\nagent_id = \"claude-2\"\n", secret.display()));
    let serving = house.serve(&[]);
    let ask = |body: &str| serving.curl_bare("/locks/acquire", &[&CLAUDE[..], &JSON, &["-d", body]].concat());
    for session in ["claude-2", "claude-2-sub"] {
        let (code, text) = ask(&format!(r#"{{"file_path":"x","session_id":"{session}"}}"#));
        assert!(code == 403 && text.contains("is a session of claude-2"), "{code} {text}");
    }
    assert_eq!(ask(r#"{"file_path":"x","session_id":"claude-20"}"#).0, 200, "that is another name");
    let second = ["-H", "Authorization: Bearer second-secret"];
    let body = r#"{"file_path":"y"}"#;
    assert_eq!(serving.curl_bare("/locks/acquire", &[&second[..], &JSON, &["-d", body]].concat()).0, 200);
}

#[test]
fn another_user_of_the_machine_cannot_open_the_socket() {
    let house = House::new();
    house.say("a", &["lock", "list"]);
    // Even when the folder is opened by mistake.
    for path in [house.path().to_owned(), house.home()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let socket = house.home().join("socket");
    let script = format!(
        "import socket, os\nos.setgid(65534); os.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\n\
         try:\n s.connect('{0}')\n print('connected')\nexcept PermissionError:\n print('refused')",
        socket.display()
    );
    let out = Command::new("python3").args(["-c", &script]).output().expect("python3 runs");
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(told.trim(), "refused", "{}", String::from_utf8_lossy(&out.stderr));
    // And if the socket itself were open, the one who connects is asked who they are.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).unwrap();
    let script = script
        .replace("print('connected')", "s.sendall(b'{\"id\":1,\"op\":\"locks/active\"}\\n'); print(len(s.recv(100)))");
    let out = Command::new("python3").args(["-c", &script]).output().expect("python3 runs");
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        told.trim() == "0"
            || String::from_utf8_lossy(&out.stderr).contains("Broken pipe")
            || String::from_utf8_lossy(&out.stderr).contains("reset"),
        "{told} {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn large_and_slow_requests_are_cut_off() {
    let house = House::new();
    let serving = house.serve(&[]);
    let large = house.path().join("large.json");
    std::fs::write(&large, format!("{{\"file_path\":\"{}\"}}", "x".repeat(2 << 20))).unwrap();
    let data = format!("@{}", large.display());
    assert_eq!(serving.curl("/locks/acquire", &[JSON[0], JSON[1], "--data-binary", &data]).0, 413);
    let deep = house.path().join("deep.json");
    std::fs::write(&deep, "[".repeat(100_000)).unwrap();
    let data = format!("@{}", deep.display());
    assert_eq!(serving.curl("/locks/acquire", &[JSON[0], JSON[1], "--data-binary", &data]).0, 400);
    let address = serving.url.strip_prefix("http://").unwrap();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").unwrap();
    let began = Instant::now();
    let mut answer = Vec::new();
    let _ = slow.read_to_end(&mut answer);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // With those that curl sends by itself, fewer than a hundred and more.
    for (count, expected) in [(90, 200), (100, 431), (200, 431)] {
        let headers: Vec<String> = (0..count).map(|n| format!("X-{n}: y")).collect();
        let many: Vec<&str> = headers.iter().flat_map(|header| ["-H", header]).collect();
        assert_eq!(serving.curl("/healthz", &many).0, expected, "{count}");
    }
}

/// Ordinary requests take a quick lane, and one odd header is enough to be led the general way: both answer alike.
#[test]
fn an_odd_header_changes_no_answer() {
    let house = House::new();
    let serving = house.serve(&[]);
    let address = serving.url.strip_prefix("http://").unwrap();
    let credential = std::fs::read_to_string(house.home().join("credential")).unwrap();
    let credential = credential.trim();
    let ask = |route: &str, host: &str, credential: &str, odd: &str, body: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&request(route, host, credential, odd, body)).unwrap();
        let (mut answer, mut part) = (String::new(), [0; 4096]);
        while !answer.ends_with('}') {
            let read = stream.read(&mut part).unwrap();
            assert!(read > 0, "{answer}");
            answer.push_str(std::str::from_utf8(&part[..read]).unwrap());
        }
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut head: Vec<&str> = head.split("\r\n").collect();
        let date = head.iter().position(|line| line.starts_with("date: ")).expect("a date");
        assert!(head.remove(date).ends_with(" GMT"), "{answer}");
        head[1..].sort_unstable();
        (head.join("\n"), body.to_owned())
    };
    let mine = r#"{"file_path":"x","agent_id":"a"}"#;
    for (route, host, credential, body, status) in [
        ("locks/check", "localhost", credential, mine, "200 OK"),
        (
            "locks/acquire",
            "localhost",
            credential,
            r#"{"file_path":"../x","agent_id":"a"}"#,
            "422 Unprocessable Entity",
        ),
        ("locks/acquire", "localhost", credential, r#"{"file_path":"x","agent":"a"}"#, "400 Bad Request"),
        ("locks/acquire", "localhost", credential, "[]", "400 Bad Request"),
        ("locks/release", "localhost", credential, mine, "404 Not Found"),
        ("locks/acquire", "localhost", "wrong", mine, "401 Unauthorized"),
        ("locks/acquire", "evil.example", credential, mine, "403 Forbidden"),
        ("stop", "localhost", credential, "{}", "403 Forbidden"),
    ] {
        let quick = ask(route, host, credential, "", body);
        let general = ask(route, host, credential, "X-Odd: 1\r\n", body);
        assert_eq!(quick, general, "{route} {body}");
        assert!(quick.0.starts_with(&format!("HTTP/1.1 {status}\n")), "{quick:?}");
    }
    // What is held is the same by both ways.
    let (head, first) = ask("locks/acquire", "localhost", credential, "", mine);
    assert!(head.starts_with("HTTP/1.1 200 OK\n") && first.contains("\"action\":\"acquired\""), "{head} {first}");
    let (_, again) = ask("locks/acquire", "localhost", credential, "X-Odd: 1\r\n", mine);
    let token = |answer: &str| answer.split("fencing_token").nth(1).map(|rest| rest[..20].to_owned());
    assert!(again.contains("\"action\":\"refreshed\"") && token(&again) == token(&first), "{again}");
    let theirs = mine.replace("\"a\"", "\"b\"");
    for odd in ["", "X-Odd: 1\r\n"] {
        let (head, refused) = ask("locks/acquire", "localhost", credential, odd, &theirs);
        assert!(head.starts_with("HTTP/1.1 409 Conflict\n") && refused.contains("lock_contended"), "{head} {refused}");
    }
}

/// A client that is gone waits for nothing, whichever way it came; and one that asks nothing is let go.
#[test]
fn whoever_hangs_up_or_asks_nothing_is_let_go() {
    let house = House::new();
    let serving = house.serve(&[]);
    let address = serving.url.strip_prefix("http://").unwrap();
    let credential = std::fs::read_to_string(house.home().join("credential")).unwrap();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let began = Instant::now();
    assert_eq!(house.say("a", &["lock", "acquire", "x"]).code, 0);
    let ask = |route: &str, odd: &str, body: &str| request(route, "localhost", &credential, odd, body);
    let pause = r#"{"feature_id":"F-1","agent_id":"b","reason":"a pause waits by itself"}"#;
    for (odd, route, body) in [
        ("", "locks/acquire", r#"{"file_path":"x","agent_id":"b","wait_ms":60000}"#),
        ("", "locks/acquire", r#"{"file_path":"x","agent_id":"b","wait\u005fms":60000}"#),
        ("", "features/pause", pause),
        ("X-Odd: 1\r\n", "locks/acquire", r#"{"file_path":"x","agent_id":"b","wait_ms":60000}"#),
        ("X-Odd: 1\r\n", "features/pause", pause),
    ] {
        assert_eq!(house.say("a", &["feature", "check", "F-1", "--finalize"]).code, 0);
        let mut waiting = TcpStream::connect(address).unwrap();
        waiting.write_all(&ask(route, odd, body)).unwrap();
        house.wait_for_waiters(1);
        drop(waiting);
        // At once: what comes free a moment later is not handed to nobody.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(house.say("a", &["lock", "release", "--all"]).code, 0);
        assert!(house.held().is_empty(), "{odd} {route} {body}: {:?}", house.held());
        assert_eq!(house.say("a", &["lock", "acquire", "x"]).code, 0);
    }
    // Behind what was sent on, the end is not seen at once: what came free meanwhile is given back.
    let wait = r#"{"file_path":"x","agent_id":"b","wait_ms":60000,"ttl_minutes":60}"#;
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.write_all(&ask("locks/acquire", "", wait)).unwrap();
    house.wait_for_waiters(1);
    waiting.write_all(b"x").unwrap();
    drop(waiting);
    assert_eq!(house.say("a", &["lock", "release", "--all"]).code, 0);
    wait_for("nothing to be held", || house.held().is_empty().then_some(()));
    // Whoever only says that nothing more will come is answered.
    let body = r#"{"file_path":"y","agent_id":"b"}"#;
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&ask("locks/acquire", "", body)).unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(idle.read(&mut [0; 10]).unwrap(), 0, "closed");
    let took = began.elapsed();
    assert!(took > Duration::from_secs(5) && took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn what_is_refused_or_finds_nothing_makes_no_space() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x"]);
    let ledgers = || std::fs::read_dir(house.home().join("ledgers")).unwrap().count();
    let before = ledgers();
    let ask = |op: &str, more: &str| {
        let body = format!(r#"{{"session_id":"a","space":"nobody/was/here",{more}}}"#);
        house.line(&format!(r#"{{"id":1,"op":"{op}","body":{body}}}"#))
    };
    for (op, more) in [
        ("locks/acquire", r#""file_path":"../x""#),
        ("locks/acquire", r#""file_path":"x","ttl_ms":1"#),
        ("locks/release", r#""file_path":"x""#),
        ("locks/renew", r#""file_path":"x""#),
    ] {
        let answer = ask(op, more);
        assert_ne!(answer["status"], 200, "{op}: {answer}");
    }
    assert_eq!(ask("sessions/close", r#""agent_id":"a""#)["body"]["released"], serde_json::json!([]));
    assert_eq!(ask("locks/check", r#""file_path":"x""#)["status"], 200);
    assert_eq!(ledgers(), before);
    assert_eq!(ask("locks/acquire", r#""file_path":"x""#)["status"], 200);
    assert_eq!(ledgers(), before + 1, "whoever uses one makes it");
}

#[test]
fn a_body_may_come_in_parts_and_has_to_be_a_text() {
    let house = House::new();
    let serving = house.serve(&[]);
    let address = serving.url.strip_prefix("http://").unwrap();
    let credential = std::fs::read_to_string(house.home().join("credential")).unwrap();
    let ask = |parts: &[&[u8]]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!(
            "POST /locks/acquire HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            credential.trim()
        );
        stream.write_all(head.as_bytes()).unwrap();
        for part in parts.iter().chain(&[&b""[..]]) {
            // Whoever is told before the end that it is too much may be hung up on.
            let _ = stream.write_all(&[format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let answer = ask(&[b"{\"file_path\":\"src/", b"parts.rs\",", b"\"agent_id\":\"a\"}"]);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"file_path\":\"src/parts.rs\""), "{answer}");
    let answer = ask(&[b"{\"file_path\":\"\xff\",\"agent_id\":\"a\"}"]);
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("no UTF-8"), "{answer}");
    // Whoever reads the log has all of it written.
    assert_eq!(serving.curl("/audit", &[]).0, 200);
    let audit = std::fs::read_to_string(house.home().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"outcome\":\"malformed\""), "{audit}");
    // As large as it may be in all, however small each part is.
    let half = vec![b' '; 600 << 10];
    let answer = ask(&[&half, &half[..400 << 10], b"{\"file_path\":\"x\",\"agent_id\":\"a\"}"]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask(&[&half, &half, b"{}"]);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(house.held().len(), 2);
}

#[test]
fn a_socket_line_that_is_no_question_is_told_so() {
    let house = House::new();
    house.say("a", &["lock", "list"]);
    let mut socket = std::os::unix::net::UnixStream::connect(house.home().join("socket")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
        .write_all(b"nonsense\n{\"id\":7,\"op\":\"no/such\"}\n{\"id\":8,\"op\":\"locks/active\",\"body\":{}}\n")
        .unwrap();
    let mut said = String::new();
    while said.lines().count() < 3 || !said.ends_with('\n') {
        let mut part = [0; 4096];
        let read = socket.read(&mut part).expect("an answer");
        assert!(read > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&part[..read]));
    }
    assert!(
        said.contains("malformed")
            && said.contains("\"id\":7,\"status\":404")
            && said.contains("\"id\":8,\"status\":200"),
        "{said}"
    );
}
