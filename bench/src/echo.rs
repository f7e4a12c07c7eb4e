//! The least that any service on a socket does for a question: one read, one write. What the system itself takes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::Context as _;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::Load;
use crate::flood::{Client, Step, Times, line};

const READ_BYTES: usize = 4096;
/// Who is told apart from the connections, which are numbered from zero.
const LISTENER: u64 = u64::MAX;

/// Answers every line with the same one, which is as long as that of a grant.
pub(crate) fn serve(path: &Path) -> anyhow::Result<()> {
    let answer =
        format!("{{\"id\":1,\"status\":200,\"body\":{{\"success\":true,\"text\":\"{}\"}}}}\n", "x".repeat(390));
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections: Vec<UnixStream> = Vec::new();
    let mut ready = Vec::with_capacity(1024);
    let mut space = [0; READ_BYTES];
    loop {
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), None)?;
        for event in ready.drain(..) {
            if event.data.u64() == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                epoll::add(&epoll, &stream, EventData::new_u64(connections.len() as u64), EventFlags::IN)?;
                connections.push(stream);
                continue;
            }
            let mut stream = &connections[event.data.u64() as usize];
            match stream.read(&mut space) {
                Ok(0) => epoll::delete(&epoll, stream)?,
                Ok(_) => stream.write_all(answer.as_bytes())?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Two questions as long as those of a pair.
pub(crate) fn pairs(place: &str, load: Load) -> anyhow::Result<Times> {
    let question = format!("{{\"id\":1,\"op\":\"echo\",\"body\":{{\"text\":\"{}\"}}}}\n", "x".repeat(55));
    let step = Step { question: question.into_bytes(), expected: r#"{"success":true"# };
    let client = |_| anyhow::Ok(Client::new(UnixStream::connect(place)?, line, vec![step.clone(), step.clone()]));
    let clients = (0..load.clients).map(client).collect::<anyhow::Result<Vec<_>>>()?;
    crate::flooded(clients, load)
}
