//! The files of a ledger, damaged: it opens with all that was durable, or is refused; never with something else.
//!
//! The input says what of a sound ledger is damaged: only its last record, or anything; then five bytes for each
//! damage, a file, a place and an operation.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::space::Space;
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Base, Durability, Embedded, Engine, EngineError, Position, Record};
use tokio::runtime::Runtime;

const SPACE: &str = "fuzz";
/// Records of the sound ledger.
const RECORDS: u8 = 12;
/// Sizes from docs/ledger-format.md.
const SEGMENT_HEADER: usize = 48;
const RECORD_HEADER: usize = 88;
/// As much of the log as holds its records.
const LOG_BYTES: usize = 4096;

struct Sound {
    runtime: Runtime,
    folder: String,
    files: Vec<(String, Vec<u8>)>,
    written: Vec<Record>,
    /// Where the last record begins: the ones before it are known to be durable.
    last: usize,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder");
    // Threads that stay: one that is just being started, when others had gone, looks like a leak.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_keep_alive(Duration::from_secs(3600)).build().expect("a runtime");
    let written = runtime.block_on(async {
        let engine: Arc<dyn Engine> = Arc::new(Embedded::open(root.path(), Durability::Always).expect("opens"));
        let mut scribe = Scribe::at_origin(&engine, SPACE).await;
        for number in 0..RECORDS {
            scribe.append(&vec![number ^ 0xa5; 24 + usize::from(number)]).await;
            scribe.wait_durable().await;
        }
        scribe.written
    });
    let entries = |path: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(path).expect("a folder").flatten().map(|e| e.path()).collect();
        paths.sort();
        paths
    };
    let folder = entries(root.path()).into_iter().find(|path| path.is_dir()).expect("a space");
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let files = entries(&folder).into_iter().filter_map(|path| {
        let mut bytes = std::fs::read(&path).expect("readable");
        bytes.truncate(LOG_BYTES);
        // A spare segment is all zeros.
        bytes.iter().any(|byte| *byte != 0).then(|| (name(&path), bytes))
    });
    let files = files.collect();
    let before = &written[..written.len() - 1];
    let sizes = before.iter().map(|record| RECORD_HEADER + record.payload.len().next_multiple_of(8));
    let last = SEGMENT_HEADER + sizes.sum::<usize>();
    Sound { runtime, folder: name(&folder), files, written, last }
});

fuzz_target!(|damage: &[u8]| {
    let sound = &*SOUND;
    let Some((mode, damage)) = damage.split_first() else { return };
    let only_the_last = mode % 2 == 0;
    let root = tempfile::Builder::new().tempdir_in("/dev/shm").expect("a folder");
    let folder = root.path().join(&sound.folder);
    std::fs::create_dir(&folder).expect("a folder");
    let mut touched = false;
    for (at, (name, bytes)) in sound.files.iter().enumerate() {
        let mut bytes = bytes.clone();
        let is_log = name.starts_with("log-");
        for step in damage.chunks_exact(5).filter(|step| is_here(step[0], only_the_last, is_log, at)) {
            let from = if only_the_last { sound.last } else { 0 };
            touched |= spoil(&mut bytes, from, u16::from_le_bytes([step[1], step[2]]).into(), step[3], step[4]);
        }
        std::fs::write(folder.join(name), bytes).expect("written");
    }
    let opened = sound.runtime.block_on(async {
        let engine = Embedded::open(root.path(), Durability::Always)?;
        let ledger = engine.open(&Space::parse(SPACE).expect("a name")).await?;
        ledger.read(Position::ORIGIN).await
    });
    match opened {
        Ok(delta) => {
            assert_eq!(delta.base, Base::Asked);
            assert_eq!(delta.records, sound.written[..delta.records.len()], "never garbage");
            let (there, all) = (delta.records.len(), sound.written.len());
            assert!(!only_the_last || there + 1 >= all, "{there} of {all} are there");
            assert!(touched || there == all, "{there} of {all} are there");
        }
        Err(EngineError::Corrupt { .. }) => assert!(touched && !only_the_last, "damage to the end is cut off"),
        Err(other) => panic!("{other}"),
    }
});

/// Whether a damage is meant for this file.
fn is_here(which: u8, only_the_last: bool, is_log: bool, at: usize) -> bool {
    if only_the_last { is_log } else { usize::from(which) % SOUND.files.len() == at }
}

/// Whether it changed anything. Nothing before `from` is touched.
fn spoil(bytes: &mut [u8], from: usize, place: usize, operation: u8, value: u8) -> bool {
    let before = bytes.to_vec();
    let place = from + place % (bytes.len() - from);
    match operation % 4 {
        0 => bytes[place] ^= value,
        1 => bytes[place] = value,
        2 => {
            let end = (place + usize::from(value)).min(bytes.len());
            bytes[place..end].fill(0);
        }
        _ => {
            let from = usize::from(value) * 16 % bytes.len();
            let length = 64.min(bytes.len() - place.max(from));
            bytes.copy_within(from..from + length, place);
        }
    }
    bytes != before
}
