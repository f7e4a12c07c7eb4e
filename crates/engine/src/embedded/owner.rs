//! One owner for a directory: a lock that the kernel drops with the process, and the owner's name beside it.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::disk;
use crate::EngineError;

const FILE: &str = "owner.lock";

/// The right to change what is in a directory; given back when dropped.
#[derive(Debug)]
pub(super) struct Owner {
    lock: File,
}

impl Owner {
    pub(super) fn claim(dir: &Path) -> Result<Owner, EngineError> {
        let path = dir.join(FILE);
        let mut file =
            disk::private().read(true).write(true).create(true).truncate(false).open(&path).map_err(disk::at(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(EngineError::InUse { place: dir.display().to_string(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(disk::at(&path)(error)),
        }
        // Only for people: the lock itself decides, so a full disk must not keep a service from starting.
        let named =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = named {
            tracing::warn!(%error, "the owner's pid could not be written");
        }
        Ok(Owner { lock: file })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is just starting has a copy of the file until it
        // runs its program, and a lock lasts as long as any copy.
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the directory of the ledgers could not be given back");
        }
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_being_started_keeps_no_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let owner = Owner::claim(dir.path()).expect("free");
        let copy_of_the_child = owner.lock.try_clone().expect("a copy");
        drop(owner);
        Owner::claim(dir.path()).expect("given back");
        drop(copy_of_the_child);
    }
}
