//! A folder that is held open: everything below it is named relative to it, and no symbolic link is followed.
//!
//! All that is changed on the disk is changed here, one step a call. Knows no event and no lock.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::step::step;

#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    pub(crate) path: PathBuf,
}

/// What was found where a regular file was looked for.
#[derive(Debug)]
pub(crate) enum Unread {
    Missing,
    /// A folder, a link, a pipe, a device.
    NotAFile(&'static str),
    TooLarge(u64),
    Failed(io::Error),
}

impl Folder {
    /// Opens a folder by its path; links on the way to it are the caller's own.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder { fd: rustix::fs::openat(CWD, path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// A folder in this one; `None` if there is nothing of that name.
    pub(crate) fn below(&self, name: &str) -> io::Result<Option<Folder>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Folder { fd, path: self.path.join(name) })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn make_folder(&self, name: &str) -> io::Result<()> {
        step("make folder")?;
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Calls with each entry's name until one is refused; names that are no text are passed as `None`.
    pub(crate) fn each<E>(&self, mut look: impl FnMut(Option<&str>) -> Result<(), E>) -> io::Result<Result<(), E>> {
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok();
            if matches!(name, Some("." | "..")) {
                continue;
            }
            if let Err(refused) = look(name) {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(()))
    }

    /// The whole of a regular file. A pipe does not make it wait, and a link is not followed.
    pub(crate) fn read(&self, name: &str, most: usize, buffer: &mut Vec<u8>) -> Result<(), Unread> {
        self.read_open(name, most, buffer).map(|_| ())
    }

    /// As [`Folder::read`], and the file, still open: as long as it is, no other can have its inode.
    pub(crate) fn read_open(&self, name: &str, most: usize, buffer: &mut Vec<u8>) -> Result<(File, Stat), Unread> {
        buffer.clear();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Err(Unread::Missing),
            Err(Errno::LOOP) => return Err(Unread::NotAFile("a symbolic link")),
            // A socket can't be opened.
            Err(Errno::NXIO) => return Err(Unread::NotAFile("a socket")),
            Err(error) => return Err(Unread::Failed(error.into())),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| Unread::Failed(error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Unread::NotAFile("a folder")),
            FileType::Fifo => return Err(Unread::NotAFile("a pipe")),
            _ => return Err(Unread::NotAFile("a device")),
        }
        let length = stat.st_size as u64;
        if length > most as u64 {
            return Err(Unread::TooLarge(length));
        }
        let mut file = File::from(fd);
        buffer.resize(length as usize + 1, 0);
        let mut filled = 0;
        loop {
            match file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Unread::Failed(error)),
            }
            // Written once and never again: there is nothing behind it.
            if filled == length as usize {
                break;
            }
            if filled == buffer.len() {
                if filled > most {
                    return Err(Unread::TooLarge(filled as u64));
                }
                buffer.resize((filled * 2).min(most + 1), 0);
            }
        }
        buffer.truncate(filled);
        Ok((file, stat))
    }

    /// What lies under a name, links not followed.
    pub(crate) fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file that was not there (`O_CREATE|O_EXCL|O_WRONLY`).
    pub(crate) fn create_new(&self, name: &str, mode: u32) -> io::Result<File> {
        step("create file")?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(File::from(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?))
    }

    /// Opens a file of ours that is never removed, and makes it if need be. Whoever may write the folder may write it.
    pub(crate) fn open_lasting(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                step("create lasting file")?;
                let fd = rustix::fs::openat(&self.fd, name, flags | OFlags::CREATE, Mode::from_raw_mode(0o600))?;
                let folder = rustix::fs::fstat(&self.fd)?;
                let shared = (folder.st_mode & 0o022) | ((folder.st_mode & 0o022) << 1);
                // Another of ours may have made it in between; then it is not ours to change.
                if shared != 0 {
                    let _ = rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o600 | shared));
                }
                // Whoever looks after somebody else's folder leaves nothing that its owner can't open.
                if rustix::process::geteuid().is_root() && folder.st_uid != 0 {
                    let (owner, group) = (Uid::from_raw(folder.st_uid), Gid::from_raw(folder.st_gid));
                    rustix::fs::fchown(&fd, Some(owner), Some(group))?;
                }
                fd
            }
            opened => opened?,
        };
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::other(format!("{name} is no regular file")));
        }
        Ok(File::from(fd))
    }

    /// Gives a file another name, unless something has that name: then `AlreadyExists`, and nothing changed.
    pub(crate) fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        step("publish")?;
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            // File systems that know no such flag know hard links, which don't replace anything either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.link_new(from, to),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Folder::rename_new`], by a second name and without the first.
    fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        match rustix::fs::linkat(&self.fd, from, &self.fd, to, AtFlags::empty()) {
            // A server that did it, and whose answer was lost, was asked twice: what has the name is ours.
            Err(Errno::EXIST) if self.is_same(from, to)? => {}
            done => done?,
        }
        // It has its name, whatever becomes of the other one; a leftover does no harm.
        let _ = self.remove(from);
        Ok(())
    }

    fn is_same(&self, one: &str, other: &str) -> io::Result<bool> {
        let place = |stat: Stat| (stat.st_dev, stat.st_ino);
        Ok(self.stat(one)?.map(place).is_some_and(|one| self.stat(other).ok().flatten().map(place) == Some(one)))
    }

    /// Gives a file another name in place of whatever has it.
    pub(crate) fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        step("replace")?;
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        step("remove")?;
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    pub(crate) fn remove_folder(&self, name: &str) -> io::Result<()> {
        step("remove folder")?;
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes names durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        step("sync folder")?;
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// A file with this content under a name that was free, durable but for its name.
    pub(crate) fn write_synced(&self, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
        let mut file = self.create_new(name, 0o600)?;
        let written = write_all(&mut file, content).and_then(|()| {
            step("set mode")?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            step("sync file")?;
            file.sync_all()
        });
        if written.is_err() {
            let _ = self.remove(name);
        }
        written
    }

    /// Whether the folder is on a disk of this machine, where nobody else can have written since it started.
    pub(crate) fn is_local(&self) -> bool {
        // ext2 to ext4, xfs, btrfs, tmpfs, overlay, f2fs, zfs, bcachefs
        const LOCAL: [u64; 8] =
            [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1, 0xCA45_1A4E];
        rustix::fs::fstatfs(&self.fd).is_ok_and(|stat| LOCAL.contains(&(stat.f_type as u64 & 0xFFFF_FFFF)))
    }
}

pub(crate) fn write_all(file: &mut File, content: &[u8]) -> io::Result<()> {
    step("write")?;
    file.write_all(content)
}

pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// A name that nobody else has.
pub(crate) fn temporary(before: &str, after: &str) -> io::Result<String> {
    let mut random = [0_u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{before}{:016x}{after}", u64::from_ne_bytes(random)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_not_given_again() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        folder.write_synced("first", b"1", 0o644).unwrap();
        folder.write_synced("second", b"2", 0o644).unwrap();
        folder.rename_new("first", "event").unwrap();
        assert_eq!(folder.rename_new("second", "event").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(place.path().join("event")).unwrap(), b"1");
        assert_eq!(std::fs::read(place.path().join("second")).unwrap(), b"2");
    }

    #[test]
    fn a_link_that_was_made_though_its_answer_was_lost_counts_as_made() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        folder.write_synced("first", b"1", 0o644).unwrap();
        folder.write_synced("second", b"2", 0o644).unwrap();
        std::fs::hard_link(place.path().join("first"), place.path().join("event")).unwrap();
        assert_eq!(folder.link_new("second", "event").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        folder.link_new("first", "event").unwrap();
        assert_eq!(std::fs::read(place.path().join("event")).unwrap(), b"1");
        assert!(!place.path().join("first").exists() && place.path().join("second").exists());
    }

    #[test]
    fn what_root_makes_in_somebodys_folder_is_theirs() {
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().unwrap();
        let root = rustix::process::geteuid().is_root();
        if root {
            std::os::unix::fs::chown(place.path(), Some(1234), Some(2345)).unwrap();
        }
        let folder = Folder::open(place.path()).unwrap();
        folder.open_lasting("lasting").unwrap();
        let (made, own) =
            (std::fs::metadata(place.path().join("lasting")).unwrap(), std::fs::metadata(place.path()).unwrap());
        assert_eq!(made.uid(), own.uid(), "as root or not");
        assert!(!root || (made.uid(), made.gid()) == (1234, 2345));
    }
}
