//! The disk itself: what one sync costs, of a page that is written into a file whose place is there already.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::Load;
use crate::flood::Times;

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 4096;

pub(crate) fn fsync(folder: &Path, load: Load) -> anyhow::Result<Times> {
    let path = folder.join("fsync");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    let mut page = [0; PAGE_BYTES];
    for place in 0..PAGES {
        file.write_all_at(&page, place * PAGE_BYTES as u64)?;
    }
    file.sync_all()?;
    page.fill(0x5a);
    let mut times = Times::default();
    let began = Instant::now();
    while began.elapsed() < load.length() {
        let asked = Instant::now();
        file.write_all_at(&page, (times.rounds.len() as u64 % PAGES) * PAGE_BYTES as u64)?;
        file.sync_data()?;
        times.rounds.push(asked.elapsed().as_nanos() as u64);
    }
    times.elapsed = began.elapsed();
    std::fs::remove_file(&path)?;
    Ok(times)
}
