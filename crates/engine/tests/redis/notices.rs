//! What a notice says.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::Scribe;

use super::open;
use super::server::RedisServer;

/// What goes through a Redis, as it says itself.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    fn of(server: &RedisServer) -> Monitor {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a Redis");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        stream.write_all(b"MONITOR\r\n").expect("written");
        let mut monitor = Monitor(BufReader::new(stream));
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Whether the next notice has the record itself, which stands on a line of its own.
    fn next_notice_is_whole(&mut self) -> bool {
        loop {
            let line = self.line();
            if line.contains("\"SPUBLISH\"") {
                return line.contains("\\n");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_has_the_record_as_soon_as_anybody_else_listens() {
    let server = RedisServer::start();
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, "a").await;
    let mut monitor = Monitor::of(&server);
    let patience = Instant::now() + Duration::from_secs(20);
    let mut number = 0;
    let mut append_until = async |whole: bool| {
        loop {
            number += 1;
            scribe.append_numbers(number, number).await;
            if monitor.next_notice_is_whole() == whole {
                return;
            }
            assert!(Instant::now() < patience, "whole: {whole}");
        }
    };
    append_until(true).await;
    append_until(false).await;
    let other = Scribe::at_origin(&open(&server.url()).await, "a").await;
    append_until(true).await;
    drop(other);
    append_until(false).await;
}
