//! Claims of the proofs that the user's settings name, for the list of locks. Only read: who made them ends them.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use lockkeeper_proof::{Ledger, Result};
use lockkeeper_server::service::Elsewhere;
use lockkeeper_wire::answer::{OutsideList, OutsideView};

/// Claims that one list shows at most.
const SHOWN_MAX: usize = 1_000;

/// The proofs, each kept open: so a list reads only what is new.
#[derive(Debug)]
pub(crate) struct Outside {
    proofs: Vec<(PathBuf, Mutex<Option<Kept>>)>,
}

/// A ledger, and the folder that it was when it was opened.
#[derive(Debug)]
struct Kept {
    ledger: Ledger,
    place: (u64, u64),
}

impl Outside {
    pub(crate) fn new(folders: Vec<PathBuf>) -> Outside {
        Outside { proofs: folders.into_iter().map(|folder| (folder, Mutex::new(None))).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.proofs.is_empty()
    }
}

impl Elsewhere for Outside {
    /// All claims that keep others out, and what could not be read.
    fn list(&self) -> OutsideList {
        let mut list = OutsideList::default();
        for (folder, kept) in &self.proofs {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            match claims(folder, &mut kept) {
                Ok(claims) => list.locks.extend(claims),
                Err(error) => {
                    // Looked at afresh next time.
                    *kept = None;
                    list.problems.push(format!("proof {}: {error}", folder.display()));
                }
            }
        }
        if list.locks.len() > SHOWN_MAX {
            list.problems.push(format!("only {SHOWN_MAX} of {} claims of proofs are shown", list.locks.len()));
            list.locks.truncate(SHOWN_MAX);
        }
        list
    }
}

fn claims(folder: &PathBuf, kept: &mut Option<Kept>) -> Result<Vec<OutsideView>> {
    // Another folder of the same name is another proof.
    let place = std::fs::metadata(folder.join("ledger")).ok().map(|there| (there.dev(), there.ino()));
    let Kept { ledger, .. } = match kept {
        Some(kept) if Some(kept.place) == place => kept,
        old => old.insert(Kept { ledger: Ledger::open(folder)?, place: place.unwrap_or_default() }),
    };
    let (claims, now) = (ledger.claims()?, ledger.now());
    let view = |claim: &lockkeeper_proof::Claim| OutsideView {
        key: format!("proof:{}:{}", folder.display(), claim.node),
        owner: claim.owner.to_string(),
        created_at: claim.acquired_at.map(|at| at.to_string()),
        expires_at: claim.expires_at.to_string(),
        expires_in_ms: u64::try_from(claim.expires_at.duration_since(now).as_millis()).unwrap_or(0),
        read_only: true,
    };
    Ok(claims.taken(now).into_iter().map(view).collect())
}
