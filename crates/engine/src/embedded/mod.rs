//! Ledgers in a directory of this machine: one owner, one sub-directory a space, an append-only log in each.
//!
//! The byte layout is described in docs/ledger-format.md.

mod disk;
mod field;
mod identity;
mod ledger;
mod owner;
mod record;
mod recovery;
mod segment;
mod snapshot;
mod stock;
mod sync;
mod tail;
pub(crate) mod torn;
mod view;
mod walk;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use lockkeeper_core::space::Space;
use tokio::sync::Mutex;

use self::identity::Identity;
use self::ledger::FileLedger;
use self::owner::Owner;
use crate::crash::crash_point;
use crate::time_source::{Machine, TimeSource};
use crate::{BoxFuture, Durability, Engine, EngineError, Ledger, Position};

/// How many ledgers one engine opens: each has a thread and a few files.
const LEDGERS_OPEN_MAX: usize = 1024;

/// A ledger that somebody has open, or had.
#[derive(Clone, Debug, Default)]
struct Place {
    /// Held by whoever opens it.
    ledger: Arc<Mutex<Weak<FileLedger>>>,
    /// Held by the ledger until all that it does in the background has ended: only then it may be opened anew.
    taken: Arc<Mutex<()>>,
}

impl Place {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.ledger) > 1 || Arc::strong_count(&self.taken) > 1
    }
}

/// The engine behind `file:DIR`. Owns the directory until it and all its ledgers are dropped.
#[derive(Debug)]
pub struct Embedded {
    dir: PathBuf,
    durability: Durability,
    source: Arc<dyn TimeSource>,
    places: std::sync::Mutex<HashMap<Space, Place>>,
    owner: Arc<Owner>,
}

impl Embedded {
    /// Opens the directory, and makes it when there is none.
    pub fn open(dir: &Path, durability: Durability) -> Result<Embedded, EngineError> {
        Embedded::with_time(dir, durability, Arc::new(Machine::new()))
    }

    /// An engine whose time a test moves.
    pub fn with_time(dir: &Path, durability: Durability, source: Arc<dyn TimeSource>) -> Result<Embedded, EngineError> {
        disk::make_directory(dir)?;
        let owner = Arc::new(Owner::claim(dir)?);
        remove_unfinished(dir)?;
        Ok(Embedded { dir: dir.to_owned(), durability, source, places: std::sync::Mutex::default(), owner })
    }

    /// Opens the ledger of a space, or finds it open. A space that takes long to open, or to close, holds up no other.
    async fn open_ledger(&self, space: &Space) -> Result<Arc<FileLedger>, EngineError> {
        let Place { ledger, taken } = self.place_of(space)?;
        let mut ledger = ledger.lock_owned().await;
        if let Some(open) = ledger.upgrade() {
            return Ok(open);
        }
        let taken = taken.lock_owned().await;
        let (root, space) = (self.dir.clone(), space.clone());
        let (durability, source, owner) = (self.durability, self.source.clone(), self.owner.clone());
        // The guard goes along: who stops waiting must not let a second opening in beside the first.
        let opening = tokio::task::spawn_blocking(move || {
            let dir = root.join(directory_name(&space));
            if !dir.try_exists().map_err(disk::at(&dir))? {
                create(&root, &dir, &space)?;
            }
            let opened = Arc::new(FileLedger::open(dir, &space, durability, source, taken, owner)?);
            *ledger = Arc::downgrade(&opened);
            Ok(opened)
        });
        opening.await.map_err(|error| EngineError::Unreachable(format!("opening was cut short: {error}")))?
    }

    fn place_of(&self, space: &Space) -> Result<Place, EngineError> {
        let mut places = self.places.lock().expect("no holder panics");
        if !places.contains_key(space) {
            places.retain(|_, place| place.is_used());
            if places.len() >= LEDGERS_OPEN_MAX {
                return Err(EngineError::Invalid(format!("{LEDGERS_OPEN_MAX} spaces are open, which is the limit")));
            }
        }
        Ok(places.entry(space.clone()).or_default().clone())
    }
}

impl Engine for Embedded {
    fn scheme(&self) -> &'static str {
        "file"
    }

    fn opening_takes_room(&self) -> bool {
        true
    }

    fn place(&self) -> String {
        format!("file:{}", self.dir.display())
    }

    fn open<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<Arc<dyn Ledger>, EngineError>> {
        Box::pin(async move { Ok(self.open_ledger(space).await? as Arc<dyn Ledger>) })
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<Space>, EngineError>> {
        let dir = self.dir.clone();
        Box::pin(async move {
            let listed = tokio::task::spawn_blocking(move || spaces(&dir)).await;
            listed.map_err(|error| EngineError::Unreachable(format!("listing was cut short: {error}")))?
        })
    }
}

/// A space's name may hold anything, so its directory is named after a hash of it.
fn directory_name(space: &Space) -> String {
    blake3::hash(space.as_str().as_bytes()).to_hex()[..32].to_owned()
}

fn is_directory_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes a ledger beside its place and moves it there whole, so that no crash leaves half of one.
fn create(root: &Path, dir: &Path, space: &Space) -> Result<(), EngineError> {
    let identity = Identity::draw(space.clone());
    let tmp = dir.with_extension("tmp");
    disk::make_directory(&tmp)?;
    write_file(&tmp.join(identity::FILE), &identity.bytes())?;
    let path = segment::path(&tmp, 0);
    let mut log = Vec::with_capacity(segment::FIRST_SEGMENT_BYTES as usize);
    segment::write_header(&mut log, identity.salt, 0, Position { epoch: identity.epoch, ..Position::ORIGIN });
    log.resize(segment::FIRST_SEGMENT_BYTES as usize, 0);
    write_file(&path, &log)?;
    disk::sync_directory(&tmp).map_err(disk::at(&tmp))?;
    crash_point("create-before-rename");
    std::fs::rename(&tmp, dir).map_err(disk::at(dir))?;
    disk::sync_directory(root).map_err(disk::at(root))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), EngineError> {
    let mut file = disk::private().write(true).create(true).truncate(true).open(path).map_err(disk::at(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(disk::at(path))
}

/// Removes ledgers whose making was cut short.
fn remove_unfinished(root: &Path) -> Result<(), EngineError> {
    for entry in std::fs::read_dir(root).map_err(disk::at(root))? {
        let path = entry.map_err(disk::at(root))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_suffix(".tmp").is_some_and(is_directory_name) {
            std::fs::remove_dir_all(&path).map_err(disk::at(&path))?;
        }
    }
    Ok(())
}

fn spaces(root: &Path) -> Result<Vec<Space>, EngineError> {
    let mut spaces = Vec::new();
    for entry in std::fs::read_dir(root).map_err(disk::at(root))? {
        let path = entry.map_err(disk::at(root))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(is_directory_name) {
            spaces.push(Identity::read(&path)?.space);
        }
    }
    spaces.sort_unstable();
    Ok(spaces)
}
