//! Spans for a collector of traces.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::certificates::certificates;
use crate::house::{House, wait_for};

/// Takes one message as a collector does: its headers, and its body.
fn collected(listener: &TcpListener) -> (String, Value) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut headers).unwrap() > 0, "{headers}");
    }
    let length = headers.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}").unwrap();
    (headers, serde_json::from_slice(&body).unwrap())
}

#[test]
fn each_request_is_a_span_of_its_callers_trace() {
    let house = House::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut first = house.command("a", &["lock", "list"]);
    first.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hush%20hush");
    assert!(first.output().unwrap().status.success());
    let question = r#"{"id":1,"op":"locks/acquire","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","body":{"file_path":"x.rs","session_id":"a","ttl_ms":20000}}"#;
    assert_eq!(house.line(question)["status"], 200);
    let mut spans = Vec::new();
    while !spans.iter().any(|span: &Value| span["name"] == "locks/acquire") {
        let (headers, message) = collected(&listener);
        assert!(headers.starts_with("POST /v1/traces ") && headers.contains("api-key: hush hush"), "{headers}");
        let sent = &message["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.extend(sent.as_array().unwrap().iter().cloned());
    }
    let span = spans.iter().find(|span| span["name"] == "locks/acquire").unwrap();
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(span["parentSpanId"], "b7ad6b7169203331");
    let attribute = |name: &str| {
        let found = span["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == name);
        found.map(|attribute| attribute["value"].clone()).unwrap_or_default()
    };
    assert_eq!(attribute("lock.key")["stringValue"], "x.rs");
    assert_eq!(attribute("lock.session_id")["stringValue"], "a");
    assert_eq!(attribute("lock.outcome")["stringValue"], "ok");
    assert_eq!(attribute("lock.ttl_ms")["intValue"], "20000");
    let time = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
    assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
}

#[test]
fn a_collector_that_is_meant_for_others_keeps_no_service_from_starting() {
    let house = House::new();
    let mut command = house.command("a", &["lock", "list"]);
    let said = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318").output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
}

#[test]
fn a_collector_behind_tls_is_known_by_its_certificate() {
    let (house, files) = (House::new(), certificates());
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    // It answers nothing, and shows what it is told.
    let collect = |port: u16| {
        let mut command = Command::new("openssl");
        command.args(["s_server", "-quiet", "-cert", "server.pem", "-key", "server.key", "-accept", &port.to_string()]);
        command.current_dir(files.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().expect("openssl is missing; install the package openssl")
    };
    let [mut trusted, mut stranger] = ports.map(collect);
    for (port, authority) in ports.into_iter().zip(["ca.pem", "other.pem"]) {
        wait_for("the collector", || TcpStream::connect(("127.0.0.1", port)).ok());
        let mut first = house.command("a", &["lock", "list"]);
        first.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("https://127.0.0.1:{port}"));
        first.env("OTEL_EXPORTER_OTLP_CERTIFICATE", files.path().join(authority));
        assert!(first.output().unwrap().status.success());
        if authority == "ca.pem" {
            let (mut told, mut part, mut reader) = (String::new(), [0; 4096], trusted.stdout.take().unwrap());
            while !told.contains("resourceSpans") {
                let read = reader.read(&mut part).unwrap();
                assert!(read > 0, "{told}");
                told.push_str(&String::from_utf8_lossy(&part[..read]));
            }
        } else {
            let log = || std::fs::read_to_string(house.home().join("service.log")).unwrap_or_default();
            wait_for("a complaint", || log().contains("could not be sent to the collector").then_some(()));
        }
        assert_eq!(house.say("a", &["stop"]).code, 0);
    }
    for child in [&mut trusted, &mut stranger] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
