//! The time of a ledger runs on whatever happens to the wall clock of Redis.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use lockkeeper_engine::conformance::Scribe;

use crate::ledgers::{time_runs_on, writers_agree_on_the_time};
use crate::open;
use crate::server::RedisServer;

const HEAD: &str = "lockkeeper:{a}:head";
const SECOND: u64 = 1_000_000;

/// Moves what a script takes for the wall clock, as setting it would.
fn clock(server: &RedisServer) -> impl FnMut(i64) {
    |seconds| {
        server.ask(&["HINCRBY", HEAD, "offset", &(seconds * 1_000_000).to_string()]);
    }
}

async fn scribe(server: &RedisServer) -> Scribe {
    Scribe::at_origin(&open(&server.url()).await, "a").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_ends_no_lock_early_or_late() {
    let server = RedisServer::start();
    time_runs_on(scribe(&server).await, async || scribe(&server).await, clock(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_correction_outlives_those_who_made_it() {
    let server = RedisServer::start();
    Scribe::at_origin(&open(&server.url()).await, "a").await.append(b"first").await;
    // The ledger is an hour ahead of the wall clock, or behind it: nobody is left who remembers why.
    for jump in [3600, -7200] {
        server.ask(&["HINCRBY", HEAD, "offset", &(jump * 1_000_000_i64).to_string()]);
        server.ask(&["HSET", HEAD, "time", "0"]);
        let mut last = 0;
        for _ in 0..3 {
            let mut fresh = Scribe::at_origin(&open(&server.url()).await, "a").await;
            crate::catch_up(&mut fresh).await;
            let stamp = fresh.append(b"of one who remembers nothing").await.stamp.time.0;
            assert!(last == 0 || (last + SECOND / 10..last + 5 * SECOND).contains(&stamp), "{last} {stamp}");
            last = stamp;
            drop(fresh);
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_different_memories_agree() {
    let server = RedisServer::start();
    writers_agree_on_the_time(scribe(&server).await, scribe(&server).await, clock(&server)).await;
}

/// A way to a Redis on which every answer takes so long; questions are quick.
fn slow_way(to: u16, delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let carry = |mut from: TcpStream, mut to: TcpStream, delay: Duration| {
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                std::thread::sleep(delay);
                if to.write_all(&bytes[..read]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { return };
            let (back, forth) = (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
            carry(near, forth, Duration::ZERO);
            carry(far, back, delay);
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_lease_of_a_distant_server_does_not_begin_before_it_was_asked_for() {
    let server = RedisServer::start();
    let mut near = scribe(&server).await;
    near.append(b"first").await;
    let port = slow_way(server.port, Duration::from_millis(40));
    let mut far = Scribe::at_origin(&open(&format!("redis://127.0.0.1:{port}")).await, "a").await;
    crate::catch_up(&mut far).await;
    for _ in 0..5 {
        crate::catch_up(&mut near).await;
        near.append(b"so that its time is exact").await;
        crate::catch_up(&mut far).await;
        // A lower bound: it is not earlier than this.
        let asked = near.ledger.now().time;
        let stamp = far.append(b"asked for now").await.stamp.time;
        assert!(stamp >= asked, "{} µs too early", asked.0 - stamp.0);
    }
}
