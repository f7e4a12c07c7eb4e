//! What a crash, a bad disk or a careless hand leaves behind: cut what never was durable, refuse what was damaged.

mod desk;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use desk::{
    DURABLE_FIELD, Dice, RECORD_HEADER, SEGMENT_HEADER, contents, copy, files, logs, open, open_sound, records,
};
use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{Append, Base, Batch, BatchId, Durable, EngineError, Position, Record};

const PAYLOAD: u64 = 24;
const SIZE: u64 = RECORD_HEADER + PAYLOAD;

/// Where the record with this revision begins, when all have the same size and are in the first segment.
fn offset(revision: u64) -> u64 {
    SEGMENT_HEADER + (revision - 1) * SIZE
}

/// A store whose ledger holds this many records of one size.
async fn store(count: u8) -> (tempfile::TempDir, Vec<Record>) {
    let root = tempfile::tempdir().expect("a directory");
    let mut scribe = open_sound(root.path()).await;
    for number in 0..count {
        scribe.append(&[number ^ 0xa5; PAYLOAD as usize]).await;
        scribe.wait_durable().await;
    }
    (root, scribe.written)
}

fn flip(path: &Path, bit: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).expect("inside the file");
    file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).expect("written");
}

/// Opens a spoilt store: there must be a prefix of what was written, and life must go on from it.
async fn opens_with_a_prefix(root: &Path, written: &[Record]) -> usize {
    let mut scribe = open_sound(root).await;
    let kept = records(&scribe).await;
    assert_eq!(kept, written[..kept.len()], "never garbage");
    scribe.at = kept.last().map_or(Position::ORIGIN, |record| record.position);
    scribe.append(b"life goes on").await;
    scribe.append(&[0xff; 500]).await;
    let all = [kept.as_slice(), &scribe.written].concat();
    assert_eq!(records(&scribe).await, all);
    drop(scribe);
    assert_eq!(records(&open_sound(root).await).await, all, "and survives another opening");
    kept.len()
}

#[tokio::test]
async fn a_ledger_whose_files_were_removed_stops() {
    let root = tempfile::tempdir().expect("a directory");
    let mut scribe = open_sound(root.path()).await;
    scribe.append(b"there").await;
    scribe.wait_durable().await;
    for log in logs(root.path()) {
        fs::remove_file(log).expect("removed");
    }
    let mut durable = scribe.ledger.durable();
    let _ = scribe.try_append(b"nowhere").await;
    let failed = durable.wait_for(|durable| matches!(durable, Durable::Failed(_)));
    let failed =
        tokio::time::timeout(std::time::Duration::from_secs(10), failed).await.expect("noticed").expect("told");
    assert!(format!("{failed:?}").contains("removed"), "{failed:?}");
}

/// Whoever asks for the ledger by its name may begin another one there.
#[tokio::test]
async fn a_ledger_whose_folder_was_moved_stops() {
    let root = tempfile::tempdir().expect("a directory");
    let store = root.path().join("store");
    let mut scribe = open_sound(&store).await;
    scribe.append(b"there").await;
    scribe.wait_durable().await;
    fs::rename(&store, root.path().join("elsewhere")).expect("moved");
    let mut durable = scribe.ledger.durable();
    let _ = scribe.try_append(b"nowhere").await;
    let failed = durable.wait_for(|durable| matches!(durable, Durable::Failed(_)));
    let failed =
        tokio::time::timeout(std::time::Duration::from_secs(10), failed).await.expect("noticed").expect("told");
    assert!(format!("{failed:?}").contains("moved"), "{failed:?}");
}

/// A copy of a store whose log has no more than so many bytes; its file as long as before, or truly shorter.
fn cut_off(root: &Path, cut: u64, shorter: bool) -> tempfile::TempDir {
    let spoilt = copy(root);
    let path = &logs(spoilt.path())[0];
    let length = fs::metadata(path).expect("exists").len();
    let file = OpenOptions::new().write(true).open(path).expect("opens");
    file.set_len(cut).expect("cut");
    if !shorter {
        file.set_len(length).expect("zeros");
    }
    spoilt
}

#[tokio::test]
async fn a_log_that_ends_at_any_byte_opens_with_the_records_before() {
    let (root, written) = store(6).await;
    for cut in SEGMENT_HEADER..=offset(7) {
        // A payload that ends in zeros is whole before its last byte; these don't.
        let whole = ((cut - SEGMENT_HEADER) / SIZE) as usize;
        let shorter = cut_off(root.path(), cut, true);
        assert_eq!(records(&open_sound(shorter.path()).await).await, written[..whole], "cut at {cut}");
        // A file that is really shorter needs a new segment to go on, which takes time.
        if cut.is_multiple_of(9) {
            assert_eq!(opens_with_a_prefix(shorter.path(), &written).await, whole, "cut at {cut}");
        }
        let zeros = cut_off(root.path(), cut, false);
        assert_eq!(opens_with_a_prefix(zeros.path(), &written).await, whole, "zeros from {cut}");
    }
}

#[tokio::test]
async fn a_log_that_ends_before_its_first_record_could_begin_is_refused() {
    let (root, _) = store(6).await;
    for cut in 0..SEGMENT_HEADER {
        let spoilt = cut_off(root.path(), cut, true);
        is_refused_untouched(spoilt.path(), &format!("cut at {cut}")).await;
    }
}

#[tokio::test]
async fn a_flipped_bit_in_the_last_record_costs_that_record_alone() {
    let (root, written) = store(3).await;
    for bit in offset(3) * 8..offset(4) * 8 {
        let spoilt = copy(root.path());
        flip(&logs(spoilt.path())[0], bit);
        assert_eq!(opens_with_a_prefix(spoilt.path(), &written).await, 2, "bit {bit}");
    }
}

#[tokio::test]
async fn noise_behind_the_last_record_is_wiped() {
    let (root, written) = store(3).await;
    let mut dice = Dice(7);
    for _ in 0..20 {
        let spoilt = copy(root.path());
        let path = &logs(spoilt.path())[0];
        let noise: Vec<u8> = (0..4000).map(|_| dice.below(256) as u8).collect();
        let file = OpenOptions::new().write(true).open(path).expect("opens");
        file.write_all_at(&noise, offset(4) + dice.below(5000)).expect("written");
        drop(open_sound(spoilt.path()).await);
        let bytes = fs::read(path).expect("readable");
        assert!(bytes[offset(4) as usize..].iter().all(|&byte| byte == 0), "nothing stale is left");
        assert_eq!(opens_with_a_prefix(spoilt.path(), &written).await, 3);
    }
}

/// Agents leave many folders behind, and each of them a ledger.
#[tokio::test]
async fn a_small_ledger_takes_little_of_the_disk_and_grows_when_it_has_to() {
    let root = tempfile::tempdir().expect("a directory");
    let mut scribe = open_sound(root.path()).await;
    scribe.append(b"a lock").await;
    let logs = || files(root.path(), "log-").into_iter().filter(|path| path.extension().is_none());
    let sizes = || -> Vec<u64> { logs().map(|path| fs::metadata(path).map_or(0, |found| found.len())).collect() };
    while sizes().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(sizes(), [256 << 10; 2], "the segment in use, and one that is kept back");
    let inodes = || -> Vec<u64> { logs().map(|path| fs::metadata(path).map_or(0, |found| found.ino())).collect() };
    let before = inodes();
    drop(scribe);
    let mut scribe = open_sound(root.path()).await;
    scribe.at = records(&scribe).await[0].position;
    assert_eq!(inodes(), before, "what is kept back is kept, or a full disk would have nothing left");
    for _ in 0..40 {
        scribe.append(&vec![7; 60 << 10]).await;
    }
    assert!(sizes().contains(&(8 << 20)), "{:?}", sizes());
    drop(scribe);
    assert_eq!(records(&open_sound(root.path()).await).await.len(), 41);
}

#[tokio::test]
async fn noise_in_a_spare_segment_is_never_built_upon() {
    let (root, written) = long_store(None).await;
    let spares = || -> Vec<_> { files(root.path(), "log-").into_iter().filter(|path| desk::is_spare(path)).collect() };
    assert!(!spares().is_empty(), "a spare one is kept");
    for path in spares() {
        let file = OpenOptions::new().write(true).open(path).expect("opens");
        file.write_all_at(b"what a crash left of a record whose beginning was lost", 5000).expect("written");
    }
    let scribe = open_sound(root.path()).await;
    assert_eq!(records(&scribe).await, written);
    for path in spares() {
        assert!(fs::read(&path).expect("readable").iter().all(|&byte| byte == 0), "{}", path.display());
    }
}

/// A power loss keeps any set of the sectors that were not yet synced. Whichever these are, all that was durable is
/// there, and of the rest a prefix.
#[tokio::test]
async fn whatever_sectors_a_power_loss_takes_the_durable_records_stay() {
    const SECTOR: usize = 512;
    let (root, mut written) = store(5).await;
    let mut scribe = open_sound(root.path()).await;
    scribe.at = written[4].position;
    let mut last_offset = offset(6);
    for number in 6..60_u8 {
        let payload = vec![number; usize::from(number) * 13];
        let batch = Batch {
            id: BatchId(number.into()),
            payload: payload.clone(),
            frees: true,
            awaited: false,
            shown: Vec::new(),
            posted: Vec::new(),
        };
        let Append::Appended(done) = scribe.ledger.append(scribe.at, scribe.ledger.now(), batch.clone()).await else {
            panic!("not appended");
        };
        scribe.at = done.position;
        written.push(Record { position: done.position, batch: batch.id, stamp: done.stamp, payload });
        if number < 59 {
            last_offset += RECORD_HEADER + (u64::from(number) * 13).next_multiple_of(8);
        }
    }
    drop(scribe);
    let whole = fs::read(&logs(root.path())[0]).expect("readable");
    let field = (last_offset + DURABLE_FIELD) as usize;
    let durable = u64::from_le_bytes(whole[field..field + 8].try_into().expect("eight bytes"));
    let sizes = written.iter().map(|record| RECORD_HEADER as usize + record.payload.len().next_multiple_of(8));
    let durable_end = SEGMENT_HEADER as usize + sizes.take(durable as usize).sum::<usize>();
    let mut dice = Dice(11);
    let mut cut_short = 0;
    for _ in 0..150 {
        let mut bytes = whole.clone();
        let share = dice.below(10);
        for sector in (0..bytes.len()).step_by(SECTOR).filter(|sector| sector + SECTOR > durable_end) {
            if dice.below(10) <= share {
                bytes[sector.max(durable_end)..sector + SECTOR].fill(0);
            }
        }
        let spoilt = copy(root.path());
        fs::write(&logs(spoilt.path())[0], bytes).expect("written");
        let kept = opens_with_a_prefix(spoilt.path(), &written).await;
        assert!(kept as u64 >= durable, "{kept} of {durable} durable ones");
        cut_short += usize::from(kept < written.len());
    }
    assert!(cut_short > 50, "the test takes something away");
}

async fn is_refused_untouched(root: &Path, what: &str) -> String {
    let before = contents(root);
    let refusal = open(root).await.expect_err(what);
    assert!(matches!(refusal, EngineError::Corrupt { .. }), "{what}: {refusal}");
    assert!(contents(root) == before, "{what}: nothing was changed");
    refusal.to_string()
}

#[tokio::test]
async fn damage_to_a_durable_record_is_refused_and_nothing_is_changed() {
    let (root, _) = store(6).await;
    // The sixth record says that the fourth or fifth was durable, and so that the third was.
    for byte in offset(3)..offset(4) {
        let spoilt = copy(root.path());
        flip(&logs(spoilt.path())[0], byte * 8 + byte % 8);
        let refusal = is_refused_untouched(spoilt.path(), &format!("byte {byte}")).await;
        assert!(refusal.contains(&format!("revision 3 at byte {}", offset(3))), "{refusal}");
        assert!(refusal.contains("log-"), "{refusal}");
    }
}

/// A store with several segments, each with records, and a snapshot in between if wanted.
async fn long_store(snapshot_at: Option<usize>) -> (tempfile::TempDir, Vec<Record>) {
    let root = tempfile::tempdir().expect("a directory");
    let mut scribe = open_sound(root.path()).await;
    for number in 0..24_u8 {
        scribe.append(&vec![number; 900_000]).await;
        if snapshot_at == Some(usize::from(number)) {
            scribe.ledger.compact(scribe.at, vec![7; 5000]).await.expect("compacts");
        }
    }
    scribe.wait_durable().await;
    scribe.append(b"last").await;
    (root, scribe.written)
}

#[tokio::test]
async fn a_long_log_opens_and_damage_in_any_segment_but_the_end_is_refused() {
    let (root, written) = long_store(None).await;
    let count = logs(root.path()).len();
    assert!(count >= 3, "{count} segments");
    assert_eq!(records(&open_sound(root.path()).await).await, written);
    for segment in 0..count {
        for at in [20, SEGMENT_HEADER + 3, SEGMENT_HEADER + 5000, SEGMENT_HEADER + 900_000 + RECORD_HEADER + 10] {
            let spoilt = copy(root.path());
            let path = &logs(spoilt.path())[segment];
            if at < fs::metadata(path).expect("exists").len() {
                flip(path, at * 8);
                is_refused_untouched(spoilt.path(), &format!("segment {segment}, byte {at}")).await;
            }
        }
        let spoilt = copy(root.path());
        fs::remove_file(&logs(spoilt.path())[segment]).expect("removed");
        if segment + 1 < count {
            is_refused_untouched(spoilt.path(), &format!("segment {segment} is missing")).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_or_missing_snapshot_is_refused() {
    let (root, written) = long_store(Some(15)).await;
    let delta = open_sound(root.path()).await.read(Position::ORIGIN).await;
    assert_eq!(delta.records, written[16..]);
    let length = fs::metadata(&files(root.path(), "snapshot-")[0]).expect("exists").len();
    for byte in (0..length).step_by(97).chain([length - 1]) {
        let spoilt = copy(root.path());
        flip(&files(spoilt.path(), "snapshot-")[0], byte * 8);
        is_refused_untouched(spoilt.path(), &format!("byte {byte}")).await;
    }
    let spoilt = copy(root.path());
    fs::remove_file(&files(spoilt.path(), "snapshot-")[0]).expect("removed");
    is_refused_untouched(spoilt.path(), "no snapshot").await;
}

#[tokio::test]
async fn a_directory_that_does_not_say_whose_it_is_is_refused() {
    let (root, _) = store(2).await;
    for byte in 0..40 {
        let spoilt = copy(root.path());
        flip(&files(spoilt.path(), "ledger")[0], byte * 8);
        is_refused_untouched(spoilt.path(), "a damaged identity").await;
    }
    let spoilt = copy(root.path());
    fs::remove_file(&logs(spoilt.path())[0]).expect("removed");
    is_refused_untouched(spoilt.path(), "no log").await;
}

#[tokio::test]
async fn leftovers_of_a_crash_are_removed() {
    let (root, written) = long_store(Some(15)).await;
    let behind = fs::read(&logs(root.path())[0]).expect("readable");
    drop(open_sound(root.path()).await);
    let dir = desk::space_dir(root.path());
    let leftovers =
        ["log-00000000000000000099.tmp", "snapshot-00000000000000000099.tmp", "snapshot-00000000000000000003"];
    for name in leftovers {
        fs::write(dir.join(name), b"half of something").expect("written");
    }
    fs::write(dir.join("log-00000000000000000000"), behind).expect("a segment that the snapshot replaced");
    let unfinished = root.path().join(format!("{}.tmp", "0123456789abcdef".repeat(2)));
    fs::create_dir(&unfinished).expect("made");
    fs::write(unfinished.join("ledger"), b"half").expect("written");
    fs::write(dir.join("notes.txt"), b"somebody's own").expect("written");
    let scribe = open_sound(root.path()).await;
    for name in leftovers.iter().chain(&["log-00000000000000000000"]) {
        assert!(!dir.join(name).exists(), "{name}");
    }
    assert!(!unfinished.exists());
    assert!(dir.join("notes.txt").exists(), "what is not ours stays");
    assert_eq!(scribe.read(Position::ORIGIN).await.records, written[16..]);
}

/// Whatever the files hold: a refusal or a prefix, never a panic and never something else.
#[tokio::test]
async fn no_content_of_any_file_brings_it_down() {
    let (root, written) = store(8).await;
    let mut scribe: Scribe = open_sound(root.path()).await;
    scribe.at = written[7].position;
    scribe.ledger.compact(written[3].position, b"state".to_vec()).await.expect("compacts");
    drop(scribe);
    let mut dice = Dice(23);
    let (mut opened, mut refused) = (0, 0);
    for round in 0..400 {
        let spoilt = copy(root.path());
        let paths = files(spoilt.path(), "");
        let path = &paths[dice.below(paths.len() as u64) as usize];
        let mut bytes = fs::read(path).expect("readable");
        let area = if bytes.len() > 2000 { 2000 } else { bytes.len() as u64 };
        match dice.below(4) {
            0 => bytes.truncate(dice.below(area + 1) as usize),
            1 => bytes.extend((0..dice.below(300)).map(|at| at as u8)),
            2 => bytes[dice.below(area) as usize] = dice.below(256) as u8,
            _ => {
                let (from, to) = (dice.below(area) as usize, dice.below(area) as usize);
                let length = (dice.below(200) as usize).min(area as usize - from.max(to));
                bytes.copy_within(from..from + length, to);
            }
        }
        fs::write(path, bytes).expect("written");
        match open(spoilt.path()).await {
            Err(EngineError::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("round {round}: {other}"),
            Ok(scribe) => {
                opened += 1;
                let kept = scribe.read(Position::ORIGIN).await.records;
                assert_eq!(kept, written[4..4 + kept.len()], "round {round}");
            }
        }
    }
    assert!(opened > 50 && refused > 50, "{opened} opened, {refused} refused");
}

#[tokio::test]
async fn only_the_owner_may_look() {
    let (root, _) = store(1).await;
    let engine_dir = tempfile::tempdir().expect("a directory");
    drop(desk::open_engine(&engine_dir.path().join("new")).expect("opens"));
    let mode = |path: &Path| fs::metadata(path).expect("exists").permissions().mode() & 0o777;
    assert_eq!(mode(&engine_dir.path().join("new")), 0o700);
    assert_eq!(mode(&desk::space_dir(root.path())), 0o700);
    assert_eq!(mode(&root.path().join("owner.lock")), 0o600);
    for path in files(root.path(), "") {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn p6_a_snapshot_at_the_end_of_a_segment_outlives_a_next_one_that_was_not_durable() {
    let root = tempfile::tempdir().expect("a directory");
    let mut scribe = open_sound(root.path()).await;
    // Until the log goes on in a second segment: the end of the first is where the snapshot stands.
    let mut end = Position::ORIGIN;
    while logs(root.path()).len() < 2 {
        end = scribe.at;
        scribe.append(&[7; 4000]).await;
    }
    scribe.ledger.compact(end, b"all".to_vec()).await.expect("compacts");
    let next = logs(root.path()).pop().expect("the second segment");
    drop(scribe);
    // The power went before anything of the second segment was on the disk.
    let length = fs::metadata(&next).expect("exists").len();
    let file = OpenOptions::new().write(true).truncate(true).open(&next).expect("opens");
    file.set_len(length).expect("zeros");
    let scribe = open_sound(root.path()).await;
    let delta = scribe.read(Position::ORIGIN).await;
    assert!(matches!(delta.base, Base::Snapshot { position, .. } if position == end), "{delta:?}");
    assert!(delta.records.is_empty());
}
