//! Redis, in its own words, without a client library in between.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::flood::{self, Answer, Client, Step, Times};
use crate::{HAND_OVER_PAUSE, Load, STOP};

/// Deletes only what is still one's own.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// The least that an ordered ledger does: it appends if nobody else has, and says so to whoever listens.
const COMPARE_AND_APPEND: &str = "if redis.call('get',KEYS[1])==ARGV[1] then redis.call('set',KEYS[1],ARGV[1]) \
    redis.call('xadd',KEYS[2],'MAXLEN','64','*','p',ARGV[2]) return redis.call('spublish',KEYS[3],ARGV[2]) else return 0 end";

pub(crate) fn pairs(place: &str, compare: bool, load: Load) -> anyhow::Result<Times> {
    let script = load_script(place, COMPARE_AND_DELETE)?;
    let client = |number: usize| {
        let (key, token) = (format!("src/file-{number}.rs"), format!("token-{number}"));
        let release = if compare {
            command(&["EVALSHA", &script, "1", &key, &token], ":1\r\n")
        } else {
            command(&["DEL", &key], ":1\r\n")
        };
        let acquire = command(&["SET", &key, &token, "NX", "PX", "30000"], "+OK\r\n");
        Ok(Client::new(connect(place)?, resp, vec![acquire, release]))
    };
    let clients = (0..load.clients).map(client).collect::<anyhow::Result<Vec<_>>>()?;
    crate::flooded(clients, load)
}

pub(crate) fn hand_over(place: &str, load: Load) -> anyhow::Result<Times> {
    let client = || {
        let take = command(&["BLPOP", "hot", "0"], "*2\r\n");
        let give = command(&["LPUSH", "hot", "x"], ":");
        anyhow::Ok(Client::new(connect(place)?, resp, vec![take, give]))
    };
    Ok(flood::hand_over(&mut [client()?, client()?], load.length(), HAND_OVER_PAUSE, &STOP)?)
}

/// From the script that appends to the message about it.
pub(crate) fn relay(place: &str, load: Load) -> anyhow::Result<Times> {
    let script = load_script(place, COMPARE_AND_APPEND)?;
    let record = "x".repeat(200);
    let append = command(&["EVALSHA", &script, "3", "{relay}end", "{relay}log", "{relay}", "7", &record], ":1\r\n");
    let listen = command(&["SSUBSCRIBE", "{relay}"], "*3\r\n");
    let set = command(&["SET", "{relay}end", "7"], "+OK\r\n");
    let mut writer = Client::new(connect(place)?, resp, vec![set, append]);
    let mut listener = Client::new(connect(place)?, resp, vec![listen]);
    for client in [&mut writer, &mut listener] {
        flood::once(client, 0)?.map_err(anyhow::Error::msg)?;
    }
    let (mut times, mut space) = (Times::default(), vec![0; 4096]);
    let began = Instant::now();
    while began.elapsed() < load.length() {
        std::thread::sleep(HAND_OVER_PAUSE);
        let asked = Instant::now();
        writer.ask(1)?;
        let heard = listener.answered(&mut space)?;
        times.rounds.push(asked.elapsed().as_nanos() as u64);
        if let Err(answer) = heard.and(writer.answered(&mut space)?) {
            times.failed(|| answer);
        }
    }
    times.elapsed = began.elapsed();
    Ok(times)
}

fn connect(place: &str) -> anyhow::Result<OwnedFd> {
    if place.starts_with('/') {
        return Ok(UnixStream::connect(place)?.into());
    }
    let stream = TcpStream::connect(place)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// The name under which the server keeps the script.
fn load_script(place: &str, script: &str) -> anyhow::Result<String> {
    let mut stream = std::fs::File::from(connect(place)?);
    stream.write_all(&command(&["SCRIPT", "LOAD", script], "$").question)?;
    let mut answer = [0; 64];
    let read = stream.read(&mut answer)?;
    let answer = std::str::from_utf8(&answer[..read])?;
    let script = answer.strip_prefix("$40\r\n").and_then(|rest| rest.get(..40));
    Ok(script.ok_or_else(|| anyhow::anyhow!("SCRIPT LOAD: {answer}"))?.to_owned())
}

fn command(words: &[&str], expected: &'static str) -> Step {
    let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    let count = words.matches('$').count();
    Step { question: format!("*{count}\r\n{words}").into_bytes(), expected }
}

/// An answer is its own body.
fn resp(bytes: &[u8]) -> Option<Answer<'_>> {
    let length = length(bytes)?;
    Some(Answer { length, success: bytes[0] != b'-', body: &bytes[..length] })
}

fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    let whole = match bytes[0] {
        b'$' => line + usize::try_from(number()?).map_or(0, |bulk| bulk + 2),
        b'*' => (0..number()?).try_fold(line, |at, _| Some(at + length(bytes.get(at..)?)?))?,
        _ => line,
    };
    (whole <= bytes.len()).then_some(whole)
}
