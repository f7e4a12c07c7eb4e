//! The disk itself: what one sync costs, of a page that is written into a file whose place is there already.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::Load;
use crate::flood::Times;

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 4096;

/// A file that has its place already, written page after page.
#[derive(Debug)]
pub(crate) struct Pages {
    file: File,
    written: Cell<u64>,
}

impl Pages {
    pub(crate) fn prepare(path: &Path) -> io::Result<Pages> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        for place in 0..PAGES {
            file.write_all_at(&[0; PAGE_BYTES], place * PAGE_BYTES as u64)?;
        }
        file.sync_all()?;
        Ok(Pages { file, written: Cell::new(0) })
    }

    /// Writes at the beginning of the next page.
    pub(crate) fn write(&self, record: &[u8]) -> io::Result<()> {
        let place = self.written.replace(self.written.get() + 1) % PAGES;
        self.file.write_all_at(record, place * PAGE_BYTES as u64)
    }

    pub(crate) fn write_and_sync(&self) -> io::Result<()> {
        self.write(&[0x5a; PAGE_BYTES])?;
        self.file.sync_data()
    }
}

pub(crate) fn fsync(folder: &Path, load: Load) -> anyhow::Result<Times> {
    let path = folder.join("fsync");
    let pages = Pages::prepare(&path)?;
    let mut times = Times::default();
    let began = Instant::now();
    while began.elapsed() < load.length() {
        let asked = Instant::now();
        pages.write_and_sync()?;
        times.rounds.push(asked.elapsed().as_nanos() as u64);
    }
    times.elapsed = began.elapsed();
    std::fs::remove_file(&path)?;
    Ok(times)
}
