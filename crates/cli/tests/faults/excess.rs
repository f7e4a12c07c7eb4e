//! Too much at once, or too slowly: bodies, lines, depths and sets without an end are refused in bounded memory and time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use lockkeeper_wire::frame::LINE_BYTES_MAX;
use serde_json::{Value, json};

use crate::house::House;
use crate::site::{DOORS, Door, Site};

/// 8 MB: by so much memory may grow, at its peak, for something that is refused.
const GROWTH_MIB_MAX: f64 = 8e6 / (1 << 20) as f64;

#[test]
fn too_much_in_one_call_is_refused_through_every_door() {
    let site = Site::open();
    let many: Vec<Value> = (0..10_000).map(|n| json!({ "file_path": format!("f{n}") })).collect();
    for door in DOORS {
        assert_eq!(site.acquire(door, "a", &json!({ "locks": many })), "limit_exceeded", "{door:?}");
        // One argument of a command can't be longer than 128 KiB.
        let length = if door == Door::Cli { 100_000 } else { 1_000_000 };
        let body = json!({ "file_path": "f", "intention": "x".repeat(length) });
        assert_eq!(site.acquire(door, "a", &body), "limit_exceeded", "{door:?}");
    }
    let deep = |inside: &str| inside.replace("DEEP", &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    for path in ["/locks/acquire", "/mcp"] {
        for body in ["DEEP", r#"{"file_path":"f","session_id":"a","locks":DEEP}"#, r#"{"a":DEEP}"#] {
            let (code, text) = site.send(path, &deep(body));
            assert!(matches!(code, 400 | 422), "{path} {code}: {text}");
        }
    }
    for line in [
        "DEEP",
        r#"{"id":1,"op":"locks/acquire","body":DEEP}"#,
        r#"{"id":1,"op":"locks/acquire","body":{"locks":DEEP}}"#,
    ] {
        let answer = site.house.line(&deep(line));
        assert_eq!(answer["body"]["error"], "malformed", "{answer}");
    }
    site.nothing_is_held();
}

#[test]
fn a_body_of_a_gibibyte_is_cut_off_and_never_takes_memory() {
    let house = House::new();
    let service = crate::service::Service::start_with(&house, &["--listen", "127.0.0.1:0"], |command| command);
    let (_, status) = service.line().ask("status", json!({})).expect("a status");
    let address = status["listen"].as_str().and_then(|url| url.strip_prefix("http://")).expect("an address").to_owned();
    let credential = std::fs::read_to_string(house.home().join("credential")).expect("a credential");
    for (path, length) in [
        ("/locks/acquire", "Content-Length: 1073741824"),
        ("/locks/acquire", "Transfer-Encoding: chunked"),
        ("/mcp", "Transfer-Encoding: chunked"),
    ] {
        let before = service.forget_peak_mib();
        let mut stream = TcpStream::connect(&address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{length}\r\n\r\n",
            credential.trim()
        );
        stream.write_all(head.as_bytes()).expect("written");
        let piece = [b"10000\r\n".as_slice(), &vec![b' '; 65_536], b"\r\n"].concat();
        let sent = (0..16_384).take_while(|_| stream.write_all(&piece).is_ok()).count();
        assert!(sent < 16_384, "{length}: all of it was taken");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413", "{length}");
        let grown = service.peak_mib() - before;
        assert!(grown < GROWTH_MIB_MAX, "{path} {length}: {grown} MiB");
    }
}

#[test]
fn a_line_that_never_ends_is_cut_off_costs_little_memory_and_nobody_else_anything() {
    let house = House::new();
    let service = crate::service::Service::start(&house);
    let mut beside = service.line();
    let longest = |length: usize| {
        let mut line = br#"{"id":7,"op":"status","body":{}}"#.to_vec();
        line.resize(length, b' ');
        line
    };
    let before = service.forget_peak_mib();
    // What just fits is answered, so that the bound is where it is said to be.
    for (length, answered) in [(LINE_BYTES_MAX, true), (LINE_BYTES_MAX + 1, false)] {
        let mut stream = UnixStream::connect(service.socket()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        // Whoever is cut off may hear of it while it still writes.
        let sent = stream.write_all(&longest(length)).and_then(|()| stream.write_all(b"\n"));
        let mut answer = String::new();
        let read = sent.and_then(|()| BufReader::new(stream).read_line(&mut answer));
        assert_eq!(answer.contains("\"id\":7"), answered, "{answer}");
        assert!(answered || read.is_err() || answer.contains("too_large"), "{answer}");
    }
    let mut endless = UnixStream::connect(service.socket()).expect("a connection");
    let piece = vec![b'x'; 65_536];
    let sent = (0..4096).take_while(|_| endless.write_all(&piece).is_ok()).count();
    assert!(sent * piece.len() < 4 * LINE_BYTES_MAX, "{sent} pieces were taken");
    let grown = service.peak_mib() - before;
    assert!(grown < GROWTH_MIB_MAX, "{grown} MiB");
    assert_eq!(beside.ask("status", json!({})).expect("an answer").0, 200, "whoever is connected stays so");
    assert_eq!(service.line().ask("status", json!({})).expect("an answer").0, 200);
}

#[test]
fn a_client_that_sends_a_byte_a_second_is_cut_off_within_ten() {
    let site = Site::open();
    let address = site.serving.url.strip_prefix("http://").expect("an address");
    let mut slow = TcpStream::connect(address).expect("a connection");
    slow.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").expect("written");
    let began = Instant::now();
    loop {
        let mut byte = [0];
        match slow.read(&mut byte) {
            Ok(0) => break,
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Ok(_) | Err(_) => break,
        }
        assert!(began.elapsed() < Duration::from_secs(11), "still open after {:?}", began.elapsed());
        if slow.write_all(b"x").is_err() {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_body_that_does_not_come_is_waited_for_no_longer_than_ten_seconds_and_a_moment() {
    let site = Site::open();
    let address = site.serving.url.strip_prefix("http://").expect("an address");
    let begin = |path: &str| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(25))).expect("a time");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{{",
            site.serving.credential
        );
        stream.write_all(head.as_bytes()).expect("written");
        (path.to_owned(), stream)
    };
    for (path, mut stream) in ["/locks/acquire", "/sessions/attach", "/mcp"].map(begin) {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 400", "{path}");
    }
}
