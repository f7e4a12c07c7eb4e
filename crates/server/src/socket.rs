//! The private socket: one JSON object a line. A local call is one write and one read, and a waiting call blocks no
//! other.

mod open;

use std::io::ErrorKind;
use std::sync::Arc;

use lockkeeper_keeper::json;
use lockkeeper_keeper::trace::TraceParent;
use lockkeeper_wire::answer::Done;
use lockkeeper_wire::frame::{Asked, LINE_BYTES_MAX};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::word::Word;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::open::{Answered, Open};
use crate::binding::Binding;
use crate::outgoing::{self, OUT_BYTES};
use crate::refusal::No;
use crate::serve::hung_up;
use crate::service::{self, Acquired, Caller, Input, Service};
use crate::stream::{Attached, Events};
use crate::{door, view};

/// Streams that one connection may follow, and sessions that may be bound to it.
const STREAMS_MAX: usize = 64;
/// Room for what is read at once.
const READ_BYTES: usize = 2048;
/// What may be made of answers before it is written.
const OUT_BYTES_MAX: usize = 1 << 20;
/// What is written to whoever has nothing more to say, at most.
const LAST_BYTES_MAX: usize = 16 << 20;
/// Frames of streams that may wait for a reader.
const FRAMES_MAX: usize = 64;

/// Serves one connection until it ends, then releases what was bound to it.
pub(crate) async fn serve(service: Arc<Service>, stream: UnixStream) {
    let (frames, streamed) = mpsc::channel(FRAMES_MAX);
    let (reader, writer) = stream.into_split();
    let mut connection = Connection { service: service.clone(), reader, writer, frames, bindings: Vec::new() };
    if let Err(error) = connection.run(streamed).await {
        tracing::debug!(%error, "a connection ended");
    }
    for binding in connection.bindings {
        binding.release(&service).await;
    }
}

struct Connection {
    service: Arc<Service>,
    reader: tokio::net::unix::OwnedReadHalf,
    writer: tokio::net::unix::OwnedWriteHalf,
    frames: mpsc::Sender<Vec<u8>>,
    bindings: Vec<Binding>,
}

/// Questions for lists.
fn is_answered_at_length(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Active
            | Operation::History
            | Operation::Audit
            | Operation::Sessions
            | Operation::Rooms
            | Operation::Features
            | Operation::FeatureConflicts
    )
}

impl Connection {
    async fn run(&mut self, mut streamed: mpsc::Receiver<Vec<u8>>) -> std::io::Result<()> {
        let (mut open, mut out) = (Open::default(), Vec::with_capacity(OUT_BYTES));
        let ended = self.converse(&mut streamed, &mut open, &mut out).await;
        // What was answered already is bound, or told, before the connection ends; also if it ended badly.
        let last = std::mem::take(&mut open);
        last.take_ready(|answered| {
            let before = out.len();
            self.write(answered, &mut open, &mut out);
            // Whoever leaves so much behind does not read it either.
            if before > LAST_BYTES_MAX {
                out.truncate(before);
            }
        })
        .await;
        match ended {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let no = No::new(Word::TooLarge, format!("A line has at most {LINE_BYTES_MAX} bytes."));
                self.write(Answered::no(0, no), &mut open, &mut out);
            }
            ended => ended?,
        }
        outgoing::flush(&mut self.writer, &mut out, &self.service.unread).await
    }

    /// Reads and answers until there is nothing more to read, or the service stops.
    async fn converse(
        &mut self,
        streamed: &mut mpsc::Receiver<Vec<u8>>,
        open: &mut Open,
        out: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        let mut incoming = Vec::with_capacity(READ_BYTES);
        let mut streams = JoinSet::new();
        // Whoever waits comes back to the same place when there is a service again.
        let mut stopped = std::pin::pin!(self.service.stopping.clone().cancelled_owned());
        loop {
            // What has come already is not waited for.
            if !incoming.is_empty() {
                self.take_lines(&mut incoming, open, &mut streams, out).await?;
            }
            if !out.is_empty() {
                // Whatever is ready goes out in one write.
                self.service.turns.let_others_answer().await;
                // An answer is made when it is asked for here: hundreds of long ones are not made before the first is written.
                while out.len() < OUT_BYTES_MAX
                    && let Some(answered) = open.next_ready().await
                {
                    self.write(answered, open, out);
                }
                while let Ok(frame) = streamed.try_recv() {
                    out.extend_from_slice(&frame);
                }
                outgoing::flush(&mut self.writer, out, &self.service.unread).await?;
                continue;
            }
            // A line that is there already waits for the answer to another one.
            let full = open.is_full() || next_line(&incoming)?.is_some();
            tokio::select! {
                biased;
                answered = open.next(), if !open.is_empty() => self.write(answered, open, out),
                Some(frame) = streamed.recv(), if !streams.is_empty() => out.extend_from_slice(&frame),
                read = read_more(&mut self.reader, &mut incoming, full) => if read? == 0 {
                    return Ok(());
                },
                () = &mut stopped => return Ok(()),
            }
        }
    }

    /// Starts on every whole line that has come, as long as there is room for what they ask.
    async fn take_lines(
        &mut self,
        incoming: &mut Vec<u8>,
        open: &mut Open,
        streams: &mut JoinSet<()>,
        out: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        let mut taken = 0;
        while !open.is_full()
            && let Some(line) = next_line(&incoming[taken..])?
        {
            let length = line.len() + 1;
            if !self.asked(line, open, streams, out).await {
                break;
            }
            taken += length;
        }
        if taken > 0 {
            incoming.drain(..taken);
            if incoming.is_empty() {
                incoming.shrink_to(READ_BYTES);
            }
        }
        Ok(())
    }

    /// Starts on one line. Streams are started and acknowledged here; other questions are open from now on. `false`: a list is asked for
    /// while another one is not answered, and waits.
    async fn asked(&mut self, line: &[u8], open: &mut Open, streams: &mut JoinSet<()>, out: &mut Vec<u8>) -> bool {
        let question = match Asked::read(line) {
            Ok(question) => question,
            Err(error) => {
                let no = No::new(Word::Malformed, format!("The line can't be read: {error}."));
                self.write(Answered::no(0, no), open, out);
                return true;
            }
        };
        let id = question.id;
        let Some(operation) = Operation::named(&question.op) else {
            let no = No::new(Word::NotFound, format!("There is no operation '{}'.", door::shown(&question.op)));
            self.write(Answered::no(id, no), open, out);
            return true;
        };
        let at_length = is_answered_at_length(operation);
        if at_length && open.at_length {
            return false;
        }
        let trace = question.traceparent.as_deref().and_then(TraceParent::parse);
        let caller = Caller { trace, ..Caller::local() };
        let body = question.body;
        match operation {
            Operation::Events | Operation::AttachSession => {
                while streams.try_join_next().is_some() {}
                let begun = if streams.len() >= STREAMS_MAX || self.bindings.len() >= STREAMS_MAX {
                    Err(No::new(Word::LimitExceeded, format!("One connection follows at most {STREAMS_MAX} streams.")))
                } else if operation == Operation::Events {
                    self.follow(id, body, streams, out).await
                } else {
                    self.attach(id, body, &caller, streams, out).await
                };
                if let Err(no) = begun {
                    self.write(Answered::no(id, no), open, out);
                }
            }
            _ => {
                let (service, body) = (self.service.clone(), body.to_owned());
                open.at_length |= at_length;
                open.push(async move {
                    let reply = service.call(operation, Input::Json(&body), &caller).await;
                    Answered { id, at_length, reply }
                });
            }
        }
        true
    }

    async fn follow(&mut self, id: u64, body: &str, streams: &mut JoinSet<()>, out: &mut Vec<u8>) -> Result<(), No> {
        let request = service::parse(Input::Json(body))?;
        let mut events = Events::open(&self.service, &request, &Caller::local()).await?;
        frame(id, 200, true, &acknowledged(), out);
        let (frames, service) = (self.frames.clone(), self.service.clone());
        streams.spawn(async move {
            loop {
                let mut line = Vec::new();
                let next = events.next_permitted(&service).await;
                let ended = next.is_err();
                match next.and_then(|entry| service::json(&view::event(events.epoch(), &entry))) {
                    Ok(body) => frame(id, 200, true, &body, &mut line),
                    Err(no) => {
                        let reply = service::reply(Err(no));
                        frame(id, reply.status, false, &reply.body, &mut line);
                    }
                }
                if frames.send(line).await.is_err() || ended {
                    return;
                }
            }
        });
        Ok(())
    }

    async fn attach(
        &mut self,
        id: u64,
        body: &str,
        caller: &Caller,
        streams: &mut JoinSet<()>,
        out: &mut Vec<u8>,
    ) -> Result<(), No> {
        let request = service::parse(Input::Json(body))?;
        let mut attached = Attached::open(&self.service, &request, caller).await?;
        self.bindings.push(attached.binding(&self.service));
        frame(id, 200, true, &acknowledged(), out);
        let frames = self.frames.clone();
        streams.spawn(async move {
            while let Ok(loss) = attached.next_loss().await {
                let mut line = Vec::new();
                if let Ok(body) = service::json(&loss) {
                    frame(id, 200, true, &body, &mut line);
                }
                if frames.send(line).await.is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    fn write(&mut self, answered: Answered, open: &mut Open, out: &mut Vec<u8>) {
        let Answered { id, at_length, reply } = answered;
        open.at_length &= !at_length;
        for binding in &mut self.bindings {
            binding.remove(&reply.released);
        }
        if let Some(Acquired { space, actor, locks, had, named, ports }) = &reply.granted {
            let same = |binding: &&mut Binding| binding.actor.session == actor.session && binding.space() == space;
            match self.bindings.iter_mut().find(same) {
                Some(binding) => binding.add(locks, had, *ports),
                // Whoever asks without being attached wants it for its TTL, whoever else has it meanwhile.
                None if *named => self.service.users.unbind(space, &actor.session, had),
                None => {}
            }
        }
        frame(id, reply.status, false, &reply.body, out);
    }
}

fn acknowledged() -> Vec<u8> {
    serde_json::to_vec(&Done { success: true }).expect("a done has a form")
}

/// Writes `{"id":..,"status":..,"body":..}` and a newline. The body is JSON already.
fn frame(id: u64, status: u16, more: bool, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    json::number(id, out);
    out.extend_from_slice(b",\"status\":");
    json::number(status, out);
    out.extend_from_slice(if more { b",\"more\":true,\"body\":" } else { b",\"body\":" });
    out.extend_from_slice(body);
    out.extend_from_slice(b"}\n");
}

/// Reads on, or, while nothing more is read, waits for the other side to go: then, too, nothing was read.
async fn read_more(
    reader: &mut tokio::net::unix::OwnedReadHalf,
    into: &mut Vec<u8>,
    full: bool,
) -> std::io::Result<usize> {
    if full {
        hung_up(reader.as_ref()).await;
        return Ok(0);
    }
    into.reserve(READ_BYTES);
    reader.read_buf(into).await
}

/// The first whole line, without its end.
fn next_line(incoming: &[u8]) -> std::io::Result<Option<&[u8]>> {
    let end = memchr::memchr(b'\n', incoming);
    if end.unwrap_or(incoming.len()) > LINE_BYTES_MAX {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "a line is too long"));
    }
    Ok(end.map(|end| &incoming[..end]))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use lockkeeper_core::space::Space;
    use lockkeeper_core::state::State;
    use lockkeeper_engine::Memory;
    use lockkeeper_keeper::audit::Audit;
    use lockkeeper_keeper::settings::Settings;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::service::About;

    const ASKED: u64 = 250;

    fn service() -> Arc<Service> {
        let mut settings = Settings::default();
        settings.rules.quota_limit = 0;
        let (space, metrics) = (Space::parse("s").expect("a name"), Arc::default());
        let about = About {
            background: false,
            engine_from: String::new(),
            durability: String::new(),
            socket: None,
            listen: None,
        };
        let audit = Audit::none(Arc::default());
        Arc::new(Service::new(Arc::new(Memory::new()), space, settings, audit, metrics, about))
    }

    async fn line_of(client: &mut UnixStream) -> String {
        let mut line = String::new();
        while !line.ends_with('\n') {
            line.push(char::from(client.read_u8().await.expect("an answer")));
        }
        line
    }

    /// Asks for many locks, each alone or with one that it has, and is gone after so many turns of everybody else; how many were
    /// granted, and how many are held when all is done.
    async fn gone_after(turns: usize, sets: bool) -> (u64, usize) {
        let service = service();
        let (mut client, stream) = UnixStream::pair().expect("a pair");
        let serving = tokio::spawn(serve(service.clone(), stream));
        let attach = b"{\"id\":1,\"op\":\"sessions/attach\",\"body\":{\"session_id\":\"a\"}}\n";
        client.write_all(attach).await.expect("written");
        assert!(line_of(&mut client).await.contains("\"status\":200"));
        let mut lines = String::new();
        for id in 0..ASKED {
            let what = format!(r#"{{"file_path":"f{id}"}}"#);
            let what = if sets { format!(r#"{{"file_path":"own"}},{what}"#) } else { what };
            let body = format!(r#"{{"session_id":"a","locks":[{what}],"ttl_minutes":60}}"#);
            writeln!(lines, r#"{{"id":{id},"op":"locks/acquire","body":{body}}}"#).expect("writing to memory");
        }
        client.write_all(lines.as_bytes()).await.expect("written");
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        drop(client);
        serving.await.expect("no panic");
        let keeper = service.keeper(&lockkeeper_wire::request::StatusRequest::default()).await.expect("a keeper");
        // What is owed comes with the next question at the latest.
        let mut held = usize::MAX;
        for _ in 0..10 {
            tokio::task::yield_now().await;
            held = keeper.read(|state, _| state.lock_count()).await.expect("an answer");
        }
        (keeper.read(|state, _| state.history().made()).await.expect("an answer"), held)
    }

    #[tokio::test]
    async fn whenever_a_connection_ends_nothing_stays_held_of_what_it_asked_for() {
        let mut granted = 0;
        for (turns, sets) in (0..60).flat_map(|turns| [(turns, false), (turns, true)]) {
            let (made, held) = gone_after(turns, sets).await;
            assert_eq!(held, 0, "gone after {turns} turns, {made} entries, sets: {sets}");
            granted += usize::from(made > 0);
        }
        assert!(granted > 10, "{granted}: some ended before anything was granted, and others after");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_answered() {
        let (client, stream) = UnixStream::pair().expect("a pair");
        let _serving = tokio::spawn(serve(service(), stream));
        let (mut reader, mut writer) = client.into_split();
        tokio::spawn(async move { writer.write_all(&vec![b'x'; LINE_BYTES_MAX + READ_BYTES]).await });
        let mut answer = String::new();
        let _ = reader.read_to_string(&mut answer).await;
        assert!(answer.contains("\"status\":413"), "{answer}");
    }

    /// What others keep, told only when the test says so.
    #[derive(Debug)]
    struct Slow(std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

    impl crate::service::Elsewhere for Slow {
        fn list(&self) -> lockkeeper_wire::answer::OutsideList {
            let _ = self.0.lock().expect("nobody panics").recv();
            lockkeeper_wire::answer::OutsideList::default()
        }
    }

    #[tokio::test]
    async fn a_heartbeat_does_not_wait_for_a_list_and_the_next_list_does() {
        let (tell, told) = std::sync::mpsc::channel();
        let service = Arc::into_inner(service()).expect("not shared").with_outside(Arc::new(Slow(told.into())));
        let (mut client, stream) = UnixStream::pair().expect("a pair");
        let _serving = tokio::spawn(serve(Arc::new(service), stream));
        let line = |id: u64, op: &str| format!("{{\"id\":{id},\"op\":\"{op}\",\"body\":{{\"session_id\":\"a\"}}}}\n");
        let lines =
            [line(1, "locks/active"), line(2, "sessions/open"), line(3, "locks/active"), line(4, "sessions/open")];
        client.write_all(lines.concat().as_bytes()).await.expect("written");
        assert!(line_of(&mut client).await.starts_with("{\"id\":2,\"status\":200"));
        for id in [1, 4, 3] {
            if id != 4 {
                tell.send(()).expect("somebody waits");
            }
            let answer = line_of(&mut client).await;
            assert!(answer.starts_with(&format!("{{\"id\":{id},\"status\":200")), "{answer}");
        }
    }

    /// A connection of session `a` that is attached, and what serves it.
    async fn attached(service: &Arc<Service>) -> (UnixStream, tokio::task::JoinHandle<()>) {
        let (mut client, stream) = UnixStream::pair().expect("a pair");
        let serving = tokio::spawn(serve(service.clone(), stream));
        assert!(asked(&mut client, "sessions/attach", "").await.contains("\"status\":200"));
        (client, serving)
    }

    async fn asked(client: &mut UnixStream, op: &str, more: &str) -> String {
        let line = format!("{{\"id\":1,\"op\":\"{op}\",\"body\":{{\"session_id\":\"a\"{more}}}}}\n");
        client.write_all(line.as_bytes()).await.expect("written");
        loop {
            let answer = line_of(client).await;
            // A loss that is told by itself is no answer.
            if op == "sessions/attach" || !answer.contains("\"more\":true") {
                return answer;
            }
        }
    }

    async fn seen<T: Send + 'static>(service: &Service, look: impl FnOnce(&State) -> T + Send + 'static) -> T {
        let keeper = service.keeper(&lockkeeper_wire::request::StatusRequest::default()).await.expect("a keeper");
        // What is owed was sent before.
        keeper.read(|state, _| look(state)).await.expect("an answer")
    }

    #[tokio::test]
    async fn what_two_connections_were_told_of_is_given_back_by_the_last_whichever_ends_first() {
        let wanted = r#","file_path":"x","request_id":"r","ttl_minutes":10"#;
        for (again, first_ends) in [(wanted, true), (wanted, false), (r#","file_path":"x""#, true)] {
            let service = service();
            let (mut one, of_one) = attached(&service).await;
            let (mut two, of_two) = attached(&service).await;
            assert!(asked(&mut one, "locks/acquire", wanted).await.contains("acquired"));
            assert!(asked(&mut two, "locks/acquire", again).await.contains("\"status\":200"));
            let ends = if first_ends { [(one, of_one), (two, of_two)] } else { [(two, of_two), (one, of_one)] };
            for ((client, serving), left) in ends.into_iter().zip([1, 0]) {
                drop(client);
                serving.await.expect("no panic");
                assert_eq!(seen(&service, State::lock_count).await, left, "{again} {first_ends}");
            }
        }
    }

    #[tokio::test]
    async fn whoever_lets_go_of_what_another_uses_uses_it_no_more() {
        let service = service();
        let (mut one, _of_one) = attached(&service).await;
        let (mut two, of_two) = attached(&service).await;
        let granted = asked(&mut one, "locks/acquire", r#","file_path":"x""#).await;
        assert!(asked(&mut two, "locks/acquire", r#","file_path":"x""#).await.contains("refreshed"));
        let id = granted.split("\"lock_id\":\"").nth(1).and_then(|rest| rest.get(..17)).expect("an id").to_owned();
        let let_go = format!(r#","lock_id":"{id}","unless_used":true"#);
        assert!(asked(&mut one, "locks/release", &let_go).await.contains("\"status\":200"));
        assert_eq!(seen(&service, State::lock_count).await, 1, "the other uses it");
        // Another session that names it keeps nothing.
        let (mut stranger, stream) = UnixStream::pair().expect("a pair");
        let _of_stranger = tokio::spawn(serve(service.clone(), stream));
        let names = format!(r#"{{"id":1,"op":"sessions/attach","body":{{"session_id":"b","lock_ids":["{id}"]}}}}"#);
        stranger.write_all(format!("{names}\n").as_bytes()).await.expect("written");
        assert!(line_of(&mut stranger).await.contains("\"status\":200"));
        drop(two);
        of_two.await.expect("no panic");
        assert_eq!(seen(&service, State::lock_count).await, 0, "though the first connection lives");
    }

    #[tokio::test]
    async fn what_the_session_had_before_is_not_given_back_with_a_connection() {
        let service = service();
        let (mut other, stream) = UnixStream::pair().expect("a pair");
        let _serving = tokio::spawn(serve(service.clone(), stream));
        assert!(asked(&mut other, "locks/acquire", r#","file_path":"x""#).await.contains("acquired"));
        assert!(asked(&mut other, "ports/allocate", "").await.contains("\"status\":200"));
        let (mut client, serving) = attached(&service).await;
        assert!(asked(&mut client, "locks/acquire", r#","file_path":"x""#).await.contains("refreshed"));
        assert!(asked(&mut client, "ports/allocate", "").await.contains("\"status\":200"));
        drop(client);
        serving.await.expect("no panic");
        assert_eq!(seen(&service, |state| (state.lock_count(), state.ports().count())).await, (1, 1));
    }

    #[tokio::test]
    async fn what_a_session_gets_back_on_its_connection_lives_as_long_as_that() {
        let service = service();
        let (mut client, serving) = attached(&service).await;
        assert!(asked(&mut client, "locks/acquire", r#","file_path":"x","ttl_ms":1000"#).await.contains("acquired"));
        while seen(&service, State::lock_count).await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(asked(&mut client, "sessions/restore", "").await.contains("\"restored\":[{"));
        assert_eq!(seen(&service, State::lock_count).await, 1);
        drop(client);
        serving.await.expect("no panic");
        assert_eq!(seen(&service, State::lock_count).await, 0);
    }
}
