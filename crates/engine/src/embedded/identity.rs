//! The small file that says whose ledger a directory holds. Written once, before anything else.

use std::path::Path;

use crc32c::crc32c;
use lockkeeper_core::limits::SPACE_BYTES_MAX;
use lockkeeper_core::space::Space;

use super::disk;
use super::field::{put, u32_at, u64_at};
use crate::EngineError;
use crate::position::draw;

pub(super) const FILE: &str = "ledger";
const MAGIC: u64 = u64::from_le_bytes(*b"LKLEDGR1");
const FIXED_BYTES: usize = 28;

/// What makes a ledger itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) epoch: u64,
    /// Where every checksum of this ledger starts from.
    pub(super) salt: u32,
    pub(super) space: Space,
}

impl Identity {
    pub(super) fn draw(space: Space) -> Identity {
        Identity { epoch: draw(), salt: draw() as u32, space }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let name = self.space.as_str().as_bytes();
        let mut bytes = Vec::with_capacity(FIXED_BYTES + name.len());
        put(&mut bytes, [MAGIC, self.epoch]);
        bytes.extend_from_slice(&self.salt.to_le_bytes());
        bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name);
        let crc = crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the identity of the ledger in this directory.
    pub(super) fn read(dir: &Path) -> Result<Identity, EngineError> {
        let path = dir.join(FILE);
        let bytes = disk::read_bounded(&path, FIXED_BYTES + SPACE_BYTES_MAX)?;
        Identity::parse(&bytes).ok_or_else(|| EngineError::Corrupt {
            place: path.display().to_string(),
            details: "it does not say which ledger this is".to_owned(),
        })
    }

    fn parse(bytes: &[u8]) -> Option<Identity> {
        let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if body.len() < 24 || u64_at(body, 0) != MAGIC || u32_at(crc, 0) != crc32c(body) {
            return None;
        }
        let name = std::str::from_utf8(&body[24..]).ok()?;
        let whole = name.len() == u32_at(body, 20) as usize;
        let epoch = u64_at(body, 8);
        let space = Space::parse(name).ok()?;
        (whole && epoch != 0).then_some(Identity { epoch, salt: u32_at(body, 16), space })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_written_and_a_damaged_one_is_not() {
        let identity = Identity::draw(Space::parse("github.com/some/where").expect("a name"));
        let bytes = identity.bytes();
        assert_eq!(Identity::parse(&bytes), Some(identity));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(Identity::parse(&damaged), None, "byte {at}");
            assert_eq!(Identity::parse(&bytes[..at]), None, "cut at {at}");
        }
    }
}
