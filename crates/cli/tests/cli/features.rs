//! Features, ports and policies from the command line.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::house::{House, finish, wait_for};

/// The user's own settings.
fn settings(house: &House, text: &str) {
    let folder = house.path().join("config/lockkeeper");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("lockkeeper.toml"), text).unwrap();
}

#[test]
fn a_feature_is_paused_checked_and_resumed() {
    let house = House::new();
    assert_eq!(house.say("worker", &["lock", "acquire", "src/auth.rs", "--feature", "F-1"]).code, 0);
    let said = house.say("boss", &["feature", "pause", "F-1", "-m", "contract revision"]);
    assert!(said.code == 0 && said.out.contains("is paused for"), "{said:?}");
    let refused = house.say("other", &["feature", "pause", "F-1", "-m", "mine"]);
    assert!(
        refused.code == 5 && refused.err.contains("is paused by boss") && refused.err.contains("-m mine --wait 10m"),
        "told at once: {refused:?}"
    );
    let said = house.say("worker", &["lock", "acquire", "src/b.rs", "--feature", "F-1"]);
    assert_eq!(said.code, 5, "{said:?}");
    for part in ["paused: ", "by boss", "contract revision", "stays yours", "lockkeeper feature check F-1 --wait"] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
    assert_eq!(house.say("worker", &["feature", "check", "F-1"]).code, 5);
    let paused = house.say("worker", &["feature", "check", "F-1", "--finalize"]);
    assert!(paused.code == 5 && paused.err.contains("feature check F-1 --finalize --wait 10m"), "{paused:?}");
    let said = house.say("worker", &["lock", "renew"]);
    assert!(said.code == 0 && said.err.contains("Paused by boss"), "what is held stays held: {said:?}");
    // Whoever pauses finishes without ending the pause.
    assert_eq!(house.say("boss", &["feature", "check", "F-1", "--finalize"]).code, 0);
    assert_eq!(
        house.json("boss", &["lock", "list", "feature:F-1:pause"])["locks"][0]["ttl_ms"],
        7_200_000,
        "the pause is as it was"
    );
    let waiting = house.start("worker", &["feature", "check", "F-1", "--wait", "30s"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(house.say("boss", &["feature", "resume", "F-1"]).code, 0);
    let said = finish(waiting);
    assert!(said.code == 0 && said.out.contains("goes on"), "{said:?}");
    let said = house.say("worker", &["feature", "check", "F-1", "--finalize"]);
    assert!(said.code == 0 && said.out.contains("release feature:F-1:pause"), "{said:?}");
    let pausing = house.start("boss", &["feature", "pause", "F-1", "-m", "again"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(house.say("worker", &["lock", "release", "feature:F-1:pause"]).code, 0);
    assert_eq!(finish(pausing).code, 0, "the pause has waited for the finish");
}

#[test]
fn features_are_registered_and_compared() {
    let house = House::new();
    let said = house.say("lead", &["feature", "register", "F-1", "src/**", "db:schema:users", "--title", "Users"]);
    assert!(said.code == 0 && said.out.contains("FULL"), "{said:?}");
    let said = house.say("lead", &["feature", "conflicts", "F-2", "src/auth.rs", "docs/a.md"]);
    assert!(said.out.contains("PARTIAL") && said.out.contains("src/auth.rs meets src/** of F-1"), "{said:?}");
    assert!(house.say("x", &["feature", "list"]).out.contains("Users"));
    assert_eq!(house.say("lead", &["feature", "deregister", "F-1"]).code, 0);
    assert_eq!(house.say("lead", &["feature", "deregister", "F-1"]).code, 4);
}

#[test]
fn ports_survive_a_restart_and_pass_over_what_something_listens_on() {
    let house = House::new();
    // Ports that are free on this machine, but for the first.
    let mut bases = (20_000..60_000).step_by(100);
    let listener = bases.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).expect("a free port");
    let base = listener.local_addr().unwrap().port();
    settings(&house, &format!("[ports]\nbase = {base}\nstride = 10\nsessions = 3\n"));
    let allocated = house.json("a", &["ports", "allocate"]);
    let first = allocated["allocation"]["db_port"].as_u64().unwrap();
    assert!(first > u64::from(base), "{allocated}");
    let env = house.say("a", &["ports", "allocate", "--env"]);
    let script = format!("{}\necho $DB_PORT $COMPOSE_PROJECT_NAME", env.out);
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(String::from_utf8_lossy(&shell.stdout).starts_with(&format!("{first} ac-")), "{shell:?}");
    assert_eq!(house.say("x", &["stop"]).code, 0);
    assert_eq!(house.json("a", &["ports", "allocate"])["allocation"]["db_port"], first, "after a restart");
    assert!(house.say("x", &["ports", "status"]).out.contains(&first.to_string()));
    assert!(house.say("a", &["ports", "release"]).out.contains("given its ports back"));
    drop(listener);
}

#[test]
fn settings_that_leave_no_ports_are_a_clear_error() {
    let house = House::new();
    settings(&house, "[ports]\nbase = 80\n");
    let said = house.say("a", &["ports", "status"]);
    assert!(said.code != 0 && said.err.contains("at least 1024"), "{said:?}");
}

const POLICY: &str = "\
[trust]
\"guest-*\" = 1
gone = 0

[[rules]]
name = \"contracts belong to the lead\"
effect = \"deny\"
keys = [\"contract:*\"]

[[rules]]
name = \"the lead may\"
effect = \"allow\"
agents = [\"lead\"]
keys = [\"contract:*\"]
";

#[test]
fn a_policy_decides_names_its_rule_and_is_read_anew() {
    let house = House::new();
    let file = house.path().join("policy.toml");
    std::fs::write(&file, POLICY).unwrap();
    settings(&house, &format!("policy_file = {:?}\n", file.display().to_string()));
    let contract = "contract:openapi/v1.yaml";
    let said = house.say("bob", &["lock", "acquire", contract]);
    assert!(said.code == 6 && said.err.contains("contracts belong to the lead"), "{said:?}");
    assert_eq!(house.say("lead", &["lock", "acquire", contract]).code, 0);
    assert_eq!(house.say("guest-1", &["lock", "acquire", "src/auth.rs"]).code, 6);
    assert_eq!(house.say("guest-1", &["lock", "check", "src/auth.rs"]).code, 0);
    for verb in [
        vec!["lock", "acquire", "x"],
        vec!["feature", "check", "F-1"],
        vec!["ports", "allocate"],
        vec!["session", "open"],
        vec!["lock", "list"],
        vec!["lock", "history"],
        vec!["feature", "list"],
    ] {
        let said = house.say("gone", &verb);
        assert!(said.code == 6 && said.err.contains("suspended"), "{verb:?}: {said:?}");
    }
    let said = house.say("x", &["policy", "check", contract, "--agent", "bob"]);
    assert!(said.code == 6 && said.out.contains("contracts belong to the lead"), "{said:?}");
    assert_eq!(house.say("x", &["policy", "check", contract, "--agent", "lead"]).code, 0);
    assert_eq!(house.say("x", &["policy", "validate", file.to_str().unwrap()]).code, 0);
    // A broken one changes nothing, and says where it is broken.
    std::fs::write(&file, POLICY.replace("\"deny\"", "\"forbid\"")).unwrap();
    for verb in [vec!["policy", "reload"], vec!["policy", "validate", file.to_str().unwrap()]] {
        let said = house.say("x", &verb);
        assert!(said.code == 2 && said.err.contains("not 'forbid'"), "{said:?}");
    }
    assert_eq!(house.say("bob", &["lock", "acquire", contract]).code, 6);
    std::fs::write(&file, "").unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    // Whoever waits when it is forbidden does not get it.
    assert_eq!(house.say("lead", &["lock", "acquire", "contract:c.yaml"]).code, 0);
    let waiting = house.start("bob", &["lock", "acquire", "contract:c.yaml", "--wait", "1m"]);
    house.wait_for_waiters(1);
    std::fs::write(&file, POLICY).unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    assert_eq!(house.say("lead", &["lock", "release", "contract:c.yaml"]).code, 0);
    let said = finish(waiting);
    assert!(said.code == 6 && said.err.contains("contracts belong to the lead"), "{said:?}");
    assert!(house.held().iter().all(|held| !held.contains("contract:c.yaml")));
    std::fs::write(&file, "").unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    // What was lost is not restored when it is not permitted any more.
    assert_eq!(house.say("bob", &["lock", "acquire", "contract:b.yaml", "--ttl", "1s"]).code, 0);
    std::fs::write(&file, POLICY).unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    wait_for("the end of the lock", || (!house.held().contains(&"bob contract:b.yaml".to_owned())).then_some(()));
    let said = house.say("bob", &["session", "open"]);
    assert!(said.code == 0 && said.out.contains("did not get back contract:b.yaml"), "{said:?}");
    assert!(!house.held().contains(&"bob contract:b.yaml".to_owned()));
    // Nor when it is waited for, and forbidden meanwhile.
    std::fs::write(&file, "").unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    assert_eq!(house.say("bob", &["lock", "acquire", "contract:d.yaml", "--ttl", "1s"]).code, 0);
    wait_for("the end of the lock", || (!house.held().contains(&"bob contract:d.yaml".to_owned())).then_some(()));
    assert_eq!(house.say("lead", &["lock", "acquire", "contract:d.yaml"]).code, 0);
    let waiting = house.start("bob", &["session", "restore", "--wait", "1m"]);
    house.wait_for_waiters(1);
    std::fs::write(&file, POLICY).unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    assert_eq!(house.say("lead", &["lock", "release", "contract:d.yaml"]).code, 0);
    let said = finish(waiting);
    assert!(said.out.contains("did not get back contract:d.yaml"), "{said:?}");
    assert!(!house.held().contains(&"bob contract:d.yaml".to_owned()));
    std::fs::write(&file, "").unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    house.say("lead", &["lock", "release", contract]);
    assert_eq!(house.say("bob", &["lock", "acquire", contract]).code, 0);
}

#[test]
fn a_signal_reads_the_policy_anew_and_a_broken_one_keeps_a_service_from_starting() {
    let house = House::new();
    let file = house.path().join("policy.toml");
    std::fs::write(&file, "").unwrap();
    settings(&house, &format!("policy_file = {:?}\n", file.display().to_string()));
    let status = house.json("x", &["status"]);
    std::fs::write(&file, POLICY).unwrap();
    let hangup = Command::new("kill").args(["-HUP", &status["pid"].to_string()]).status().unwrap();
    assert!(hangup.success());
    wait_for("the new policy", || {
        (house.say("bob", &["policy", "check", "contract:x", "--agent", "bob"]).code == 6).then_some(())
    });
    assert_eq!(house.say("x", &["stop"]).code, 0);
    std::fs::write(&file, "rules = 7").unwrap();
    let said = house.say("bob", &["lock", "list"]);
    assert!(said.code != 0 && said.err.contains("policy.toml"), "{said:?}");
}

#[test]
fn a_cloned_repository_sets_no_policy_and_no_ports() {
    let house = House::new();
    for text in ["[ports]\nbase = 2000\n", "policy_file = \"x\"\n", "[policy.trust]\na = 0\n"] {
        std::fs::write(house.repository().join("lockkeeper.toml"), text).unwrap();
        let said = house.say("a", &["lock", "list"]);
        assert!(said.code == 2 && said.err.contains("a setting of the user"), "{text}: {said:?}");
    }
}

#[test]
fn whoever_works_under_a_pause_hears_of_its_beginning_and_its_end() {
    let house = House::new();
    let done = house.path().join("done");
    let wait = format!("until [ -e '{}' ]; do sleep 0.1; done", done.display());
    let run = house.start("worker", &["run", "a.rs", "--feature", "F-1", "--ttl", "1s", "--", "sh", "-c", &wait]);
    wait_for("the lock", || (house.held().len() == 1).then_some(()));
    assert_eq!(house.say("lead", &["feature", "pause", "F-1", "-m", "the schema moves"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(house.say("lead", &["feature", "resume", "F-1"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    std::fs::write(done, "").unwrap();
    let said = finish(run);
    assert_eq!(said.code, 0, "nothing was lost by it: {said:?}");
    assert!(said.err.contains("Paused by lead: the schema moves"), "{said:?}");
    assert!(said.err.contains("lead no longer holds feature:F-1:pause"), "{said:?}");
}

#[test]
fn ports_are_not_given_twice_on_one_machine_also_after_a_restart() {
    let house = House::new();
    let elsewhere = |session: &str, verb: &[&str]| {
        let folder = house.path().join("elsewhere");
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = house.command(session, verb);
        let said = command.current_dir(folder).arg("--json").output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&said.stdout).unwrap()
    };
    let first = house.json("a", &["ports", "allocate"]);
    assert_eq!(house.say("a", &["stop"]).code, 0);
    let second = elsewhere("b", &["ports", "allocate"]);
    assert_ne!(first["allocation"]["db_port"], second["allocation"]["db_port"]);
    assert_eq!(elsewhere("b", &["ports", "status"])["elsewhere"], 1);
}

#[test]
fn a_rule_against_taking_a_key_holds_for_every_way_to_take_it() {
    let house = House::new();
    let file = house.path().join("policy.toml");
    let rule = "[[rules]]\nname = \"hands off\"\neffect = \"deny\"\nkeys = [\"feature:*:pause\", \"docs/index.md\"]\noperations = [\"acquire\"]\n";
    std::fs::write(&file, rule).unwrap();
    settings(&house, &format!("policy_file = {:?}\n", file.display().to_string()));
    for verb in [
        &["lock", "acquire", "feature:G:pause"][..],
        &["feature", "pause", "G", "-m", "x"],
        &["room", "open", "docs/index.md"],
    ] {
        let said = house.say("bob", verb);
        assert!(said.code == 6 && said.err.contains("hands off"), "{verb:?}: {said:?}");
    }
    // The other way round, too.
    std::fs::write(&file, rule.replace("[\"acquire\"]", "[\"features/pause\"]")).unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    assert_eq!(house.say("bob", &["lock", "acquire", "feature:G:pause"]).code, 6);
    // A claim is judged by its keys.
    std::fs::write(&file, rule.replace("operations = [\"acquire\"]", "")).unwrap();
    assert_eq!(house.say("x", &["policy", "reload"]).code, 0);
    assert_eq!(house.say("bob", &["feature", "register", "F", "docs/index.md"]).code, 6);
}

#[test]
fn settings_name_files_beside_them_and_one_policy() {
    let house = House::new();
    settings(&house, "policy_file = \"mine.toml\"\n");
    let said = house.say("a", &["doctor"]);
    assert!(said.code == 1 && said.out.contains("BAD policy") && said.out.contains("mine.toml"), "{said:?}");
    std::fs::write(house.path().join("config/lockkeeper/mine.toml"), POLICY).unwrap();
    // Not the one of whatever folder the command happens to be in.
    std::fs::write(house.repository().join("mine.toml"), "").unwrap();
    assert_eq!(house.say("bob", &["lock", "acquire", "contract:a.yaml"]).code, 6);
    assert_eq!(house.say("bob", &["doctor"]).code, 0);
    settings(&house, "policy_file = \"mine.toml\"\n[policy]\n");
    let said = house.say("a", &["doctor"]);
    assert!(said.code == 1 && said.out.contains("not in both"), "{said:?}");
}

#[test]
fn asking_again_under_a_pause_says_so() {
    let house = House::new();
    let again = ["lock", "acquire", "src/a.rs", "--feature", "F3"];
    assert_eq!(house.say("ann", &again).code, 0);
    assert_eq!(house.say("lead", &["feature", "pause", "F3", "-m", "the schema moves"]).code, 0);
    assert_eq!(house.json("ann", &again)["paused"][0]["owner"], "lead");
    assert!(house.say("ann", &again).err.contains("Paused by lead"));
    assert_eq!(house.json("ann", &["session", "open"])["paused"][0]["owner"], "lead");
}

#[test]
fn whoever_may_not_resume_is_not_told_to_pause() {
    let house = House::new();
    assert_eq!(house.say("boss", &["feature", "pause", "FEAT-123", "-m", "revision"]).code, 0);
    let resume = house.say("worker", &["feature", "resume", "FEAT-123"]);
    let hint = "Hint: ask boss to resume it, or as operator: \
                lockkeeper lock force-release feature:FEAT-123:pause -m WHY\n";
    assert!(resume.code == 4 && resume.err.ends_with(hint) && !resume.err.contains("acquire"), "{resume:?}");
}

#[test]
fn a_pause_that_waited_in_vain_is_answered_with_a_longer_wait() {
    let house = House::new();
    house.json("boss", &["feature", "pause", "FEAT-123", "-m", "revision", "--ttl", "50s"]);
    let late = house.say("late", &["feature", "pause", "FEAT-123", "-m", "mine too", "--wait", "1s"]);
    let hint = "Hint: lockkeeper feature pause FEAT-123 -m 'mine too' --wait 1m\n";
    assert!(late.code == 5 && late.err.ends_with(hint), "{late:?}");
}
