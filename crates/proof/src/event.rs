//! Events: read from their files, and made for them. Knows no folder and no state.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use jiff::Timestamp;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::error::{Error, Result, shown};
use crate::limits::{EVENT_BYTES_MAX, EVENT_DEPTH_MAX, NODES_EACH_MAX};
use crate::name::{NodeId, Owner, Sequence};
use crate::profile::Profile;

/// An event as it lies in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub sequence: Sequence,
    pub event_type: String,
    /// When it happened, as far as it says so in a way that can be read.
    pub timestamp: Option<Timestamp>,
    pub kind: Kind,
    /// The text of the event.
    pub json: String,
}

/// What an event means for claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Claimed {
        nodes: Vec<NodeId>,
        owner: Owner,
        expires_at: Timestamp,
    },
    Refreshed {
        node: NodeId,
        owner: Owner,
        expires_at: Timestamp,
    },
    /// The program's releases name no owner; ours do.
    Released {
        nodes: Vec<NodeId>,
        owner: Option<Owner>,
    },
    Reaped {
        nodes: Vec<NodeId>,
        owner: Option<Owner>,
    },
    NodeCreated(NodeId),
    /// Nothing.
    Other,
}

/// What all events have.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    event_type: Cow<'a, str>,
    timestamp: Option<Value>,
}

#[derive(Deserialize)]
struct DocClaim {
    node_id: String,
    owner: Option<String>,
    expires_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct AfClaim {
    node_id: Option<String>,
    node_ids: Option<Vec<String>>,
    owner: Option<String>,
    timeout: Option<Timestamp>,
    new_timeout: Option<Timestamp>,
    reaped: Option<bool>,
}

#[derive(Deserialize)]
struct AfNode {
    node: AfNodeId,
}

#[derive(Deserialize)]
struct AfNodeId {
    id: String,
}

/// What is read of an event when only claims are of interest.
pub(crate) struct Reading<'a> {
    pub(crate) event_type: Cow<'a, str>,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) kind: Kind,
}

/// Reads an event's text; or says what is wrong with it.
pub(crate) fn read(content: &[u8], profile: Profile) -> std::result::Result<Reading<'_>, String> {
    if content.len() > EVENT_BYTES_MAX {
        return Err(format!("it has more than {EVENT_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(content).map_err(|_| "it is no UTF-8".to_owned())?;
    if is_deep(content) {
        return Err(format!("it is nested more than {EVENT_DEPTH_MAX} deep"));
    }
    let head: Head<'_> = parsed(text)?;
    let timestamp = head.timestamp.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok());
    let kind = match profile {
        Profile::Doc => doc_kind(&head.event_type, text)?,
        Profile::Af => af_kind(&head.event_type, text)?,
    };
    Ok(Reading { event_type: head.event_type, timestamp, kind })
}

/// Reads an event's text, as it is found in a ledger of this profile.
///
/// ```
/// use lockkeeper_proof::{Kind, Profile, Sequence, parse_event};
/// let text = br#"{"type":"lock_released","timestamp":"2024-01-15T10:32:00Z","node_id":"1.2.3","owner":"a"}"#;
/// let event = parse_event(Sequence(7), text, Profile::Doc).unwrap();
/// assert!(matches!(event.kind, Kind::Released { .. }));
/// ```
pub fn parse_event(sequence: Sequence, content: &[u8], profile: Profile) -> Result<Event> {
    let reading = read(content, profile).map_err(|what| Error::damaged(profile.file_name(sequence), what))?;
    Ok(Event {
        sequence,
        event_type: reading.event_type.into_owned(),
        timestamp: reading.timestamp,
        kind: reading.kind,
        json: String::from_utf8_lossy(content).into_owned(),
    })
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> std::result::Result<T, String> {
    serde_json::from_str(text).map_err(|error| shown(&error.to_string()))
}

fn doc_kind(event_type: &str, text: &str) -> std::result::Result<Kind, String> {
    if !matches!(event_type, "lock_acquired" | "lock_released" | "lock_reaped") {
        return Ok(Kind::Other);
    }
    let DocClaim { node_id, owner, expires_at } = parsed(text)?;
    // Whatever it says: somebody else wrote it, and one event that we would not write must not stop everybody.
    let node = NodeId::as_written(&node_id);
    let owner = owner.as_deref().map(Owner::as_written);
    Ok(match event_type {
        "lock_acquired" => Kind::Claimed {
            nodes: vec![node],
            owner: owner.ok_or("it names no owner")?,
            expires_at: expires_at.ok_or("it names no expires_at")?,
        },
        "lock_released" => Kind::Released { nodes: vec![node], owner },
        _ => Kind::Reaped { nodes: vec![node], owner },
    })
}

fn af_kind(event_type: &str, text: &str) -> std::result::Result<Kind, String> {
    let node = |text: &str| NodeId::parse(text, Profile::Af).map_err(|error| error.to_string());
    if event_type == "node_created" {
        return Ok(Kind::NodeCreated(node(&parsed::<AfNode>(text)?.node.id)?));
    }
    if !matches!(event_type, "nodes_claimed" | "nodes_released" | "claim_refreshed") {
        return Ok(Kind::Other);
    }
    let AfClaim { node_id, node_ids, owner, timeout, new_timeout, reaped } = parsed(text)?;
    let owner = owner.as_deref().map(Owner::as_written);
    if event_type == "claim_refreshed" {
        return Ok(Kind::Refreshed {
            node: node(&node_id.ok_or("it names no node_id")?)?,
            owner: owner.ok_or("it names no owner")?,
            expires_at: new_timeout.ok_or("it names no new_timeout")?,
        });
    }
    let node_ids = node_ids.ok_or("it names no node_ids")?;
    if node_ids.len() > NODES_EACH_MAX {
        return Err(format!("it names more than {NODES_EACH_MAX} nodes"));
    }
    let nodes = node_ids.iter().map(|text| node(text)).collect::<std::result::Result<Vec<NodeId>, String>>()?;
    Ok(match (event_type, reaped) {
        ("nodes_claimed", _) => Kind::Claimed {
            nodes,
            owner: owner.ok_or("it names no owner")?,
            expires_at: timeout.ok_or("it names no timeout")?,
        },
        (_, Some(true)) => Kind::Reaped { nodes, owner },
        _ => Kind::Released { nodes, owner },
    })
}

/// Whether arrays and objects lie in each other beyond the bound; strings are passed over.
fn is_deep(content: &[u8]) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in content {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b'{' | b'[') => {
                depth += 1;
                if depth > EVENT_DEPTH_MAX {
                    return true;
                }
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// An event that may be appended to ledgers of its profile. It is compact, and `"type"` is its first field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    profile: Profile,
    kind: Kind,
    json: String,
}

impl NewEvent {
    /// Takes an event as somebody wrote it down.
    ///
    /// In a ledger of the program, an event of a type that it does not know would make the proof unloadable for good, and
    /// so would one whose first field is not its type: both are refused.
    pub fn parse(json: &str, profile: Profile) -> Result<NewEvent> {
        // serde reads the fields of an array by their places, and calls them by our names.
        if !json.trim_start().starts_with('{') {
            let form = "an event is a JSON object with a type, such as {\"type\":\"note\"}";
            return Err(Error::InvalidEvent(form.to_owned()));
        }
        // As it was written: what is no JSON does not become some by being made compact.
        let reading = read(json.as_bytes(), profile).map_err(Error::InvalidEvent)?;
        each_field_once(json).map_err(Error::InvalidEvent)?;
        writable(&reading.kind, profile)?;
        let json = compact(json);
        if !profile.knows(&reading.event_type) {
            return Err(Error::InvalidEvent(format!(
                "the program af loads no proof that has an event of the type '{}'",
                shown(&reading.event_type)
            )));
        }
        if reading.event_type.is_empty() {
            return Err(Error::InvalidEvent("its type is empty".to_owned()));
        }
        if profile == Profile::Af && !json.starts_with("{\"type\":") {
            return Err(Error::InvalidEvent("its first field must be \"type\"".to_owned()));
        }
        let kind = reading.kind;
        Ok(NewEvent { profile, kind, json })
    }

    pub fn as_str(&self) -> &str {
        &self.json
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(crate) fn profile(&self) -> Profile {
        self.profile
    }

    /// The event that says this, in the words of the profile; `None` for what claims have nothing to do with.
    pub(crate) fn of(kind: Kind, now: Timestamp, profile: Profile) -> NewEvent {
        let json = match profile {
            Profile::Doc => doc_text(&kind, now),
            Profile::Af => af_text(&kind, now),
        };
        NewEvent { profile, kind, json }
    }
}

/// The fields that somebody reads; others may be called as they like.
const FIELDS: [&str; 11] = [
    "type",
    "timestamp",
    "node_id",
    "node_ids",
    "owner",
    "expires_at",
    "timeout",
    "new_timeout",
    "reaped",
    "node",
    "id",
];

/// Readers written in Go take fields whose names differ only in case for one, and the last one counts. Others don't: so such
/// an event would mean different things to them.
fn each_field_once(json: &str) -> std::result::Result<(), String> {
    let Fields(names) = parsed(json)?;
    let mut seen = HashSet::new();
    for name in &names {
        let alike = name.to_uppercase().to_lowercase();
        if FIELDS.contains(&alike.as_str()) && alike != *name {
            return Err(format!("its field '{}' would be read as '{alike}' by some", shown(name)));
        }
        if !seen.insert(alike) {
            return Err(format!("it has the field '{}' twice, if case does not count", shown(name)));
        }
    }
    Ok(())
}

/// The names of an object's fields, each as often as it stands there.
struct Fields(Vec<String>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(source: D) -> std::result::Result<Fields, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    names.push(name);
                }
                Ok(Fields(names))
            }
        }
        source.deserialize_map(Names)
    }
}

/// Nodes and owners of others are read as they are; ours are such that everybody can read them.
fn writable(kind: &Kind, profile: Profile) -> Result<()> {
    let (nodes, owner) = match kind {
        Kind::Claimed { nodes, owner, .. } => (nodes.as_slice(), Some(owner)),
        Kind::Refreshed { node, owner, .. } => (std::slice::from_ref(node), Some(owner)),
        Kind::Released { nodes, owner } | Kind::Reaped { nodes, owner } => (nodes.as_slice(), owner.as_ref()),
        Kind::NodeCreated(node) => (std::slice::from_ref(node), None),
        Kind::Other => return Ok(()),
    };
    let refused = |error: Error| Error::InvalidEvent(error.to_string());
    nodes.iter().try_for_each(|node| NodeId::parse(node.as_str(), profile).map(drop)).map_err(refused)?;
    owner.map_or(Ok(()), |owner| Owner::parse(owner.as_str()).map(drop)).map_err(refused)
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn doc_text(kind: &Kind, now: Timestamp) -> String {
    let text = |event_type: &str, node: &NodeId, owner: Option<&Owner>, more: String| {
        let owner = owner.map(|owner| format!(r#","owner":{}"#, quoted(owner.as_str()))).unwrap_or_default();
        format!(r#"{{"type":"{event_type}","timestamp":"{now}","node_id":{}{owner}{more}}}"#, quoted(node.as_str()))
    };
    let first = |nodes: &[NodeId]| nodes.first().cloned().expect("made with one node");
    match kind {
        Kind::Claimed { nodes, owner, expires_at } => {
            text("lock_acquired", &first(nodes), Some(owner), format!(r#","expires_at":"{expires_at}""#))
        }
        // The document has no word for it: taking it again says the same.
        Kind::Refreshed { node, owner, expires_at } => {
            text("lock_acquired", node, Some(owner), format!(r#","expires_at":"{expires_at}""#))
        }
        Kind::Released { nodes, owner } => text("lock_released", &first(nodes), owner.as_ref(), String::new()),
        Kind::Reaped { nodes, owner } => text("lock_reaped", &first(nodes), owner.as_ref(), String::new()),
        Kind::NodeCreated(_) | Kind::Other => unreachable!("made for claims only"),
    }
}

fn af_text(kind: &Kind, now: Timestamp) -> String {
    let list = |nodes: &[NodeId]| {
        let nodes: Vec<String> = nodes.iter().map(|node| quoted(node.as_str())).collect();
        nodes.join(",")
    };
    let by = |owner: Option<&Owner>| {
        owner.map(|owner| format!(r#","owner":{}"#, quoted(owner.as_str()))).unwrap_or_default()
    };
    match kind {
        Kind::Claimed { nodes, owner, expires_at } => format!(
            r#"{{"type":"nodes_claimed","timestamp":"{now}","node_ids":[{}]{},"timeout":"{expires_at}"}}"#,
            list(nodes),
            by(Some(owner))
        ),
        Kind::Refreshed { node, owner, expires_at } => format!(
            r#"{{"type":"claim_refreshed","timestamp":"{now}","node_id":{}{},"new_timeout":"{expires_at}"}}"#,
            quoted(node.as_str()),
            by(Some(owner))
        ),
        Kind::Released { nodes, owner } => format!(
            r#"{{"type":"nodes_released","timestamp":"{now}","node_ids":[{}]{}}}"#,
            list(nodes),
            by(owner.as_ref())
        ),
        Kind::Reaped { nodes, owner } => format!(
            r#"{{"type":"nodes_released","timestamp":"{now}","node_ids":[{}]{},"reaped":true}}"#,
            list(nodes),
            by(owner.as_ref())
        ),
        Kind::NodeCreated(_) | Kind::Other => unreachable!("made for claims only"),
    }
}

/// The text without the space between its parts.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for letter in text.chars() {
        match (quoted, letter) {
            (true, _) if escaped => escaped = false,
            (true, '\\') => escaped = true,
            (_, '"') => quoted = !quoted,
            (false, ' ' | '\t' | '\n' | '\r') => continue,
            _ => {}
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_documents_and_the_programs_own_examples_are_read() {
        let acquired = br#"{
  "type": "lock_acquired",
  "timestamp": "2024-01-15T10:30:00Z",
  "node_id": "1.2.3",
  "owner": "agent-uuid-1234",
  "expires_at": "2024-01-15T10:35:00Z"
}"#;
        let event = parse_event(Sequence(1), acquired, Profile::Doc).unwrap();
        assert_eq!(event.timestamp, Some(moment("2024-01-15T10:30:00Z")));
        assert!(matches!(&event.kind, Kind::Claimed { owner, expires_at, .. }
            if owner.as_str() == "agent-uuid-1234" && *expires_at == moment("2024-01-15T10:35:00Z")));
        let claimed = br#"{"type":"nodes_claimed","timestamp":"2026-11-15T19:53:38.771328471Z","node_ids":["1"],"owner":"prover-1","timeout":"2026-11-15T19:53:40.771327731Z"}"#;
        let event = parse_event(Sequence(3), claimed, Profile::Af).unwrap();
        assert!(matches!(&event.kind, Kind::Claimed { nodes, .. } if nodes.len() == 1));
        // The same text means nothing in the other profile.
        assert_eq!(parse_event(Sequence(3), claimed, Profile::Doc).unwrap().kind, Kind::Other);
    }

    #[test]
    fn what_is_made_is_read_as_what_it_says_with_zeros_trimmed() {
        let node = NodeId::parse("1.2", Profile::Af).unwrap();
        let (owner, now) = (Owner::parse("a \"b\"").unwrap(), moment("2026-11-15T19:53:38.500Z"));
        let expires_at = moment("2026-11-15T21:58:38.000000001+02:00");
        for profile in [Profile::Doc, Profile::Af] {
            let claimed = Kind::Claimed { nodes: vec![node.clone()], owner: owner.clone(), expires_at };
            let released = Kind::Released { nodes: vec![node.clone()], owner: Some(owner.clone()) };
            let reaped = Kind::Reaped { nodes: vec![node.clone()], owner: Some(owner.clone()) };
            for kind in [claimed, released, reaped] {
                let event = NewEvent::of(kind.clone(), now, profile);
                assert!(event.as_str().starts_with("{\"type\":") && event.as_str().contains("38.5Z\""), "{event:?}");
                assert_eq!(NewEvent::parse(event.as_str(), profile).unwrap(), event);
            }
        }
        let refreshed = Kind::Refreshed { node, owner, expires_at };
        let text = NewEvent::of(refreshed.clone(), now, Profile::Af);
        assert_eq!(NewEvent::parse(text.as_str(), Profile::Af).unwrap().kind, refreshed);
        assert!(NewEvent::of(refreshed, now, Profile::Doc).as_str().contains("lock_acquired"));
    }

    #[test]
    fn no_event_of_the_document_is_made_for_the_program() {
        for refused in [
            r#"{"type":"lock_acquired","timestamp":"2024-01-15T10:30:00Z","node_id":"1","owner":"a","expires_at":"2024-01-15T10:35:00Z"}"#,
            r#"{"type":"lock_reaped","node_id":"1"}"#,
            r#"{"type":"custom_event"}"#,
            r#"{"timestamp":"2024-01-15T10:30:00Z","type":"node_validated"}"#,
            r#"{"type":"nodes_claimed","node_ids":["2"],"owner":"a","timeout":"2024-01-15T10:30:00Z"}"#,
        ] {
            assert!(matches!(NewEvent::parse(refused, Profile::Af), Err(Error::InvalidEvent(_))), "{refused}");
        }
        NewEvent::parse(" { \"type\" : \"custom_event\", \"a b\" : \" \\\" x\" } ", Profile::Doc).unwrap();
    }

    #[test]
    fn hostile_texts_are_refused_in_words() {
        let deep = format!("{{\"type\":\"x\",\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let large = format!("{{\"type\":\"x\",\"a\":\"{}\"}}", "x".repeat(EVENT_BYTES_MAX));
        let texts: [&[u8]; 10] = [
            b"",
            b"null",
            b"[]",
            b"{\"type\":5}",
            b"{\"type\":\"x\",\"type\":\"y\"}",
            b"{\"type\":\"x\"}{",
            b"{\"type\":\"x\"}\0",
            b"{\"type\":\"\xff\"}",
            deep.as_bytes(),
            large.as_bytes(),
        ];
        for text in texts {
            for profile in [Profile::Doc, Profile::Af] {
                assert!(read(text, profile).is_err_and(|why| !why.is_empty() && why.len() < 400));
            }
        }
        assert!(is_deep("[".repeat(129).as_bytes()) && !is_deep(format!("\"{}\"", "[".repeat(500)).as_bytes()));
    }

    #[test]
    fn what_is_no_json_does_not_become_some_by_being_made_compact() {
        for broken in [r#"{"type":"x","n":10 000}"#, r#"{"type":"x","b":tr ue}"#, r#"{"type":"x","n":- 1}"#] {
            assert!(matches!(NewEvent::parse(broken, Profile::Doc), Err(Error::InvalidEvent(_))), "{broken}");
        }
        assert_eq!(NewEvent::parse("{ \"type\": \"x y\" }", Profile::Doc).unwrap().as_str(), r#"{"type":"x y"}"#);
    }

    #[test]
    fn fields_that_some_readers_would_take_for_one_are_refused() {
        for twice in [
            r#"{"type":"x","a":1,"A":2}"#,
            r#"{"type":"x","a":1,"a":2}"#,
            r#"{"type":"x","Owner":"b"}"#,
            r#"{"type":"x","expire\u017f_at":"b"}"#,
            r#"{"type":"x","Type":"y"}"#,
        ] {
            assert!(matches!(NewEvent::parse(twice, Profile::Doc), Err(Error::InvalidEvent(_))), "{twice}");
        }
        NewEvent::parse(r#"{"type":"x","a":{"b":1},"b":1}"#, Profile::Doc).unwrap();
    }
}
