//! Claiming a node, keeping it, giving it back, and reaping what is expired: decided while the ledger is locked.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::claim_file::{self, Found};
use crate::claims::{Claim, Claims};
use crate::error::{Error, Result};
use crate::event::{Kind, NewEvent};
use crate::ledger::Ledger;
use crate::limits::{HOLD_MAX, NODES_EACH_MAX};
use crate::lock::LedgerLock;
use crate::meta::checked_timeout;
use crate::name::{NodeId, Owner, Sequence};
use crate::profile::Profile;

/// A claim that was given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Released {
    pub claim: Claim,
    pub sequence: Sequence,
    /// It was over already: somebody may have believed that the node was free.
    pub expired: bool,
}

/// What a reaping came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reaped {
    /// Claims that were ended, or would be.
    pub claims: Vec<Claim>,
    /// The events that say so; none if it was only looked at.
    pub events: Vec<Sequence>,
    /// Files in `locks/` that were removed, or would be.
    pub files: Vec<String>,
    /// What kept it from ending the rest, if something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl Reaped {
    /// What was done is told, and what was not is left for the next. If nothing was done, it is an error.
    fn stop<T>(&mut self, error: Error) -> Result<Option<T>> {
        if self.events.is_empty() {
            return Err(error);
        }
        self.stopped = Some(error.to_string());
        Ok(None)
    }
}

impl Ledger {
    /// Claims a node; [`Error::NodeLocked`] says who has it and until when. Without a timeout it is that of `meta.json`.
    pub fn claim(&self, node: &NodeId, owner: &Owner, timeout: Option<Duration>) -> Result<Claim> {
        let node = NodeId::parse(node.as_str(), self.profile())?;
        let timeout = self.timeout(timeout)?;
        let ((claim, filed), sequence) = self.locked(|lock| {
            let (mut claim, sequence) = self.append_judged(lock, |claims, now| {
                claims.may_be_claimed(&node, now)?;
                self.no_file_says_otherwise(claims, &node, owner, now)?;
                let (node, owner, expires_at) = (node.clone(), owner.clone(), after(now, timeout)?);
                let kind = Kind::Claimed { nodes: vec![node.clone()], owner: owner.clone(), expires_at };
                let claim = Claim { node, owner, acquired_at: Some(now), expires_at, sequence: Sequence(0) };
                Ok((claim, NewEvent::of(kind, now, self.profile())))
            })?;
            claim.sequence = sequence;
            let filed = self.write_file(&claim);
            Ok(((claim, filed), Some(sequence)))
        })?;
        said(filed, sequence)?;
        Ok(claim)
    }

    /// Makes a claim last longer, from now on. One that is over can't be refreshed where an expired claim is free.
    pub fn refresh(&self, node: &NodeId, owner: &Owner, timeout: Option<Duration>) -> Result<Claim> {
        let timeout = self.timeout(timeout)?;
        let ((claim, filed), sequence) = self.locked(|lock| {
            let (claim, sequence) = self.append_judged(lock, |claims, now| {
                let mut claim = claims.owned_by(node, owner)?.clone();
                let (node, owner) = (node.clone(), owner.clone());
                if self.profile() == Profile::Doc && !claim.is_active(now) {
                    return Err(Error::ClaimExpired { node, owner, at: claim.expires_at });
                }
                let expires_at = after(now, timeout)?;
                claim.expires_at = expires_at;
                let kind = Kind::Refreshed { node, owner, expires_at };
                Ok((claim, NewEvent::of(kind, now, self.profile())))
            })?;
            let filed = self.write_file(&claim);
            Ok(((claim, filed), Some(sequence)))
        })?;
        said(filed, sequence)?;
        Ok(claim)
    }

    /// Gives a claim back. Only its owner can, so whoever comes late does not end the successor's.
    pub fn release(&self, node: &NodeId, owner: &Owner) -> Result<Released> {
        let ((claim, filed, expired), sequence) = self.locked(|lock| {
            let ((claim, expired), sequence) = self.append_judged(lock, |claims, now| {
                let claim = claims.owned_by(node, owner)?.clone();
                let expired = !claim.is_active(now);
                let kind = Kind::Released { nodes: vec![node.clone()], owner: Some(owner.clone()) };
                Ok(((claim, expired), NewEvent::of(kind, now, self.profile())))
            })?;
            let filed = claim_file::remove_of(&self.proof, &claim);
            Ok(((claim, filed, expired), Some(sequence)))
        })?;
        said(filed, sequence)?;
        Ok(Released { claim, sequence, expired })
    }

    /// Ends the claims whose expiry lies behind: first the event, then the file. However many do this at once, each
    /// claim is ended by one event, because each looks again once it has the lock.
    pub fn reap(&self) -> Result<Reaped> {
        let due = self.reapable()?;
        if due.claims.is_empty() && due.files.is_empty() {
            return Ok(due);
        }
        let mut reaped = Reaped::default();
        let mut left = due.claims.chunks(self.each()).peekable();
        while reaped.stopped.is_none() {
            let before = reaped.events.len();
            let held = self.locked(|lock| {
                let began = Instant::now();
                for due in left.by_ref() {
                    if let Some((claims, sequence)) = self.reap_some(lock, due).or_else(|error| reaped.stop(error))? {
                        reaped.events.push(sequence);
                        reaped.claims.extend(claims);
                    }
                    // Each event is synced by itself: others get in between.
                    if reaped.stopped.is_some() || began.elapsed() > HOLD_MAX {
                        break;
                    }
                }
                if left.peek().is_none() && reaped.stopped.is_none() {
                    let found = stale_files(self, &*self.caught_up()?, self.now())?;
                    let removed = |found: &Found| claim_file::remove_seen(&self.proof, found).unwrap_or(false);
                    reaped.files = found.into_iter().filter(removed).map(|found| found.name).collect();
                }
                Ok(((), reaped.events.get(before..).and_then(<[Sequence]>::last).copied()))
            });
            match held {
                Ok(_) if left.peek().is_none() => break,
                Ok(_) => {}
                // Of what was published the error itself tells.
                Err(error) if error.sequence().is_some() => return Err(error),
                Err(error) => {
                    reaped.stop::<()>(error)?;
                }
            }
        }
        Ok(reaped)
    }

    /// Ends those that are still as they were seen, and stale; `None` if there are none.
    fn reap_some(&self, lock: &LedgerLock<'_>, due: &[Claim]) -> Result<Option<(Vec<Claim>, Sequence)>> {
        self.until_unmoved(false, || {
            let (seen, now, stale) = {
                let (claims, now) = (self.caught_up()?, self.now());
                let is_due = |due: &&Claim| claims.get(&due.node) == Some(*due) && due.is_stale(now);
                (claims.at(), now, due.iter().filter(is_due).cloned().collect::<Vec<Claim>>())
            };
            let Some(first) = stale.first().map(|claim| claim.owner.clone()) else { return Ok(None) };
            let owner = stale.iter().all(|claim| claim.owner == first).then_some(first);
            let nodes = stale.iter().map(|claim| claim.node.clone()).collect();
            let event = NewEvent::of(Kind::Reaped { nodes, owner }, now, self.profile());
            Ok(Some((stale, self.append_behind(lock, &event, seen)?)))
        })
    }

    /// What a reaping would do now.
    pub fn reapable(&self) -> Result<Reaped> {
        let now = self.now();
        let claims = self.caught_up()?;
        let stale: Vec<Claim> = claims.all().into_iter().filter(|claim| claim.is_stale(now)).cloned().collect();
        let files = stale_files(self, &claims, now)?.into_iter().map(|found| found.name).collect();
        Ok(Reaped { claims: stale, files, ..Reaped::default() })
    }

    /// Nodes that one reaping event names: the program writes one for all, the document one for each.
    fn each(&self) -> usize {
        match self.profile() {
            Profile::Doc => 1,
            Profile::Af => NODES_EACH_MAX,
        }
    }

    /// A claim of somebody else that only a file in `locks/` tells of is respected as long as it lasts.
    pub(crate) fn no_file_says_otherwise(
        &self,
        claims: &Claims,
        node: &NodeId,
        owner: &Owner,
        now: Timestamp,
    ) -> Result<()> {
        if self.profile() == Profile::Af {
            // The program keeps its own files.
            return Ok(());
        }
        let Some(file) = claim_file::of(&self.proof, node)? else { return Ok(()) };
        let is_over = file.expires_at <= now || file.owner == owner.as_str();
        if is_over || claims.knows_of(node, &file.owner, file.expires_at) {
            return Ok(());
        }
        let (node, owner, acquired_at) = (node.clone(), Owner::as_written(&file.owner), Some(file.acquired_at));
        let claim = Claim { node, owner, acquired_at, expires_at: file.expires_at, sequence: Sequence(0) };
        Err(Error::NodeLocked(Box::new(claim), false))
    }

    fn timeout(&self, given: Option<Duration>) -> Result<Duration> {
        given.map_or_else(|| self.claim_timeout(), checked_timeout)
    }

    fn write_file(&self, claim: &Claim) -> Result<()> {
        match self.profile() {
            Profile::Doc if self.options.claim_files => claim_file::write(&self.proof, claim),
            // The program keeps its own files.
            Profile::Doc | Profile::Af => Ok(()),
        }
    }
}

/// The event counts, whatever became of its file.
fn said(filed: Result<()>, sequence: Sequence) -> Result<()> {
    filed.map_err(|source| Error::ClaimFile { sequence, source: Box::new(source) })
}

/// Files whose time is over and whose claim is over too, or has never been there. A file that can't be read is left
/// alone, and so is one whose claim was refreshed in the ledger.
fn stale_files(ledger: &Ledger, claims: &Claims, now: Timestamp) -> Result<Vec<Found>> {
    let stale = |file: &claim_file::ClaimFile| {
        let lives = |claim: &Claim| file.is_of(claim) && !claim.is_stale(now);
        file.expires_at < now && !claims.get(&NodeId::as_written(&file.node_id)).is_some_and(lives)
    };
    let found = claim_file::list(&ledger.proof)?;
    Ok(found.into_iter().filter(|found| found.says.as_ref().is_ok_and(stale)).collect())
}

fn after(now: Timestamp, timeout: Duration) -> Result<Timestamp> {
    let timeout = SignedDuration::try_from(timeout).map_err(|_| Error::InvalidTimeout(timeout))?;
    now.checked_add(timeout).map_err(|error| Error::Invalid(error.to_string()))
}
