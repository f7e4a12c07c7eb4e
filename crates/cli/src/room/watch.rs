//! `lockkeeper room watch`: sees what people change, and keeps agents out of it for a moment.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper_client::{Client, Error, Identity};
use lockkeeper_core::key::Key;
use lockkeeper_core::mode::Mode;
use lockkeeper_wire::answer::{EventView, KeyStatus, RoomChanged};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{CheckRequest, EventsRequest, RoomRequest};
use serde::Serialize;

use super::folders::{Folders, Told};
use super::releases::Releases;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};
use crate::place::Place;

/// How long agents keep out of a file that somebody changed.
const BUSY: Duration = Duration::from_secs(5);
/// How long a change rests before it is looked at: an editor may write several times, and a release takes a moment to be heard of.
const REST: Duration = Duration::from_millis(250);
/// A file that goes on changing is marked again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Files that change together. More than that is a checkout or a build, and nobody's editor.
const TOGETHER_MAX: usize = 256;
/// How long a service may take to open the stream of what happens.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);

/// A file that changes while no session holds it is marked as a room, busy for 5 s: agents that ask for it are told that
/// somebody is editing. Ignored files do not count, nor what changes within 2 s of a release.
#[derive(Debug, Args)]
pub(crate) struct Watch {}

/// What was seen, for programs.
#[derive(Serialize)]
struct Seen<'a> {
    action: &'a str,
    file_path: &'a str,
    busy_for_ms: u64,
}

impl Watch {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let Watch {} = self;
        let config = context.config()?;
        let place = &config.place;
        let (client, identity) = (context.client()?, context.identity()?);
        let releases = follow(context.client()?, identity.space.clone());
        let (told, changes) = channel();
        let mut folders = Folders::watch(&place.root, &place.shared, &config.home, told)?;
        if !context.global.json {
            note!(
                "Watching {} below {}; Ctrl-C ends it.",
                output::counted(folders.count(), "folder"),
                place.root.display()
            );
        }
        let mut marker = Marker { context, place, client, identity, releases, marked: HashMap::new(), away: false };
        let mut changed = HashMap::new();
        loop {
            if !gather(&changes, &mut folders, &mut changed)? {
                return Ok(());
            }
            let now = Instant::now();
            let rested = changed.extract_if(|_, since| now >= *since + REST).collect();
            marker.mark_all(rested);
        }
    }
}

/// Notes what changed and when, for a moment; `false` when nothing will change any more.
fn gather(
    changes: &Receiver<Told>,
    folders: &mut Folders,
    changed: &mut HashMap<PathBuf, Instant>,
) -> Result<bool, Failure> {
    let end = Instant::now() + REST / 2;
    let mut missed = false;
    loop {
        match changes.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((_, Ok(event))) if event.need_rescan() => missed = true,
            Ok((at, Ok(event))) => {
                for path in folders.changed(&event)? {
                    changed.entry(path).or_insert(at);
                }
            }
            Ok((_, Err(error))) => note!("A change could not be seen: {error}."),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
    }
    // Once, however often it was said.
    if missed {
        note!("So much changed at once that some of it was missed.");
        folders.look_again()?;
        // What is ignored may be known only now.
        changed.retain(|path, _| folders.counts(path));
    }
    Ok(true)
}

/// Decides which changes were a person's, and says so to the service.
struct Marker<'a> {
    context: &'a Context,
    place: &'a Place,
    client: Client,
    identity: Identity,
    releases: Arc<Mutex<Releases>>,
    /// When each file was marked last.
    marked: HashMap<PathBuf, Instant>,
    /// The service can't be reached, and that was said.
    away: bool,
}

impl Marker<'_> {
    fn mark_all(&mut self, mut changed: Vec<(PathBuf, Instant)>) {
        self.marked.retain(|_, at| at.elapsed() < AGAIN);
        changed.sort_unstable();
        if changed.len() > TOGETHER_MAX {
            note!("{} files changed together, as by a checkout: none of them is marked.", changed.len());
            return;
        }
        for (path, at) in changed {
            // What is gone already was an editor's scratch paper.
            if self.marked.contains_key(&path) || !path.is_file() {
                continue;
            }
            match self.mark(&path, at) {
                Ok(marked) => {
                    self.away = false;
                    if marked {
                        self.marked.insert(path, Instant::now());
                    }
                }
                Err(Error::Unreachable(why)) => {
                    if !std::mem::replace(&mut self.away, true) {
                        note!("{why}; changes are not marked until it is back.");
                    }
                    self.client.reopen();
                }
                Err(error) => note!("{} is not marked: {error}", path.display()),
            }
        }
    }

    /// Marks a file, unless it was an agent who changed it then.
    fn mark(&self, path: &Path, changed: Instant) -> Result<bool, Error> {
        let Some(file_path) = path.to_str().and_then(|path| self.place.key(path).ok()) else { return Ok(false) };
        let releases = || self.releases.lock().unwrap_or_else(PoisonError::into_inner);
        if Key::parse(&file_path).is_ok_and(|key| releases().explain(&key, changed)) {
            return Ok(false);
        }
        let question = CheckRequest { file_path: Some(file_path.clone()), ..CheckRequest::default() };
        let status: KeyStatus = self.client.call(Operation::KeyStatus, &self.identity.sign(question))?;
        // Whoever only reads it has changed nothing.
        if status.locks.iter().any(|lock| lock.mode != Mode::Shared.word()) {
            return Ok(false);
        }
        let busy_for_ms = BUSY.as_millis() as u64;
        let busy_ms = Some(Whole::from(busy_for_ms));
        let room = RoomRequest { file_path: Some(file_path), busy_ms, ..RoomRequest::default() };
        let room: RoomChanged = self.client.call(Operation::OpenRoom, &self.identity.sign(room))?;
        let file_path = room.file_path.as_str();
        if self.context.global.json {
            output::json(&Seen { action: "marked", file_path, busy_for_ms });
        } else {
            say!("{} changed; agents keep out of it for {}", output::bold(file_path), output::millis(busy_for_ms));
        }
        Ok(true)
    }
}

/// Listens to what happens in the space, for as long as this program runs.
fn follow(client: Client, space: Option<String>) -> Arc<Mutex<Releases>> {
    let releases = Arc::new(Mutex::new(Releases::default()));
    let of_thread = releases.clone();
    std::thread::spawn(move || {
        let releases = || of_thread.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let request = EventsRequest { space: space.clone(), ..EventsRequest::default() };
            if let Ok(events) = client.stream(Operation::Events, &request, OPEN_TIME_MAX) {
                releases().listen_anew();
                while let Ok(next) = events.next(Duration::from_secs(3600)) {
                    let event = next.and_then(|body| serde_json::from_slice::<EventView>(&body).ok());
                    if let Some(event) = event {
                        releases().note(&event, Instant::now());
                    }
                }
            }
            std::thread::sleep(REST);
            client.reopen();
        }
    });
    releases
}
