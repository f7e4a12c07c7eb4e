//! The quick lane of HTTP: plain operations whose request is ordinary in every way, and has come as a whole, are answered right here,
//! for half of what the general way takes. The first request that is not goes to hyper, with the connection and all that was read:
//! this knows no parts, no streams and no second request in what was read at once, and refuses nobody by itself.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use lockkeeper_keeper::json;
use lockkeeper_wire::operation::{Method, Operation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::admission::{Said, printable};
use crate::http::{Http, is_json, is_plain};
use crate::outgoing::{self, OUT_BYTES};
use crate::serve::{HANG_UP_LOOK, HEADERS_TIME_MAX, has_hung_up};
use crate::service::{Caller, Input, Reply};

/// Room for a request. A longer one is not ordinary.
const REQUEST_BYTES_MAX: usize = 2048;
const HEADERS_MAX: usize = 16;
/// How often a connection is looked at before nothing has been asked for too long.
const QUIET_LOOKS_MAX: u128 = HEADERS_TIME_MAX.as_millis() / HANG_UP_LOOK.as_millis();

/// Serves a connection as long as its requests are ordinary. `None`: it has ended. Otherwise hyper goes on with what was read.
pub(crate) async fn serve(
    http: &Http,
    stream: &mut TcpStream,
    watched: &OwnedFd,
    stopping: &CancellationToken,
) -> Option<Vec<u8>> {
    let service = &http.doors.service;
    // Even while nothing is asked, odd until that is answered. Of this task alone; its watch must be able to go along to another thread.
    let steps = AtomicU64::new(0);
    // In a set, which looks at it only when it was woken, and not with every request.
    let mut ends = FuturesUnordered::from_iter([ended(watched, stopping, &steps)]);
    let (mut incoming, mut out) = (Vec::with_capacity(REQUEST_BYTES_MAX), Vec::with_capacity(OUT_BYTES));
    loop {
        incoming.clear();
        let read = tokio::select! {
            biased;
            read = stream.read_buf(&mut incoming) => read.ok()?,
            Some(_) = ends.next() => return None,
        };
        if read == 0 {
            return None;
        }
        let Some((request, caller)) = Request::read(&incoming).and_then(|request| request.admitted(http)) else {
            incoming.shrink_to_fit();
            return Some(incoming);
        };
        steps.fetch_add(1, Ordering::Relaxed);
        let waits = AtomicBool::new(false);
        let (input, turn) = (Input::Json(request.body), service.turns.begin_telling(&waits));
        let mut call = std::pin::pin!(service.call_in_turn(request.operation, input, &caller, turn));
        let (mut byte, mut listens) = ([0], true);
        let reply = loop {
            tokio::select! {
                biased;
                // Before what was waited for is heard: behind more that was sent the end is not seen, and both may come at once.
                () = ready_if(|| waits.load(Ordering::Relaxed) && has_hung_up(watched)) => return None,
                reply = call.as_mut() => break reply,
                behind = stream.peek(&mut byte), if listens => match behind {
                    // A wait whose client is gone is given up at once: nothing may be handed to it. What does not wait is answered to
                    // whoever only has nothing more to say.
                    Ok(0) | Err(_) if waits.load(Ordering::Relaxed) => return None,
                    // More was sent, behind which nothing is seen: it is looked now and then.
                    Ok(_) | Err(_) => listens = false,
                },
                Some(end) = ends.next() => match end {
                    End::Gone => return None,
                    // Whoever waits comes back to the same place when there is a service again.
                    End::Stopping if waits.load(Ordering::Relaxed) => return None,
                    // What was asked already is answered.
                    End::Stopping => {}
                },
            }
        };
        service.turns.let_others_answer().await;
        let closes = stopping.is_cancelled();
        write(&reply, closes, &mut out);
        outgoing::flush(stream, &mut out, &service.unread).await.ok()?;
        if closes {
            // With something unread, an answer could be lost on its way.
            let _ = stream.shutdown().await;
            let _ = stream.try_read_buf(&mut Vec::with_capacity(REQUEST_BYTES_MAX));
            return None;
        }
        steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends when it is looked at and finds that this is so. Wakes nobody.
async fn ready_if(is_so: impl Fn() -> bool) {
    std::future::poll_fn(|_| if is_so() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Why a connection ends that has not ended by itself.
enum End {
    /// The other side has hung up, or asked nothing for a while.
    Gone,
    Stopping,
}

/// Watches over a connection.
async fn ended(stream: &OwnedFd, stopping: &CancellationToken, steps: &AtomicU64) -> End {
    let (mut last, mut quiet) = (0, 0);
    loop {
        tokio::select! {
            () = stopping.cancelled() => return End::Stopping,
            () = tokio::time::sleep(HANG_UP_LOOK) => {}
        }
        let step = steps.load(Ordering::Relaxed);
        quiet = if step == last && step.is_multiple_of(2) { quiet + 1 } else { 0 };
        last = step;
        if quiet == QUIET_LOOKS_MAX || has_hung_up(stream) {
            return End::Gone;
        }
    }
}

/// A request that is ordinary in every way, and whole.
struct Request<'a> {
    operation: Operation,
    said: Said<'a>,
    body: &'a str,
}

impl<'a> Request<'a> {
    /// Nothing is guessed: whatever is missing, stands there twice, or has a name that is not listed here is not ordinary.
    fn read(bytes: &'a [u8]) -> Option<Request<'a>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(head) = request.parse(bytes).ok()? else { return None };
        let operation = Operation::named(request.path?.strip_prefix('/')?)?;
        let is_post = request.method == Some("POST") && operation.row().method == Method::Post;
        if !is_post || request.version != Some(1) || !is_plain(operation) {
            return None;
        }
        let (mut host, mut authorization, mut api_key, mut traceparent) = (None, None, None, None);
        let (mut kind, mut length) = (None, None);
        let stays = |connection: &str| connection.eq_ignore_ascii_case("keep-alive");
        for header in request.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let value = printable(header.value)?;
            let kept = if is("host") {
                &mut host
            } else if is("content-type") {
                &mut kind
            } else if is("content-length") {
                &mut length
            } else if is("authorization") {
                &mut authorization
            } else if is("x-api-key") {
                &mut api_key
            } else if is("traceparent") {
                &mut traceparent
            } else if is("accept") || is("accept-encoding") || is("user-agent") || (is("connection") && stays(value)) {
                continue;
            } else {
                return None;
            };
            if kept.replace(value).is_some() {
                return None;
            }
        }
        let body = &bytes[head..];
        let length =
            length.filter(|length| length.bytes().all(|digit| digit.is_ascii_digit()))?.parse::<usize>().ok()?;
        if length != body.len() || !is_json(kind?) {
            return None;
        }
        let said = Said::once(host?, authorization, api_key, traceparent);
        Some(Request { operation, said, body: std::str::from_utf8(body).ok()? })
    }

    /// With whoever asks, if they may come in.
    fn admitted(self, http: &Http) -> Option<(Request<'a>, Caller)> {
        let caller = http.doors.admission.caller(&self.said, None).ok().filter(|caller| caller.known)?;
        Some((self, caller))
    }
}

fn write(reply: &Reply, closes: bool, out: &mut Vec<u8>) {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\ncontent-type: application/json");
    if let Some(seconds) = reply.retry_after {
        out.extend_from_slice(b"\r\nretry-after: ");
        json::number(seconds, out);
    }
    if closes {
        out.extend_from_slice(b"\r\nconnection: close");
    }
    out.extend_from_slice(b"\r\ncontent-length: ");
    json::number(reply.body.len(), out);
    out.extend_from_slice(b"\r\ndate: ");
    date(out);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(&reply.body);
}

/// The time as HTTP writes it, made once a second.
fn date(out: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    let now = Timestamp::now();
    LAST.with_borrow_mut(|(second, text)| {
        if *second != now.as_second() {
            *second = now.as_second();
            text.clear();
            // Years that HTTP can't write are not now.
            let _ = DateTimePrinter::new().print_timestamp_rfc9110(&now, &mut *text);
        }
        out.extend_from_slice(text.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "POST /locks/acquire HTTP/1.1";
    const ORDINARY: [&str; 4] = ["Host: localhost", "Authorization: Bearer x", JSON, "Content-Length: 17"];
    const JSON: &str = "Content-Type: application/json";
    const BODY: &[u8] = br#"{"file_path":"x"}"#;

    fn is_ordinary(first: &str, headers: &[&str], body: &[u8]) -> bool {
        let head = format!("{first}\r\n{}\r\n\r\n", headers.join("\r\n"));
        let bytes = [head.as_bytes(), body].concat();
        let read = Request::read(&bytes);
        if let Some(request) = &read {
            assert_eq!(request.body.as_bytes(), body);
        }
        read.is_some()
    }

    /// The ordinary one with one more header.
    fn with(header: &str) -> bool {
        is_ordinary(FIRST, &[&ORDINARY[..], &[header]].concat(), BODY)
    }

    #[test]
    fn what_clients_send_is_ordinary() {
        assert!(is_ordinary(FIRST, &ORDINARY, BODY));
        assert!(is_ordinary(
            FIRST,
            &["host:localhost", "content-type: Application/JSON;charset=utf-8", ORDINARY[3]],
            BODY
        ));
        for header in
            ["Accept: */*", "User-Agent: curl/8", "Connection: keep-alive", "X-API-Key: y", "traceparent: 00-a"]
        {
            assert!(with(header), "{header}");
        }
    }

    #[test]
    fn whatever_is_odd_goes_the_general_way() {
        for first in [
            "GET /locks/active HTTP/1.1",
            "GET /locks/acquire HTTP/1.1",
            "POST /locks/active HTTP/1.1",
            "POST /locks/acquire HTTP/1.0",
            "POST /locks/acquire?space=x HTTP/1.1",
            "POST /locks/acquire/ HTTP/1.1",
            "POST //locks/acquire HTTP/1.1",
            "POST http://localhost/locks/acquire HTTP/1.1",
            "POST /sessions/attach HTTP/1.1",
            "POST /mcp HTTP/1.1",
            "post /locks/acquire HTTP/1.1",
        ] {
            assert!(!is_ordinary(first, &ORDINARY, BODY), "{first}");
        }
        for header in [
            "Transfer-Encoding: chunked",
            "Content-Length: 17",
            "Host: localhost",
            "Authorization: Bearer y",
            "Content-Type: text/plain",
            "Connection: close",
            "Connection: upgrade",
            "Upgrade: h2c",
            "Expect: 100-continue",
            "Origin: http://localhost",
            "Sec-Fetch-Site: same-origin",
            "Trailer: x",
            "X-Unknown: y",
            "User-Agent: \u{e9}",
        ] {
            assert!(!with(header), "{header}");
        }
        for length in ["16", "18", "+17", "017x", "", "-1", "18446744073709551617"] {
            let length = format!("Content-Length: {length}");
            assert!(!is_ordinary(FIRST, &[ORDINARY[0], ORDINARY[1], JSON, &length], BODY), "{length}");
        }
        for left_out in &ORDINARY[2..] {
            let headers: Vec<&str> = ORDINARY.into_iter().filter(|header| header != left_out).collect();
            assert!(!is_ordinary(FIRST, &headers, BODY), "without {left_out}");
        }
        assert!(!is_ordinary(FIRST, &ORDINARY, b"{\"file_path\":\"\xff\"}"), "no text");
        assert!(!is_ordinary(FIRST, &ORDINARY, &[BODY, b"POST"].concat()), "more behind it");
        assert!(!is_ordinary(FIRST, &ORDINARY, &BODY[..10]), "not whole");
        let many: Vec<String> = (0..HEADERS_MAX).map(|_| "Accept: x".to_owned()).collect();
        let many: Vec<&str> = ORDINARY.into_iter().chain(many.iter().map(String::as_str)).collect();
        assert!(!is_ordinary(FIRST, &many, BODY), "too many headers");
    }
}
