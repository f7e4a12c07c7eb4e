//! Who holds which node: a fold of the ledger's events. Reads no file and no clock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::event::Kind;
use crate::limits::CLAIM_TIMEOUT_MAX;
use crate::name::{NodeId, Owner, Sequence};
use crate::profile::Profile;

/// One node, one owner, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    pub node: NodeId,
    pub owner: Owner,
    /// When the event says that it was acquired; it may say nothing.
    pub acquired_at: Option<Timestamp>,
    pub expires_at: Timestamp,
    /// The event that it was acquired with; 0 if only a file in `locks/` tells of it.
    pub sequence: Sequence,
}

impl Claim {
    /// A claim is active as long as its expiry lies ahead.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }

    /// A claim may be reaped once its expiry lies behind.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.expires_at < now
    }
}

/// An event that the state before it does not allow; what it does all the same is what the profile's readers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Impossible {
    pub(crate) what: String,
    /// Readers differ in what they make of it.
    pub(crate) divides: bool,
}

impl Impossible {
    fn new(what: String) -> Impossible {
        Impossible { what, divides: false }
    }
}

/// All claims, at one place of the ledger.
#[derive(Clone, Debug)]
pub struct Claims {
    profile: Profile,
    at: Sequence,
    held: HashMap<NodeId, Claim>,
    /// The last claim on each node that was ended: whose, and until when it would have lasted.
    ended: HashMap<NodeId, (Owner, Timestamp)>,
    /// Nodes that the proof has; only the program's ledgers tell.
    nodes: HashSet<NodeId>,
}

impl Claims {
    pub(crate) fn new(profile: Profile) -> Claims {
        Claims { profile, at: Sequence(0), held: HashMap::new(), ended: HashMap::new(), nodes: HashSet::new() }
    }

    /// The last event that is in it.
    pub fn at(&self) -> Sequence {
        self.at
    }

    /// The claim on a node, expired or not.
    pub fn get(&self, node: &NodeId) -> Option<&Claim> {
        self.held.get(node)
    }

    /// All claims, expired ones too, ordered by node.
    pub fn all(&self) -> Vec<&Claim> {
        let mut all: Vec<&Claim> = self.held.values().collect();
        all.sort_by(|one, other| one.node.cmp(&other.node));
        all
    }

    /// Those that keep others from claiming: in the real program's profile also what is expired, until it is reaped.
    pub fn taken(&self, now: Timestamp) -> Vec<&Claim> {
        match self.profile {
            Profile::Doc => self.active(now),
            Profile::Af => self.all(),
        }
    }

    /// Those whose expiry lies ahead, ordered by node.
    pub fn active(&self, now: Timestamp) -> Vec<&Claim> {
        self.all().into_iter().filter(|claim| claim.is_active(now)).collect()
    }

    /// Takes in the next event. Its order decides and never its time: a clock that was set revives nothing.
    pub(crate) fn apply(&mut self, at: Sequence, timestamp: Option<Timestamp>, kind: Kind) -> Option<Impossible> {
        assert!(at > self.at, "events come in their order");
        self.at = at;
        match kind {
            Kind::Claimed { nodes, owner, expires_at } => {
                let mut impossible = None;
                for node in nodes {
                    impossible = impossible.or(self.strange_claim(&node, &owner, timestamp));
                    // In the document's words a refresh is taking it again before it is over.
                    let refreshed =
                        |held: &&Claim| held.owner == owner && timestamp.is_some_and(|now| held.is_active(now));
                    let (sequence, acquired_at) = match self.held.get(&node).filter(refreshed) {
                        Some(held) if self.profile == Profile::Doc => (held.sequence, held.acquired_at),
                        _ => (at, timestamp),
                    };
                    let claim = Claim { node: node.clone(), owner: owner.clone(), acquired_at, expires_at, sequence };
                    self.held.insert(node, claim);
                }
                impossible
            }
            Kind::Refreshed { node, owner, expires_at } => match self.held.get_mut(&node) {
                Some(held) if held.owner == owner => {
                    held.expires_at = expires_at;
                    None
                }
                Some(held) => Some(Impossible::new(format!("{owner} refreshes {node}, which {} holds", held.owner))),
                None => Some(Impossible::new(format!("{owner} refreshes {node}, which nobody holds"))),
            },
            Kind::Released { nodes, owner } | Kind::Reaped { nodes, owner } => {
                let mut impossible = None;
                for node in nodes {
                    impossible = impossible.or(self.free(&node, owner.as_ref()));
                }
                impossible
            }
            Kind::NodeCreated(node) => {
                self.nodes.insert(node);
                None
            }
            Kind::Other => None,
        }
    }

    fn strange_claim(&self, node: &NodeId, owner: &Owner, timestamp: Option<Timestamp>) -> Option<Impossible> {
        if self.is_missing(node) {
            return Some(Impossible::new(format!("{owner} claims {node}, which the proof does not have")));
        }
        let held = self.held.get(node)?;
        let taken = match self.profile {
            Profile::Af => true,
            Profile::Doc => held.owner != *owner && timestamp.is_some_and(|then| held.is_active(then)),
        };
        taken.then(|| {
            Impossible::new(format!("{owner} claims {node}, which {} holds until {}", held.owner, held.expires_at))
        })
    }

    /// Ends a claim; one that names an owner ends only that owner's.
    fn free(&mut self, node: &NodeId, owner: Option<&Owner>) -> Option<Impossible> {
        let Some(held) = self.held.get(node) else {
            return Some(Impossible::new(format!("{node} is freed, and nobody holds it")));
        };
        if let Some(owner) = owner.filter(|owner| **owner != held.owner) {
            // The document's readers end it all the same.
            let what = format!("{node} is freed for {owner}, and {} holds it", held.owner);
            return Some(Impossible { what, divides: true });
        }
        if let Some(held) = self.held.remove(node) {
            self.ended.insert(held.node, (held.owner, held.expires_at));
        }
        None
    }

    /// Whether the proof has nodes and not this one. Where none has been created, nothing is known about nodes.
    fn is_missing(&self, node: &NodeId) -> bool {
        !self.nodes.is_empty() && !self.nodes.contains(node)
    }

    /// Whether an event may follow now. One that may not would leave the proof unloadable for the program, or take
    /// from somebody what is theirs.
    pub(crate) fn admits(&self, kind: &Kind, now: Timestamp) -> Result<()> {
        match kind {
            Kind::Claimed { nodes, expires_at, .. } => {
                each_once(nodes)?;
                nodes.iter().try_for_each(|node| self.may_be_claimed(node, now))?;
                may_last(*expires_at, now)
            }
            Kind::Refreshed { node, owner, expires_at } => {
                self.owned_by(node, owner)?;
                may_last(*expires_at, now)
            }
            Kind::Released { nodes, owner: Some(owner) } => {
                each_once(nodes)?;
                nodes.iter().try_for_each(|node| self.owned_by(node, owner).map(|_| ()))
            }
            // Whoever is not its owner ends only what is over.
            Kind::Released { nodes, owner: None } => self.may_be_reaped(nodes, None, now),
            Kind::Reaped { nodes, owner } => self.may_be_reaped(nodes, owner.as_ref(), now),
            Kind::NodeCreated(_) | Kind::Other => Ok(()),
        }
    }

    fn may_be_reaped(&self, nodes: &[NodeId], owner: Option<&Owner>, now: Timestamp) -> Result<()> {
        each_once(nodes)?;
        for node in nodes {
            let held = match owner {
                Some(owner) => self.owned_by(node, owner)?,
                None => self.held.get(node).ok_or_else(|| Error::NotClaimed(node.clone()))?,
            };
            if !held.is_stale(now) {
                return Err(Error::NodeLocked(Box::new(held.clone()), false));
            }
        }
        Ok(())
    }

    /// Whether something that says so beside the ledger may still hold: the ledger is right about each claim that it
    /// tells of, and about one that it ended.
    pub(crate) fn knows_of(&self, node: &NodeId, owner: &str, expires_at: Timestamp) -> bool {
        self.held.get(node).is_some_and(|held| held.owner.as_str() == owner)
            || self.ended.get(node).is_some_and(|(was, until)| was.as_str() == owner && expires_at <= *until)
    }

    pub(crate) fn may_be_claimed(&self, node: &NodeId, now: Timestamp) -> Result<()> {
        if self.is_missing(node) {
            return Err(Error::UnknownNode(node.clone()));
        }
        match (self.held.get(node), self.profile) {
            (Some(held), _) if held.is_active(now) => Err(Error::NodeLocked(Box::new(held.clone()), false)),
            // The program takes an expired claim for taken, and a second one would make the proof unloadable.
            (Some(held), Profile::Af) => Err(Error::NodeLocked(Box::new(held.clone()), true)),
            (Some(_), Profile::Doc) | (None, _) => Ok(()),
        }
    }

    pub(crate) fn owned_by(&self, node: &NodeId, owner: &Owner) -> Result<&Claim> {
        match self.held.get(node) {
            None => Err(Error::NotClaimed(node.clone())),
            Some(held) if held.owner != *owner => {
                Err(Error::NotOwner { node: node.clone(), owner: held.owner.clone(), asked: owner.clone() })
            }
            Some(held) => Ok(held),
        }
    }
}

fn each_once(nodes: &[NodeId]) -> Result<()> {
    let mut named = HashSet::new();
    match nodes.iter().find(|node| !named.insert(*node)) {
        Some(twice) => Err(Error::InvalidEvent(format!("it names {twice} twice"))),
        None => Ok(()),
    }
}

/// A claim that is over may be told of; one that lasts longer than any may not be taken.
fn may_last(expires_at: Timestamp, now: Timestamp) -> Result<()> {
    match Duration::try_from(expires_at.duration_since(now)) {
        Ok(lasts) if lasts > CLAIM_TIMEOUT_MAX => Err(Error::InvalidTimeout(lasts)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> NodeId {
        NodeId::parse(text, Profile::Doc).unwrap()
    }

    fn owner(text: &str) -> Owner {
        Owner::parse(text).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claimed(by: &str, until: i64) -> Kind {
        Kind::Claimed { nodes: vec![node("1")], owner: owner(by), expires_at: at(until) }
    }

    fn released(by: Option<&str>) -> Kind {
        Kind::Released { nodes: vec![node("1")], owner: by.map(owner) }
    }

    #[test]
    fn the_last_word_about_a_node_counts_and_expired_claims_are_not_active() {
        let mut claims = Claims::new(Profile::Doc);
        assert_eq!(claims.apply(Sequence(1), Some(at(0)), claimed("a", 10)), None);
        assert_eq!(claims.active(at(9)).len(), 1);
        assert!(claims.active(at(10)).is_empty() && !claims.get(&node("1")).unwrap().is_stale(at(10)));
        assert!(claims.get(&node("1")).unwrap().is_stale(at(11)));
        assert_eq!(claims.apply(Sequence(2), Some(at(11)), claimed("b", 20)), None);
        assert_eq!(claims.get(&node("1")).unwrap().owner, owner("b"));
        assert_eq!(claims.apply(Sequence(3), Some(at(12)), released(Some("b"))), None);
        assert!(claims.all().is_empty());
    }

    #[test]
    fn a_late_release_does_not_free_the_successors_claim() {
        let mut claims = Claims::new(Profile::Doc);
        claims.apply(Sequence(1), Some(at(0)), claimed("a", 10));
        claims.apply(Sequence(2), Some(at(11)), claimed("b", 20));
        assert!(claims.apply(Sequence(3), Some(at(12)), released(Some("a"))).is_some());
        assert_eq!(claims.get(&node("1")).unwrap().owner, owner("b"));
        assert!(matches!(claims.admits(&released(Some("a")), at(12)), Err(Error::NotOwner { .. })));
    }

    #[test]
    fn a_clock_that_was_set_back_revives_nothing() {
        let mut claims = Claims::new(Profile::Doc);
        claims.apply(Sequence(1), Some(at(1000)), claimed("a", 1010));
        claims.apply(Sequence(2), Some(at(1011)), Kind::Reaped { nodes: vec![node("1")], owner: Some(owner("a")) });
        assert!(claims.active(at(5)).is_empty());
        claims.apply(Sequence(3), Some(at(5)), claimed("b", 15));
        assert_eq!(claims.get(&node("1")).unwrap().owner, owner("b"));
    }

    #[test]
    fn in_the_programs_ledger_an_expired_claim_is_taken_until_it_is_reaped() {
        let mut claims = Claims::new(Profile::Af);
        claims.apply(Sequence(1), None, Kind::NodeCreated(node("1")));
        claims.apply(Sequence(2), Some(at(0)), claimed("a", 10));
        assert!(matches!(claims.admits(&claimed("b", 90), at(50)), Err(Error::NodeLocked(_, true))));
        assert!(matches!(claims.admits(&released(Some("b")), at(50)), Err(Error::NotOwner { .. })));
        assert_eq!(claims.apply(Sequence(3), Some(at(51)), released(None)), None);
        claims.admits(&claimed("b", 90), at(52)).unwrap();
        assert!(matches!(claims.admits(&released(None), at(52)), Err(Error::NotClaimed(_))));
        let elsewhere = Kind::Claimed { nodes: vec![node("1.7")], owner: owner("b"), expires_at: at(90) };
        assert!(matches!(claims.admits(&elsewhere, at(52)), Err(Error::UnknownNode(_))));
    }
}
