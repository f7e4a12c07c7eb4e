//! Acquiring and releasing from the command line.

use std::time::{Duration, Instant};

use crate::house::{House, finish, wait_for};

#[test]
fn two_agents_meet_in_one_file() {
    let house = House::new();
    let first = house.say("a", &["lock", "acquire", "src/auth.rs:10-50", "-m", "Adding JWT validation"]);
    assert_eq!(first.code, 0, "{first:?}");
    let second = house.say("b", &["lock", "acquire", "src/auth.rs:25-40"]);
    assert_eq!(second.code, 5, "{second:?}");
    for part in ["held by a", "Adding JWT validation", "Lines 25-40", "s more", "51-66", "--wait"] {
        assert!(second.err.contains(part), "{part}: {second:?}");
    }
    assert_eq!(house.say("b", &["lock", "acquire", "src/auth.rs:60-80"]).code, 0);
    let waiting = house.start("c", &["--json", "lock", "acquire", "src/auth.rs:25-40", "--wait", "20s"]);
    std::thread::sleep(Duration::from_millis(300));
    let released = Instant::now();
    assert_eq!(house.say("a", &["lock", "release", "src/auth.rs"]).code, 0);
    let granted = finish(waiting);
    assert_eq!(granted.code, 0, "{granted:?}");
    assert!(released.elapsed() < Duration::from_secs(5));
}

#[test]
fn twenty_commands_at_once_start_one_service() {
    let house = House::new();
    let names: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    let files: Vec<String> = (0..20).map(|n| format!("src/f{n}.rs")).collect();
    let started: Vec<_> =
        names.iter().zip(&files).map(|(name, file)| house.start(name, &["--json", "lock", "acquire", file])).collect();
    for child in started {
        let said = finish(child);
        assert_eq!(said.code, 0, "{said:?}");
    }
    assert_eq!(house.held().len(), 20);
    let home = format!("LOCKKEEPER_HOME={}", house.home().display());
    let services = std::fs::read_dir("/proc").expect("processes").flatten().filter(|process| {
        let read = |name: &str| std::fs::read(process.path().join(name)).unwrap_or_default();
        let (cmdline, environ) = (read("cmdline"), read("environ"));
        let has = |text: &[u8], part: &str| text.split(|byte| *byte == 0).any(|word| word == part.as_bytes());
        has(&cmdline, "serve") && has(&environ, &home)
    });
    assert_eq!(services.count(), 1);
}

#[test]
fn every_spelling_of_a_file_is_one_file_from_any_folder_and_worktree() {
    let house = House::new();
    let repository = house.repository();
    std::fs::create_dir_all(repository.join("src/x")).unwrap();
    std::fs::write(repository.join("src/caf\u{e9}.rs"), "").unwrap();
    std::os::unix::fs::symlink("src/auth.rs", repository.join("link.rs")).unwrap();
    assert_eq!(house.say("a", &["lock", "acquire", "src/auth.rs"]).code, 0);
    assert_eq!(house.say("a", &["lock", "acquire", "src/caf\u{e9}.rs"]).code, 0);
    let absolute = repository.join("src/auth.rs").display().to_string();
    for spelling in ["./src/auth.rs", "src//auth.rs", "src/x/../auth.rs", &absolute, "link.rs", "src/cafe\u{301}.rs"] {
        let said = house.say("b", &["lock", "acquire", spelling]);
        assert_eq!(said.code, 5, "{spelling}: {said:?}");
    }
    let mut below = house.command("b", &["lock", "acquire", "../auth.rs"]);
    assert_eq!(below.current_dir(repository.join("src/x")).status().unwrap().code(), Some(5));

    house.git(&["add", "src/auth.rs"]);
    house.git(&["commit", "-q", "-m", "first"]);
    let worktree = house.path().join("worktree");
    house.git(&["worktree", "add", "-q", worktree.to_str().unwrap()]);
    let mut elsewhere = house.command("b", &["lock", "acquire", "src/auth.rs"]);
    assert_eq!(elsewhere.current_dir(&worktree).status().unwrap().code(), Some(5));
}

#[test]
fn what_is_outside_or_unprintable_is_refused() {
    let house = House::new();
    std::os::unix::fs::symlink("/etc/passwd", house.repository().join("out.rs")).unwrap();
    for path in ["../x", "/etc/passwd", "out.rs", "a\u{1}b", "a\u{202e}b", "."] {
        let said = house.say("a", &["lock", "acquire", path]);
        assert_eq!((said.code, said.err.starts_with("invalid_path:")), (2, true), "{path:?}: {said:?}");
    }
    for (key, word) in [
        ("src/auth.rs:0", "invalid_range"),
        ("src/auth.rs:9-3", "invalid_range"),
        ("src/auth.rs:1-99999999999", "invalid_range"),
    ] {
        let said = house.say("a", &["lock", "acquire", key]);
        assert_eq!((said.code, said.err.split(':').next()), (2, Some(word)), "{said:?}");
    }
    for flags in [["--ttl", "0s"], ["--ttl", "9000h"], ["--session", "a/b"], ["--priority", "11"], ["--wait", "soon"]] {
        let said = house.say("a", &["lock", "acquire", "src/auth.rs", flags[0], flags[1]]);
        assert_eq!(said.code, 2, "{flags:?}: {said:?}");
    }
    let keys: Vec<String> = (0..300).map(|n| format!("k{n}")).collect();
    let mut many = vec!["lock", "acquire"];
    many.extend(keys.iter().map(String::as_str));
    let said = house.say("a", &many);
    assert_eq!((said.code, said.err.contains("limit_exceeded")), (2, true), "{said:?}");
    assert!(house.held().is_empty());
}

#[test]
fn an_intention_cannot_steer_the_terminal() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "src/auth.rs", "-m", "\u{1b}[2J\u{1b}]0;owned\u{7}fix\nit"]);
    for arguments in [&["lock", "list"][..], &["lock", "history"], &["audit"], &["lock", "list", "--verbose"]] {
        let said = house.say("b", arguments);
        assert!(!said.out.contains('\u{1b}') && !said.out.contains('\u{7}'), "{said:?}");
    }
    assert!(house.say("b", &["lock", "list"]).out.contains("[2J ]0;owned fix it"));
}

#[test]
fn the_states_of_a_lock_can_be_seen() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "src/auth.rs", "--ttl", "1s"]);
    assert_eq!(house.say("b", &["lock", "acquire", "src/auth.rs:1-5"]).code, 5);
    let waited = house.say("b", &["lock", "acquire", "src/auth.rs", "--wait", "10s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    house.say("b", &["lock", "release", "src/auth.rs"]);
    let history = house.say("x", &["lock", "history"]).out;
    for state in ["requested", "active", "released", "expired"] {
        assert!(history.contains(state), "{state}: {history}");
    }
    assert!(history.contains("STATE THEN"), "what a lock was, not what it is: {history}");
    assert!(!history.contains("rejected"), "{history}");
    let all = house.say("x", &["lock", "history", "--all"]).out;
    assert!(all.contains("rejected") && all.contains("lock_contended") && all.contains("1-5"), "{all}");
    let audit = house.say("x", &["audit"]).out;
    assert!(audit.contains("rejected") && audit.contains("busy (lock_contended)"), "{audit}");
    let lines = house.say("x", &["--json", "audit"]).out;
    let first: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    for field in ["sessionId", "agentId", "requestId", "action", "outcome", "key"] {
        assert!(first[field].is_string(), "{field}: {first}");
    }
}

#[test]
fn a_script_without_a_session_is_told_what_to_do() {
    let house = House::new();
    let mut command = house.command("x", &["lock", "acquire", "src/auth.rs"]);
    let said = crate::house::said(command.env_remove("SESSION_ID").output().unwrap());
    assert_eq!(said.code, 2);
    assert!(said.err.contains("export SESSION_ID="), "{said:?}");
    let mut look = house.command("x", &["lock", "list"]);
    assert_eq!(look.env_remove("SESSION_ID").status().unwrap().code(), Some(0), "looking needs no name");
}

#[test]
fn rooms_sessions_and_tokens_work_from_the_command_line() {
    let house = House::new();
    assert_eq!(house.say("me", &["room", "open", "src/auth.rs", "--for", "1m"]).code, 0);
    let refused = house.say("a", &["--json", "lock", "acquire", "src/auth.rs"]);
    assert_eq!((refused.code, refused.out.contains("room_busy")), (5, true), "{refused:?}");
    assert!(house.say("x", &["room", "list"]).out.contains("src/auth.rs"));
    assert_eq!(house.say("me", &["room", "close", "src/auth.rs"]).code, 0);
    let lock = house.json("a", &["lock", "acquire", "src/auth.rs", "--ttl", "1s"]);
    let token = lock["fencing_token"].to_string();
    assert_eq!(house.say("a", &["lock", "check", "src/auth.rs", "--token", &token]).code, 0);
    std::thread::sleep(Duration::from_millis(1300));
    assert_eq!(house.say("a", &["lock", "check", "src/auth.rs", "--token", &token]).code, 4);
    assert_eq!(house.say("a", &["lock", "renew", "src/auth.rs"]).code, 4);
    let opened = house.json("a", &["session", "open"]);
    assert_eq!(opened["restored"][0]["file_path"], "src/auth.rs");
    assert_eq!(house.say("b", &["lock", "release", "src/auth.rs"]).code, 4, "not the owner");
    assert_eq!(house.say("b", &["lock", "release", "src/nothing.rs"]).code, 4, "not found");
    assert!(house.say("x", &["session", "list"]).out.contains("src/auth.rs"));
    assert_eq!(house.say("a", &["session", "close"]).code, 0);
    assert!(house.held().is_empty());
}

#[test]
fn a_session_over_its_quota_gets_exit_code_seven() {
    let house = House::new();
    let quota = |arguments: &[&str]| {
        let mut command = house.command("a", arguments);
        crate::house::said(command.env("LOCK_RATE_LIMIT_PER_MIN", "2").output().unwrap())
    };
    for file in ["x", "y"] {
        assert_eq!(quota(&["lock", "acquire", file]).code, 0);
    }
    let said = quota(&["lock", "acquire", "z"]);
    assert_eq!((said.code, said.err.starts_with("rate_limited:")), (7, true), "{said:?}");
    assert_eq!(quota(&["lock", "acquire", "x"]).code, 0, "what is held is refreshed");
}

#[test]
fn a_configured_service_that_is_not_there_is_not_replaced() {
    let house = House::new();
    for url in ["unix:/nonexistent/socket", "http://127.0.0.1:1"] {
        let said = house.say("a", &["--url", url, "lock", "acquire", "src/auth.rs"]);
        assert_eq!(said.code, 3, "{said:?}");
    }
    assert!(!house.home().join("socket").exists(), "no service was started");
}

#[test]
fn settings_come_from_the_repository_and_mistakes_are_named() {
    let house = House::new();
    let file = house.repository().join("lockkeeper.toml");
    std::fs::write(&file, "space = \"team\"\n[lock]\ndefault_ttl = \"2m\"\n").unwrap();
    let lock = house.json("a", &["lock", "acquire", "src/auth.rs"]);
    assert_eq!(lock["ttl_ms"], 120_000);
    assert_eq!(house.json("a", &["status"])["space"], "team");
    for (text, part) in [
        ("default_ttl = 1", "default_ttl"),
        ("listen = \"0.0.0.0:1\"", "setting of the user"),
        ("nonsense", "lockkeeper.toml"),
    ] {
        std::fs::write(&file, text).unwrap();
        let said = house.say("a", &["lock", "list"]);
        assert!(said.code != 0 && said.err.contains(part), "{text}: {said:?}");
    }
}

#[test]
fn a_cloned_repository_cannot_say_where_locks_live_or_who_gets_the_credential() {
    let house = House::new();
    let file = house.repository().join("lockkeeper.toml");
    for text in
        ["url = \"http://127.0.0.1:1\"", "engine = \"memory:\"", "durability = \"interval\"", "[quota]\nlimit = 1"]
    {
        std::fs::write(&file, text).unwrap();
        let said = house.say("a", &["lock", "list"]);
        assert!(said.code == 2 && said.err.contains("setting of the user"), "{text}: {said:?}");
    }
    assert_eq!(house.say("a", &["stop"]).code, 0, "a broken file keeps no service running");
}

#[test]
fn a_hint_can_be_pasted_in_any_folder() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "src/auth.rs:10-50"]);
    let mut command = house.command("b", &["lock", "acquire", "auth.rs:20-30", "-m", "it's"]);
    let said = crate::house::said(command.current_dir(house.repository().join("src")).output().unwrap());
    let hints: Vec<&str> = said.err.lines().filter_map(|line| line.strip_prefix("Hint: lockkeeper ")).collect();
    assert_eq!(
        hints,
        [r"lock acquire auth.rs:51-61 -m 'it'\''s'", r"lock acquire auth.rs:20-30 -m 'it'\''s' --wait 30s"]
    );
    let pasted = std::process::Command::new("sh")
        .args(["-c", &format!("{} {}", crate::house::PROGRAM, hints[0])])
        .current_dir(house.repository().join("src"))
        .env("LOCKKEEPER_HOME", house.home())
        .env("SESSION_ID", "b")
        .output()
        .unwrap();
    assert!(pasted.status.success(), "{pasted:?}");
    assert_eq!(house.held(), ["a src/auth.rs", "b src/auth.rs"]);
}

#[test]
fn a_heartbeat_tells_of_what_was_lost() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x", "--ttl", "1s"]);
    std::thread::sleep(Duration::from_millis(1200));
    let said = house.say("a", &["lock", "renew"]);
    assert_eq!((said.code, said.err.contains("lock_lost: x")), (4, true), "{said:?}");
}

#[test]
fn one_bad_key_does_not_keep_the_others_from_being_released() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x", "y"]);
    let said = house.say("a", &["lock", "release", "x", "never", "y"]);
    assert_eq!((said.code, said.err.contains("Nobody holds never")), (4, true), "{said:?}");
    assert!(house.held().is_empty());
}

#[test]
fn check_says_yours_only_of_what_is() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x:1-10"]);
    assert_eq!(house.say("a", &["lock", "check", "x:2-5"]).out, "Yours.\n");
    assert_eq!(house.say("a", &["lock", "check", "x"]).out, "Free; you hold x:1-10.\n");
    assert_eq!(house.say("a", &["lock", "check", "x:2-5", "y"]).out, "Free; you hold x:1-10.\n");
    assert_eq!(house.say("b", &["lock", "check", "y"]).out, "Free.\n");
}

#[test]
fn a_file_of_another_worktree_is_the_same_file() {
    let house = House::new();
    house.git(&["add", "."]);
    house.git(&["commit", "-q", "-m", "first"]);
    let worktree = house.path().join("worktree");
    house.git(&["worktree", "add", "-q", worktree.to_str().unwrap()]);
    house.say("a", &["lock", "acquire", "src/auth.rs"]);
    let there = worktree.join("src/auth.rs").display().to_string();
    assert_eq!(house.say("b", &["lock", "acquire", &there]).code, 5);
}

/// A person's editor, which writes beside the file and renames.
fn edit(house: &House, name: &str, text: &str) {
    let (scratch, file) = (house.repository().join(format!("{name}~new")), house.repository().join(name));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&scratch, text).unwrap();
    std::fs::rename(scratch, file).unwrap();
}

#[test]
fn what_a_person_changes_is_seen_and_agents_keep_out_of_it_for_a_moment() {
    let house = House::new();
    std::fs::write(house.repository().join(".gitignore"), "*.log\nbuilt/\n").unwrap();
    assert_eq!(house.say("agent", &["lock", "acquire", "src/held.rs"]).code, 0);
    assert_eq!(house.say("agent", &["lock", "acquire", "src/given/**"]).code, 0);
    let mut watching = house.start("person", &["room", "watch", "--json"]);
    let mut lines = std::io::BufReader::new(watching.stdout.take().unwrap());
    let rooms = || {
        let rooms = house.json("x", &["room", "list"])["rooms"].clone();
        rooms.as_array().unwrap().iter().map(|room| room["file_path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Until it is seen: the watching begins in a moment.
    wait_for("the first mark", || {
        edit(&house, "src/first.rs", "x");
        rooms().contains(&"src/first.rs".to_owned()).then_some(())
    });
    let said = house.say("agent", &["lock", "acquire", "src/first.rs"]);
    assert!(said.code == 5 && said.err.contains("is being edited by person"), "{said:?}");
    // What an agent holds, what is ignored, and what was given back a moment ago is nobody's editing.
    edit(&house, "src/held.rs", "by the agent");
    edit(&house, "noise.log", "by a program");
    edit(&house, "built/out.rs", "by a program");
    assert_eq!(house.say("agent", &["lock", "release", "src/given/**"]).code, 0);
    edit(&house, "src/given/last.rs", "by the agent, just before");
    // Also in a folder that was not there before.
    edit(&house, "new/deep/er.rs", "by a person");
    wait_for("the second mark", || rooms().contains(&"new/deep/er.rs".to_owned()).then_some(()));
    // A room that ends is nobody's release.
    wait_for("the end of the first room", || (!rooms().contains(&"src/first.rs".to_owned())).then_some(()));
    edit(&house, "src/first.rs", "again");
    wait_for("the third mark", || rooms().contains(&"src/first.rs".to_owned()).then_some(()));
    crate::house::kill_child(&watching, "TERM");
    let _ = watching.wait();
    let mut marked = std::collections::BTreeSet::new();
    let mut line = String::new();
    while std::io::BufRead::read_line(&mut lines, &mut line).unwrap() > 0 {
        let seen: serde_json::Value = serde_json::from_str(&line).unwrap();
        marked.insert(seen["file_path"].as_str().unwrap().to_owned());
        line.clear();
    }
    assert_eq!(marked.into_iter().collect::<Vec<_>>(), ["new/deep/er.rs", "src/first.rs"]);
}

#[test]
fn what_lockkeeper_writes_itself_is_nobodys_editing() {
    let house = House::new();
    let home = house.repository().join("state");
    let at_home = |arguments: &[&str]| {
        let mut command = house.command("person", arguments);
        command.env("LOCKKEEPER_HOME", &home).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        command
    };
    let say = |arguments: &[&str]| crate::house::said(at_home(arguments).output().expect("the program runs"));
    assert_eq!(say(&["lock", "list"]).code, 0);
    let mut watching = at_home(&["room", "watch", "--json"]).spawn().expect("the program runs");
    let rooms = || say(&["room", "list", "--json"]).out;
    wait_for("the first mark", || {
        edit(&house, "src/first.rs", "x");
        rooms().contains("src/first.rs").then_some(())
    });
    assert_eq!(say(&["lock", "acquire", "src/other.rs"]).code, 0);
    edit(&house, "src/second.rs", "x");
    wait_for("the second mark", || rooms().contains("src/second.rs").then_some(()));
    assert!(!rooms().contains("state/"), "{}", rooms());
    crate::house::kill_child(&watching, "TERM");
    let _ = watching.wait();
    say(&["stop"]);
}

#[test]
fn a_session_that_comes_back_waits_for_what_others_have_taken_meanwhile() {
    let house = House::new();
    assert_eq!(house.say("a", &["lock", "acquire", "x.rs", "y.rs", "-m", "mine", "--ttl", "1s"]).code, 0);
    wait_for("the end of the lease", || house.held().is_empty().then_some(()));
    assert_eq!(house.say("b", &["lock", "acquire", "x.rs"]).code, 0);
    let said = house.say("a", &["session", "restore"]);
    assert!(said.out.contains("got back y.rs") && said.out.contains("did not get back x.rs"), "{said:?}");
    wait_for("the end of the lease", || (house.held().len() == 1).then_some(()));
    let waiting = house.start("a", &["session", "restore", "--wait", "1m"]);
    house.wait_for_waiters(1);
    // What it got back at once lives on until it gets the rest, which takes longer than its lease.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(house.say("b", &["lock", "release", "x.rs"]).code, 0);
    let said = finish(waiting);
    assert!(said.code == 0 && said.out.contains("got back x.rs") && said.out.contains("got back y.rs"), "{said:?}");
    assert_eq!(house.say("b", &["lock", "acquire", "z.rs", "--ttl", "1s"]).code, 0);
    wait_for("the end of the lease", || (!house.held().iter().any(|held| held.contains("z.rs"))).then_some(()));
    assert_eq!(house.say("a", &["lock", "acquire", "z.rs"]).code, 0);
    let said = house.say("b", &["session", "restore", "--wait", "100ms"]);
    assert!(said.code == 0 && said.out.contains("did not get back z.rs"), "{said:?}");
}

#[test]
fn a_number_behind_an_unknown_prefix_is_no_line_of_a_file() {
    let house = House::new();
    for key in ["port:5432", "foo:1-2"] {
        let said = house.say("a", &["lock", "acquire", key]);
        assert!(said.code == 6 && said.err.contains("no known prefix"), "{key}: {said:?}");
    }
    std::fs::write(house.repository().join("notes"), "").unwrap();
    assert_eq!(house.json("a", &["lock", "acquire", "notes:7"])["start_line"], 7);
    assert_eq!(house.json("a", &["lock", "acquire", "Makefile:7"])["start_line"], 7, "about to be written");
    let odd = house.repository().join("src/a:b.rs");
    std::fs::create_dir_all(odd.parent().unwrap()).unwrap();
    std::fs::write(odd, "").unwrap();
    assert_eq!(house.json("a", &["lock", "acquire", "src/a:b.rs"])["file_path"], "src/a:b.rs");
}

#[test]
fn a_stale_token_gives_back_nothing_of_all_that_is_held() {
    let house = House::new();
    let old = house.json("a", &["lock", "acquire", "x"])["fencing_token"].to_string();
    assert_eq!(house.say("a", &["lock", "release", "x"]).code, 0);
    house.json("a", &["lock", "acquire", "x"]);
    assert_eq!(house.say("a", &["lock", "release", "--all", "--token", &old]).code, 4);
    assert_eq!(house.held(), ["a x"]);
    let said = house.say("a", &["--agent", "external", "lock", "acquire", "y"]);
    assert_eq!(said.code, 2, "{said:?}");
}

#[test]
fn whoever_lost_a_lock_is_told_how_and_who_has_it_now() {
    let house = House::new();
    for command in ["renew", "release"] {
        assert_eq!(house.say("a", &["lock", "acquire", "x"]).code, 0);
        assert_eq!(house.say("op", &["lock", "force-release", "x", "-m", "stuck"]).code, 0);
        assert_eq!(house.say("b", &["lock", "acquire", "x", "-m", "my turn"]).code, 0);
        let said = house.say("a", &["lock", command, "x"]);
        assert_eq!(said.code, 4, "{said:?}");
        for words in ["x was taken away from you", "(op: stuck)", "x is held by b, \"my turn\""] {
            assert!(said.err.contains(words), "{words}: {said:?}");
        }
        house.say("b", &["lock", "release", "x"]);
    }
    assert_eq!(house.say("a", &["lock", "acquire", "y", "--ttl", "1s"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let said = house.say("a", &["lock", "renew", "y"]);
    assert!(said.code == 4 && said.err.contains("y expired"), "{said:?}");
}

#[test]
fn whoever_names_a_part_of_their_lock_is_told_which_it_is() {
    let house = House::new();
    assert_eq!(house.say("a", &["lock", "acquire", "s:10-50"]).code, 0);
    for command in ["release", "renew"] {
        let said = house.say("a", &["lock", command, "s:20-30"]);
        assert!(said.code == 4 && said.err.contains("You hold s:10-50 as one lock"), "{said:?}");
    }
    assert_eq!(house.held(), ["a s"]);
    for key in ["api:GET /v1/users:10-20", "contract:openapi/v1.yaml:3-4"] {
        let said = house.say("a", &["lock", "acquire", key]);
        assert!(said.code == 2 && said.err.contains("Only files have lines"), "{key}: {said:?}");
    }
}

#[test]
fn whoever_names_what_lies_in_the_lock_of_another_is_told_whose_it_is() {
    let house = House::new();
    assert_eq!(house.say("ann", &["lock", "acquire", "n.rs:10-50", "tree/**", "-m", "mine"]).code, 0);
    for (part, held) in [("n.rs:25-40", "n.rs:10-50"), ("n.rs:40-60", "n.rs:10-50"), ("tree/f.rs", "tree/**")] {
        for command in [vec!["release"], vec!["renew"], vec!["force-release", "-m", "why"]] {
            let said = house.say("ben", &[&["lock"][..], &command, &[part]].concat());
            assert_eq!(said.code, 4, "{said:?}");
            for words in
                [&format!("No lock is on {part} alone."), "held by ann", &format!("name it as it is, {held}, or")]
            {
                assert!(said.err.contains(words), "{words}: {said:?}");
            }
        }
        let said = house.say("ann", &["lock", "release", part]);
        assert!(said.code == 4 && said.err.contains(&format!("You hold {held} as one lock")), "{said:?}");
    }
    assert_eq!(house.held(), ["ann n.rs", "ann tree/**"]);
}

#[test]
fn what_is_asked_about_lines_is_answered_about_the_file_and_a_room_is_of_no_lines() {
    let house = House::new();
    assert_eq!(house.say("a", &["lock", "acquire", "r.rs:1-3"]).code, 0);
    for command in ["list", "history"] {
        let said = house.say("b", &["lock", command, "r.rs:1-3"]);
        assert!(said.code == 0 && said.out.contains("r.rs"), "{said:?}");
    }
    for command in ["open", "close"] {
        let said = house.say("a", &["room", command, "r.rs:1-3"]);
        assert!(said.code == 2 && said.err.contains("only a whole file can be meant"), "{said:?}");
        assert!(said.err.contains("write r.rs\n"), "{said:?}");
    }
    assert!(!house.say("a", &["room", "list"]).out.contains("r.rs"));
}

#[test]
fn the_help_of_a_forced_release_says_how_much_it_takes() {
    let house = House::new();
    let help = house.say("a", &["lock", "force-release", "--help"]).out;
    for part in
        ["Take all locks on a file", "every lock on the file, your own too", "only the lock on just these lines"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
    for (session, key) in [("a", "src/auth.rs:1-5"), ("b", "src/auth.rs:10-20"), ("b", "src/auth.rs:30-40")] {
        house.json(session, &["lock", "acquire", key]);
    }
    assert_eq!(house.say("a", &["lock", "force-release", "src/auth.rs:10-20", "-m", "y"]).code, 0);
    assert_eq!(house.held().len(), 2);
    assert_eq!(house.say("a", &["lock", "force-release", "src/auth.rs", "-m", "y"]).code, 0);
    assert!(house.held().is_empty());
}

#[test]
fn whoever_wants_to_only_read_what_the_session_has_exclusively_is_told_so() {
    let house = House::new();
    assert_eq!(house.say("a", &["lock", "acquire", "x", "-m", "w"]).code, 0);
    let said = house.say("a", &["lock", "acquire", "x", "--shared", "-m", "r"]);
    assert!(said.code == 0 && said.err.contains("stays exclusive"), "{said:?}");
    let release = said.err.split("read: lockkeeper ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    assert_eq!(house.say("a", &release.split(' ').collect::<Vec<_>>()).code, 0, "{release}");
    let said = house.say("a", &["lock", "acquire", "x", "--shared", "-m", "r"]);
    assert!(said.code == 0 && !said.err.contains("stays exclusive"), "{said:?}");
}
