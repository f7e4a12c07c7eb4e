//! Files in `locks/`: a second way of saying what the ledger says. The ledger is right where they differ.

use jiff::Timestamp;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use crate::claims::Claim;
use crate::error::{Error, Result, shown};
use crate::limits::{CLAIM_FILES_MAX, SMALL_FILE_BYTES_MAX};
use crate::name::NodeId;
use crate::place::{Folder, Unread, temporary};
use crate::profile::Profile;

pub(crate) const FOLDER: &str = "locks";

/// What a lock file says. Times have nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimFile {
    pub node_id: String,
    pub owner: String,
    pub acquired_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A lock file as it was found: its name, and what it says or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) says: std::result::Result<ClaimFile, String>,
    /// Which file it was: its device, its inode, and when it was written.
    mark: Option<Mark>,
}

type Mark = (u64, u64, i64, i64);

fn mark(stat: &Stat) -> Mark {
    (stat.st_dev, stat.st_ino, stat.st_mtime, stat.st_mtime_nsec as i64)
}

impl ClaimFile {
    /// Reads the content of a lock file; or says what is wrong with it.
    pub fn parse(content: &[u8]) -> std::result::Result<ClaimFile, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is no text".to_owned())?;
        serde_json::from_str(text).map_err(|error| shown(&error.to_string()))
    }

    pub(crate) fn is_of(&self, claim: &Claim) -> bool {
        self.node_id == claim.node.as_str() && self.owner == claim.owner.as_str()
    }
}

/// A node has digits and dots only, so its name is a file's name; one that somebody else wrote may be anything, and has no
/// file.
fn name(node: &NodeId) -> Result<String> {
    Ok(format!("{}.lock", NodeId::parse(node.as_str(), Profile::Doc)?.as_str()))
}

fn failed(name: &str) -> impl FnOnce(std::io::Error) -> Error {
    Error::io(format!("{FOLDER}/{name}"))
}

/// Every `.lock` file, in the order of their names.
pub(crate) fn list(proof: &Folder) -> Result<Vec<Found>> {
    let Some(folder) = proof.below(FOLDER).map_err(failed(""))? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    folder
        .each(|name| {
            if let Some(name) = name.filter(|name| name.strip_suffix(".lock").is_some()) {
                if names.len() == CLAIM_FILES_MAX {
                    return Err(Error::TooMany { what: "files in locks/", most: CLAIM_FILES_MAX as u64 });
                }
                names.push(name.to_owned());
            }
            Ok(())
        })
        .map_err(failed(""))??;
    names.sort();
    let mut content = Vec::new();
    let mut found = Vec::new();
    for name in names {
        let mut seen = None;
        let says = match folder.read_open(&name, SMALL_FILE_BYTES_MAX, &mut content) {
            Ok((_, stat)) => {
                seen = Some(mark(&stat));
                ClaimFile::parse(&content)
            }
            Err(Unread::Missing) => continue,
            Err(Unread::NotAFile(what)) => Err(format!("it is {what} and no file")),
            Err(Unread::TooLarge(bytes)) => Err(format!("it has {bytes} bytes")),
            Err(Unread::Failed(error)) => Err(error.to_string()),
        };
        found.push(Found { name, says, mark: seen });
    }
    Ok(found)
}

/// What the file of a node says, if there is one that can be read.
pub(crate) fn of(proof: &Folder, node: &NodeId) -> Result<Option<ClaimFile>> {
    let Some(folder) = proof.below(FOLDER).map_err(failed(""))? else { return Ok(None) };
    let mut content = Vec::new();
    let Ok(name) = name(node) else { return Ok(None) };
    match folder.read(&name, SMALL_FILE_BYTES_MAX, &mut content) {
        Ok(()) => Ok(ClaimFile::parse(&content).ok().filter(|file| file.node_id == node.as_str())),
        Err(_) => Ok(None),
    }
}

/// Writes the file of a claim, in place of one that was there.
pub(crate) fn write(proof: &Folder, claim: &Claim) -> Result<()> {
    let name = name(&claim.node)?;
    proof.make_folder(FOLDER).map_err(failed(""))?;
    let folder = proof.below(FOLDER).map_err(failed(""))?;
    let folder = folder.ok_or_else(|| Error::damaged(FOLDER, "it is gone"))?;
    let file = ClaimFile {
        node_id: claim.node.as_str().to_owned(),
        owner: claim.owner.as_str().to_owned(),
        acquired_at: claim.acquired_at.unwrap_or(claim.expires_at),
        expires_at: claim.expires_at,
    };
    let text = serde_json::to_string(&file).map_err(|error| Error::Invalid(error.to_string()))?;
    let new = temporary(".claim-", ".tmp").map_err(failed(&name))?;
    folder.write_synced(&new, text.as_bytes(), 0o644).map_err(failed(&name))?;
    folder.replace(&new, &name).map_err(|error| {
        let _ = folder.remove(&new);
        failed(&name)(error)
    })
}

/// Removes a file, if it is there.
pub(crate) fn remove(proof: &Folder, name: &str) -> Result<()> {
    let Some(folder) = proof.below(FOLDER).map_err(failed(""))? else { return Ok(()) };
    match folder.remove(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(name)(error)),
        _ => Ok(()),
    }
}

/// Removes a file that was found, if it is still that one; says whether it did.
pub(crate) fn remove_seen(proof: &Folder, found: &Found) -> Result<bool> {
    let Some(folder) = proof.below(FOLDER).map_err(failed(""))? else { return Ok(false) };
    let now = folder.stat(&found.name).map_err(failed(&found.name))?;
    if found.mark.is_none() || now.as_ref().map(mark) != found.mark {
        return Ok(false);
    }
    remove(proof, &found.name).map(|()| true)
}

/// Removes the file of a claim that has ended, if it is that claim's.
pub(crate) fn remove_of(proof: &Folder, claim: &Claim) -> Result<()> {
    let Some(folder) = proof.below(FOLDER).map_err(failed(""))? else { return Ok(()) };
    let Ok(name) = name(&claim.node) else { return Ok(()) };
    let mut content = Vec::new();
    match folder.read(&name, SMALL_FILE_BYTES_MAX, &mut content) {
        Ok(()) if ClaimFile::parse(&content).is_ok_and(|file| file.is_of(claim)) => remove(proof, &name),
        // Others' files, and what can't be read, are left where they are.
        _ => Ok(()),
    }
}
