//! Three services on one Redis or PostgreSQL that is paused, killed and cut off, and one of the services is killed as well.

use std::time::{Duration, Instant};

use lockkeeper_postgres_fixture::Postgres;
use serde_json::json;

use crate::history::{explain, handed_over, record, unanswered};
use crate::house::House;
use crate::redis_server::RedisServer;
use crate::service::{Dice, Service, deep};

/// How long a command of theirs may take.
const LIMIT_MS: u64 = 250;

/// A server that engines keep ledgers on, and what can happen to it.
trait Server {
    fn address(&self) -> String;
    fn stand_still(&self);
    fn go_on(&self);
    /// Ends all connections of services, several times in a row.
    fn cut(&self);
    /// How long it is left in peace between two faults: coming back takes it some time.
    fn peace(&self) -> Duration;
    fn end(&mut self);
    fn come_back(&mut self);
}

impl Server for RedisServer {
    fn address(&self) -> String {
        self.url()
    }

    fn stand_still(&self) {
        self.pause();
    }

    fn go_on(&self) {
        self.resume();
    }

    fn cut(&self) {
        for pause in 0..20 {
            self.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            std::thread::sleep(Duration::from_millis(pause % 10));
        }
    }

    fn peace(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn end(&mut self) {
        self.kill();
    }

    fn come_back(&mut self) {
        self.start_again();
    }
}

impl Server for Postgres {
    fn address(&self) -> String {
        self.url()
    }

    fn stand_still(&self) {
        self.pause();
    }

    fn go_on(&self) {
        self.resume();
    }

    fn cut(&self) {
        for _ in 0..4 {
            self.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'lockkeeper'");
        }
    }

    fn peace(&self) -> Duration {
        Duration::from_millis(900)
    }

    fn end(&mut self) {
        self.kill();
    }

    fn come_back(&mut self) {
        self.run();
    }
}

fn start(house: &House, server: &dyn Server) -> Service {
    let engine = format!("{}?timeout_ms={LIMIT_MS}", server.address());
    Service::start_until_it_runs(house, &["--listen", "none"], |mut command| {
        command.env("LOCKKEEPER_SPACE", "shared").env("LOCKKEEPER_ENGINE", &engine);
        command
    })
}

#[test]
fn whatever_happens_to_redis_what_the_clients_were_told_is_one_order_of_events_for_each_key() {
    what_the_clients_were_told_is_one_order(&mut RedisServer::durable());
}

#[test]
fn whatever_happens_to_postgres_what_the_clients_were_told_is_one_order_of_events_for_each_key() {
    what_the_clients_were_told_is_one_order(&mut Postgres::start());
}

fn what_the_clients_were_told_is_one_order(server: &mut dyn Server) {
    let long = server.peace() * 12 + Duration::from_secs(if deep() { 60 } else { 3 });
    let houses = [House::new(), House::new(), House::new()];
    let mut services: Vec<Option<Service>> = houses.iter().map(|house| Some(start(house, server))).collect();
    let sockets: Vec<_> = services.iter().flatten().map(|service| service.socket().to_owned()).collect();
    let mut dice = Dice::new(5);
    let mut did = [0; 4];
    let (answers, history) = record(&sockets, || {
        let began = Instant::now();
        while began.elapsed() < long {
            std::thread::sleep(server.peace() + Duration::from_millis(dice.below(300)));
            let what = (did.iter().sum::<usize>()) % 4;
            did[what] += 1;
            match what {
                0 => {
                    server.stand_still();
                    // Shorter than the limit, and longer.
                    std::thread::sleep(Duration::from_millis(50 + dice.below(3 * LIMIT_MS)));
                    server.go_on();
                }
                1 => server.cut(),
                2 => {
                    server.end();
                    std::thread::sleep(Duration::from_millis(dice.below(200)));
                    server.come_back();
                }
                _ => {
                    let place = dice.below(3) as usize;
                    services[place].take().expect("a service").kill();
                    services[place] = Some(start(&houses[place], server));
                }
            }
        }
    });
    let (open, waited) = (unanswered(&history), handed_over(&history));
    let [pauses, cuts, ends, kills] = did;
    println!(
        "{answers} answers in {long:?}, {waited} handed over; {pauses} pauses, {cuts} cuts and {ends} ends of the server, {kills} of a service; {open} never answered"
    );
    assert!(answers > long.as_secs() * 200, "{answers} answers are too few to prove anything");
    assert!(waited >= 10, "{waited} were handed over");
    assert!(open >= 1 && did.iter().all(|count| *count >= 1), "{did:?} left {open} without an answer");
    explain(&history);
    for service in services.iter().flatten() {
        let (_, status) = service.line().ask("status", json!({})).expect("a status");
        assert_eq!(status["rewrites"], 0, "nothing that was acknowledged was lost: {status}");
        assert_eq!(status["strength"], "strict");
    }
}

#[test]
fn a_service_on_redis_that_is_killed_takes_no_lock_with_it_and_who_does_not_come_back_is_free_in_time() {
    a_killed_service_takes_no_lock_with_it(&RedisServer::durable());
}

#[test]
fn a_service_on_postgres_that_is_killed_takes_no_lock_with_it_and_who_does_not_come_back_is_free_in_time() {
    a_killed_service_takes_no_lock_with_it(&Postgres::start());
}

fn a_killed_service_takes_no_lock_with_it(server: &dyn Server) {
    let houses = [House::new(), House::new(), House::new()];
    let mut services: Vec<Option<Service>> = houses.iter().map(|house| Some(start(house, server))).collect();
    let ask = |services: &[Option<Service>], place: usize, operation: &str, body: serde_json::Value| {
        services[place].as_ref().expect("a service").line().ask(operation, body).expect("an answer").1
    };
    let take = |key: &str, session: &str, ttl_ms: u64, wait_ms: u64| json!({"file_path": key, "session_id": session, "ttl_ms": ttl_ms, "wait_ms": wait_ms});
    let kept = ask(&services, 0, "locks/acquire", take("x", "a", 20_000, 0));
    let began = Instant::now();
    assert_eq!(ask(&services, 0, "locks/acquire", take("y", "gone", 2000, 0))["success"], true);
    services[0].take().expect("a service").kill();
    // Through another server all of it is still held, and goes on in the order of the queue.
    assert_eq!(ask(&services, 1, "locks/acquire", take("x", "b", 2000, 0))["error"], "busy");
    assert_eq!(ask(&services, 2, "locks/acquire", take("y", "c", 2000, 10_000))["success"], true);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(3), "free within TTL + 1 s: {took:?}");
    // Its clients go on through another one, or through its restart.
    let renewed = ask(&services, 1, "locks/renew", json!({"session_id": "a", "file_path": "x"}));
    assert_eq!(renewed["locks"][0]["fencing_token"], kept["fencing_token"], "{renewed}");
    services[0] = Some(start(&houses[0], server));
    let released = ask(
        &services,
        0,
        "locks/release",
        json!({"session_id": "a", "file_path": "x", "fencing_token": kept["fencing_token"]}),
    );
    assert_eq!(released["success"], true, "{released}");
}
