//! The least that any service on a socket does for a question: one read, one write, and one sync for all that came together if
//! it is to last. What the system itself takes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::Context as _;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::flood::{self, Client, Step, Times, line};
use crate::{HAND_OVER_PAUSE, Load, STOP};

const READ_BYTES: usize = 4096;
/// As long as what Lockkeeper records of a hand-over.
const RECORD_BYTES: usize = 176;
/// What a question has that waits for the disk.
const TAKE: &[u8] = b"\"op\":\"take\"";
/// Who is told apart from the connections, which are numbered from zero.
const LISTENER: u64 = u64::MAX;

/// Answers every line with the same one. With a file: what came together is written there
/// and synced first, if a grant is among it.
pub(crate) fn serve(path: &Path, synced: Option<&Path>) -> anyhow::Result<()> {
    let answer = answer();
    let log = synced.map(crate::disk::Pages::prepare).transpose()?;
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections: Vec<UnixStream> = Vec::new();
    let mut ready = Vec::with_capacity(1024);
    let mut space = [0; READ_BYTES];
    let mut asked: Vec<usize> = Vec::new();
    loop {
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), None)?;
        let mut takes = false;
        for event in ready.drain(..) {
            if event.data.u64() == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                epoll::add(&epoll, &stream, EventData::new_u64(connections.len() as u64), EventFlags::IN)?;
                connections.push(stream);
                continue;
            }
            let place = event.data.u64() as usize;
            let mut stream = &connections[place];
            match stream.read(&mut space) {
                Ok(0) => epoll::delete(&epoll, stream)?,
                Ok(read) if log.is_some() => {
                    takes |= space[..read].windows(TAKE.len()).any(|word| word == TAKE);
                    asked.push(place);
                }
                Ok(_) => stream.write_all(answer.as_bytes())?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(log) = log.as_ref().filter(|_| takes) {
            log.write_and_sync()?;
        }
        for place in asked.drain(..) {
            (&connections[place]).write_all(answer.as_bytes())?;
        }
    }
}

/// Hands one thing over: whoever takes while another has it waits, and whoever gives it back has that written into the file, not
/// synced, before the one who waits is told and then themselves. Serves the two connections of one load after the other.
pub(crate) fn serve_hand_over(path: &Path, log: &Path) -> anyhow::Result<()> {
    let answer = answer();
    let log = crate::disk::Pages::prepare(log)?;
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    loop {
        let pair = [listener.accept()?.0, listener.accept()?.0];
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (stream, place) in pair.iter().zip(0..) {
            epoll::add(&epoll, stream, EventData::new_u64(place), EventFlags::IN)?;
        }
        let (mut taken, mut waits) = (false, false);
        let mut ready = Vec::with_capacity(2);
        let mut space = [0; READ_BYTES];
        'load: loop {
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), None)?;
            for event in ready.drain(..) {
                let place = event.data.u64() as usize;
                let (mut own, mut other) = (&pair[place], &pair[1 - place]);
                let read = own.read(&mut space)?;
                if read == 0 {
                    break 'load;
                }
                if !space[..read].windows(TAKE.len()).any(|word| word == TAKE) {
                    log.write(&[0x5a; RECORD_BYTES])?;
                    taken = std::mem::take(&mut waits);
                    if taken {
                        other.write_all(answer.as_bytes())?;
                    }
                    own.write_all(answer.as_bytes())?;
                } else if taken {
                    waits = true;
                } else {
                    taken = true;
                    own.write_all(answer.as_bytes())?;
                }
            }
        }
    }
}

/// As long as that of a grant.
fn answer() -> String {
    format!("{{\"id\":1,\"status\":200,\"body\":{{\"success\":true,\"text\":\"{}\"}}}}\n", "x".repeat(390))
}

pub(crate) fn hand_over(place: &str, load: Load) -> anyhow::Result<Times> {
    let client = || anyhow::Ok(Client::new(UnixStream::connect(place)?, line, pair()));
    let mut clients = [client()?, client()?];
    flood::once(&mut clients[0], 0)?.map_err(anyhow::Error::msg)?;
    Ok(flood::hand_over(&mut clients, load.length(), HAND_OVER_PAUSE, &STOP)?)
}

pub(crate) fn pairs(place: &str, load: Load) -> anyhow::Result<Times> {
    let client = |_| anyhow::Ok(Client::new(UnixStream::connect(place)?, line, pair()));
    let clients = (0..load.clients).map(client).collect::<anyhow::Result<Vec<_>>>()?;
    crate::flooded(clients, load)
}

/// Two questions as long as those of a pair.
fn pair() -> Vec<Step> {
    let step = |op: &str| {
        let question = format!("{{\"id\":1,\"op\":\"{op}\",\"body\":{{\"text\":\"{}\"}}}}\n", "x".repeat(55));
        Step { question: question.into_bytes(), expected: r#"{"success":true"# }
    };
    vec![step("take"), step("give")]
}
