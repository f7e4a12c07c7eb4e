//! The wall clock jumps by days, under the service and under a client: nothing ends early or late, and tokens rise.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::house::{House, finish};
use crate::service::{Line, Service};
use crate::shim;

const DAY: i64 = 86_400;

/// A wall clock that the test sets.
struct Wall {
    shim: PathBuf,
    offset: PathBuf,
}

impl Wall {
    fn new(house: &House) -> Wall {
        let shim = shim::compile(house.path(), "wall", shim::WALL_CLOCK);
        let wall = Wall { shim, offset: house.path().join("offset") };
        std::fs::write(&wall.offset, 0_i64.to_ne_bytes()).expect("written");
        wall
    }

    /// In place: the program has the file mapped.
    fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(&self.offset).expect("opens");
        file.write_all_at(&seconds.to_ne_bytes(), 0).expect("written");
    }

    fn service(&self, house: &House) -> Service {
        Service::start_with(house, &["--listen", "none"], |mut command| {
            command.env("LD_PRELOAD", &self.shim).env("WALL_OFFSET", &self.offset);
            command
        })
    }
}

/// Takes a lock, and gives back its token.
fn take(line: &mut Line, path: &str, ttl_ms: u64) -> u64 {
    let body = json!({ "session_id": "s", "file_path": path, "ttl_ms": ttl_ms });
    let (status, answer) = line.ask("locks/acquire", body).expect("an answer");
    assert_eq!(status, 200, "{answer}");
    let left = answer["expires_in_ms"].as_u64().expect("a time");
    assert!(left <= ttl_ms && left + 500 > ttl_ms, "{answer}");
    answer["fencing_token"].as_u64().expect("a token")
}

fn is_held(line: &mut Line, path: &str) -> bool {
    let (_, status) = line.ask("locks/status", json!({ "file_path": path })).expect("an answer");
    status["locked"] == true
}

#[test]
fn p4_a_jump_of_the_wall_clock_ends_no_lock_early_or_late_and_tokens_rise() {
    const TTL_MS: u64 = 2500;
    let house = House::new();
    let wall = Wall::new(&house);
    let mut service = wall.service(&house);
    let mut line = service.line();
    let mut last = 0;
    let mut rises = |token: u64| {
        assert!(token > last, "{token} after {last}");
        last = token;
    };
    for (round, jump) in [DAY, -DAY, 0, 400 * DAY, -400 * DAY].into_iter().enumerate() {
        let (short, long) = (format!("short-{round}"), format!("long-{round}"));
        rises(take(&mut line, &long, 3_600_000));
        rises(take(&mut line, &short, TTL_MS));
        let taken = Instant::now();
        wall.set(jump);
        rises(take(&mut line, &format!("after-{round}"), 3_600_000));
        if round % 2 == 1 {
            // The next service finds the clock elsewhere than the last one left it.
            service.kill();
            service = wall.service(&house);
            line = service.line();
            rises(take(&mut line, &format!("restarted-{round}"), 3_600_000));
        }
        while taken.elapsed() < Duration::from_millis(TTL_MS - 300) {
            assert!(is_held(&mut line, &short), "gone after {:?}", taken.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        while is_held(&mut line, &short) {
            assert!(taken.elapsed() < Duration::from_millis(TTL_MS + 1000), "there after {:?}", taken.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(is_held(&mut line, &long), "a jump of {jump} s ended an hour");
    }
    assert!(!service.logged().contains("panicked"), "{}", service.logged());
}

#[test]
fn a_jump_of_a_clients_wall_clock_costs_it_no_lock() {
    let house = House::new();
    let wall = Wall::new(&house);
    let service = Service::start(&house);
    let mut command = house.command("c", &["run", "x", "--ttl", "2s", "--", "sleep", "4"]);
    command.env("LD_PRELOAD", &wall.shim).env("WALL_OFFSET", &wall.offset);
    let running = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let running = running.expect("the program runs");
    let mut line = service.line();
    crate::house::wait_for("the lock", || is_held(&mut line, "x").then_some(()));
    for jump in [DAY, -DAY, 0] {
        wall.set(jump);
        std::thread::sleep(Duration::from_millis(900));
        assert!(is_held(&mut line, "x"), "lost by a jump of {jump} s");
    }
    let said = finish(running);
    assert_eq!(said.code, 0, "the command ended by itself: {said:?}");
    assert!(!is_held(&mut line, "x"));
}
