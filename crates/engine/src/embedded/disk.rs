//! The few ways in which files are touched here: private to the user, synced with their directory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::EngineError;

/// Options for a file that only its owner may read.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Makes a directory, and those above it, that only its owner may enter; durably.
pub(super) fn make_directory(path: &Path) -> Result<(), EngineError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| is_missing(above)).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))?;
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match sync_directory(above) {
            // A directory that may be entered but not read can't be synced by us.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(at(above))?,
        }
    }
    Ok(())
}

fn is_missing(path: &Path) -> bool {
    !path.as_os_str().is_empty() && !path.exists()
}

/// Makes what was created, renamed or deleted in a directory survive a power loss.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The whole of a file that must not be larger than `bytes_max`.
pub(super) fn read_bounded(path: &Path, bytes_max: usize) -> Result<Vec<u8>, EngineError> {
    let file = File::open(path).map_err(at(path))?;
    let length = file.metadata().map_err(at(path))?.len();
    if length > bytes_max as u64 {
        return Err(EngineError::Corrupt {
            place: path.display().to_string(),
            details: format!("{length} bytes are more than the {bytes_max} it can have"),
        });
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(bytes_max as u64).read_to_end(&mut bytes).map_err(at(path))?;
    Ok(bytes)
}

/// Names the file in an error.
pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    move |error| EngineError::Unreachable(format!("{}: {error}", path.display()))
}

/// Whether an error says that there is no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
