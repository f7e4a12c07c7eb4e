//! Settings and other files from the command line.

use std::fs;
use std::path::PathBuf;

use crate::house::{House, Said, finish, said};

fn user_file(house: &House) -> PathBuf {
    house.path().join("config/lockkeeper/lockkeeper.toml")
}

fn repository_file(house: &House) -> PathBuf {
    house.repository().join("lockkeeper.toml")
}

fn written(house: &House, name: &str, text: &str) -> String {
    let path = house.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Saves with a script in place of an editor; `$1` is the copy.
fn edited(house: &House, script: &str, arguments: &[&str]) -> Said {
    let editor = written(house, "editor.sh", script);
    let mut all = vec!["config", "edit"];
    all.extend(arguments);
    said(house.command("a", &all).env("EDITOR", format!("sh {editor}")).output().unwrap())
}

#[test]
fn a_setting_goes_into_the_file_in_which_it_counts() {
    let house = House::new();
    let said = house.say("a", &["config", "set", "lock.default_ttl", "2m"]);
    assert!(said.code == 0 && said.out.contains("repository/lockkeeper.toml"), "{said:?}");
    assert_eq!(fs::read_to_string(repository_file(&house)).unwrap(), "[lock]\ndefault_ttl = \"2m\"\n");
    let said = house.say("a", &["config", "set", "quota.limit", "120"]);
    assert!(said.code == 0 && said.out.contains("config/lockkeeper/lockkeeper.toml"), "{said:?}");
    assert!(said.err.contains("LOCK_RATE_LIMIT_PER_MIN is set"), "{said:?}");
    assert_eq!(fs::read_to_string(user_file(&house)).unwrap(), "[quota]\nlimit = 120\n");
    let again = house.json("a", &["config", "set", "quota.limit", "120"]);
    assert_eq!(again["action"], "unchanged");
    assert_eq!(house.say("a", &["config", "get", "lock.default_ttl"]).out, "2m\n");
    let own = house.say("a", &["config", "get", "--user", "lock.default_ttl"]);
    assert!(own.code == 4 && !own.err.contains("changed"), "{own:?}");
    assert_eq!(house.say("a", &["config", "set", "--user", "lock.default_ttl", "5m"]).code, 0);
    assert_eq!(house.say("a", &["config", "get", "--user", "lock.default_ttl"]).out, "5m\n");
    assert_eq!(house.say("a", &["config", "get", "lock.default_ttl"]).out, "2m\n", "the repository comes first");
    assert_eq!(house.say("a", &["config", "unset", "lock.default_ttl"]).code, 0);
    assert_eq!(house.say("a", &["config", "get", "lock.default_ttl"]).out, "5m\n");
    assert_eq!(house.say("a", &["config", "unset", "lock.default_ttl"]).code, 4);
}

#[test]
fn every_setting_in_force_is_shown_with_what_says_it_and_no_password() {
    let house = House::new();
    fs::write(repository_file(&house), "space = \"team/app\"\n").unwrap();
    let mut set = house.command("a", &["config", "set", "engine", "-"]);
    let mut child = set.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"redis://:hunter2@db:6379\n").unwrap();
    assert_eq!(finish(child).code, 0);
    let all = house.json("a", &["config", "get"]);
    let row = |key: &str| {
        let rows = all["settings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}: {all}"));
        (row["value"].to_string(), row["from"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        row("space"),
        ("\"team/app\"".to_owned(), repository_file(&house).canonicalize().unwrap().display().to_string())
    );
    assert_eq!(row("quota.limit"), ("\"0\"".to_owned(), "LOCK_RATE_LIMIT_PER_MIN".to_owned()));
    assert_eq!(row("worktrees"), ("\"shared\"".to_owned(), "default".to_owned()));
    assert_eq!(row("engine").0, "\"redis://:***@db:6379\"");
    let table = house.say("a", &["config", "get"]);
    assert!(table.out.contains("KEY") && !table.out.contains("hunter2"), "{table:?}");
    assert_eq!(house.say("a", &["config", "get", "engine"]).out, "redis://:hunter2@db:6379\n");
    let escaped = "postgres://me@db/locks?passw%6Frd=hunter2&sslmode=disable";
    let mut get = house.command("a", &["config", "get"]);
    let table = crate::house::said(get.env("LOCKKEEPER_ENGINE", escaped).output().expect("the program runs"));
    assert!(table.out.contains("@db/locks?***") && !table.out.contains("hunter2"), "{table:?}");
    let wrong = house.say("a", &["config", "get", "lock.defaultttl"]);
    assert!(wrong.code == 4 && wrong.err.contains("config get lock.default_ttl"), "{wrong:?}");
}

#[test]
fn a_wrong_setting_is_refused_with_the_reason_and_changes_nothing() {
    let house = House::new();
    let text = "# mine\nspace = \"x\" # here\n";
    fs::write(repository_file(&house), text).unwrap();
    for (arguments, reason) in [
        (vec!["--repository", "lock.defalt_ttl", "2m"], "did you mean 'default_ttl'"),
        (vec!["--repository", "engine", "memory:"], "'engine' is a setting of the user"),
        (vec!["--repository", "lock.default_ttl", "soon"], "no length of time"),
        (vec!["--repository", "lock.default_ttl", "9000h"], "the default TTL is"),
        (vec!["--repository", "worktrees", "both"], "\"shared\" or \"separate\""),
        (vec!["space", "5"], "--string"),
        (vec!["quota.limit", "many"], "quota.limit is a whole number"),
        (vec!["durability", "sometimes"], "\"always\" or \"interval\""),
        (vec!["spaec", "x"], "did you mean 'space'"),
        (vec!["a..b", "x"], "a part of it is empty"),
    ] {
        let mut all = vec!["config", "set"];
        all.extend(&arguments);
        let said = house.say("a", &all);
        assert!(said.code == 2 && said.err.contains(reason), "{arguments:?}: {said:?}");
    }
    assert_eq!(fs::read_to_string(repository_file(&house)).unwrap(), text);
    assert!(!user_file(&house).exists());
    // Named by its path, it is judged all the same.
    let file = repository_file(&house).display().to_string();
    assert_eq!(house.say("a", &["config", "set", "--file", &file, "engine", "memory:"]).code, 2);
    assert_eq!(house.say("a", &["config", "set", "--string", "space", "5"]).code, 0);
    // A broken file is mended by taking away what breaks it.
    fs::write(repository_file(&house), "space = \"x\"\nspce = 1\n").unwrap();
    assert_eq!(house.say("a", &["lock", "list"]).code, 2);
    assert_eq!(house.say("a", &["config", "unset", "--repository", "spce"]).code, 0);
    assert_eq!(house.say("a", &["lock", "list"]).code, 0);
}

#[test]
fn files_of_other_programs_are_edited_and_keep_what_is_not_meant() {
    let house = House::new();
    let yaml = written(&house, "app.yaml", "# ours\nservers:\n  db.internal: {port: 1} # db\n");
    let set = |arguments: &[&str]| {
        let mut all = vec!["config", "set"];
        all.extend(arguments);
        house.say("a", &all)
    };
    assert_eq!(set(&["--file", &yaml, "servers.\"db.internal\".port", "5432"]).code, 0);
    assert_eq!(set(&["--file", &yaml, "hosts[]", "a.example"]).code, 0);
    assert_eq!(set(&["--file", &yaml, "debug", "true", "--string"]).code, 0);
    let expected = "# ours\nservers:\n  db.internal: {port: 5432} # db\nhosts: [a.example]\ndebug: \"true\"\n";
    assert_eq!(fs::read_to_string(&yaml).unwrap(), expected);
    let get = |file: &str, key: &str| house.say("a", &["config", "get", "--file", file, key]);
    assert_eq!(get(&yaml, "servers").out, "db.internal:\n  port: 5432\n");
    assert_eq!(get(&yaml, "hosts.0").out, "a.example\n");
    assert_eq!(get(&yaml, "hosts[7]").code, 4);
    let all = house.json("a", &["config", "get", "--file", &yaml]);
    assert_eq!(all["value"]["servers"]["db.internal"]["port"], 5432);
    let json = written(&house, "app.json", "{\"a\": 1}");
    assert_eq!(set(&["--file", &json, "b", "-5"]).code, 0);
    assert_eq!(fs::read_to_string(&json).unwrap(), "{\"a\": 1, \"b\": -5}");
    let broken = written(&house, "broken.json", "{\"a\": 1, secret}");
    let refused = set(&["--file", &broken, "a", "2"]);
    assert!(
        refused.code == 2 && refused.err.contains("line 1, column 10") && !refused.err.contains("secret}"),
        "{refused:?}"
    );
    assert_eq!(set(&["--file", "x.ini", "a", "2"]).code, 2);
    let held = fs::File::open(house.path().join(".app.json.lock")).unwrap();
    held.lock().unwrap();
    let busy = set(&["--wait", "50ms", "--file", &json, "b", "6"]);
    assert!(busy.code == 5 && busy.err.contains(".app.json.lock") && busy.err.contains("Hint:"), "{busy:?}");
}

#[test]
fn commands_at_the_same_time_lose_nothing() {
    let house = House::new();
    let file = written(&house, "app.toml", "# top\n[n]\nzero = 0 # zero\n");
    let children: Vec<_> = (0..12)
        .map(|number| {
            house.start("a", &["config", "set", "--file", &file, &format!("n.k{number}"), &number.to_string()])
        })
        .collect();
    for child in children {
        let said = finish(child);
        assert_eq!(said.code, 0, "{said:?}");
    }
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# top\n[n]\nzero = 0 # zero\n") && text.lines().count() == 15, "{text}");
}

#[test]
fn an_editor_works_on_a_copy_and_others_are_not_held_up() {
    let house = House::new();
    fs::write(repository_file(&house), "# top\nspace = \"x\"\n").unwrap();
    let program = crate::house::PROGRAM;
    let meanwhile =
        format!("sed -i 's/x/y/; s/top/mine/' \"$1\"\n{program} config set --wait 5s lock.default_ttl 3m || exit 1\n");
    let saved = edited(&house, &meanwhile, &["--repository"]);
    assert_eq!(saved.code, 0, "{saved:?}");
    let joined = "# mine\nspace = \"y\"\n\n[lock]\ndefault_ttl = \"3m\"\n";
    assert_eq!(fs::read_to_string(repository_file(&house)).unwrap(), joined);

    let clash = format!("sed -i 's/y/z/' \"$1\"\n{program} config set space w\n");
    let conflict = edited(&house, &clash, &["--repository"]);
    assert!(conflict.code == 5 && conflict.err.contains("'space'"), "{conflict:?}");
    let kept = conflict.err.split("kept in ").nth(1).expect("it says where the copy is").trim();
    assert!(fs::read_to_string(kept).unwrap().contains("space = \"z\""), "{conflict:?}");
    fs::remove_file(kept).unwrap();
    assert!(fs::read_to_string(repository_file(&house)).unwrap().contains("space = \"w\""));

    let before = fs::read_to_string(repository_file(&house)).unwrap();
    let invalid = edited(&house, "echo 'spaec = 1' > \"$1\"\n", &["--repository"]);
    assert!(invalid.code == 2 && invalid.err.contains("did you mean 'space'"), "{invalid:?}");
    let kept = invalid.err.split("kept in ").nth(1).expect("it says where the copy is").trim();
    assert_eq!(fs::read_to_string(kept).unwrap(), "spaec = 1\n");
    fs::remove_file(kept).unwrap();
    assert_eq!(fs::read_to_string(repository_file(&house)).unwrap(), before);

    let untouched = edited(&house, "true\n", &["--repository"]);
    assert!(untouched.code == 0 && untouched.out.contains("Nothing was changed"), "{untouched:?}");
    assert_eq!(edited(&house, "exit 3\n", &["--repository"]).code, 1);
    let none = house.say("a", &["config", "edit"]);
    assert!(none.code == 2 && none.err.contains("EDITOR"), "{none:?}");
}

#[test]
fn a_settings_file_that_is_wrong_is_named_with_the_line_and_no_password_is_repeated() {
    let house = House::new();
    let folder = house.path().join("config/lockkeeper");
    std::fs::create_dir_all(&folder).unwrap();
    for wrong in ["# mine\nengine = \"redis://:hunter2@db\" x\n", "# mine\nengine = [\"redis://:hunter2@db\"]\n"] {
        std::fs::write(folder.join("lockkeeper.toml"), wrong).unwrap();
        let said = house.say("a", &["lock", "list"]);
        assert!(said.code != 0 && said.err.contains("line 2"), "{said:?}");
        assert!(!said.err.contains("hunter2"), "{said:?}");
    }
}

#[test]
fn a_settings_file_that_never_ends_is_not_read() {
    let house = House::new();
    let made = std::process::Command::new("mkfifo").arg(repository_file(&house)).status().unwrap();
    assert!(made.success());
    for arguments in [&["lock", "list"][..], &["config", "get"], &["doctor"]] {
        let said = house.say("a", arguments);
        assert!(said.code != 0 && format!("{}{}", said.out, said.err).contains("no file"), "{arguments:?}: {said:?}");
    }
}

#[test]
fn settings_that_no_service_could_use_are_refused() {
    let house = House::new();
    for (key, value) in [
        ("engine", "banana"),
        ("listen", "banana"),
        ("proof.directories", "[\"relative\"]"),
        ("advisory.namespaces.AGENT", "5"),
    ] {
        let said = house.say("a", &["config", "set", key, value]);
        assert_eq!(said.code, 2, "{key}: {said:?}");
    }
    assert!(!user_file(&house).exists() && !repository_file(&house).exists());
    assert_eq!(house.say("a", &["config", "set", "advisory.namespaces.REPORTS", "100"]).code, 0);
    assert!(fs::read_to_string(repository_file(&house)).unwrap().contains("REPORTS"), "a repository may name its own");
}

#[test]
fn a_program_gets_a_value_byte_by_byte() {
    let house = House::new();
    let file = house.repository().join("a.json");
    fs::write(&file, r#"{"t": "x\u001b[31my\bz"}"#).unwrap();
    let said = house.say("a", &["config", "get", "--file", file.to_str().unwrap(), "t"]);
    assert_eq!(said.out, "x\u{1b}[31my\u{8}z\n");
}

#[test]
fn a_history_that_lasts_for_nothing_lasts_for_ever() {
    let house = House::new();
    let say = |arguments: &[&str]| {
        let ran = house.command("a", &[&["--json"], arguments].concat()).env("LOCK_HISTORY_TTL_SEC", "0").output();
        let said = said(ran.unwrap());
        assert_eq!(said.code, 0, "{said:?}");
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()
    };
    say(&["lock", "acquire", "x", "--ttl", "1s"]);
    std::thread::sleep(std::time::Duration::from_millis(1300));
    say(&["lock", "acquire", "y"]);
    let history = say(&["lock", "history"]);
    assert_eq!(history["events"].as_array().map(Vec::len), Some(3), "{history}");
    let restored = say(&["session", "restore"]);
    assert_eq!(restored["restored"][0]["file_path"], "x", "{restored}");
    assert_eq!(say(&["status"])["settings"]["history_ttl_sec"], 0);
}

#[test]
fn a_password_is_not_taken_from_the_command_line() {
    let house = House::new();
    let url = "redis://lk:hunter2@127.0.0.1:1";
    let refused = house.say("a", &["config", "set", "engine", url]);
    assert!(refused.code == 2 && refused.err.contains("config set engine - <"), "{refused:?}");
    assert!(!user_file(&house).exists(), "nothing was changed");
    let named = house.say("a", &["config", "set", "engine", "postgres://me@127.0.0.1:1/db"]);
    assert_eq!(named.code, 0, "a name is no password: {named:?}");
}

#[test]
fn a_home_that_depends_on_where_one_stands_is_refused() {
    let house = House::new();
    let said = said(house.command("a", &["status"]).env("LOCKKEEPER_HOME", "rel").output().unwrap());
    assert!(said.code != 0 && said.err.contains("the whole path"), "{said:?}");
    assert!(!house.repository().join("rel").exists());
}

#[test]
fn a_wrong_value_is_said_by_its_key_and_by_what_it_should_be() {
    let house = House::new();
    let said = house.say("a", &["config", "set", "quota.limit", "abc"]);
    let told = "quota.limit is a whole number from 0 to 4294967295, not a text; nothing was changed\n";
    assert!(said.code == 2 && said.err.ends_with(told), "{said:?}");
    let said = house.say("a", &["config", "set", "space", "5"]);
    assert!(said.code == 2 && said.err.contains("space is a text, not a number"), "{said:?}");
    assert!(said.err.contains("--string"), "{said:?}");
    assert_eq!(house.say("a", &["config", "set", "lock.default_ttl", "2m"]).code, 0);
    assert_eq!(house.say("a", &["config", "unset", "lock.default_ttl"]).code, 0);
    let twice = house.say("a", &["config", "unset", "lock.default_ttl"]);
    assert!(twice.code == 4 && twice.err.contains("there is no 'lock.default_ttl' in /"), "{twice:?}");
}

#[test]
fn a_setting_that_a_running_service_has_read_is_said_to_count_later() {
    let house = House::new();
    let note = "until it is started anew: lockkeeper stop";
    let said = house.say("a", &["config", "set", "quota.limit", "120"]);
    assert!(said.code == 0 && !said.err.contains(note), "none runs: {said:?}");
    house.json("a", &["lock", "list"]);
    let said = house.say("a", &["config", "set", "quota.limit", "121"]);
    assert!(said.code == 0 && said.err.contains(note), "{said:?}");
    let same = house.say("a", &["config", "set", "quota.limit", "121"]);
    assert!(same.code == 0 && !same.err.contains(note), "{same:?}");
    let said = house.say("a", &["config", "unset", "quota.limit"]);
    assert!(said.code == 0 && said.err.contains(note), "{said:?}");
    let said = house.say("a", &["config", "set", "policy_file", "p.toml"]);
    assert!(said.code == 0 && said.err.contains("lockkeeper policy reload"), "{said:?}");
    for own in [["lock.default_ttl", "2m"], ["worktrees", "shared"], ["advisory.namespaces.REPORTS", "100"]] {
        let said = house.say("a", &["config", "set", "--user", own[0], own[1]]);
        assert!(said.code == 0 && said.err.is_empty(), "{said:?}");
    }
}

#[test]
fn status_shows_the_ttl_that_counts_here() {
    let house = House::new();
    assert!(house.say("a", &["status"]).out.contains("TTL 30 s, heartbeat"));
    assert_eq!(house.say("a", &["config", "set", "lock.default_ttl", "2m"]).code, 0);
    let status = house.say("a", &["status"]).out;
    assert!(status.contains("TTL 2 min here (30 s for whoever asks the service itself), heartbeat"), "{status}");
    assert_eq!(house.json("a", &["lock", "acquire", "f"])["ttl_ms"], 120_000);
}

#[test]
fn what_config_get_says_config_set_takes() {
    let house = House::new();
    for length in ["7d", "1d12h", "90m"] {
        assert_eq!(house.say("a", &["config", "set", "lock.history_ttl", length]).code, 0, "{length}");
        let said = house.say("a", &["config", "get", "lock.history_ttl"]);
        assert!(said.code == 0 && said.out.trim() == length, "{said:?}");
    }
    for wrong in ["d", "7days7", "-1d", "1d-1h", "99999999999999999999d"] {
        assert_eq!(house.say("a", &["config", "set", "--", "lock.history_ttl", wrong]).code, 2, "{wrong}");
    }
}

#[test]
fn whoever_moves_to_another_space_is_told_what_stays_behind() {
    let house = House::new();
    let (held, others) = ("Locks that are held stay in the space that was before", "Other worktrees keep theirs");
    let moved = |arguments: &[&str]| {
        let said = house.say("a", &[&["config"], arguments].concat());
        assert_eq!((said.code, said.err.contains(held)), (0, said.err.contains(others)), "{said:?}");
        said.err.contains(held)
    };
    for moves in [&["set", "worktrees", "separate"][..], &["set", "worktrees", "shared"], &["set", "space", "team"]] {
        assert!(moved(moves), "{moves:?}");
        assert!(!moved(moves), "it is so already: {moves:?}");
    }
    assert!(!moved(&["set", "worktrees", "separate"]), "a space with a name is one for all");
    assert!(moved(&["unset", "space"]) && moved(&["unset", "worktrees"]));
    assert!(!moved(&["set", "worktrees", "shared"]), "as by default");
    assert!(!moved(&["set", "--user", "space", "mine"]), "no worktree has a file of its own for that");
    let json = house.say("a", &["--json", "config", "set", "worktrees", "separate"]);
    assert!(json.code == 0 && json.err.is_empty(), "{json:?}");
}

#[test]
fn a_length_of_time_without_a_unit_is_answered_with_one_that_is_taken() {
    let house = House::new();
    for (key, value, meant) in [
        ("lock.default_ttl", "10", "10s"),
        ("lock.default_ttl", "30000", "30000ms"),
        ("redis.backoff", "100", "100ms"),
        ("lock.history_ttl", "86400", "86400s"),
    ] {
        let said = house.say("a", &["config", "set", key, value]);
        let hint = format!("Hint: lockkeeper config set {key} {meant}\n");
        assert!(said.code == 2 && said.err.ends_with(&hint), "{said:?}");
        assert_eq!(house.say("a", &["config", "set", key, meant]).code, 0, "{key} {meant}");
    }
    for value in ["true", "0", "-- -5"] {
        let words: Vec<&str> =
            ["config", "set"].into_iter().chain(["lock.default_ttl"]).chain(value.split(' ')).collect();
        let said = house.say("a", &words);
        assert!(said.code == 2 && !said.err.contains("--string") && said.err.contains("Hint: "), "{said:?}");
    }
}

#[test]
fn where_locks_are_is_told_though_nothing_names_it() {
    let house = House::new();
    let get = |key: &str| {
        let told = house.json("a", &["config", "get", key]);
        (told["value"].as_str().expect("a text").to_owned(), told["from"].as_str().expect("a text").to_owned())
    };
    let git = house.repository().canonicalize().unwrap().join(".git").display().to_string();
    let ledgers = format!("file:{}", house.home().join("ledgers").display());
    assert_eq!(get("space"), (git, "default".to_owned()));
    assert_eq!(get("engine"), (ledgers.clone(), "default".to_owned()));
    let all = house.say("a", &["config", "get"]).out;
    assert!(all.contains(&ledgers) && all.lines().any(|line| line.starts_with("space ")), "{all}");
    assert_eq!(house.say("a", &["config", "set", "space", "team/app"]).code, 0);
    assert_eq!(get("space").0, "team/app");
    assert_eq!(house.say("a", &["config", "unset", "space"]).code, 0);
    assert_eq!(house.say("a", &["config", "set", "worktrees", "separate"]).code, 0);
    assert_eq!(get("space").0, house.repository().canonicalize().unwrap().display().to_string());
    assert_eq!(house.say("a", &["config", "get", "--repository", "space"]).code, 4, "a file has what it has");
    assert_eq!(house.say("a", &["config", "get", "url"]).code, 4);
}
