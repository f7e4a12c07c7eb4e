//! Events and snapshots as the bytes of a ledger: a version, then postcard.

use lockkeeper_core::event::Event;
use lockkeeper_core::snapshot::{Snapshot, SnapshotMore};
use lockkeeper_core::state::State;
use serde::de::DeserializeOwned;

/// What the first byte of a payload says about the rest.
const VERSION: u8 = 1;
/// Of a snapshot with features and ports. Those before had the version of events.
const SNAPSHOT_VERSION: u8 = 2;

/// What an event takes, most of the time.
const EVENT_BYTES: usize = 128;

/// A payload that this program can't read. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("the ledger was written by a newer version of lockkeeper (payload version {0}, this one reads {VERSION})")]
    Newer(u8),
    #[error("the ledger holds a payload that can't be read: {0}")]
    Unreadable(postcard::Error),
    #[error("the ledger holds an empty payload")]
    Empty,
}

pub(crate) fn encode_events(events: &[Event]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(1 + events.len() * EVENT_BYTES);
    payload.push(VERSION);
    postcard::to_extend(events, payload).expect("events have a form")
}

pub(crate) fn decode_events(payload: &[u8]) -> Result<Vec<Event>, PayloadError> {
    whole(body(payload)?)
}

pub(crate) fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    postcard::to_extend(snapshot, vec![SNAPSHOT_VERSION]).expect("a snapshot has a form")
}

pub(crate) fn decode_snapshot(payload: &[u8]) -> Result<State, PayloadError> {
    let snapshot = match payload.split_first() {
        Some((&SNAPSHOT_VERSION, body)) => whole(body)?,
        Some(_) | None => Snapshot { base: whole(body(payload)?)?, more: SnapshotMore::default() },
    };
    Ok(State::from_snapshot(snapshot))
}

/// Reads all of it, and nothing else may follow.
fn whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PayloadError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(PayloadError::Unreadable(postcard::Error::DeserializeBadEncoding)),
        Err(error) => Err(PayloadError::Unreadable(error)),
    }
}

fn body(payload: &[u8]) -> Result<&[u8], PayloadError> {
    match payload.split_first() {
        Some((&VERSION, body)) => Ok(body),
        Some((&version, _)) => Err(PayloadError::Newer(version)),
        None => Err(PayloadError::Empty),
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::command::{Request, Want};
    use lockkeeper_core::event::{Enqueued, Grant, NewLock, On, Withdrawal};
    use lockkeeper_core::feature::{Feature, FeatureEnd};
    use lockkeeper_core::key::{Key, Target};
    use lockkeeper_core::lock::{Lock, LockId, Token, WaiterId};
    use lockkeeper_core::mode::Mode;
    use lockkeeper_core::outcome::CycleStep;
    use lockkeeper_core::session::{AgentName, Intention, RequestId, SessionId};
    use lockkeeper_core::span::Span;
    use lockkeeper_core::time::{Millis, Time};

    use super::*;

    fn one_of_each() -> Vec<Event> {
        let session = SessionId::parse("s").unwrap();
        let agent = AgentName::parse("a").unwrap();
        let intention = Intention::parse("why").unwrap();
        let lock = LockId::parse("lock-2757c6049058").unwrap();
        let key = Key::parse("src/a.rs").unwrap();
        let target = Target::new(key.clone(), Span::parse("10-50").unwrap()).unwrap();
        let request = Request { id: RequestId::parse("r").unwrap(), digest: 7 };
        vec![
            Event::Granted(Grant {
                session: session.clone(),
                agent: agent.clone(),
                agent_type: Some(agent.clone()),
                waiter: Some(WaiterId(3)),
                new: vec![
                    NewLock { id: lock, on: On::Target(target.clone(), Mode::Exclusive) },
                    NewLock { id: lock, on: On::Wanted(1) },
                ],
                replaced: vec![lock],
                refreshed: vec![lock],
                intention: intention.clone(),
                ttl: Millis(30_000),
                feature: Some("f".into()),
                request: Some(request.clone()),
                quota_kept: 60,
            }),
            Event::Renewed { session: session.clone(), locks: vec![lock], ttl: Some(Millis(1)) },
            Event::Released { session: session.clone(), locks: vec![lock], request: Some(request.clone()) },
            Event::Expired { locks: vec![lock] },
            Event::Forced {
                locks: vec![lock],
                by: agent.clone(),
                reason: intention.clone(),
                request: Some((session.clone(), request.clone())),
            },
            Event::Queued(Enqueued {
                waiter: WaiterId(3),
                session: session.clone(),
                agent: agent.clone(),
                agent_type: None,
                wants: vec![Want { target: target.clone(), mode: Mode::Shared }],
                intention,
                ttl: Millis(2),
                wait: Millis(3),
                priority: 5,
                feature: None,
                request: Some(request),
                quota_kept: 0,
            }),
            Event::Withdrawn { waiter: WaiterId(3), why: Withdrawal::SessionGone },
            Event::Beaten { sessions: vec![session.clone()], waiters: vec![WaiterId(3)] },
            Event::SessionOpened { session: session.clone(), agent: agent.clone(), agent_type: None },
            Event::SessionClosed { session: session.clone() },
            Event::SessionsForgotten { sessions: vec![session.clone()] },
            Event::LossAccepted { session: session.clone(), targets: vec![target] },
            Event::RoomOpened { key: key.clone(), session: session.clone(), agent, busy: Millis(5) },
            Event::RoomClosed { key, by: Some(session.clone()) },
            Event::Vanished {
                locks: vec![Lock {
                    id: lock,
                    target: Target::new(Key::parse("src/b.rs").unwrap(), Span::WHOLE).unwrap(),
                    mode: Mode::Exclusive,
                    session,
                    agent: AgentName::parse("a").unwrap(),
                    intention: Intention::parse("why").unwrap(),
                    feature: None,
                    token: Token(9),
                    acquired: Time(10),
                    expires: Time(11),
                    ttl: Millis(12),
                }],
                last_token: Token(13),
            },
            Event::GivenBack { session: SessionId::parse("s").unwrap(), locks: vec![lock] },
            Event::FeatureRegistered(Feature {
                id: "F-1".into(),
                agent: AgentName::parse("a").unwrap(),
                title: Some("t".into()),
                branch: None,
                merge_priority: 5,
                claims: vec![Key::parse("src/**").unwrap()],
                metadata: Some("{}".into()),
                registered: Time(14),
            }),
            Event::FeatureEnded { feature: "F-1".into(), end: FeatureEnd::Cancelled },
            Event::PortsAllocated {
                session: SessionId::parse("s").unwrap(),
                agent: AgentName::parse("a").unwrap(),
                base: 10_100,
                ttl: Millis(15),
            },
            Event::PortsFreed { sessions: vec![SessionId::parse("s").unwrap()] },
            Event::ServerSeen { server: "host 7".to_owned(), settings: "ttl 30 s".to_owned() },
            deadlocked(),
            loss_told(),
        ]
    }

    fn loss_told() -> Event {
        Event::LossTold {
            session: SessionId::parse("s").unwrap(),
            targets: vec![Target::new(Key::parse("src/b.rs").unwrap(), Span::WHOLE).unwrap()],
            request: Request { id: RequestId::parse("r").unwrap(), digest: 7 },
        }
    }

    fn deadlocked() -> Event {
        Event::Deadlocked {
            waiter: WaiterId(16),
            cycle: vec![CycleStep {
                session: SessionId::parse("s").unwrap(),
                agent: AgentName::parse("a").unwrap(),
                wanted: Target::new(Key::parse("src/b.rs").unwrap(), Span::WHOLE).unwrap(),
                blocker: SessionId::parse("t").unwrap(),
            }],
        }
    }

    /// Ledgers that exist must stay readable: if this fails, the change needs a new version and a way to read the old.
    #[test]
    fn the_stored_form_of_events_never_changes() {
        let hex = encode_events(&one_of_each()).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert_eq!(hex, include_str!("payload.golden").trim());
        assert_eq!(decode_events(&encode_events(&one_of_each())).unwrap(), one_of_each());
    }

    #[test]
    fn a_snapshot_of_before_there_were_features_and_ports_is_read() {
        let mut state = State::new(7);
        for event in one_of_each() {
            state.apply(lockkeeper_core::time::Stamp { time: Time(1_000_000), wall: 0 }, &event);
        }
        let snapshot = state.snapshot();
        let older = postcard::to_extend(&snapshot.base, vec![VERSION]).unwrap();
        assert_eq!(decode_snapshot(&older).unwrap().snapshot().base, snapshot.base);
        let mut bytes = encode_snapshot(&snapshot);
        assert_eq!(decode_snapshot(&bytes).unwrap().snapshot(), snapshot);
        bytes.push(0);
        assert!(decode_snapshot(&bytes).is_err(), "nothing may follow");
    }

    #[test]
    fn what_cannot_be_read_is_said_so() {
        assert_eq!(decode_events(&[]), Err(PayloadError::Empty));
        assert_eq!(decode_events(&[9, 1]), Err(PayloadError::Newer(9)));
        assert!(matches!(decode_events(&[VERSION, 255, 255]), Err(PayloadError::Unreadable(_))));
    }
}
