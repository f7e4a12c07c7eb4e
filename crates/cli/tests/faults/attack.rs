//! The attack table: what strangers and careless hands send, through every door, and the answer that each row states.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::house::{House, Said, Serving};
use crate::shim;
use crate::site::{DOORS, Door, Site, call_tool};

#[test]
fn a_path_that_is_none_is_invalid_and_gits_own_is_not_permitted_through_every_door() {
    let site = Site::open();
    let invalid = [
        "../../etc/passwd",
        "/abs",
        "/etc/passwd",
        "C:\\x",
        "c:/x",
        "\\\\host\\share\\x",
        "//host/share/x",
        "a\0b",
        "a\rb",
        "a\nb",
        "a\u{202e}b",
        "a\u{2066}b",
        "a\u{200b}b",
        "a\u{feff}b",
        "a\u{34f}b",
        "a\u{e0100}b",
        "",
        ".",
        "..",
        "src/../..",
        "~/x",
    ];
    let git = [
        ".git/index",
        ".GIT/index",
        ".Git",
        "a/../.git/x",
        "./.git/config",
        ".git",
        ".git/",
        ".git/**",
        ".git//hooks/./pre-commit",
        ".git\\index",
        ".GIT\\hooks\\pre-commit",
        "src\\..\\.git\\HEAD",
        "src/../.git/HEAD",
    ];
    for door in DOORS {
        for path in invalid.iter().filter(|path| door != Door::Cli || !path.contains('\0')) {
            let word = site.acquire(door, "a", &json!({ "file_path": path }));
            assert_eq!(word, "invalid_path", "{door:?} {path:?}");
        }
        for path in git {
            let word = site.acquire(door, "a", &json!({ "file_path": path }));
            assert_eq!(word, "operation_not_permitted", "{door:?} {path:?}");
        }
    }
    site.nothing_is_held();
    let refusal = site.http("/locks/acquire", "a", &json!({ "file_path": ".git/index" }));
    assert!(refusal["message"].as_str().is_some_and(|text| text.contains("env:git-index")), "{refusal}");
    for (n, door) in DOORS.into_iter().enumerate() {
        let expected = if n == 0 { "granted" } else { "busy" };
        assert_eq!(
            site.acquire(door, &format!("s{n}"), &json!({ "file_path": "env:git-index" })),
            expected,
            "{door:?}"
        );
    }
}

#[test]
fn the_git_file_of_a_worktree_and_a_link_to_gits_folder_are_gits_own() {
    let house = House::new();
    house.git(&["add", "."]);
    house.git(&["commit", "-qm", "first"]);
    house.git(&["worktree", "add", "-q", "../beside", "-b", "beside"]);
    std::os::unix::fs::symlink(".git", house.repository().join("inner")).expect("a link");
    let in_worktree = |path: &str| {
        let mut command = house.command("a", &["lock", "acquire", path]);
        command.current_dir(house.path().join("beside")).output().expect("the program runs").status.code()
    };
    assert_eq!(in_worktree(".git"), Some(6));
    assert_eq!(in_worktree(house.repository().join(".git/index").to_str().expect("a text")), Some(6));
    for path in ["inner", "inner/index", "inner/**"] {
        assert_eq!(house.say("a", &["lock", "acquire", path]).code, 6, "{path}");
    }
    assert!(house.held().is_empty());
}

#[test]
fn every_spelling_of_a_file_is_one_file_and_a_link_that_leads_out_is_none() {
    let site = Site::open();
    let root = site.house.repository();
    std::fs::write(root.join("src/caf\u{e9}.rs"), "x").expect("a file");
    std::os::unix::fs::symlink("auth.rs", root.join("src/link.rs")).expect("a link");
    std::os::unix::fs::symlink("src", root.join("sources")).expect("a link");
    std::os::unix::fs::symlink("/etc/passwd", root.join("out.rs")).expect("a link");
    std::os::unix::fs::symlink("/etc", root.join("outside")).expect("a link");
    for path in ["src/auth.rs", "src/caf\u{e9}.rs"] {
        assert_eq!(site.acquire(Door::Socket, "a", &json!({ "file_path": path, "ttl_minutes": 5 })), "granted");
    }
    let spellings =
        ["src/auth.rs", "src//./auth.rs", "./src/auth.rs", "src/x/../auth.rs", "src\\auth.rs", "src/cafe\u{301}.rs"];
    for door in DOORS {
        let sees_files = matches!(door, Door::Cli | Door::Stdio);
        for path in spellings.iter().filter(|path| !sees_files || !path.contains('\\')) {
            assert_eq!(site.acquire(door, "b", &json!({ "file_path": path })), "busy", "{door:?} {path:?}");
        }
    }
    let absolute = root.join("src/auth.rs").to_str().expect("a text").to_owned();
    for door in [Door::Cli, Door::Stdio] {
        for path in ["src/link.rs", "sources/auth.rs", "sources/link.rs", &absolute] {
            assert_eq!(site.acquire(door, "b", &json!({ "file_path": path })), "busy", "{door:?} {path}");
            let set = json!({ "locks": [{ "file_path": "free.rs" }, { "file_path": path }] });
            assert_eq!(site.acquire(door, "b", &set), "busy", "{door:?} {path} in a set");
        }
        for path in ["out.rs", "outside/passwd", "outside/**"] {
            assert_eq!(site.acquire(door, "b", &json!({ "file_path": path })), "invalid_path", "{door:?} {path}");
        }
    }
}

/// Linux file systems with and without capitals are told apart by what they answer, so a library that answers as one
/// without them stands in for it.
#[test]
fn where_capitals_make_no_difference_two_spellings_are_one_file() {
    let site = Site::open();
    let house = &site.house;
    let no_capitals = shim::compile(house.path(), "no-capitals", shim::NO_CAPITALS);
    std::fs::create_dir(house.repository().join("Docs")).expect("a folder");
    std::fs::write(house.repository().join("Docs/Read.Me"), "x").expect("a file");
    let say = |session: &str, path: &str, shim: Option<&Path>| {
        let mut command = house.command(session, &["--json", "lock", "acquire", path]);
        if let Some(shim) = shim {
            command.env("LD_PRELOAD", shim);
        }
        crate::house::said(command.output().expect("the program runs"))
    };
    let first = say("a", "docs/READ.me", Some(&no_capitals));
    assert_eq!((first.code, first.out.contains("\"Docs/Read.Me\"")), (0, true), "{first:?}");
    for path in ["Docs/Read.Me", "DOCS/read.me", "docs/../dOCS/Read.me"] {
        assert_eq!(say("b", path, Some(&no_capitals)).code, 5, "{path}");
        let mut tools = house.command("b", &["mcp"]);
        tools.env("LD_PRELOAD", &no_capitals);
        let answer = call_tool(tools, "acquire_lock", &json!({ "file_path": path }));
        assert_eq!(answer["error"], "busy", "{path}: {answer}");
    }
    let new = say("b", "docs/new.rs", Some(&no_capitals));
    assert!(new.out.contains("\"Docs/new.rs\""), "what does not exist yet is spelled as it was typed: {new:?}");
    // Where they make one, they are two.
    std::fs::write(house.repository().join("Docs/read.me"), "y").expect("a file");
    assert_eq!(say("b", "Docs/read.me", None).code, 0);
}

#[test]
fn lines_and_times_out_of_range_have_their_own_words_through_every_door() {
    let site = Site::open();
    let lines = |start: Value, end: Value| json!({ "file_path": "f.rs", "start_line": start, "end_line": end });
    let ttl = |ttl: Value| json!({ "file_path": "f.rs", "ttl_ms": ttl });
    let table = [
        (lines(json!(0), json!(5)), "invalid_range"),
        (lines(json!(0), json!(0)), "invalid_range"),
        (lines(json!(9), json!(3)), "invalid_range"),
        (lines(json!(1), json!(u64::MAX)), "invalid_range"),
        (lines(json!(u64::MAX), json!(null)), "invalid_range"),
        (lines(json!(-4), json!(null)), "invalid_range"),
        (lines(json!(3), json!(-4)), "invalid_range"),
        (lines(json!("x"), json!(3)), "invalid_range"),
        (lines(json!(1.5), json!(3)), "invalid_range"),
        (ttl(json!(0)), "invalid_ttl"),
        (ttl(json!(-1)), "invalid_ttl"),
        (ttl(json!(1e18)), "invalid_ttl"),
        (ttl(json!(1e300)), "invalid_ttl"),
        (ttl(json!("NaN")), "invalid_ttl"),
        (ttl(json!("inf")), "invalid_ttl"),
        (ttl(json!(999)), "invalid_ttl"),
    ];
    for door in DOORS {
        for (body, word) in &table {
            assert_eq!(site.acquire(door, "a", body), *word, "{door:?} {body}");
        }
    }
    let (code, text) = site.send("/locks/acquire", r#"{"file_path":"f","session_id":"a","ttl_ms":NaN}"#);
    assert_eq!((code, text.contains("malformed")), (400, true), "NaN is no JSON: {text}");
    site.nothing_is_held();
}

#[test]
fn an_intention_is_data_wherever_it_is_shown() {
    let site = Site::open();
    let evil =
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}<script>alert(1)</script>\n| $(touch x) `y` \"z\" 'w' \\ \u{200b}end";
    for (n, door) in [Door::Socket, Door::Http, Door::Mcp, Door::Cli].into_iter().enumerate() {
        let body = json!({ "file_path": format!("f{n}"), "intention": evil });
        assert_eq!(site.acquire(door, "a", &body), "granted", "{door:?}");
    }
    let harmless = |said: &Said| {
        let text = format!("{}{}", said.out, said.err);
        assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || "\u{202e}\u{200b}".contains(c))), "{text:?}");
    };
    for arguments in [&["lock", "list"][..], &["lock", "check", "f0"], &["lock", "acquire", "f1"]] {
        let said = site.house.say("b", arguments);
        assert!(format!("{}{}", said.out, said.err).contains("owned"), "it is shown: {said:?}");
        harmless(&said);
    }
    for arguments in [&["lock", "history", "--all"][..], &["audit"], &["session", "list"], &["status"]] {
        harmless(&site.house.say("b", arguments));
    }
    // The command that a refusal suggests is one word for each thing that was typed, whatever is in it.
    let hint = site.house.say("b", &["lock", "acquire", "f1", "-m", "it's $(touch owned-by-hint)"]);
    assert!(hint.err.contains(r"'it'\''s $(touch owned-by-hint)'"), "{hint:?}");
}

#[test]
fn what_is_anothers_stays_so_through_the_tools_and_the_command_line() {
    let site = Site::open();
    site.acquire(Door::Socket, "a", &json!({ "file_path": "f", "ttl_minutes": 5 }));
    let before = site.locks();
    for body in [json!({ "file_path": "f" }), json!({ "lock_id": before[0]["id"] })] {
        for answer in [site.mcp("release_lock", "b", &body), site.stdio("release_lock", "b", &body)] {
            assert_eq!(answer["error"], "not_owner", "{body}: {answer}");
        }
    }
    let stale = json!({ "file_path": "f", "fencing_token": 1 });
    for answer in [site.mcp("release_lock", "a", &stale), site.http("/locks/renew", "a", &stale)] {
        assert_eq!(answer["error"], "lock_lost", "{answer}");
    }
    for verb in ["release", "renew"] {
        let said = site.house.say("b", &["--json", "lock", verb, "f"]);
        assert_eq!((said.code, said.out.contains("not_owner")), (4, true), "{said:?}");
        let stale = site.house.say("a", &["--json", "lock", verb, "f", "--token", "1"]);
        assert_eq!((stale.code, stale.out.contains("lock_lost")), (4, true), "{stale:?}");
    }
    assert_eq!(site.locks(), before, "nothing was changed");
}

#[test]
fn a_request_id_with_another_body_changes_nothing_through_every_door_that_takes_one() {
    let site = Site::open();
    let ask = |door: Door, body: &Value| match door {
        Door::Socket => site.socket("locks/acquire", "a", body),
        Door::Http => site.http("/locks/acquire", "a", body),
        Door::Mcp => site.mcp("acquire_lock", "a", body),
        Door::Cli | Door::Stdio => unreachable!("these make their own"),
    };
    for door in [Door::Socket, Door::Http, Door::Mcp] {
        let with_id = |path: &str, mode: &str| json!({ "file_path": path, "mode": mode, "request_id": "r-1" });
        let first = with_id("f", "exclusive");
        let told = ask(door, &first);
        assert_eq!(told["success"], true, "{door:?}: {told}");
        let before = site.locks();
        for other in [with_id("g", "exclusive"), with_id("f", "shared")] {
            let answer = ask(door, &other);
            assert_eq!(answer["error"], "request_mismatch", "{door:?} {other}: {answer}");
        }
        assert_eq!(ask(door, &first)["fencing_token"], told["fencing_token"], "{door:?}: the same is told again");
        assert_eq!(site.locks(), before, "{door:?}: nothing was changed");
        // Forgets its requests too.
        site.house.say("a", &["session", "close"]);
    }
}

#[test]
fn a_body_that_is_not_said_to_be_json_is_refused_by_its_type() {
    let site = Site::open();
    let acquire = json!({ "file_path": "f", "session_id": "a" });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "acquire_lock", "arguments": acquire } });
    let accept = "Accept: application/json, text/event-stream";
    // The last is curl's way to send none.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", ""]
    {
        let kind = format!("Content-Type:{}{kind}", if kind.is_empty() { "" } else { " " });
        for (path, body) in [("/locks/acquire", &acquire), ("/mcp", &call)] {
            let (code, text) = site.serving.curl(path, &["-H", &kind, "-H", accept, "-d", &body.to_string()]);
            assert_eq!(code, 415, "{path} {kind}: {text}");
        }
    }
    site.nothing_is_held();
    for (path, body) in [("/locks/acquire", &acquire), ("/mcp", &call)] {
        let kind = "Content-Type: application/json; charset=utf-8";
        let (code, text) = site.serving.curl(path, &["-H", kind, "-H", accept, "-d", &body.to_string()]);
        assert_eq!(code, 200, "{path}: {text}");
    }
}

#[test]
fn a_secret_is_in_no_log_error_metric_or_command_line() {
    let house = House::new();
    let (wrong, password) = ("wrong-credential-hunter2", "engine-password-hunter2");
    let mut command = house.command("server", &["serve", "--listen", "127.0.0.1:0"]);
    let log = std::fs::File::create(house.path().join("service.log")).expect("a log");
    command.env("LOCKKEEPER_LOG", "trace").stdout(log.try_clone().expect("a log")).stderr(log);
    let child = command.spawn().expect("the program runs");
    let url = crate::house::wait_for("the service", || {
        let status: Value = serde_json::from_str(&house.say("x", &["--json", "status"]).out).ok()?;
        status["listen"].as_str().map(str::to_owned)
    });
    let right = std::fs::read_to_string(house.home().join("credential")).expect("a credential").trim().to_owned();
    let serving = Serving { child, url, credential: right.clone() };
    let mut said = String::new();
    let mut note = |told: Said| said.extend([told.out, told.err]);
    for credential in [&*right, wrong] {
        for path in ["/locks/active", "/audit", "/nonsense", "/mcp"] {
            let bearer = format!("Authorization: Bearer {credential}");
            let (_, body) = serving.curl_bare(path, &["-H", &bearer]);
            assert!(!body.contains(credential), "{path}: {body}");
            serving.curl_bare(path, &["-H", &format!("X-API-Key: {credential}")]);
        }
        let mut held = house.command("c", &["--url", &serving.url, "run", "f", "--", "sleep", "1"]);
        let mut held = held.env("LOCKKEEPER_CREDENTIAL", credential).spawn().expect("the program runs");
        std::thread::sleep(Duration::from_millis(300));
        let lines = command_lines();
        assert!(!lines.contains(&right) && !lines.contains(wrong), "{lines}");
        held.wait().expect("ends");
        for arguments in [&["lock", "list"][..], &["doctor"], &["--json", "lock", "acquire", "g"]] {
            let mut command = house.command("c", &[&["--url", &serving.url], arguments].concat());
            command.env("LOCKKEEPER_CREDENTIAL", credential);
            note(crate::house::said(command.output().expect("the program runs")));
        }
    }
    for engine in ["redis://me:PW@127.0.0.1:1/0", "postgres://me:PW@127.0.0.1:1/db", "file://me:PW@host/x"] {
        let mut command = house.command("c", &["serve", "--listen", "none", "--socket", "/tmp/never"]);
        command.env("LOCKKEEPER_ENGINE", engine.replace("PW", password)).env("LOCKKEEPER_LOG", "trace");
        note(crate::house::said(command.output().expect("the program runs")));
        let address = engine.replace("PW", password).replace("redis", "http");
        note(house.say("c", &["--url", &address, "lock", "list"]));
    }
    let (_, metrics) = serving.curl("/metrics", &[]);
    let files = ["service.log", "home/audit.jsonl", "home/service.log"];
    let written = files.map(|file| std::fs::read_to_string(house.path().join(file)).unwrap_or_default());
    assert!(written[0].len() > 100 && written[1].len() > 100, "logs were written: {written:?}");
    for text in written.iter().chain([&metrics, &said]) {
        for secret in [&*right, wrong, password] {
            assert!(!text.contains(secret), "{secret} stands in {text}");
        }
    }
}

/// The command lines of every process of the program.
fn command_lines() -> String {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines: Vec<String> = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect();
    let ours: Vec<String> = lines.into_iter().filter(|line| line.contains("lockkeeper")).collect();
    assert!(!ours.is_empty());
    ours.join("\n")
}

/// No test can time it reliably; this holds the one comparison to the function that takes the same time for all.
#[test]
fn a_credential_is_compared_in_constant_time() {
    let source = include_str!("../../../server/src/auth.rs");
    assert!(source.contains("credential.hash.ct_eq(&shown)") && source.contains("use subtle::ConstantTimeEq;"));
    assert!(!source.contains("hash == ") && !source.contains("== shown"));
    let other = Command::new("grep").args(["-rn", "secret ==", "../server/src"]).output().expect("grep runs");
    assert!(other.stdout.is_empty(), "{}", String::from_utf8_lossy(&other.stdout));
}
