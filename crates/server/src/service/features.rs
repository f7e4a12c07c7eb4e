//! Features: registered, compared, paused and resumed.

use std::sync::Arc;

use lockkeeper_core::command::{Acquire, Actor, Command, Want, Which};
use lockkeeper_core::feature::{self, Feature, FeatureEnd, SharedClaim};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::limits::{CLAIMS_MAX, FINALIZE_TTL, PRIORITY_DEFAULT, PRIORITY_MAX, WAIT_MAX};
use lockkeeper_core::lock::{FeatureId, Lock, LockId};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::session::{Intention, RequestId, SessionId};
use lockkeeper_core::span::Span;
use lockkeeper_core::time::{Millis, Time};
use lockkeeper_keeper::Keeper;
use lockkeeper_wire::answer::{
    ClaimView, FeatureChanged, FeatureChecked, FeatureConflicts, FeatureList, FeatureView, Granted,
};
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{
    Asker, FeatureCheckRequest, FeatureConflictsRequest, FeatureEndRequest, FeaturePauseRequest, FeatureRequest,
    FeatureResumeRequest, StatusRequest,
};
use lockkeeper_wire::word::Word;

use super::{Acquired, Body, Caller, LIST_DEFAULT, Noted, Service, json, unexpected};
use crate::door;
use crate::refusal::{self, No};
use crate::view::Viewer;
use crate::written;

const PAUSE_TTL: Millis = Millis::from_minutes(120);
/// How long a pause waits for those who are just finishing: twice as long as they have.
const PAUSE_WAIT: Millis = Millis(2 * FINALIZE_TTL.0);
const TEXT_CHARS_MAX: usize = 500;
const METADATA_BYTES_MAX: usize = 4096;
/// So that whoever reads a list of features can.
const METADATA_DEPTH_MAX: usize = 32;

impl Service {
    pub(super) async fn register_feature(&self, body: FeatureRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let id = door::feature_id(body.feature_id.as_deref())?;
        noted.key = Some(format!("feature:{id}"));
        let (keeper, actor) = self.asked(Operation::RegisterFeature, &body, caller, noted, None).await?;
        let claims = claims(body.resource_claims.as_deref())?;
        self.permit(Operation::RegisterFeature, caller, Some(&actor.agent), &claims)?;
        let merge_priority = match body.merge_priority {
            None => 5,
            Some(Whole(priority)) if (1..=i128::from(PRIORITY_MAX)).contains(&priority) => priority as u8,
            Some(_) => return Err(No::new(Word::InvalidRequest, "A merge_priority is 1 to 10.")),
        };
        let metadata = body.metadata.as_ref().map(|metadata| serde_json::Value::Object(metadata.clone()).to_string());
        if body.metadata.iter().flat_map(serde_json::Map::values).any(|value| depth(value) > METADATA_DEPTH_MAX) {
            let most = format!("The metadata of a feature is nested at most {METADATA_DEPTH_MAX} deep.");
            return Err(No::new(Word::LimitExceeded, most));
        }
        if metadata.as_ref().is_some_and(|metadata| metadata.len() > METADATA_BYTES_MAX) {
            let most = format!("The metadata of a feature has at most {METADATA_BYTES_MAX} bytes.");
            return Err(No::new(Word::LimitExceeded, most));
        }
        let feature = Feature {
            id,
            agent: actor.agent.clone(),
            title: text("title", body.title.as_deref())?,
            branch: text("branch_name", body.branch_name.as_deref())?,
            merge_priority,
            claims,
            metadata: metadata.map(Into::into),
            registered: Time::ZERO,
        };
        let answer = keeper.ask(Command::RegisterFeature { actor, feature }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::FeatureRegistered { feature, feasibility, shared } => json(&FeatureChanged {
                success: true,
                action: "registered".to_owned(),
                feature: view(&feature, None, viewer),
                feasibility: Some(feasibility.word().to_owned()),
                conflicts: shared_claims(&shared),
            }),
            other => Err(unexpected(other, viewer)),
        }
    }

    pub(super) async fn end_feature(&self, body: FeatureEndRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let feature = door::feature_id(body.feature_id.as_deref())?;
        noted.key = Some(format!("feature:{feature}"));
        let (keeper, actor) = self.asked(Operation::EndFeature, &body, caller, noted, None).await?;
        let end = match body.status.as_deref() {
            None | Some("completed") => FeatureEnd::Completed,
            Some("cancelled") => FeatureEnd::Cancelled,
            Some(_) => return Err(No::new(Word::InvalidRequest, "A feature ends as completed or cancelled.")),
        };
        let answer = keeper.ask(Command::EndFeature { actor, feature, end }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::FeatureEnded { feature, end } => json(&FeatureChanged {
                success: true,
                action: match end {
                    FeatureEnd::Completed => "completed".to_owned(),
                    FeatureEnd::Cancelled => "cancelled".to_owned(),
                },
                feature: view(&feature, None, viewer),
                feasibility: None,
                conflicts: Vec::new(),
            }),
            other => Err(unexpected(other, viewer)),
        }
    }

    pub(super) async fn feature_conflicts(
        &self,
        body: FeatureConflictsRequest,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        self.permit_look(Operation::FeatureConflicts, caller, &body, None)?;
        let candidate = door::feature_id(body.candidate_feature_id.as_deref())?;
        let claims = claims(body.candidate_claims.as_deref())?;
        let told = keeper.read(move |state, _| {
            let (feasibility, shared) = state.feasibility(&candidate, &claims);
            FeatureConflicts {
                success: true,
                candidate_feature_id: candidate.to_string(),
                feasibility: feasibility.word().to_owned(),
                conflicts: shared_claims(&shared),
            }
        });
        json(&told.await?)
    }

    pub(super) async fn features(&self, body: StatusRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        self.permit_look(Operation::Features, caller, &body, None)?;
        let look = keeper.read(move |state, now| {
            let pause = |feature: &Arc<Feature>| state.pause_of(Some(&feature.id), &SessionId::nobody());
            let features: Vec<_> =
                state.features().take(LIST_DEFAULT).map(|feature| (feature.clone(), pause(feature))).collect();
            (features, state.features().count(), Viewer { now })
        });
        let (features, total, viewer) = look.await?;
        let rows = features.iter().map(|(feature, _)| 1 + feature.claims.len()).sum();
        let make = move || {
            let features = features.iter().map(|(feature, pause)| view(feature, pause.as_deref(), viewer)).collect();
            Ok(FeatureList { features, total })
        };
        self.list(rows, noted, make).await
    }

    pub(super) async fn pause_feature(
        &self,
        body: FeaturePauseRequest,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Body {
        let feature = door::feature_id(body.feature_id.as_deref())?;
        let key = pause_key(&feature)?;
        noted.key = Some(key.to_string());
        noted.intention.clone_from(&body.intention);
        let intention = Intention::parse(body.intention.as_deref().unwrap_or_default())?;
        if intention.is_empty() {
            return Err(No::new(Word::InvalidRequest, "A pause needs a reason, for those who have to wait."));
        }
        let ttl = door::ttl(body.ttl_ms, body.ttl_minutes)?.unwrap_or(PAUSE_TTL);
        let wait = body.wait_ms.map_or(Ok(PAUSE_WAIT), |wait| door::wait(Some(wait)))?;
        let (keeper, actor) = self.asked(Operation::PauseFeature, &body, caller, noted, Some(&key)).await?;
        // Who finishes does so within seconds. Another pause may take hours: only whoever says so waits for its end. What was
        // answered before is answered again, whoever has paused since.
        if body.wait_ms.is_none()
            && let Some(by) = Self::pauses(&keeper, &feature, &key, &actor.session).await?.of_others
            && !Self::is_asked_again(&keeper, &body, &actor.session).await?
        {
            return Err(refusal::paused(&by, Viewer { now: keeper.now() }));
        }
        let operation = Operation::PauseFeature;
        let wanted = Wanted { operation, key, mode: Mode::Exclusive, intention, ttl, wait };
        let (lock, fresh) = self.take(&keeper, actor, wanted, &body, caller, noted).await?;
        json(&Granted {
            success: true,
            action: if fresh { "acquired".into() } else { "refreshed".into() },
            lock,
            strength: keeper.strength().word().into(),
            heartbeat_interval_ms: self.heartbeat(ttl),
            paused: Vec::new(),
        })
    }

    pub(super) async fn resume_feature(
        &self,
        body: FeatureResumeRequest,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Body {
        let feature = door::feature_id(body.feature_id.as_deref())?;
        let key = pause_key(&feature)?;
        noted.key = Some(key.to_string());
        let (keeper, actor) = self.asked(Operation::ResumeFeature, &body, caller, noted, Some(&key)).await?;
        let request = door::request("features/resume", &body)?;
        let pauses = Self::pauses(&keeper, &feature, &key, &actor.session).await?;
        if !pauses.own && pauses.of_others.is_none() && request.is_none() {
            return Err(No::new(Word::NotFound, format!("Feature {feature} is not paused.")));
        }
        let which = Which::Key(key, None);
        let answer = keeper.ask(Command::Release { actor, which, token: None, request }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::Released { locks } => {
                noted.released = locks.iter().map(|lock| lock.id).collect();
                Ok(written::changed(viewer, "released", &locks, None))
            }
            Answer::Refused(Refusal::NotFound { .. }) => {
                Err(No::new(Word::NotFound, format!("Feature {feature} is not paused.")))
            }
            other => Err(unexpected(other, viewer)),
        }
    }

    /// At the start of work, and before its finish.
    pub(super) async fn check_feature(
        &self,
        body: FeatureCheckRequest,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Body {
        let feature = door::feature_id(body.feature_id.as_deref())?;
        let key = pause_key(&feature)?;
        noted.key = Some(key.to_string());
        let wait = door::wait(body.wait_ms)?;
        let finalize = body.finalize == Some(true);
        let told = |lock, message: String| {
            json(&FeatureChecked { success: true, feature_id: feature.to_string(), paused: false, message, lock })
        };
        let (keeper, actor) = self.asked(Operation::CheckFeature, &body, caller, noted, Some(&key)).await?;
        let pauses = Self::pauses(&keeper, &feature, &key, &actor.session).await?;
        if pauses.own {
            return told(None, format!("Feature {feature} is paused by yourself: go on, the others wait."));
        }
        if !finalize {
            match pauses.of_others {
                None => return told(None, format!("Feature {feature} is not paused: go on.")),
                Some(by) if wait.0 == 0 => return Err(refusal::paused(&by, Viewer { now: keeper.now() })),
                Some(_) => {}
            }
        }
        let intention = Intention::parse(if finalize { "finishing" } else { "waiting for the end of the pause" })?;
        let operation = Operation::CheckFeature;
        let wanted = Wanted { operation, key: key.clone(), mode: Mode::Shared, intention, ttl: FINALIZE_TTL, wait };
        let taken = self.take(&keeper, actor.clone(), wanted, &body, caller, noted).await;
        let made = noted.granted.iter().flat_map(|granted| granted.locks.iter().copied()).collect();
        // Whoever hangs up while something more is looked at is told nothing; nor is whoever is paused after all.
        let unheard = keeper.unheard(actor.session.clone(), made, body.request_id.is_some());
        let pauses = Self::pauses(&keeper, &feature, &key, &actor.session).await?;
        let (lock, fresh) = match (taken, pauses.of_others) {
            (Ok(taken), None) => taken,
            // Also when an answer of before is told again: what counts is now.
            (Ok(_), Some(by)) => return Err(refusal::paused(&by, Viewer { now: keeper.now() })),
            (Err(no), Some(by)) if no.word == Word::Busy => {
                return Err(refusal::paused(&by, Viewer { now: keeper.now() }));
            }
            (Err(no), _) => return Err(no),
        };
        if finalize {
            let more = Millis(lock.expires_in_ms);
            if more.0 == 0 {
                return Err(
                    No::new(Word::LockLost, "The time to finish is over.").hint("check again before you finish")
                );
            }
            unheard.heard();
            let message =
                format!("Feature {feature} is not paused, and won't be for {more}: finish, then release {key}.");
            return told(Some(lock), message);
        }
        if fresh {
            let which = LockId::parse(&lock.lock_id).map_or(Which::Key(key, None), Which::Id);
            keeper.ask(Command::Release { actor, which, token: None, request: None }).await?;
        }
        unheard.heard();
        noted.granted = None;
        told(None, format!("Feature {feature} goes on."))
    }

    /// Who pauses a feature, as a session sees it.
    async fn pauses(keeper: &Keeper, feature: &FeatureId, key: &Key, session: &SessionId) -> Result<Pauses, No> {
        let (feature, key, session) = (feature.clone(), key.clone(), session.clone());
        let look = keeper.read(move |state, _| Pauses {
            own: state.own_on_key(&session, &key).any(|lock| lock.mode == Mode::Exclusive),
            of_others: state.pause_of(Some(&feature), &session),
        });
        Ok(look.await?)
    }

    async fn is_asked_again(keeper: &Keeper, body: &FeaturePauseRequest, session: &SessionId) -> Result<bool, No> {
        let Some(id) = body.request_id.as_deref().map(RequestId::parse).transpose()? else { return Ok(false) };
        let session = session.clone();
        Ok(keeper.read(move |state, now| state.is_known_request(&session, &id, now.time)).await?)
    }

    /// Takes one key. `true`: it was not held before.
    async fn take<B: Asker + serde::Serialize>(
        &self,
        keeper: &Keeper,
        actor: Actor,
        wanted: Wanted,
        body: &B,
        caller: &Caller,
        noted: &mut Noted<'_>,
    ) -> Result<(lockkeeper_wire::answer::LockView, bool), No> {
        let Wanted { operation, key, mode, intention, ttl, wait } = wanted;
        let acquire = Command::Acquire(Acquire {
            actor: actor.clone(),
            wants: vec![Want { target: Target { key, span: Span::WHOLE }, mode }],
            intention,
            ttl,
            wait: Millis(wait.0.min(WAIT_MAX.0)),
            priority: PRIORITY_DEFAULT,
            feature: None,
            request: door::request("features", body)?,
            restores: false,
        });
        if wait.0 > 0 {
            // Nobody makes room for an answer that may come in hours.
            noted.turn = None;
        }
        let answer = if caller.local { keeper.ask_bound(acquire).await? } else { keeper.ask(acquire).await? };
        let viewer = Viewer { now: keeper.now() };
        let Answer::Granted { locks, fresh } = answer else { return Err(unexpected(answer, viewer)) };
        self.permit_granted(operation, keeper, caller, &actor, &locks[..fresh]).await?;
        let space = keeper.space().clone();
        let locks_made = locks[..fresh].iter().map(|lock| lock.id).collect();
        noted.granted = Some(Acquired { space, actor, locks: locks_made, had: Vec::new(), named: false, ports: false });
        let lock = locks.first().map(|lock| viewer.lock(lock));
        lock.map(|lock| (lock, fresh > 0)).ok_or_else(|| No::new(Word::Internal, "A grant without a lock."))
    }
}

struct Pauses {
    own: bool,
    of_others: Option<Arc<Lock>>,
}

/// One key that a feature needs.
struct Wanted {
    /// What it is taken for.
    operation: Operation,
    key: Key,
    mode: Mode,
    intention: Intention,
    ttl: Millis,
    wait: Millis,
}

fn pause_key(feature: &FeatureId) -> Result<Key, No> {
    feature::pause_key(feature).ok_or_else(|| No::new(Word::Internal, "A feature has a key."))
}

fn claims(texts: Option<&[String]>) -> Result<Vec<Key>, No> {
    let texts = texts.unwrap_or_default();
    door::at_most(texts.len(), CLAIMS_MAX)?;
    texts.iter().map(|text| Key::parse(text).map_err(No::from)).collect()
}

fn text(name: &str, text: Option<&str>) -> Result<Option<Arc<str>>, No> {
    match text {
        Some(text) if text.chars().count() > TEXT_CHARS_MAX => {
            Err(No::new(Word::LimitExceeded, format!("A {name} has at most {TEXT_CHARS_MAX} characters.")))
        }
        Some(text) => Ok(Some(lockkeeper_core::text::one_line(text).into())),
        None => Ok(None),
    }
}

fn shared_claims(shared: &[SharedClaim]) -> Vec<ClaimView> {
    let one = |shared: &SharedClaim| ClaimView {
        claim: shared.claim.to_string(),
        feature_id: shared.with.to_string(),
        theirs: shared.theirs.to_string(),
    };
    shared.iter().map(one).collect()
}

fn view(feature: &Feature, pause: Option<&Lock>, viewer: Viewer) -> FeatureView {
    FeatureView {
        feature_id: feature.id.to_string(),
        owner: feature.agent.to_string(),
        title: feature.title.as_ref().map(ToString::to_string),
        branch_name: feature.branch.as_ref().map(ToString::to_string),
        merge_priority: feature.merge_priority,
        resource_claims: feature.claims.iter().map(ToString::to_string).collect(),
        metadata: feature.metadata.as_ref().and_then(|metadata| serde_json::from_str(metadata).ok()),
        registered_at: viewer.time(feature.registered),
        paused: pause.map(|lock| viewer.lock(lock)),
    }
}

/// How deep a value is nested; bounded by how deep a body can be.
fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(values) => 1 + values.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
