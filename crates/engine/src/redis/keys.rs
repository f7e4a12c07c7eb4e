//! The names under which the ledger of a space lies in Redis: all with one hash tag, so that a cluster keeps them
//! together.

use std::fmt::Write as _;

use lockkeeper_core::space::Space;

const PREFIX: &str = "lockkeeper:{";
const HEAD: &str = "}:head";
/// How many parts the keys of a cluster are spread over.
const SLOTS: u16 = 16_384;

/// Matches the head of every ledger.
pub(super) const HEADS: &str = "lockkeeper:{*}:head";

/// The keys of one ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// A hash: where the ledger ends, and what its snapshot stands for.
    pub(super) head: String,
    /// A stream: one entry for each batch behind the snapshot, with its revision as id.
    pub(super) log: String,
    /// Where everybody is told that the ledger moved.
    pub(super) channel: String,
    /// Behind it comes the name of a snapshot: a list of its parts.
    pub(super) snapshots: String,
    /// Which part of a cluster they are in.
    pub(super) slot: u16,
}

impl Keys {
    pub(super) fn of(space: &Space, database: u16) -> Keys {
        let tag = encoded(space.as_str());
        let key = |last: &str| format!("{PREFIX}{tag}}}:{last}");
        Keys {
            head: format!("{PREFIX}{tag}{HEAD}"),
            log: key("log"),
            // Databases keep keys apart, and not channels.
            channel: key(&format!("moved:{database}")),
            snapshots: key("snapshot:"),
            slot: crc16(tag.as_bytes()) % SLOTS,
        }
    }

    pub(super) fn snapshot(&self, name: &str) -> String {
        format!("{}{name}", self.snapshots)
    }
}

/// The space whose head has this key.
pub(super) fn space_of(head: &[u8]) -> Option<Space> {
    let tag = std::str::from_utf8(head).ok()?.strip_prefix(PREFIX)?.strip_suffix(HEAD)?;
    let space = Space::parse(&decoded(tag)?).ok()?;
    // What is spelled otherwise was not written here.
    (encoded(space.as_str()) == tag).then_some(space)
}

/// A name as a pattern that matches nothing else.
pub(super) fn escaped(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        if "*?[]^\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Braces would end the hash tag too early.
fn encoded(space: &str) -> String {
    let mut tag = String::with_capacity(space.len());
    for c in space.chars() {
        if "%{}".contains(c) {
            let _ = write!(tag, "%{:02X}", u32::from(c));
        } else {
            tag.push(c);
        }
    }
    tag
}

fn decoded(tag: &str) -> Option<String> {
    let mut parts = tag.split('%');
    let mut space = parts.next()?.to_owned();
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok()?;
        space.push(char::from(code));
        space.push_str(part.get(2..)?);
    }
    Some(space)
}

/// The checksum by which a cluster spreads its keys (CRC-16, polynomial 0x1021, starting from zero).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum: u16, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| (sum << 1) ^ if sum & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(space: &str) -> Keys {
        Keys::of(&Space::parse(space).expect("a name"), 0)
    }

    #[test]
    fn a_head_leads_back_to_its_space() {
        for name in ["a", "github.com/some/where", "{}", "a{b}c%7D", "100%", "\u{1f512} }:head"] {
            let keys = keys(name);
            assert_eq!(space_of(keys.head.as_bytes()).expect(name).as_str(), name);
            assert_eq!(keys.head.matches('{').count(), 1, "{name}");
            assert_eq!(keys.head.matches('}').count(), 1, "{name}");
        }
        for strange in
            ["lockkeeper:{}:head", "lockkeeper:{a}:log", "lockkeeper:{%61}:head", "lockkeeper:{%7d}:head", "x"]
        {
            assert_eq!(space_of(strange.as_bytes()), None, "{strange}");
        }
    }

    #[test]
    fn slots_are_those_of_a_cluster() {
        // The check value of this checksum, from the specification of Redis Cluster.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(keys("foo").slot, 12_182);
        assert_eq!(keys("{}").slot, crc16(b"%7B%7D") % SLOTS);
    }
}
