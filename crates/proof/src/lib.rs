//! The proof-ledger protocol on disk: an append-only ledger of events, one file each, a lock file in front of it, and
//! claims on the nodes of a proof, which are events themselves.
//!
//! It stands alone, is synchronous, and is for any tool that works with such proofs beside others that do not know it.
//! It needs Linux.
//!
//! ```
//! use lockkeeper_proof::{NewEvent, NodeId, Options, Owner, Profile, Sequence};
//! # fn main() -> lockkeeper_proof::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let proof = folder.path().join("proof");
//! let ledger = Options { profile: Some(Profile::Doc), ..Options::default() }.init(&proof, None)?;
//!
//! // Append, if nobody else did since we looked.
//! let seen = ledger.sequence()?;
//! let event = NewEvent::parse(r#"{"type":"custom_event","timestamp":"2024-01-15T10:30:00Z"}"#, Profile::Doc)?;
//! assert_eq!(ledger.append_if_sequence(&event, seen)?, Sequence(1));
//! assert!(ledger.append_if_sequence(&event, seen).unwrap_err().to_string().starts_with("ErrSequenceMismatch"));
//!
//! // Claim a node. Nobody else gets it before it is released, or expires.
//! let node = NodeId::parse("1.2.3", Profile::Doc)?;
//! let (ada, bob) = (Owner::parse("ada")?, Owner::parse("bob")?);
//! ledger.claim(&node, &ada, None)?;
//! assert!(ledger.claim(&node, &bob, None).unwrap_err().to_string().starts_with("node already locked"));
//! ledger.release(&node, &ada)?;
//! assert!(ledger.claims()?.active(ledger.now()).is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! There are two [profiles](Profile): what the protocol's document says, and what the program `af` does. A ledger's profile
//! is seen from its files, and no event of one is ever written into a ledger of the other.
//!
//! What is promised, whoever else writes by the protocol: an event whose append returned is durable; each number has one
//! event, and ours replaces none; a crash at any moment leaves a ledger that reads correctly; of all who claim a node one
//! gets it; a claim is ended by its owner, or once it is expired, and by one event. The protocol lets others break a lock
//! that is 30 s old: whoever lost one writes nothing, or is told that nobody knows.

mod claim;
mod claim_file;
mod claims;
mod error;
mod event;
mod holder;
mod ledger;
pub mod limits;
mod lock;
mod meta;
mod name;
mod place;
mod profile;
mod scan;
mod step;
mod turnstile;
mod verify;

pub use claim::{Reaped, Released};
pub use claim_file::ClaimFile;
pub use claims::{Claim, Claims};
pub use error::{Error, Result};
pub use event::{Event, Kind, NewEvent, parse_event};
pub use holder::{Holder, Life, Process};
pub use ledger::{Ledger, Options};
pub use lock::{LedgerLock, LockState, Recovery, Verdict};
pub use name::{NodeId, Owner, Sequence};
pub use profile::Profile;
#[cfg(feature = "crash-points")]
pub use step::{steps_taken, watch_steps};
pub use verify::{Finding, Problem, Severity, Verification, verify};
