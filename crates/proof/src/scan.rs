//! One look over the ledger's folder: which numbers there are, and what else lies about. Opens no event.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::limits::ENTRIES_MAX;
use crate::name::Sequence;
use crate::place::Folder;
use crate::profile::{Profile, almost_event, event_name};

/// Names that are not written in the usual way, and leftovers, are kept up to this many.
const ODD_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) doc: Numbers,
    pub(crate) af: Numbers,
    /// Temporary files of writers that are at work, or were.
    pub(crate) temporary: Vec<String>,
    /// Files that are called as events are, but for their numbers.
    pub(crate) strange: Vec<(Profile, String)>,
}

/// The events of one profile.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) highest: Sequence,
    /// All numbers that there are, in their order.
    pub(crate) all: Vec<u64>,
    /// How many files there are, whatever they are called.
    pub(crate) files: u64,
    /// Files with other names, such as `7.json`, by their numbers.
    pub(crate) odd: BTreeMap<u64, Vec<String>>,
}

impl Numbers {
    /// Whether whoever counts files gets the highest number.
    pub(crate) fn are_counted_right(&self) -> bool {
        self.files == self.highest.0
    }
}

impl Scan {
    pub(crate) fn of(folder: &Folder) -> Result<Scan> {
        let mut scan = Scan::default();
        let mut entries = 0;
        let mut odd = 0;
        let read = folder.each(|name| {
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(Error::TooMany { what: "files in the ledger", most: ENTRIES_MAX as u64 });
            }
            let Some(name) = name else { return Ok(()) };
            if let Some((profile, sequence)) = event_name(name) {
                let numbers = scan.numbers_mut(profile);
                numbers.highest = numbers.highest.max(sequence);
                numbers.all.push(sequence.0);
                numbers.files += 1;
                if profile.file_name(sequence) != name {
                    odd += 1;
                    if odd > ODD_MAX {
                        return Err(Error::TooMany { what: "files with unusual names", most: ODD_MAX as u64 });
                    }
                    numbers.odd.entry(sequence.0).or_default().push(name.to_owned());
                }
            } else if name.starts_with(".event-")
                && name.strip_suffix(".tmp").is_some()
                && scan.temporary.len() < ODD_MAX
            {
                scan.temporary.push(name.to_owned());
            } else if let Some(profile) = almost_event(name).filter(|_| scan.strange.len() < ODD_MAX) {
                scan.strange.push((profile, name.to_owned()));
            }
            Ok(())
        });
        read.map_err(Error::io(folder.path.display().to_string()))??;
        scan.temporary.sort();
        scan.strange.sort_by(|one, other| one.1.cmp(&other.1));
        for numbers in [&mut scan.doc, &mut scan.af] {
            numbers.all.sort_unstable();
            numbers.all.dedup();
        }
        Ok(scan)
    }

    pub(crate) fn numbers(&self, profile: Profile) -> &Numbers {
        match profile {
            Profile::Doc => &self.doc,
            Profile::Af => &self.af,
        }
    }

    fn numbers_mut(&mut self, profile: Profile) -> &mut Numbers {
        match profile {
            Profile::Doc => &mut self.doc,
            Profile::Af => &mut self.af,
        }
    }

    /// The profiles that have events here.
    pub(crate) fn found(&self) -> (bool, bool) {
        (self.doc.highest > Sequence(0), self.af.highest > Sequence(0))
    }
}
