//! Slips of the pen: what was typed almost right is refused with the command that is right.

use crate::house::{House, said};

#[test]
fn a_line_with_a_column_is_no_line_of_another_file() {
    let house = House::new();
    let said = house.say("a", &["lock", "acquire", "src/auth.rs:10:50", "-m", "fix it"]);
    assert!(said.code == 2 && said.err.starts_with("invalid_range: "), "{said:?}");
    assert!(said.err.ends_with("Hint: lockkeeper lock acquire src/auth.rs:10 -m 'fix it'\n"), "{said:?}");
    for arguments in [["lock", "check"], ["lock", "release"], ["feature", "register"]] {
        let said = house.say("a", &[arguments[0], arguments[1], "src/auth.rs:10:50", "src/auth.rs:10:50"]);
        assert!(said.code == 2 && said.err.contains("names a line and a column"), "{said:?}");
    }
    assert!(house.held().is_empty());
    std::fs::write(house.repository().join("src/auth.rs:10"), "x\n").expect("a file");
    assert_eq!(house.say("a", &["lock", "acquire", "src/auth.rs:10:50"]).code, 0);
    assert_eq!(house.held(), ["a src/auth.rs:10"]);
}

#[test]
fn a_bad_range_is_refused_with_the_command_that_was_probably_meant() {
    let house = House::new();
    for (typed, meant) in [
        ("src/auth.rs:30-20", "src/auth.rs:20-30"),
        ("src/auth.rs:0-3", "src/auth.rs:1-3"),
        ("./src/auth.rs:L3-L9", "./src/auth.rs:3-9"),
        ("src/auth.rs:a-b", "src/auth.rs:START-END"),
        ("src/auth.rs:1-2-3", "src/auth.rs:START-END"),
    ] {
        let said = house.say("a", &["lock", "acquire", typed, "-m", "hi"]);
        let hint = format!("Hint: lockkeeper lock acquire {meant} -m hi\n");
        assert!(said.code == 2 && said.err.starts_with("invalid_range: ") && said.err.ends_with(&hint), "{said:?}");
    }
}

#[test]
fn a_verb_without_its_group_is_answered_with_the_whole_command() {
    let house = House::new();
    for (typed, whole) in [
        (&["acquire", "src/auth.rs", "-m", "fix it"][..], "lockkeeper lock acquire src/auth.rs -m 'fix it'"),
        (&["release", "--all"], "lockkeeper lock release --all"),
        (&["renew"], "lockkeeper lock renew"),
        (&["list"], "lockkeeper lock list"),
        (&["--session", "b", "check", "src/auth.rs"], "lockkeeper --session b lock check src/auth.rs"),
        (&["history"], "lockkeeper lock history"),
        (&["force-release", "src/auth.rs", "-m", "y"], "lockkeeper lock force-release src/auth.rs -m y"),
        (&["pause", "FEAT-1", "-m", "y"], "lockkeeper feature pause FEAT-1 -m y"),
        (&["open", "x.md"], "lockkeeper session open x.md\nHint: lockkeeper room open x.md"),
    ] {
        let said = house.say("a", typed);
        assert!(said.code == 2 && said.err.ends_with(&format!("\nHint: {whole}\n")), "{typed:?}: {said:?}");
    }
    for typed in [&["feature", "acquire", "x"][..], &["acquier", "x"]] {
        let said = house.say("a", typed);
        assert!(said.code == 2 && said.err.starts_with("error: unrecognized subcommand"), "{typed:?}: {said:?}");
    }
}

#[test]
fn the_id_of_a_lock_is_not_taken_for_a_file() {
    let house = House::new();
    let id = house.json("a", &["lock", "acquire", "x"])["lock_id"].as_str().expect("an id").to_owned();
    for verb in ["check", "acquire", "list", "history"] {
        let said = house.say("b", &["lock", verb, &id]);
        assert!(said.code == 2 && said.err.contains("is the id of a lock"), "{verb}: {said:?}");
    }
    assert_eq!(house.held(), ["a x"]);
}

#[test]
fn stop_stops_the_service_that_is_named_and_no_other() {
    let house = House::new();
    assert_eq!(house.say("a", &["lock", "acquire", "x"]).code, 0);
    let pid = house.service_pid();
    let said = house.say("a", &["--url", "http://127.0.0.1:1", "stop"]);
    assert!(said.code == 6 && said.err.contains("on its own machine"), "{said:?}");
    assert_eq!(house.say("a", &["--url", "unix:/nonexistent/socket", "stop"]).code, 3);
    assert_eq!(house.service_pid(), pid);
    let own = format!("unix:{}", house.home().join("socket").display());
    assert_eq!(house.say("a", &["--url", &own, "stop"]).code, 0);
    assert_eq!(house.held(), ["a x"], "by another service");
    assert_ne!(house.service_pid(), pid);
}

#[test]
fn whoever_wants_json_gets_it_for_a_slip_too() {
    let house = House::new();
    for typed in
        [&["acquire", "x"][..], &["lock", "acquire"], &["lock", "acquire", "x", "--priority", "high"], &["nonsense"]]
    {
        let typed: Vec<&str> = typed.iter().copied().chain(["--json"]).collect();
        let said = house.say("a", &typed);
        let body: serde_json::Value =
            serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert_eq!(
            (said.code, body["error"].as_str(), body["success"].as_bool()),
            (2, Some("invalid_request"), Some(false)),
            "{said:?}"
        );
        assert!(said.err.is_empty() && !body["message"].as_str().unwrap_or_default().is_empty(), "{said:?}");
    }
    assert!(house.say("a", &["--json", "--help"]).out.starts_with("Keeps fleets"), "help is help");
}

#[test]
fn lines_as_a_page_of_the_web_names_them_are_no_part_of_a_name() {
    let house = House::new();
    for (typed, meant) in [
        ("src/auth.rs#L10", "src/auth.rs:10"),
        ("src/auth.rs#L5-L9", "src/auth.rs:5-9"),
        ("./src/auth.rs#L5-9", "./src/auth.rs:5-9"),
        ("src/auth.rs#L9-L5", "src/auth.rs:5-9"),
        ("src/auth.rs#L5C2-L9C14", "src/auth.rs:5-9"),
    ] {
        let said = house.say("a", &["lock", "acquire", typed, "-m", "hi"]);
        let hint = format!("Hint: lockkeeper lock acquire {meant} -m hi\n");
        assert!(said.code == 2 && said.err.starts_with("invalid_range: ") && said.err.ends_with(&hint), "{said:?}");
    }
    assert!(house.held().is_empty());
    std::fs::write(house.repository().join("src/auth.rs#L10"), "x\n").expect("a file");
    for really in ["src/auth.rs#L10", "src/new.rs#L10", "src/auth.rs#license"] {
        assert_eq!(house.say("a", &["lock", "acquire", really]).code, 0, "{really}");
    }
}

#[test]
fn a_name_that_is_hinted_at_is_no_other_agents() {
    let house = House::new();
    let nobody = |arguments: &[&str]| {
        let mut command = house.command("", arguments);
        said(command.env_remove("SESSION_ID").output().expect("the program runs"))
    };
    // As whoever pastes the hint is called.
    let name = |told: &str| {
        let name = told.split_once("export SESSION_ID=").expect("a hint").1;
        let name = name.split([',', '\n']).next().expect("a name").to_owned();
        let digits = name.strip_prefix("agent-").expect("a name for an agent");
        assert!(digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{told}");
        name
    };
    let (one, other) = (nobody(&["lock", "acquire", "x"]), nobody(&["lock", "acquire", "x"]));
    assert_eq!((one.code, other.code), (2, 2), "{one:?}");
    assert_ne!(name(&one.err), name(&other.err));
    assert!(one.err.contains(&format!("--session {};", name(&one.err))), "{one:?}");
    assert_ne!(name(&nobody(&["doctor"]).out), name(&nobody(&["doctor"]).out));
    assert_eq!(house.say(&name(&one.err), &["lock", "acquire", "x"]).code, 0);
}

#[test]
fn a_ttl_that_is_suggested_is_one_that_is_granted() {
    let house = House::new();
    let said = house.say("a", &["lock", "acquire", "x", "--ttl", "5"]);
    assert!(said.code == 2 && said.err.starts_with("invalid_ttl: "), "{said:?}");
    let suggested = said.err.trim_end().rsplit_once("; write ").expect("examples").1.replace(" or ", ", ");
    let suggested: Vec<&str> = suggested.split(", ").collect();
    assert!(suggested.len() > 1, "{said:?}");
    for ttl in suggested {
        assert_eq!(house.say("a", &["lock", "acquire", "x", "--ttl", ttl]).code, 0, "{ttl}");
    }
}
