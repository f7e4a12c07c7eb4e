//! What the tests of the embedded engine share: a ledger whose files can be looked at, copied and spoiled.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Base, Durability, Embedded, Engine, EngineError, Position, Record};

pub(crate) const SPACE: &str = "github.com/some/where";

/// Sizes from docs/ledger-format.md.
pub(crate) const SEGMENT_HEADER: u64 = 48;
pub(crate) const RECORD_HEADER: u64 = 88;
pub(crate) const DURABLE_FIELD: u64 = 56;

pub(crate) fn open_engine(root: &Path) -> Result<Arc<dyn Engine>, EngineError> {
    Ok(Arc::new(Embedded::open(root, Durability::Always)?))
}

/// Opens the one ledger of a directory.
pub(crate) async fn open(root: &Path) -> Result<Scribe, EngineError> {
    let engine = open_engine(root)?;
    let space = lockkeeper_core::space::Space::parse(SPACE).expect("a name");
    let ledger = engine.open(&space).await?;
    Ok(Scribe { ledger, at: Position::ORIGIN, written: Vec::new() })
}

pub(crate) async fn open_sound(root: &Path) -> Scribe {
    open(root).await.expect("opens")
}

/// Everything that a ledger holds, as long as no snapshot replaced any of it.
pub(crate) async fn records(scribe: &Scribe) -> Vec<Record> {
    let delta = scribe.read(Position::ORIGIN).await;
    assert_eq!(delta.base, Base::Asked);
    delta.records
}

/// The sub-directory of the one space.
pub(crate) fn space_dir(root: &Path) -> PathBuf {
    let mut dirs = fs::read_dir(root).expect("a directory").map(|entry| entry.expect("an entry").path());
    dirs.find(|path| path.is_dir()).expect("a space")
}

/// The files of the space whose names begin so, in order.
pub(crate) fn files(root: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(space_dir(root)).expect("a directory").map(|entry| entry.expect("an entry"));
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let mut paths: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Whether a file begins with zeros, as a segment does that was prepared and never begun.
pub(crate) fn is_spare(path: &Path) -> bool {
    let mut start = [0; SEGMENT_HEADER as usize];
    File::open(path).and_then(|file| file.read_at(&mut start, 0)).expect("readable");
    start == [0; SEGMENT_HEADER as usize]
}

/// The segments with records, in order.
pub(crate) fn logs(root: &Path) -> Vec<PathBuf> {
    let mut logs = files(root, "log-");
    logs.retain(|path| !is_spare(path));
    logs
}

/// A copy of a store, without the spare segments, which would only cost time.
pub(crate) fn copy(root: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a directory");
    let from = space_dir(root);
    let dir = to.path().join(from.file_name().expect("a name"));
    fs::create_dir(&dir).expect("a directory");
    for path in files(root, "").iter().filter(|path| !is_spare(path)) {
        fs::copy(path, dir.join(path.file_name().expect("a name"))).expect("a copy");
    }
    to
}

/// Names and bytes of everything in the space, to see whether anything changed.
pub(crate) fn contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(root, "").into_iter().map(|path| (path.clone(), fs::read(path).expect("readable"))).collect()
}

/// A small generator, so that a failure can be repeated.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
