//! Refusals in words: what happened, who holds it, and the next command. Written once, for every door.

use std::sync::Arc;

use lockkeeper_core::key::{InvalidKey, Target};
use lockkeeper_core::lock::Lock;
use lockkeeper_core::outcome::{Blocker, Busy, BusyReason, Conflict, NotFound, Refusal, Skip};
use lockkeeper_core::span::{InvalidRange, Span};
use lockkeeper_core::text::shell_word;
use lockkeeper_core::time::Millis;
use lockkeeper_keeper::Failure;
use lockkeeper_wire::answer::Refused;
use lockkeeper_wire::word::Word;

use crate::view::{self, Viewer};

/// A refusal or a failure on its way out, with the status that carries it.
#[derive(Clone, Debug)]
pub(crate) struct No {
    pub(crate) word: Word,
    pub(crate) body: Box<Refused>,
}

impl No {
    pub(crate) fn new(word: Word, message: impl Into<String>) -> No {
        let body = Refused { error: word.text().to_owned(), message: message.into(), ..Refused::default() };
        No { word, body: Box::new(body) }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> No {
        self.body.hint = Some(hint.into());
        self
    }

    /// The same in other words.
    pub(crate) fn told(mut self, message: String) -> No {
        self.body.message = message;
        self
    }

    fn reason(mut self, reason: &str) -> No {
        self.body.reason = Some(reason.to_owned());
        self
    }
}

impl From<InvalidKey> for No {
    fn from(error: InvalidKey) -> No {
        let word = match &error {
            InvalidKey::Path { .. } => Word::InvalidPath,
            InvalidKey::Logical { .. } => Word::InvalidKey,
            InvalidKey::UnknownPrefix(_) | InvalidKey::GitDirectory => Word::OperationNotPermitted,
        };
        No::new(word, sentence(&error.to_string()))
    }
}

impl From<InvalidRange> for No {
    fn from(error: InvalidRange) -> No {
        No::new(Word::InvalidRange, sentence(&error.to_string()))
    }
}

impl From<Failure> for No {
    fn from(failure: Failure) -> No {
        match &failure {
            Failure::Unavailable(_) => No::new(Word::Unavailable, sentence(&failure.to_string())),
            Failure::Full => No::new(Word::Unavailable, sentence(&failure.to_string())).reason("disk_full"),
            Failure::OutcomeUnknown(_) => No::new(Word::OutcomeUnknown, sentence(&failure.to_string()))
                .hint("ask for the same again: what you got is renewed; with a request_id, with the same one"),
        }
    }
}

/// A message begins with a capital and ends with a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    // A path, a URL or a quoted text keeps its letters.
    if text.split_whitespace().next().is_some_and(|word| word.contains("://")) {
        return format!("{text}{end}");
    }
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}{end}", chars.as_str())
}

pub(crate) fn refused(refusal: &Refusal, viewer: Viewer) -> No {
    match refusal {
        Refusal::Busy(told) => busy(told, viewer),
        Refusal::Deadlock { cycle } => {
            let steps = view::cycle(cycle);
            let mut told: Vec<String> = steps
                .iter()
                .map(|step| format!("{} waits for {} ({})", step.owner, step.wants, step.held_by))
                .collect();
            let left_out = cycle.windows(2).position(|two| two[0].blocker != two[1].session);
            if let Some(place) = left_out {
                told.insert(place + 1, "and so on".to_owned());
            }
            let mut no = No::new(Word::Deadlock, format!("Waiting would never end: {}.", told.join(", ")));
            no.body.cycle = steps;
            no.hint("release what you hold first, or ask for all keys in one call")
        }
        Refusal::RequestMismatch => {
            No::new(Word::RequestMismatch, "This request_id was used before with another body; nothing was changed.")
                .hint("use a new request_id for a new request")
        }
        Refusal::LockLost { targets } => {
            let what = if targets.is_empty() { "The lock".to_owned() } else { list(targets) };
            No::new(
                Word::LockLost,
                format!("{what} is not yours any more: it expired, was taken away, or the token is old."),
            )
            .hint("stop working on it, and acquire it again")
        }
        Refusal::NotOwner { lock } => {
            let for_more = lock.expires.since(viewer.now.time);
            let mut no = No::new(
                Word::NotOwner,
                format!(
                    "{} is held by {} (session {}) for {for_more} more; only its holder may do that.",
                    lock.target, lock.agent, lock.session
                ),
            );
            no.body.conflicts =
                vec![viewer.conflict(&Conflict { wanted: lock.target.clone(), with: Blocker::Held(lock.clone()) })];
            if lock.session.is_external() {
                // No command to paste: the name may hold anything, and where that Redis is, is not for everybody.
                return no.hint(format!(
                    "in that Redis, DEL of the key \"lock:file:{}\" ends it, if nobody works there",
                    lock.target.key
                ));
            }
            no.hint(format!("ask {} for it, or acquire it with a wait to stand in the queue", lock.agent))
        }
        Refusal::NotInRoom { room } => {
            let more = room.until.since(viewer.now.time);
            let mut no = No::new(
                Word::NotOwner,
                format!("{} is in the room of {} for {more} more; only they may leave it.", room.agent, room.key),
            );
            no.body.conflicts = vec![viewer.conflict(&Conflict {
                wanted: Target { key: room.key.clone(), span: Span::WHOLE },
                with: Blocker::Room(room.clone()),
            })];
            // From another terminal, a person is another session.
            let key = shell_word(room.key.as_str());
            no.hint(format!("if that is you: lockkeeper --session {} room close {key}", room.session))
        }
        Refusal::NotFound { what } => not_found(what),
        Refusal::RateLimited { limit, window, retry_after } => {
            let mut no = No::new(
                Word::RateLimited,
                format!(
                    "This session has used its quota of {limit} acquisitions in {window}; come back in {retry_after}."
                ),
            );
            no.body.limit = Some(u64::from(*limit));
            no.body.window_ms = Some(window.0);
            no.body.retry_after_ms = Some(retry_after.0);
            no.hint("ask for several keys in one call, and keep locks with heartbeats instead of asking again")
        }
        Refusal::ForeignSession { session, agent } => No::new(
            Word::OperationNotPermitted,
            format!("Session {session} belongs to {agent}; this credential speaks for another agent."),
        ),
        Refusal::Paused { by } => paused(by, viewer),
        Refusal::ForeignFeature { feature } => No::new(
            Word::NotOwner,
            format!("Feature {} belongs to {}; only they may do that.", feature.id, feature.agent),
        ),
        Refusal::NoPorts { used, sessions } => no_ports(*used, *sessions),
        Refusal::LimitExceeded { what } => {
            let mut no =
                No::new(Word::LimitExceeded, format!("There may be at most {} {}.", what.number(), what.what()));
            no.body.limit = Some(what.number() as u64);
            no
        }
    }
}

fn no_ports(used: usize, sessions: u16) -> No {
    let why =
        format!("No ports are free: {used} of {sessions} sessions have some; what others listen on is passed over.");
    let mut no = No::new(Word::NoPortsAvailable, why);
    no.body.limit = Some(u64::from(sessions));
    no.hint("lockkeeper ports status shows who has them; lockkeeper ports release --session NAME gives them back")
}

/// Somebody else holds the key that pauses a feature.
pub(crate) fn paused(by: &Lock, viewer: Viewer) -> No {
    let more = by.expires.since(viewer.now.time);
    let feature = by.target.key.paused_feature().unwrap_or(by.target.key.as_str());
    let why = quoted(by.intention.as_str());
    let mut no = No::new(
        Word::Paused,
        format!("Feature {feature} is paused by {}{why} for {more} more; what you hold stays yours.", by.agent),
    );
    no.body.conflicts =
        vec![viewer.conflict(&Conflict { wanted: by.target.clone(), with: Blocker::Held(Arc::new(by.clone())) })];
    no.hint(format!("lockkeeper feature check {feature} --wait 10m"))
}

/// Why something that was lost was not given back.
pub(crate) fn skipped(why: &Skip, viewer: Viewer) -> No {
    match why {
        Skip::Refused(refusal) => refused(refusal, viewer),
        Skip::Taken { note } => {
            let by = note.as_deref().map_or_else(|| "an operator or a client outside".to_owned(), str::to_owned);
            No::new(Word::LockLost, format!("It was taken away ({by}); ask for it anew if you still need it."))
        }
    }
}

fn not_found(what: &NotFound) -> No {
    match what {
        NotFound::Lock(id) => No::new(Word::NotFound, format!("There is no lock {id}.")),
        NotFound::Key(key, span) => {
            let named = match span {
                Some(span) if !span.is_whole() => format!("{key}:{span}"),
                Some(_) | None => key.to_string(),
            };
            No::new(Word::NotFound, format!("Nobody holds {named}."))
        }
        NotFound::Session(session) => No::new(Word::NotFound, format!("There is no session {session}.")),
        NotFound::Feature(id) => No::new(Word::NotFound, format!("There is no feature {id}.")),
        NotFound::Room(key) => No::new(Word::NotFound, format!("Nobody is in the room of {key}.")),
    }
}

fn list(targets: &[Target]) -> String {
    targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn busy(busy: &Busy, viewer: Viewer) -> No {
    let reason = match busy.reason {
        BusyReason::Contended => "lock_contended",
        BusyReason::TimedOut => "lock_timeout",
        BusyReason::RoomBusy => "room_busy",
    };
    let mut no = No::new(Word::Busy, busy_message(busy, viewer)).reason(reason);
    no.body.conflicts = busy.conflicts.iter().map(|conflict| viewer.conflict(conflict)).collect();
    no.body.more_conflicts = busy.more;
    no.body.free = busy.free.iter().copied().map(view::lines_view).collect();
    no.body.queue_ahead = Some(busy.ahead);
    match busy_hint(busy) {
        Some(hint) => no.hint(hint),
        None => no,
    }
}

/// One sentence for each of the first conflicts, then what is free.
fn busy_message(busy: &Busy, viewer: Viewer) -> String {
    const SAID_MAX: usize = 3;
    let mut said: Vec<String> = Vec::new();
    if busy.reason == BusyReason::TimedOut {
        said.push("The wait is over.".to_owned());
    }
    for conflict in busy.conflicts.iter().take(SAID_MAX) {
        said.push(conflict_sentence(conflict, viewer));
    }
    let unsaid = busy.conflicts.len().saturating_sub(SAID_MAX);
    match (unsaid, busy.more) {
        (0, false) => {}
        (0, true) => said.push("More may stand in the way.".to_owned()),
        (unsaid, more) => said.push(format!("{unsaid}{} more stand in the way.", if more { " or" } else { "" })),
    }
    if busy.conflicts.is_empty() {
        said.push("It has just come free; ask again.".to_owned());
    }
    if !busy.free.is_empty() {
        let free: Vec<String> = busy.free.iter().map(ToString::to_string).collect();
        let word =
            if busy.free.len() == 1 && busy.free[0].last() == Some(busy.free[0].start()) { "line" } else { "lines" };
        let (last, others) = free.split_last().expect("there is one");
        let others = if others.is_empty() { String::new() } else { format!("{} and ", others.join(", ")) };
        said.push(format!("Free: {word} {others}{last}."));
    }
    said.join(" ")
}

pub(crate) fn conflict_sentence(conflict: &lockkeeper_core::outcome::Conflict, viewer: Viewer) -> String {
    let wanted = &conflict.wanted;
    let lines = |target: &Target| match target.span.intersection(wanted.span) {
        Some(span) if !span.is_whole() && target.key == wanted.key => {
            let word = if span.last() == Some(span.start()) { "Line" } else { "Lines" };
            format!("{word} {span} of {}", target.key)
        }
        Some(_) | None => target.to_string(),
    };
    match &conflict.with {
        Blocker::Held(lock) => {
            let more = lock.expires.since(viewer.now.time);
            let held = whole_of(lock.target.span);
            format!(
                "{} {} held by {}{held}{} for {more} more.",
                lines(&lock.target),
                verb(&lock.target, wanted),
                lock.agent,
                quoted(lock.intention.as_str())
            )
        }
        Blocker::Waiting { waiter, target } => {
            let since = viewer.now.time.since(waiter.queued);
            format!(
                "{} {} wanted by {}{}, who has waited for {since} and comes earlier.",
                lines(target),
                verb(target, wanted),
                waiter.asked.agent,
                quoted(waiter.asked.intention.as_str()).trim_end_matches(',')
            )
        }
        Blocker::Room(room) => {
            let more: Millis = room.until.since(viewer.now.time);
            format!("{} is being edited by {}; the room is busy for {more} more.", room.key, room.agent)
        }
    }
}

fn verb(target: &Target, wanted: &Target) -> &'static str {
    match target.span.intersection(wanted.span) {
        Some(span) if !span.is_whole() && target.key == wanted.key && span.last() != Some(span.start()) => "are",
        Some(_) | None => "is",
    }
}

fn whole_of(span: Span) -> String {
    if span.is_whole() { String::new() } else { format!(" ({span})") }
}

fn quoted(intention: &str) -> String {
    if intention.is_empty() { String::new() } else { format!(", \"{intention}\",") }
}

/// What to do, for whoever reads it: the command line says it as a command.
fn busy_hint(busy: &Busy) -> Option<String> {
    let wanted = &busy.conflicts.first()?.wanted;
    let wait = "ask again with a wait to stand in the queue";
    Some(match busy.free.first() {
        Some(free) => format!("take {}:{free}, or {wait}", wanted.key),
        None => wait.to_owned(),
    })
}
