//! Files that others wrote and that are only looked into: plain ones, and no further than they may reasonably go. A pipe would
//! never end, and neither would a device.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than any such file has.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

pub(crate) fn text(path: &Path) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_not_read() {
        let folder = tempfile::tempdir().expect("a directory");
        let (pipe, device, plain) =
            (folder.path().join("pipe"), folder.path().join("device"), folder.path().join("plain"));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        std::os::unix::fs::symlink("/dev/zero", &device).expect("a link");
        std::fs::write(&plain, "gitdir: x\n").expect("written");
        assert!(text(&pipe).is_err() && text(&device).is_err());
        assert_eq!(text(&plain).expect("read"), "gitdir: x\n");
    }
}
