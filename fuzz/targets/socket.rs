//! Bytes on the private socket, in whatever pieces they come: every line of the answer is JSON, and the service goes on serving.
#![no_main]

mod desk;

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use desk::Desk;
use libfuzzer_sys::fuzz_target;
use lockkeeper_server::auth::Credentials;
use lockkeeper_server::serve::{self, Doors};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

struct Open {
    desk: Desk,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::new(open());
}

fn open() -> Open {
    let (desk, folder) = (Desk::open(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("socket");
    let socket = desk.runtime.block_on(serve::bind_socket(&path)).expect("a socket");
    let doors = Doors { socket: Some(socket), http: None, credentials: Credentials::default(), hosts: Vec::new() };
    desk.runtime.spawn(serve::run(desk.service.clone(), doors));
    Open { desk, path, _folder: folder }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    // A service that is asked to stop does.
    if bytes.windows(4).any(|word| word == b"stop") {
        return;
    }
    OPEN.with_borrow_mut(|open| {
        let answered = open.desk.runtime.block_on(async {
            let mut stream = UnixStream::connect(&open.path).await.expect("it listens");
            for part in bytes.chunks(usize::from(piece).max(1)).take(64) {
                if stream.write_all(part).await.is_err() {
                    break;
                }
            }
            let _ = stream.shutdown().await;
            let mut answers = Vec::new();
            // Whoever waits in a queue is answered late.
            let _ = tokio::time::timeout(Duration::from_millis(50), stream.read_to_end(&mut answers)).await;
            answers
        });
        for line in answered.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let answer: serde_json::Value = serde_json::from_slice(line).expect("an answer is JSON");
            assert_ne!(answer["status"], 500, "{answer}");
        }
    });
});
