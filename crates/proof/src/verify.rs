//! Looks at a whole proof and says what is wrong with it, and what that means. Changes nothing.

use std::path::Path;

use serde::Serialize;

use crate::claim_file;
use crate::claims::{Claims, Impossible};
use crate::error::{Error, Result, shown};
use crate::event;
use crate::ledger::{Ledger, Options};
use crate::limits::{EVENT_BYTES_MAX, FINDINGS_MAX, LEFTOVER_AGE};
use crate::lock::{self, LockState, Verdict};
use crate::meta::{META_FILE, Meta};
use crate::name::{NodeId, Sequence};
use crate::place::Unread;
use crate::profile::Profile;
use crate::scan::{Numbers, Scan};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It will do no harm by itself.
    Note,
    /// It is in somebody's way, or two things that should agree do not.
    Warning,
    /// The ledger can't be read as it is, or says what can't be.
    Error,
}

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    Gap,
    Duplicate,
    BadEvent,
    WrongProfile,
    ImpossibleTransition,
    UnusualName,
    NotAnEvent,
    Leftover,
    Lock,
    ClaimFile,
    Meta,
}

/// One thing that was found, where, and what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub problem: Problem,
    pub file: String,
    pub what: String,
    pub meaning: &'static str,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    pub profile: Profile,
    /// The highest number.
    pub sequence: Sequence,
    pub events: u64,
    pub findings: Vec<Finding>,
    /// Findings beyond the bound.
    pub left_out: usize,
}

impl Verification {
    /// Whether every reader of the protocol can read the ledger and gets the same from it.
    pub fn is_sound(&self) -> bool {
        self.left_out == 0 && self.findings.iter().all(|finding| finding.severity < Severity::Error)
    }

    fn add(&mut self, severity: Severity, problem: Problem, file: impl Into<String>, what: impl Into<String>) {
        if self.findings.len() == FINDINGS_MAX {
            self.left_out += 1;
            return;
        }
        let meaning = meaning(problem);
        self.findings.push(Finding { severity, problem, file: file.into(), what: what.into(), meaning });
    }
}

fn meaning(problem: Problem) -> &'static str {
    match problem {
        Problem::Gap => "an event was lost or removed: readers refuse the ledger, or count wrongly and overwrite",
        Problem::Duplicate => "two files have one number: readers take either, and no longer agree",
        Problem::BadEvent => "nobody can read this event, so nobody knows the state behind it",
        Problem::WrongProfile => {
            "the program af refuses to load a proof with such an event; other readers don't see it"
        }
        Problem::ImpossibleTransition => {
            "somebody wrote without looking at the state: the program af refuses such a proof, and readers may not agree"
        }
        Problem::UnusualName => "readers that expect six digits do not see this event",
        Problem::NotAnEvent => "readers don't see it, but whoever counts files counts it, and takes a wrong number",
        Problem::Leftover => "a writer ended before it published; nothing depends on it, and recover removes it",
        Problem::Lock => "nobody can write while it is there",
        Problem::ClaimFile => "the ledger is right where they differ; reap removes what is expired",
        Problem::Meta => "how long claims last is not known; claiming without a timeout is refused",
    }
}

/// Verifies a proof; one that is not there, or of which nobody knows the profile, is an error.
pub fn verify(proof: &Path, options: Options) -> Result<Verification> {
    let ledger = options.open(proof)?;
    let profile = ledger.profile();
    let scan = Scan::of(&ledger.events)?;
    let numbers = scan.numbers(profile);
    let (sequence, count) = (numbers.highest, numbers.all.len() as u64);
    let mut found = Verification { profile, sequence, events: count, findings: Vec::new(), left_out: 0 };
    let claims = events(&ledger, numbers, &mut found);
    others(&ledger, &scan, &mut found)?;
    claim_files(&ledger, claims.as_ref(), &mut found)?;
    Ok(found)
}

/// Reads every event; the claims, unless something is missing or can't be read.
fn events(ledger: &Ledger, numbers: &Numbers, found: &mut Verification) -> Option<Claims> {
    let profile = ledger.profile();
    let mut claims = Some(Claims::new(profile));
    let mut content = Vec::new();
    let mut before = 0;
    for &number in &numbers.all {
        let sequence = Sequence(number);
        if number > before + 1 {
            tell_gap(before + 1, number - 1, profile, found);
            claims = None;
        }
        before = number;
        let usual = profile.file_name(sequence);
        let odd = numbers.odd.get(&number).map(Vec::as_slice).unwrap_or_default();
        let (name, read) = match ledger.events.read(&usual, EVENT_BYTES_MAX, &mut content) {
            Err(Unread::Missing) if !odd.is_empty() => {
                let read = ledger.events.read(&odd[0], EVENT_BYTES_MAX, &mut content);
                found.add(Severity::Warning, Problem::UnusualName, &odd[0], format!("it should be called {usual}"));
                (odd[0].clone(), read)
            }
            read => {
                for twin in odd {
                    found.add(Severity::Error, Problem::Duplicate, twin, format!("{usual} has the same number"));
                }
                (usual, read)
            }
        };
        for twin in odd.iter().skip(1).filter(|_| name == odd[0]) {
            found.add(Severity::Error, Problem::Duplicate, twin, format!("{name} has the same number"));
        }
        let what = match read {
            Ok(()) => match event::read(&content, profile) {
                Ok(reading) => {
                    look_at(&reading, &name, profile, found);
                    let strange =
                        claims.as_mut().and_then(|claims| claims.apply(sequence, reading.timestamp, reading.kind));
                    if let Some(Impossible { what, divides }) = strange {
                        let is_error = divides || profile == Profile::Af;
                        let severity = if is_error { Severity::Error } else { Severity::Warning };
                        found.add(severity, Problem::ImpossibleTransition, &name, what);
                    }
                    continue;
                }
                Err(what) => what,
            },
            Err(Unread::Missing) => {
                // Gone since it was seen.
                tell_gap(number, number, profile, found);
                claims = None;
                continue;
            }
            Err(Unread::NotAFile(what)) => format!("it is {what} and no file"),
            Err(Unread::TooLarge(bytes)) => format!("it has {bytes} bytes, and {EVENT_BYTES_MAX} are the limit"),
            Err(Unread::Failed(error)) => error.to_string(),
        };
        claims = None;
        found.add(Severity::Error, Problem::BadEvent, &name, what);
    }
    claims
}

fn tell_gap(first: u64, last: u64, profile: Profile, found: &mut Verification) {
    let what = if first == last { "it is missing".to_owned() } else { format!("missing, up to number {last}") };
    found.add(Severity::Error, Problem::Gap, profile.file_name(Sequence(first)), what);
}

fn look_at(reading: &event::Reading<'_>, name: &str, profile: Profile, found: &mut Verification) {
    if !profile.knows(&reading.event_type) {
        let what = format!("its type is '{}'", shown(&reading.event_type));
        found.add(Severity::Error, Problem::WrongProfile, name, what);
    }
}

/// What lies about: events of the other profile, temporary files, the lock, the settings.
fn others(ledger: &Ledger, scan: &Scan, found: &mut Verification) -> Result<()> {
    let profile = ledger.profile();
    let other = match profile {
        Profile::Doc => Profile::Af,
        Profile::Af => Profile::Doc,
    };
    let strange = scan.numbers(other);
    if strange.highest > Sequence(0) {
        let what = format!("{} events of the profile {other}", strange.all.len());
        found.add(Severity::Warning, Problem::WrongProfile, other.file_name(strange.highest), what);
    }
    for (_, name) in scan.strange.iter().filter(|(of, _)| *of == profile) {
        found.add(
            Severity::Warning,
            Problem::NotAnEvent,
            shown(name),
            "events have numbers from 1 on, of up to 12 digits",
        );
    }
    for name in &scan.temporary {
        let stat = ledger.events.stat(name).map_err(Error::io(name.clone()))?;
        if let Some(age) = stat.map(|stat| lock::age(&stat)).filter(|age| *age > LEFTOVER_AGE) {
            found.add(Severity::Note, Problem::Leftover, shown(name), format!("written {} s ago", age.as_secs()));
        }
    }
    let state = ledger.lock_state()?;
    let severity = match &state {
        LockState::Free => None,
        // Somebody is at work.
        LockState::Held { life: Verdict::Alive, .. } => Some(Severity::Note),
        LockState::Held { .. } | LockState::Empty { .. } | LockState::Directory { .. } | LockState::Foreign { .. } => {
            Some(Severity::Warning)
        }
    };
    if let Some(severity) = severity {
        found.add(severity, Problem::Lock, lock::LOCK_FILE, state.describe());
    }
    match Meta::read(&ledger.proof) {
        Ok(meta) if profile == Profile::Af && meta.spelling == Some(Profile::Doc) => {
            let what = "lock_timeout is a text, and the program af reads nanoseconds";
            found.add(Severity::Warning, Problem::Meta, META_FILE, what);
        }
        Ok(_) => {}
        Err(error) => found.add(Severity::Warning, Problem::Meta, META_FILE, error.to_string()),
    }
    Ok(())
}

/// Files in `locks/` beside the claims.
fn claim_files(ledger: &Ledger, claims: Option<&Claims>, found: &mut Verification) -> Result<()> {
    let now = ledger.now();
    for file in claim_file::list(&ledger.proof)? {
        let name = format!("{}/{}", claim_file::FOLDER, shown(&file.name));
        let says = match file.says {
            Ok(says) => says,
            Err(what) => {
                found.add(Severity::Warning, Problem::ClaimFile, name, what);
                continue;
            }
        };
        let Some(claims) = claims else { continue };
        let what = match claims.get(&NodeId::as_written(&says.node_id)) {
            None => "nobody holds its node".to_owned(),
            Some(claim) if !says.is_of(claim) => {
                format!("it names {}, and {} holds the node", shown(&says.owner), claim.owner)
            }
            Some(claim) if says.expires_at != claim.expires_at => {
                format!("it ends at {}, and the claim at {}", says.expires_at, claim.expires_at)
            }
            Some(claim) if claim.is_stale(now) => format!("it ended at {}", claim.expires_at),
            Some(_) => continue,
        };
        found.add(Severity::Warning, Problem::ClaimFile, name, what);
    }
    Ok(())
}
