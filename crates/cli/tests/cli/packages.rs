//! Work packages from the command line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::house::{House, PROGRAM, said};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/work-packages").join(name)
}

fn written(house: &House, text: &str) -> String {
    let path = house.path().join("work-packages.yaml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// The worked example runs as it is written.
#[test]
fn two_agents_stop_when_their_feature_is_paused_and_go_on_when_it_is_resumed() {
    let house = House::new();
    let bin = house.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(PROGRAM, bin.join("lockkeeper")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let program = house.command("nobody", &[]);
    let mut script = Command::new(example("two-agents.sh"));
    script.current_dir(house.repository()).env_clear();
    script.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = said(script.env("PATH", path).output().expect("sh runs"));
    assert_eq!(said.code, 0, "{said:?}");
    for part in ["6 packages", "is paused for", "paused: ", "contract revision bump", "goes on", "Nothing is locked."] {
        assert!(said.out.contains(part) || said.err.contains(part), "{part}: {said:?}");
    }
}

#[test]
fn problems_are_told_with_their_place_and_a_valid_file_is_called_so() {
    let house = House::new();
    let text = std::fs::read_to_string(example("work-packages.yaml")).unwrap();
    let good = written(&house, &text);
    assert_eq!(house.say("a", &["packages", "validate", &good]).code, 0);
    let bad = written(&house, &text.replacen("api:GET", "api:get", 1));
    let line = text.lines().position(|line| line.contains("api:GET")).unwrap() + 1;
    let said = house.say("a", &["packages", "validate", &bad]);
    assert!(said.code == 2 && said.err.contains(&format!("work-packages.yaml:{line}:")), "{said:?}");
    let told = house.say("a", &["--json", "packages", "validate", &bad]);
    let report: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((told.code, report["problems"][0]["line"].as_u64()), (2, Some(line as u64)), "{report}");
    assert!(house.say("a", &["packages", "plan", &good, "--format", "dot"]).code != 0, "the file was overwritten");
    let good = written(&house, &text);
    assert!(house.say("a", &["packages", "plan", &good, "--format", "dot"]).out.starts_with("digraph"));
    assert!(house.say("a", &["packages", "schema"]).out.contains("^(api|db|event|flag|env|contract|feature):.+$"));
}

#[test]
fn a_package_is_locked_whole_or_not_at_all_and_given_back() {
    let house = House::new();
    let file = example("work-packages.yaml").display().to_string();
    assert_eq!(house.say("b", &["lock", "acquire", "db:migration-slot"]).code, 0);
    let taken = house.say("a", &["packages", "acquire", &file, "--package", "database"]);
    assert_eq!(taken.code, 5, "{taken:?}");
    assert_eq!(house.held(), ["b db:migration-slot"]);
    assert_eq!(house.say("b", &["lock", "release", "db:migration-slot"]).code, 0);
    let granted = house.json("a", &["packages", "acquire", &file, "--package", "database"]);
    let locks = granted["locks"].as_array().unwrap();
    assert!(locks.len() == 4 && locks.iter().all(|lock| lock["feature_id"].is_string()), "{granted}");
    assert_eq!(house.say("a", &["packages", "release", &file, "--package", "database"]).code, 0);
    assert!(house.held().is_empty());
    assert_eq!(house.say("a", &["packages", "acquire", &file, "--package", "nothing"]).code, 4);
}

#[test]
fn a_package_that_needs_more_trust_is_not_given_to_everybody() {
    let house = House::new();
    let text = std::fs::read_to_string(example("work-packages.yaml")).unwrap();
    let file =
        written(&house, &text.replacen("  - package_id: docs\n", "  - package_id: docs\n    min_trust_level: 3\n", 1));
    let said = house.say("a", &["packages", "acquire", &file, "--package", "docs"]);
    assert!(said.code == 6 && said.err.contains("needs trust 3"), "{said:?}");
    assert!(house.held().is_empty());
}

#[test]
fn a_bomb_is_refused_within_moments() {
    let house = House::new();
    let level = |level: usize| {
        let below = if level == 0 { "x".to_owned() } else { format!("*a{}", level - 1) };
        format!("a{level}: &a{level} [{}]\n", [below.as_str(); 10].join(", "))
    };
    let laughs: String = (0..12).map(level).collect();
    let large = format!("schema_version: 1\nfeature: {{title: {}}}\n", "x".repeat(5 << 20));
    for text in [laughs, large, "[".repeat(100_000), "\tx: 1\n".to_owned()] {
        let file = written(&house, &text);
        let asked = Instant::now();
        let said = house.say("a", &["packages", "validate", &file]);
        assert!(said.code == 2 && !said.err.is_empty(), "{said:?}");
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    }
}

#[test]
fn a_link_in_a_package_is_the_file_that_it_leads_to() {
    let house = House::new();
    let folder = house.repository().join("src/db");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("real.py"), "").unwrap();
    std::os::unix::fs::symlink("real.py", folder.join("models.py")).unwrap();
    let (file, id) = (example("work-packages.yaml").display().to_string(), "database");
    let taken = house.json("a", &["packages", "acquire", &file, "--package", id]);
    assert!(taken["locks"].as_array().unwrap().iter().any(|lock| lock["file_path"] == "src/db/real.py"), "{taken}");
    assert_eq!(house.say("b", &["lock", "acquire", "src/db/models.py"]).code, 5);
    house.json("a", &["packages", "release", &file, "--package", id]);
    assert_eq!(house.say("b", &["lock", "acquire", "src/db/models.py"]).code, 0);
}

#[test]
fn while_large_documents_are_checked_others_are_answered() {
    let house = House::new();
    house.say("a", &["lock", "list"]);
    let text = format!("packages: [{}]", "x, ".repeat(200_000));
    let validate = |id: u32| {
        let body = serde_json::json!({ "text": text });
        serde_json::json!({ "id": id, "op": "packages/validate", "body": body }).to_string()
    };
    let check = serde_json::json!({ "id": 7, "op": "locks/check", "body": { "file_path": "x", "session_id": "a" } });
    let mut socket = UnixStream::connect(house.home().join("socket")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answers = BufReader::new(socket.try_clone().unwrap()).lines();
    let asking = std::thread::spawn({
        let questions: Vec<String> = (1..7).map(validate).chain([check.to_string()]).collect();
        move || socket.write_all((questions.join("\n") + "\n").as_bytes())
    });
    let mut id = || serde_json::from_str::<Value>(&answers.next().unwrap().unwrap()).unwrap()["id"].as_u64().unwrap();
    let order: Vec<u64> = (1..=7).map(|_| id()).collect();
    asking.join().unwrap().unwrap();
    assert_ne!(order.last(), Some(&7), "answered in this order: {order:?}");
}
