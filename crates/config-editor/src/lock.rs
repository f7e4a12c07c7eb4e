//! The lock file beside a file: who holds it may read, change and replace. It is never removed, so that nobody locks
//! a file that others no longer see.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::error::Error;

/// Held until it is dropped, or its process ends in whatever way.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the others, but not for ever.
    pub(crate) fn take(target: &Path, mode: u32, wait: Duration) -> Result<Lock, Error> {
        let path = lock_file(target);
        let began = Instant::now();
        loop {
            let file = open(&path, mode).map_err(Error::io("the lock can't be opened:", &path))?;
            let left = wait.saturating_sub(began.elapsed());
            let locked = lock_within(file, left).map_err(Error::io("the lock can't be taken:", &path))?;
            let Some(file) = locked else { return Err(Error::TimedOut { lock: path, waited: began.elapsed() }) };
            // Somebody may have removed it by hand: then others lock another file of that name.
            let same = |seen: &std::fs::Metadata, held: &std::fs::Metadata| {
                (seen.dev(), seen.ino()) == (held.dev(), held.ino())
            };
            let held = file.metadata().map_err(Error::io("the lock can't be looked at:", &path))?;
            if std::fs::symlink_metadata(&path).is_ok_and(|seen| same(&seen, &held)) {
                return Ok(Lock { _file: file });
            }
        }
    }
}

/// `.NAME.lock`, in the same folder.
pub(crate) fn lock_file(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.lock"))
}

fn open(path: &Path, mode: u32) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(no_link.bits()).expect("flags of open are small");
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        // It is never written, so that who may read the file may lock it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode)
            .custom_flags(flags)
            .open(path)?,
        other => other?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    Ok(file)
}

/// None: others held it all the time.
fn lock_within(file: File, wait: Duration) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => return Ok(Some(file)),
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => {}
    }
    // The kernel keeps a queue, which trying again and again does not: that would starve somebody. A thread that waits
    // longer than its asker gets the lock some day, finds nobody, and gives it back.
    let (got, asked) = mpsc::channel();
    std::thread::Builder::new().name("config lock".to_owned()).spawn(move || {
        let locked = file.lock().map(|()| file);
        let _ = got.send(locked);
    })?;
    match asked.recv_timeout(wait) {
        Ok(locked) => locked.map(Some),
        Err(_) => Ok(None),
    }
}
