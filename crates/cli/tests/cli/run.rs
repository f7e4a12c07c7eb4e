//! `run` and `--hold`: locks that live as long as a process.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::house::{House, finish, kill_child, wait_for};

fn is_held(house: &House) -> Option<()> {
    (!house.held().is_empty()).then_some(())
}

fn is_free(house: &House) -> Option<()> {
    house.held().is_empty().then_some(())
}

#[test]
fn a_command_runs_under_its_locks_and_its_exit_code_is_passed_on() {
    let house = House::new();
    let script = format!("{} lock list; echo token $LOCKKEEPER_FENCING_TOKEN; exit 7", crate::house::PROGRAM);
    let said =
        house.say("a", &["run", "src/auth.rs", "db:migration-slot", "-m", "migrating", "--", "sh", "-c", &script]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.out.contains("migrating") && said.out.contains("db:migration-slot"), "{said:?}");
    assert!(said.out.contains("token 1"), "{said:?}");
    assert!(house.held().is_empty());
    assert_eq!(house.say("a", &["run", "x", "--", "true"]).code, 0);
    assert_eq!(house.say("a", &["run", "x", "--", "/nonexistent"]).code, 127);
    assert_eq!(house.say("a", &["run", "x", "--", "sh", "-c", "kill -9 $$"]).code, 137);
}

#[test]
fn a_taken_key_gives_the_busy_exit_code() {
    let house = House::new();
    house.say("a", &["lock", "acquire", "x"]);
    assert_eq!(house.say("b", &["run", "x", "--", "true"]).code, 5);
    assert_eq!(house.say("b", &["run", "x", "--busy-exit-code", "42", "--", "true"]).code, 42);
}

#[test]
fn p8_a_killed_run_frees_its_locks_at_once_and_takes_its_command_along() {
    let house = House::new();
    let mut child = house.start("a", &["run", "x", "--ttl", "10m", "--", "sleep", "987"]);
    wait_for("the lock", || is_held(&house));
    let killed = Instant::now();
    kill_child(&child, "KILL");
    wait_for("the release", || is_free(&house));
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    child.wait().unwrap();
    wait_for("the command's end", || (!is_running("sleep\0987")).then_some(()));
}

fn is_running(cmdline: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    processes.into_iter().any(|process| {
        let found = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let alive = std::fs::read_to_string(process.path().join("stat")).is_ok_and(|stat| !stat.contains(") Z "));
        alive && String::from_utf8_lossy(&found).contains(cmdline)
    })
}

#[test]
fn p3_a_command_is_ended_when_its_lock_is_lost() {
    let house = House::new();
    let child = house.start("a", &["run", "x", "--", "sh", "-c", "sleep 986"]);
    wait_for("the lock", || is_held(&house));
    assert_eq!(house.say("op", &["lock", "force-release", "x", "-m", "stuck"]).code, 0);
    let said = finish(child);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.err.contains("lock_lost") && said.err.contains("op: stuck"), "{said:?}");
    wait_for("the end of what it started", || (!is_running("sleep\0986")).then_some(()));
}

#[test]
fn p3_a_paused_holder_finds_out_that_it_lost_the_lock() {
    let house = House::new();
    let child = house.start("a", &["run", "x", "--ttl", "2s", "--", "sleep", "985"]);
    wait_for("the lock", || is_held(&house));
    let token = house.json("x", &["lock", "list"])["locks"][0]["fencing_token"].to_string();
    kill_child(&child, "STOP");
    let next = house.json("b", &["lock", "acquire", "x", "--wait", "20s"]);
    assert!(next["fencing_token"].as_u64() > token.parse().ok());
    assert_eq!(house.say("a", &["lock", "check", "x", "--token", &token]).code, 4, "its fencing token is refused");
    kill_child(&child, "CONT");
    let said = finish(child);
    assert_eq!((said.code, said.err.contains("lock_lost")), (4, true), "{said:?}");
    assert_eq!(house.held(), ["b x"], "the successor's lock stays");
}

#[test]
fn p3_a_holder_says_so_in_time_when_the_service_hangs() {
    let house = House::new();
    let child = house.start("a", &["run", "x", "--ttl", "2s", "--", "sleep", "984"]);
    wait_for("the lock", || is_held(&house));
    let service = house.service_pid();
    let began = Instant::now();
    crate::house::kill(service, "STOP");
    let said = finish(child);
    let took = began.elapsed();
    crate::house::kill(service, "CONT");
    assert_eq!((said.code, said.err.contains("lock_lost")), (4, true), "{said:?}");
    // Its deadline is at most 2 s away; ending the command takes a moment more.
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(house.service_pid(), service, "the service that run had started is not ended with the command");
}

#[test]
fn what_a_command_leaves_behind_is_ended_with_it() {
    let house = House::new();
    let child = house.start("a", &["run", "x", "--", "sh", "-c", "setsid sleep 983 & sleep 982"]);
    wait_for("the lock", || is_held(&house));
    wait_for("the daemon", || is_running("sleep\0983").then_some(()));
    house.say("op", &["lock", "force-release", "x", "-m", "stuck"]);
    assert_eq!(finish(child).code, 4);
    assert!(!is_running("sleep\0983"));
}

#[test]
fn a_held_lock_lives_until_its_input_ends() {
    let house = House::new();
    let mut command = house.command("a", &["lock", "acquire", "x", "--ttl", "1s", "--hold"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the lock", || is_held(&house));
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(house.held(), ["a x"], "it outlives its TTL by beating");
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"ignored\n").unwrap();
    drop(input);
    let said = finish(child);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(house.held().is_empty());
}

#[test]
fn a_held_lock_survives_the_services_restart() {
    let house = House::new();
    let child = house.start("a", &["lock", "acquire", "x", "--ttl", "4s", "--hold"]);
    wait_for("the lock", || is_held(&house));
    let before = house.json("x", &["lock", "list"])["locks"][0].clone();
    house.kill_service();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(house.held(), ["a x"], "it is there after the restart");
    std::thread::sleep(Duration::from_secs(6));
    let after = house.json("x", &["lock", "list"])["locks"][0].clone();
    assert_eq!((&before["lock_id"], &before["fencing_token"]), (&after["lock_id"], &after["fencing_token"]));
    kill_child(&child, "TERM");
    assert_eq!(finish(child).code, 0);
    assert!(house.held().is_empty());
}

#[test]
fn a_command_that_looks_like_a_service_is_ended_when_its_lock_is_lost() {
    let house = House::new();
    // Its first words are those of a service in the background.
    std::fs::write(house.repository().join("serve"), "import time\ntime.sleep(981)\n").unwrap();
    let child = house.start("a", &["run", "x", "--", "python3", "serve", "--background", "981"]);
    wait_for("the lock", || is_held(&house));
    assert_eq!(house.say("op", &["lock", "force-release", "x", "-m", "stuck"]).code, 0);
    wait_for("its end", || (!is_running("\0serve\0--background\0981")).then_some(()));
    assert_eq!(finish(child).code, 4);
}

#[test]
fn p3_a_loss_in_the_last_moment_of_a_command_is_told() {
    let house = House::new();
    // It takes its own lock away, and ends before anybody has looked.
    let script = format!("sleep 0.1; exec {} lock force-release x -m stuck", crate::house::PROGRAM);
    for _ in 0..10 {
        let said = house.say("a", &["run", "x", "--", "sh", "-c", &script]);
        assert_eq!(said.code, 4, "{said:?}");
    }
}

#[test]
fn a_command_is_given_the_greatest_of_its_fencing_tokens() {
    let house = House::new();
    let first = house.json("a", &["lock", "acquire", "k0"])["fencing_token"].as_u64().unwrap();
    for number in 1..=8 {
        let key = format!("k{number}");
        let said = house.say("a", &["run", "k0", &key, "--", "sh", "-c", "echo $LOCKKEEPER_FENCING_TOKEN"]);
        assert!(said.out.trim().parse::<u64>().unwrap() > first, "{said:?}");
    }
}

#[test]
fn what_two_programs_of_one_session_use_stays_until_the_last_of_them_ends() {
    let house = House::new();
    let serving = house.serve(&[]);
    for over_http in [false, true] {
        let run = |command: &'static str| {
            let mut run = house.command("a", &["run", "x", "--ttl", "10m", "--", "sh", "-c", command]);
            if over_http {
                run.env("LOCKKEEPER_URL", &serving.url).env("LOCKKEEPER_CREDENTIAL", &serving.credential);
            }
            run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
        };
        let first = run("sleep 1");
        wait_for("the lock", || is_held(&house));
        let second = run("touch second; sleep 3; touch done");
        let exists = |name: &str| house.repository().join(name).exists().then_some(());
        wait_for("the second", || exists("second"));
        assert_eq!(finish(first).code, 0);
        while exists("done").is_none() {
            let refused = house.say("b", &["lock", "acquire", "x"]).code == 5;
            // It may have ended between the two looks.
            assert!(refused || exists("done").is_some(), "over HTTP {over_http}: the second still uses it");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(finish(second).code, 0);
        wait_for("the release", || is_free(&house));
        for name in ["second", "done"] {
            std::fs::remove_file(house.repository().join(name)).unwrap();
        }
    }
}

#[test]
fn p3_a_command_whose_lock_its_own_session_gave_back_is_ended_soon() {
    let house = House::new();
    let child = house.start("a", &["run", "x", "--ttl", "10m", "--", "sh", "-c", "sleep 984"]);
    wait_for("the lock", || is_held(&house));
    let began = Instant::now();
    assert_eq!(house.say("a", &["lock", "release", "x"]).code, 0);
    let said = finish(child);
    // A beat would come after 10 s.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(said.code == 4 && said.err.contains("its own session gave it back"), "{said:?}");
}

#[test]
fn what_the_same_session_acquires_by_itself_meanwhile_stays_for_its_ttl() {
    let house = House::new();
    let running = house.start("a", &["run", "x", "y", "--", "sh", "-c", "until [ -e done ]; do sleep 0.05; done"]);
    wait_for("both locks", || (house.held().len() == 2).then_some(()));
    let told = house.say("a", &["lock", "acquire", "x", "--ttl", "10m"]);
    assert!(told.code == 0 && told.out.starts_with("Refreshed x"), "{told:?}");
    std::fs::write(house.repository().join("done"), "").expect("a file");
    assert_eq!(finish(running).code, 0);
    assert_eq!(house.held(), ["a x"]);
}

#[test]
fn whoever_waits_keeps_what_the_session_holds() {
    let house = House::new();
    house.say("b", &["lock", "acquire", "y", "--ttl", "10m"]);
    house.say("a", &["lock", "acquire", "x", "--ttl", "4s"]);
    let waiting = house.start("a", &["lock", "acquire", "y", "--wait", "60s"]);
    std::thread::sleep(std::time::Duration::from_millis(5500));
    assert_eq!(house.held(), ["a x", "b y"]);
    house.say("b", &["lock", "release", "y"]);
    assert_eq!(finish(waiting).code, 0);
}

#[test]
fn what_a_command_leaves_behind_and_has_ended_stays_in_no_table() {
    let house = House::new();
    let script = "for i in 1 2 3 4 5 6 7 8; do (setsid sleep 0.01 &); done; sleep 0.5; touch left; sleep 2";
    let run = house.start("a", &["run", "x", "--", "sh", "-c", script]);
    wait_for("what is left behind", || house.repository().join("left").exists().then_some(()));
    let ended = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut behind = stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned);
        (behind.next()? == "Z" && behind.next()? == run.id().to_string()).then_some(())
    };
    let count = std::fs::read_dir("/proc").unwrap().flatten().filter_map(ended).count();
    assert_eq!(count, 0, "nobody has fetched them");
    assert_eq!(finish(run).code, 0);
}
