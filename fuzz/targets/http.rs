//! Headers and bodies over HTTP: one header more leads a request the general way, and changes no answer.
#![no_main]

mod desk;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use desk::Desk;
use libfuzzer_sys::fuzz_target;
use lockkeeper_server::auth::{Credential, Credentials};
use lockkeeper_server::serve::{self, Doors};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Fewer than there may be headers, also with one more.
const HEADER_BYTES_MAX: usize = 256;

struct Open {
    desk: Desk,
    address: SocketAddr,
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::new(open());
}

fn open() -> Open {
    let desk = Desk::open();
    let listener = desk.runtime.block_on(async { serve::bind_http(([127, 0, 0, 1], 0).into()) }).expect("a port");
    let address = listener.local_addr().expect("an address");
    let credentials = Credentials::new(vec![Credential::new("open", None, false)]);
    let doors = Doors { socket: None, http: Some(listener), credentials, hosts: Vec::new() };
    desk.runtime.spawn(serve::run(desk.service.clone(), doors));
    Open { desk, address }
}

/// The first line of the answer, if there is one soon.
async fn status(address: SocketAddr, head: &str, headers: &[u8], body: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = [head.as_bytes(), headers, b"\r\n\r\n", body].concat();
    stream.write_all(&request).await.ok()?;
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') {
        let read = tokio::time::timeout(Duration::from_millis(100), stream.read_buf(&mut answer)).await;
        if read.ok()?.ok()? == 0 {
            return None;
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.lines().next().map(str::to_owned)
}

fuzz_target!(|input: (&[u8], &[u8])| {
    let (headers, body) = input;
    if headers.len() > HEADER_BYTES_MAX {
        return;
    }
    let head = |odd: &str| {
        format!(
            "POST /locks/check HTTP/1.1\r\n{odd}Host: localhost\r\nAuthorization: Bearer open\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        )
    };
    OPEN.with_borrow_mut(|open| {
        let (quick, general) = open.desk.runtime.block_on(async {
            let quick = status(open.address, &head(""), headers, body).await;
            (quick, status(open.address, &head("X-Odd: 1\r\n"), headers, body).await)
        });
        assert_eq!(quick, general, "{:?}", String::from_utf8_lossy(headers));
        assert!(!quick.is_some_and(|status| status.contains(" 500 ")));
    });
});
