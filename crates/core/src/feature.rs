//! Features: what each of them claims, how far two can go side by side, and which of them is paused.

use std::collections::btree_map::Entry;
use std::collections::{BTreeSet, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::index::covering;
use crate::journal::Undo;
use crate::key::{Cover, Key, Target};
use crate::limits::{FREED_LOOKS_MAX, SHARED_CLAIMS_MAX};
use crate::lock::{FeatureId, Lock};
use crate::mode::Mode;
use crate::planted::{self, Bug};
use crate::session::{AgentName, SessionId};
use crate::span::Span;
use crate::state::State;
use crate::time::Time;
use crate::waiter::Waiter;

/// A feature that somebody works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    pub id: FeatureId,
    pub agent: AgentName,
    pub title: Option<Arc<str>>,
    pub branch: Option<Arc<str>>,
    /// 1 to 10; the greater is merged first.
    pub merge_priority: u8,
    pub claims: Vec<Key>,
    /// Whatever its agent wants to keep with it, as JSON.
    pub metadata: Option<Arc<str>>,
    pub registered: Time,
}

/// How a feature ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeatureEnd {
    Completed,
    Cancelled,
}

/// How far a feature can go beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feasibility {
    /// It shares nothing with any of them.
    Full,
    /// It shares some of its claims.
    Partial,
    /// It shares more than half of them: better one after the other.
    Sequential,
}

impl Feasibility {
    pub const fn word(self) -> &'static str {
        match self {
            Feasibility::Full => "FULL",
            Feasibility::Partial => "PARTIAL",
            Feasibility::Sequential => "SEQUENTIAL",
        }
    }
}

/// A claim that two features share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedClaim {
    pub claim: Key,
    pub with: FeatureId,
    pub theirs: Key,
}

/// The key whose exclusive holder pauses a feature.
pub fn pause_key(feature: &FeatureId) -> Option<Key> {
    Key::parse(&format!("feature:{feature}:pause")).ok()
}

impl State {
    pub fn feature(&self, id: &str) -> Option<&Arc<Feature>> {
        self.features.get(id)
    }

    /// Every feature, in the order of their ids.
    pub fn features(&self) -> impl Iterator<Item = &Arc<Feature>> {
        self.features.values()
    }

    /// How far these claims can go beside the features that are registered, other than `candidate` itself; and which of them are shared, as
    /// far as that is told.
    pub fn feasibility(&self, candidate: &str, claims: &[Key]) -> (Feasibility, Vec<SharedClaim>) {
        let mut shared = Vec::new();
        let mut touched = 0;
        for claim in claims {
            let before = shared.len();
            let (mut seen, mut is_shared) = (HashSet::new(), false);
            let _ = self.claimants(claim, |with| {
                if **with == *candidate || !seen.insert(with.clone()) {
                    return ControlFlow::Continue(());
                }
                // One claim of theirs is enough to be told of.
                let theirs =
                    self.feature(with).and_then(|with| with.claims.iter().find(|theirs| theirs.overlaps(claim)));
                let Some(theirs) = theirs.cloned() else { return ControlFlow::Continue(()) };
                is_shared = true;
                if shared.len() >= SHARED_CLAIMS_MAX {
                    return ControlFlow::Break(());
                }
                shared.push(SharedClaim { claim: claim.clone(), with: with.clone(), theirs });
                ControlFlow::Continue(())
            });
            touched += usize::from(is_shared);
            shared[before..].sort_by(|one, other| one.with.cmp(&other.with));
        }
        let feasibility = match touched {
            0 => Feasibility::Full,
            touched if touched * 2 > claims.len() => Feasibility::Sequential,
            _ => Feasibility::Partial,
        };
        (feasibility, shared)
    }

    /// Visits the features that may claim something of this, some of them several times, until told to stop.
    fn claimants(&self, claim: &Key, mut visit: impl FnMut(&FeatureId) -> ControlFlow<()>) -> ControlFlow<()> {
        let around = covering(claim);
        let same = around.iter().map(String::as_str).chain([claim.as_str()]);
        same.filter_map(|text| self.claimed.get(text)).flatten().try_for_each(&mut visit)?;
        if claim.cover() == Cover::One {
            return ControlFlow::Continue(());
        }
        let below = self.claimed.range::<str, _>((Bound::Included(claim.stem()), Bound::Unbounded));
        let below = below.take_while(|(text, _)| text.starts_with(claim.stem()));
        below.flat_map(|(_, features)| features).try_for_each(visit)
    }

    /// The lock by which somebody other than `session` pauses a feature.
    pub fn pause_of(&self, feature: Option<&FeatureId>, session: &SessionId) -> Option<Arc<Lock>> {
        let target = Target { key: pause_key(feature?)?, span: Span::WHOLE };
        let mut found = None;
        // Whoever holds it shared is finishing, and pauses nobody.
        let _ = self.held_against(session, &target, Mode::Shared, |lock| {
            found = Some(lock.clone());
            ControlFlow::Break(())
        });
        found
    }

    /// The locks by which others pause the features of these locks.
    pub fn pauses_of(&self, locks: &[Arc<Lock>]) -> Vec<Arc<Lock>> {
        let mut pauses: Vec<Arc<Lock>> = Vec::new();
        let mut seen: HashSet<&FeatureId> = HashSet::new();
        for lock in locks {
            let Some(feature) = &lock.feature else { continue };
            if seen.insert(feature) {
                pauses.extend(self.pause_of(Some(feature), &lock.session));
            }
        }
        pauses
    }

    /// Those in the queue who wait for something for a feature that this key pauses.
    pub(crate) fn waiters_of_paused(&self, key: &Key) -> impl Iterator<Item = &Arc<Waiter>> {
        let waiters = key.paused_feature().and_then(|feature| self.waiters_by_feature.get(feature));
        waiters.into_iter().flatten().filter_map(|id| self.waiter(*id))
    }

    /// What those who wait for a feature that this key pauses keep from others no longer.
    pub(crate) fn freed_by_pause(&self, key: &Key) -> Vec<Target> {
        let wanted = self.waiters_of_paused(key).flat_map(|waiter| waiter.asked.wants.iter());
        // Of what one lock keeps from everybody, nobody gets a part; unless its holder wants more of the same. Where that takes long
        // to find out, whoever waits for it finds out.
        let mut looks = FREED_LOOKS_MAX;
        let mut is_held = |target: &Target| {
            let mut is_kept = false;
            let _ = self.held_against(&SessionId::nobody(), target, Mode::Shared, |lock| {
                let is_whole =
                    lock.target.key == target.key && lock.target.span.intersection(target.span) == Some(target.span);
                let mut wanted = self.waiters_of(&lock.session).flat_map(|waiter| waiter.asked.wants.iter());
                let wants_more = is_whole
                    && wanted.any(|want| {
                        looks = looks.saturating_sub(1);
                        looks == 0 || want.target.overlaps(target)
                    });
                looks = looks.saturating_sub(1);
                is_kept = is_whole && !wants_more;
                if is_kept || looks == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            is_kept
        };
        let mut freed: Vec<Target> = wanted.map(|want| want.target.clone()).collect();
        freed.sort_unstable();
        freed.dedup();
        freed.retain(|target| !is_held(target));
        freed
    }

    /// Whether somebody in the queue is passed over, because the feature that it asks for is paused.
    pub(crate) fn is_passed_over(&self, waiter: &Waiter) -> bool {
        self.pause_of(waiter.asked.feature.as_ref(), &waiter.asked.session).is_some()
            && !planted::is(Bug::PauseOverlooked)
    }

    pub(crate) fn put_feature(&mut self, id: &FeatureId, new: Option<Arc<Feature>>) {
        let claims = |feature: &Arc<Feature>| feature.claims.iter().map(Key::shared_text).collect::<BTreeSet<_>>();
        let (now, before) = (new.as_ref().map(claims), self.features.get(id).map(claims));
        for claim in before.into_iter().flatten() {
            if let Entry::Occupied(mut claimants) = self.claimed.entry(claim) {
                claimants.get_mut().remove(id);
                if claimants.get().is_empty() {
                    claimants.remove();
                }
            }
        }
        for claim in now.into_iter().flatten() {
            self.claimed.entry(claim).or_default().insert(id.clone());
        }
        let old = match new {
            Some(feature) => self.features.insert(id.clone(), feature),
            None => self.features.remove(id),
        };
        self.journal.note(|| Undo::Feature(id.clone(), old));
    }
}
