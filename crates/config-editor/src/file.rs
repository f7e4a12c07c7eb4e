//! One file on the disk: where it really is, what is in it, and how it is replaced in one step. Knows no format.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits::{FILE_BYTES_MAX, LINKS_MAX};

/// Only the owner: settings may hold secrets.
const MODE_NEW: u32 = 0o600;
const MODE_BITS: u32 = 0o7777;
/// What ends the name of a file that is not finished. Begins as the lock file does: `.NAME.`
const UNFINISHED: &str = ".lockkeeper-new";

/// A file as it was read.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) text: String,
    /// None: there was no file.
    before: Option<Metadata>,
}

/// Where a path leads: a link stays, and what it points at is changed. The file need not be there yet.
pub(crate) fn target(path: &Path) -> Result<PathBuf, Error> {
    let looked = || Error::io("can't look at", path);
    let mut target = std::path::absolute(path).map_err(looked())?;
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.file_type().is_symlink() => {
                let link = fs::read_link(&target).map_err(looked())?;
                target = target.parent().unwrap_or(Path::new("/")).join(link);
            }
            Ok(_) => return in_folder(&target),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return in_folder(&target),
            Err(error) => return Err(looked()(error)),
        }
    }
    Err(Error::NoFile { path: path.to_owned(), what: "a circle of links" })
}

fn in_folder(target: &Path) -> Result<PathBuf, Error> {
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Error::NoFile { path: target.to_owned(), what: "a folder" });
    };
    let folder = folder.canonicalize().map_err(Error::io("there is no folder", folder))?;
    Ok(folder.join(name))
}

impl Content {
    /// A file that is not there is empty.
    pub(crate) fn read(target: &Path) -> Result<Content, Error> {
        let failed = || Error::io("can't read", target);
        let found = match fs::symlink_metadata(target) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Content { text: String::new(), before: None });
            }
            Err(error) => return Err(failed()(error)),
        };
        // Opening a pipe would wait for whoever writes into it.
        let kind = found.file_type();
        if !kind.is_file() {
            let special = kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device();
            let what = if kind.is_dir() {
                "a folder"
            } else if special {
                "a device or pipe"
            } else {
                "a link"
            };
            return Err(Error::NoFile { path: target.to_owned(), what });
        }
        let file = File::open(target).map_err(failed())?;
        let before = file.metadata().map_err(failed())?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed())?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let text = String::from_utf8(bytes).map_err(|_| Error::NotText)?;
        Ok(Content { text, before: Some(before) })
    }

    /// The new text in place of the old, whole or not at all: also for whoever reads or loses power meanwhile.
    pub(crate) fn replace(&self, target: &Path, text: &str) -> Result<(), Error> {
        let failed = || Error::io("can't write", target);
        if self.before.as_ref().is_some_and(|before| before.mode() & 0o222 == 0) {
            return Err(Error::NoFile { path: target.to_owned(), what: "read-only" });
        }
        let folder = target.parent().unwrap_or(Path::new("/"));
        let mut unfinished = tempfile::Builder::new()
            .prefix(&unfinished_prefix(target))
            .suffix(UNFINISHED)
            .permissions(Permissions::from_mode(MODE_NEW))
            .tempfile_in(folder)
            .map_err(failed())?;
        unfinished.write_all(text.as_bytes()).map_err(failed())?;
        let file = unfinished.as_file();
        let mode = match &self.before {
            Some(before) => {
                let mine = file.metadata().map_err(failed())?;
                if (mine.uid(), mine.gid()) != (before.uid(), before.gid()) {
                    // Not everybody may give files away; then it is the writer's from now on.
                    let _ = std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()));
                }
                before.mode() & MODE_BITS
            }
            None => MODE_NEW,
        };
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed())?;
        file.sync_all().map_err(failed())?;
        if !self.is_still(target) {
            return Err(Error::ChangedMeanwhile(target.to_owned()));
        }
        unfinished.persist(target).map_err(|error| failed()(error.error))?;
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| Error::Unsynced { path: target.to_owned(), source })
    }

    fn is_still(&self, target: &Path) -> bool {
        let seen = |found: &Metadata| {
            (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec(), found.file_type().is_file())
        };
        match (fs::symlink_metadata(target), &self.before) {
            (Ok(now), Some(before)) => seen(&now) == seen(before),
            (Err(error), None) => error.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}

/// The mode of a lock file: who may read or write the file may wait for it as well.
pub(crate) fn lock_mode(target: &Path) -> u32 {
    fs::metadata(target).map_or(MODE_NEW, |found| found.mode() & 0o666 | MODE_NEW)
}

fn unfinished_prefix(target: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// Removes what writers left that were killed. Only the holder of the lock may: nobody else is writing then.
pub(crate) fn remove_unfinished(target: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let prefix = unfinished_prefix(target);
    let Some(Ok(entries)) = target.parent().map(fs::read_dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let middle = name.as_bytes().strip_prefix(prefix.as_bytes());
        let middle = middle.and_then(|rest| rest.strip_suffix(UNFINISHED.as_bytes()));
        // Exactly what a writer of this file makes: a.toml is not to take away what belongs to a.toml.b.toml.
        if middle.is_some_and(|middle| !middle.is_empty() && middle.iter().all(u8::is_ascii_alphanumeric)) {
            // Whoever may not remove it can still write.
            let _ = fs::remove_file(entry.path());
        }
    }
}
