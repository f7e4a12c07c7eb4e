//! Features: registered, ended, and paused by whoever holds their key.

use super::acquire::exceeded;
use super::{Deciding, Refused};
use crate::command::{Acquire, Actor};
use crate::event::Event;
use crate::feature::{Feature, FeatureEnd};
use crate::limits::{CLAIMS_MAX, FEATURES_MAX};
use crate::lock::FeatureId;
use crate::outcome::{Answer, Limit, NotFound, Outcome, Refusal};
use crate::planted::{self, Bug};

impl Deciding<'_> {
    /// Whoever works on a paused feature gets nothing new for it.
    pub(super) fn not_paused(&self, acquire: &Acquire) -> Result<(), Refused> {
        match self.state.pause_of(acquire.feature.as_ref(), &acquire.actor.session) {
            Some(by) if !planted::is(Bug::PauseOverlooked) => Err(Box::new(Refusal::Paused { by })),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn register_feature(&mut self, actor: &Actor, feature: &Feature) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        if feature.claims.len() > CLAIMS_MAX {
            return Err(exceeded(Limit::Claims));
        }
        match self.state.feature(&feature.id) {
            Some(known) if known.agent != actor.agent => {
                return Err(Box::new(Refusal::ForeignFeature { feature: known.clone() }));
            }
            None if self.state.features.len() >= FEATURES_MAX => return Err(exceeded(Limit::Features)),
            Some(_) | None => {}
        }
        let (feasibility, shared) = self.state.feasibility(&feature.id, &feature.claims);
        self.record(Event::FeatureRegistered(feature.clone()));
        let feature = self.state.feature(&feature.id).cloned().expect("just registered");
        Ok(Outcome::Told(Answer::FeatureRegistered { feature, feasibility, shared }))
    }

    pub(super) fn end_feature(&mut self, actor: &Actor, id: &FeatureId, end: FeatureEnd) -> Result<Outcome, Refused> {
        self.own_session(actor)?;
        let Some(feature) = self.state.feature(id).cloned() else {
            return Err(Box::new(Refusal::NotFound { what: NotFound::Feature(id.clone()) }));
        };
        if feature.agent != actor.agent {
            return Err(Box::new(Refusal::ForeignFeature { feature }));
        }
        self.record(Event::FeatureEnded { feature: id.clone(), end });
        Ok(Outcome::Told(Answer::FeatureEnded { feature, end }))
    }
}
