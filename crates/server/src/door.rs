//! The door: bodies from outside become commands, or are refused with a word. Parsed once, here.

use lockkeeper_core::command::{Acquire, Actor, Request, Want, Which};
use lockkeeper_core::key::{Key, KeyKind, Target, logical};
use lockkeeper_core::limits::{PRIORITY_DEFAULT, PRIORITY_MAX, ROOM_BUSY_DEFAULT, SET_MAX, TTL_MAX, TTL_MIN, WAIT_MAX};
use lockkeeper_core::lock::{FeatureId, LockId, Token};
use lockkeeper_core::mode::Mode;
use lockkeeper_core::session::{AgentName, Intention, InvalidName, RequestId, SessionId};
use lockkeeper_core::space::Space;
use lockkeeper_core::span::Span;
use lockkeeper_core::time::Millis;
use lockkeeper_wire::number::Whole;
use lockkeeper_wire::request::{AcquireRequest, Asker, CheckRequest, LockSpec, ModeWord, RoomRequest};
use lockkeeper_wire::word::Word;
use serde::Serialize;

use crate::auth::is_session_of;
use crate::refusal::{No, sentence};
use crate::service::Caller;

impl From<InvalidName> for No {
    fn from(error: InvalidName) -> No {
        let word = match error {
            InvalidName::Session => Word::InvalidSessionId,
            InvalidName::Intention => Word::LimitExceeded,
            InvalidName::Agent | InvalidName::Request => Word::InvalidRequest,
        };
        No::new(word, sentence(&error.to_string()))
    }
}

/// Who asks, by the body and the credential together.
pub(crate) fn actor(body: &impl Asker, caller: &Caller) -> Result<Actor, No> {
    let who = body.who();
    let named = who.agent_id.map(AgentName::parse).transpose()?;
    let agent = match (&caller.agent, named) {
        (Some(bound), Some(named)) if *bound != named => {
            return Err(No::new(
                Word::OperationNotPermitted,
                format!("This credential speaks for {bound} and may not act for {named}."),
            ));
        }
        (Some(bound), _) => Some(bound.clone()),
        (None, named) => named,
    };
    let session = match (who.session_id, &agent) {
        (Some(session), _) => SessionId::parse(session)?,
        (None, Some(agent)) => SessionId::parse(agent.as_str())?,
        (None, None) => {
            return Err(No::new(Word::InvalidSessionId, "Say who asks: a session_id, or an agent_id."));
        }
    };
    let agent = agent.unwrap_or_else(|| AgentName::of_session(&session));
    if agent.is_external() {
        let why = "The name external is kept for clients outside of Lockkeeper; choose another.";
        return Err(No::new(Word::InvalidRequest, why));
    }
    if let Some(bound) = &caller.agent {
        // Names of sessions can't be taken away from other agents.
        if !is_session_of(session.as_str(), bound) {
            return Err(No::new(
                Word::OperationNotPermitted,
                format!("This credential speaks for {bound}: its sessions are {bound} and {bound}-..."),
            ));
        }
        if let Some(other) = caller.others.iter().find(|other| is_session_of(session.as_str(), other)) {
            return Err(No::new(
                Word::OperationNotPermitted,
                format!("This credential speaks for {bound}, and {session} is a session of {other}."),
            ));
        }
    }
    let agent_type = who.agent_type.map(AgentName::parse).transpose()?;
    Ok(Actor { session, agent, agent_type, bound: caller.agent.is_some() })
}

pub(crate) fn space(body: &impl Asker, default: &Space) -> Result<Space, No> {
    match body.who().space {
        None => Ok(default.clone()),
        Some(text) => Space::parse(text).map_err(|error| No::new(Word::InvalidSpace, sentence(&error.to_string()))),
    }
}

/// The request's id with a digest of what it asks.
pub(crate) fn request<B: Asker + Serialize>(operation: &str, body: &B) -> Result<Option<Request>, No> {
    let Some(id) = body.who().request_id else { return Ok(None) };
    let id = RequestId::parse(id)?;
    let text = serde_json::to_vec(body).map_err(|error| No::new(Word::Internal, error.to_string()))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(operation.as_bytes());
    hasher.update(&text);
    let digest = u64::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("32 bytes"));
    Ok(Some(Request { id, digest }))
}

pub(crate) fn acquire(body: &AcquireRequest, caller: &Caller, default_ttl: Millis) -> Result<Acquire, No> {
    let wants = wants(body.file_path.as_deref(), body.start_line, body.end_line, body.mode, body.locks.as_deref())?;
    if wants.is_empty() {
        return Err(No::new(Word::InvalidRequest, "Say what to lock: a file_path, or locks with at least one."));
    }
    let priority = match body.priority {
        None => PRIORITY_DEFAULT,
        Some(Whole(priority)) => {
            u8::try_from(priority).ok().filter(|priority| *priority <= PRIORITY_MAX).ok_or_else(|| {
                No::new(Word::InvalidRequest, format!("A priority is a whole number from 0 to {PRIORITY_MAX}."))
            })?
        }
    };
    let feature = match body.feature_id.as_deref() {
        None => None,
        Some(text) => Some(feature_id(Some(text))?),
    };
    Ok(Acquire {
        actor: actor(body, caller)?,
        wants,
        intention: Intention::parse(body.intention.as_deref().unwrap_or_default())?,
        ttl: ttl(body.ttl_ms, body.ttl_minutes)?.unwrap_or(default_ttl),
        wait: wait(body.wait_ms)?,
        priority,
        feature,
        request: request("locks/acquire", body)?,
        restores: false,
    })
}

pub(crate) fn feature_id(text: Option<&str>) -> Result<FeatureId, No> {
    text.and_then(logical::feature_id).ok_or_else(|| {
        No::new(Word::InvalidRequest, "A feature_id is 1 to 128 letters, digits, dots, underscores and hyphens.")
    })
}

/// What is asked about, without a session that would own it.
pub(crate) fn checked(body: &CheckRequest) -> Result<Vec<Want>, No> {
    let mut all = wants(body.file_path.as_deref(), body.start_line, body.end_line, body.mode, body.locks.as_deref())?;
    for path in body.file_paths.iter().flatten() {
        all.push(want(path, None, None, body.mode)?);
    }
    at_most(all.len(), SET_MAX)?;
    Ok(all)
}

fn wants(
    file_path: Option<&str>,
    start: Option<Whole>,
    end: Option<Whole>,
    mode: Option<ModeWord>,
    locks: Option<&[LockSpec]>,
) -> Result<Vec<Want>, No> {
    match (file_path, locks) {
        (Some(_), Some(_)) => Err(No::new(Word::InvalidRequest, "Give a file_path or locks, not both.")),
        (Some(path), None) => Ok(vec![want(path, start, end, mode)?]),
        (None, _) if start.is_some() || end.is_some() => {
            Err(No::new(Word::InvalidRequest, "Lines need the file_path that they are of."))
        }
        (None, Some(specs)) => {
            at_most(specs.len(), SET_MAX)?;
            let one = |spec: &LockSpec| want(&spec.file_path, spec.start_line, spec.end_line, spec.mode.or(mode));
            specs.iter().map(one).collect()
        }
        (None, None) => Ok(Vec::new()),
    }
}

pub(crate) fn at_most(count: usize, most: usize) -> Result<(), No> {
    if count <= most {
        return Ok(());
    }
    let mut no = No::new(Word::LimitExceeded, format!("One call names at most {most} keys; this one names {count}."));
    no.body.limit = Some(most as u64);
    Err(no)
}

fn want(path: &str, start: Option<Whole>, end: Option<Whole>, mode: Option<ModeWord>) -> Result<Want, No> {
    let mode = match mode {
        None | Some(ModeWord::Exclusive) => Mode::Exclusive,
        Some(ModeWord::Shared) => Mode::Shared,
    };
    Ok(Want { target: target(path, start, end)?.0, mode })
}

/// What is meant, and whether lines of it were named.
fn target(path: &str, start: Option<Whole>, end: Option<Whole>) -> Result<(Target, bool), No> {
    if start == Some(Whole::NONE) || end == Some(Whole::NONE) {
        return Err(No::new(Word::InvalidRange, "A line is a whole number, counted from 1."));
    }
    if start.is_none()
        && end.is_none()
        && let Some((file, lines)) = Span::behind_colon(path).filter(|_| !Key::has_prefix(path))
    {
        return Ok((with_lines(file, lines)?, true));
    }
    let key = Key::parse(path)?;
    let span = Span::checked(start.map(|line| line.0), end.map(|line| line.0))?;
    Ok((Target::new(key, span)?, start.is_some() || end.is_some()))
}

/// Lines as people write them. Whoever sees a file that is really called so says its lines by number: from the first on.
fn with_lines(file: &str, lines: &str) -> Result<Target, No> {
    if Span::behind_colon(file).is_some() {
        let why = format!("'{}:{lines}' names a line and a column; columns can't be locked.", shown(file));
        return Err(No::new(Word::InvalidRange, why));
    }
    Ok(Target::new(Key::parse(file)?, Span::parse(lines)?)?)
}

pub(crate) fn which(
    lock_id: Option<&str>,
    file_path: Option<&str>,
    start: Option<Whole>,
    end: Option<Whole>,
) -> Result<Option<Which>, No> {
    match (lock_id, file_path) {
        (Some(_), Some(_)) => Err(No::new(Word::InvalidRequest, "Give a lock_id or a file_path, not both.")),
        (Some(id), None) => {
            let id = LockId::parse(id)
                .ok_or_else(|| No::new(Word::InvalidRequest, "A lock_id looks like lock-2757c6049058."))?;
            Ok(Some(Which::Id(id)))
        }
        (None, Some(path)) => {
            let (Target { key, span }, lines) = target(path, start, end)?;
            Ok(Some(Which::Key(key, lines.then_some(span))))
        }
        (None, None) => Ok(None),
    }
}

/// What is asked about as a whole: lines that are named along with a file do not matter.
pub(crate) fn key(file_path: Option<&str>) -> Result<Key, No> {
    Ok(named(file_path)?.0.key)
}

fn named(file_path: Option<&str>) -> Result<(Target, bool), No> {
    let path = file_path.ok_or_else(|| No::new(Word::InvalidRequest, "Say which file_path is meant."))?;
    target(path, None, None)
}

/// The file that a person is editing, and for how long it stays busy.
pub(crate) fn room(body: &RoomRequest) -> Result<(Key, Millis), No> {
    let (Target { key, span }, lines) = named(body.file_path.as_deref())?;
    if lines {
        let why = format!("A room is of a whole file, not of lines {span}.");
        return Err(No::new(Word::InvalidRange, why).hint(format!("name the file: {key}")));
    }
    if key.kind() != KeyKind::Path {
        return Err(No::new(Word::InvalidKey, format!("Only a file has a room; {key} is none.")));
    }
    let busy = match body.busy_ms {
        None => ROOM_BUSY_DEFAULT,
        Some(Whole(ms)) => u64::try_from(ms)
            .ok()
            .map(Millis)
            .filter(|busy| (1..=TTL_MAX.0).contains(&busy.0))
            .ok_or_else(|| No::new(Word::InvalidTtl, format!("A room is busy for 1 ms to {TTL_MAX}.")))?,
    };
    Ok((key, busy))
}

pub(crate) fn ttl(ms: Option<Whole>, minutes: Option<Whole>) -> Result<Option<Millis>, No> {
    let asked = match (ms, minutes) {
        (Some(_), Some(_)) => return Err(No::new(Word::InvalidTtl, "Give ttl_ms or ttl_minutes, not both.")),
        (Some(Whole(ms)), None) => ms,
        (None, Some(Whole(minutes))) => minutes.saturating_mul(60_000),
        (None, None) => return Ok(None),
    };
    let allowed = i128::from(TTL_MIN.0)..=i128::from(TTL_MAX.0);
    if allowed.contains(&asked) {
        return Ok(Some(Millis(asked as u64)));
    }
    Err(No::new(
        Word::InvalidTtl,
        format!("A TTL is a whole number and lies between {TTL_MIN} and {} minutes.", TTL_MAX.0 / 60_000),
    ))
}

pub(crate) fn wait(ms: Option<Whole>) -> Result<Millis, No> {
    match ms {
        None => Ok(Millis(0)),
        Some(Whole(ms)) if (0..=i128::from(WAIT_MAX.0)).contains(&ms) => Ok(Millis(ms as u64)),
        Some(_) => Err(No::new(Word::InvalidRequest, format!("A wait is 0 to {WAIT_MAX}; this one is not."))),
    }
}

pub(crate) fn token(token: Option<Whole>) -> Result<Option<Token>, No> {
    match token {
        None => Ok(None),
        Some(Whole(token)) => {
            let token = u64::try_from(token);
            token
                .map(|token| Some(Token(token)))
                .map_err(|_| No::new(Word::InvalidRequest, "That is no fencing token."))
        }
    }
}

/// How many rows to show.
pub(crate) fn limit(limit: Option<Whole>, default: usize, most: usize) -> Result<usize, No> {
    match limit {
        None => Ok(default),
        Some(Whole(rows)) if (1..=most as i128).contains(&rows) => Ok(rows as usize),
        Some(_) => Err(No::new(Word::LimitExceeded, format!("A list has 1 to {most} rows."))),
    }
}

/// A text of strangers as a refusal may repeat it.
pub(crate) fn shown(text: &str) -> String {
    lockkeeper_core::text::one_line(text).chars().take(40).collect()
}
