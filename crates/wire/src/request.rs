//! Bodies of requests. A field that is not known is refused: a misspelt `start_line` must not lock a whole file.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::number::Whole;

/// A body that says who asks, and where.
pub trait Asker {
    fn who(&self) -> Who<'_>;
    /// Fills in what the body leaves open.
    fn who_mut(&mut self) -> WhoMut<'_>;
}

#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub session_id: Option<&'a str>,
    pub agent_id: Option<&'a str>,
    pub agent_type: Option<&'a str>,
    pub space: Option<&'a str>,
    pub request_id: Option<&'a str>,
}

#[derive(Debug)]
pub struct WhoMut<'a> {
    pub session_id: &'a mut Option<String>,
    pub agent_id: &'a mut Option<String>,
    pub agent_type: &'a mut Option<String>,
    pub space: &'a mut Option<String>,
    pub request_id: &'a mut Option<String>,
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )*
            /// Who owns the locks: letters, digits, `_`, `-`. Left out: the agent_id.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub session_id: Option<String>,
            /// The agent's name, as others see it.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub agent_id: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub agent_type: Option<String>,
            /// The repository that is meant; left out: the one where the service was started.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub space: Option<String>,
            /// A name for this request: acquiring, giving back, pausing or resuming again with it changes nothing and gives the same answer.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub request_id: Option<String>,
        }

        impl Asker for $name {
            fn who(&self) -> Who<'_> {
                Who {
                    session_id: self.session_id.as_deref(),
                    agent_id: self.agent_id.as_deref(),
                    agent_type: self.agent_type.as_deref(),
                    space: self.space.as_deref(),
                    request_id: self.request_id.as_deref(),
                }
            }

            fn who_mut(&mut self) -> WhoMut<'_> {
                WhoMut {
                    session_id: &mut self.session_id,
                    agent_id: &mut self.agent_id,
                    agent_type: &mut self.agent_type,
                    space: &mut self.space,
                    request_id: &mut self.request_id,
                }
            }
        }
    )*};
}

requests! {
    /// Asks for a lock, or for several at once that are granted together or not at all.
    AcquireRequest {
        /// A path relative to the repository's root (`src/auth.rs`, `src/**`), or a logical key (`api:GET /v1/users`).
        #[serde(alias = "key")]
        file_path: String,
        /// First line, counted from 1. No lines: the whole file.
        start_line: Whole,
        /// Last line, included. Left out or -1: to the end of the file.
        end_line: Whole,
        /// Why, for others to read.
        #[serde(alias = "reason")]
        intention: String,
        /// How long it lives without a heartbeat; 1 s to 480 minutes, 30 s if left out.
        ttl_ms: Whole,
        ttl_minutes: Whole,
        /// `exclusive` (default) or `shared`.
        mode: ModeWord,
        /// How long to wait in the queue if it is taken. Left out: not at all.
        wait_ms: Whole,
        /// 0 to 10, 5 if left out. Ten seconds of waiting outweigh one step.
        priority: Whole,
        feature_id: String,
        /// Several keys, in place of file_path.
        locks: Vec<LockSpec>,
    }

    /// Gives locks back: one by lock_id, all own spans of a file_path, one span with lines, or all with `all`.
    ReleaseRequest {
        lock_id: String,
        #[serde(alias = "key")]
        file_path: String,
        start_line: Whole,
        end_line: Whole,
        all: bool,
        /// Refused unless the lock still has this fencing token.
        fencing_token: Whole,
        /// Stays held if another connection was told that it holds it, too: two programs of one session may use one lock.
        unless_used: bool,
    }

    /// Renews locks. Without lock_id and file_path: all that the session holds (a heartbeat).
    RenewRequest {
        lock_id: String,
        #[serde(alias = "key")]
        file_path: String,
        start_line: Whole,
        end_line: Whole,
        ttl_ms: Whole,
        ttl_minutes: Whole,
        fencing_token: Whole,
    }

    /// Takes a lock away from its holder. Needs the operator's right and a reason.
    ForceReleaseRequest {
        lock_id: String,
        #[serde(alias = "key")]
        file_path: String,
        start_line: Whole,
        end_line: Whole,
        #[serde(alias = "intention")]
        reason: String,
    }

    /// Asks who stands in the way, without changing anything; or whether a fencing token still counts.
    CheckRequest {
        #[serde(alias = "key")]
        file_path: String,
        start_line: Whole,
        end_line: Whole,
        mode: ModeWord,
        /// Is the lock with this token still held? With keys: on one of them, by whoever. Without: by this session. 410 `lock_lost` if not.
        fencing_token: Whole,
        locks: Vec<LockSpec>,
        /// Several whole files or keys, in place of file_path.
        file_paths: Vec<String>,
    }

    /// Lists what is held.
    ListRequest {
        /// Only locks that overlap this key.
        #[serde(alias = "key")]
        file_path: String,
        /// Also those who wait.
        waiting: bool,
        limit: Whole,
    }

    /// Lists what happened, newest first.
    HistoryRequest {
        #[serde(alias = "key")]
        file_path: String,
        limit: Whole,
    }

    /// Lists what was asked and refused, newest first.
    AuditRequest {
        /// Only this outcome, such as `busy`.
        outcome: String,
        limit: Whole,
    }

    /// Follows what happens.
    EventsRequest {
        /// The id of the last event that was seen.
        after: String,
    }

    /// Names a session.
    SessionRequest {}

    /// Names a session that comes back.
    RestoreRequest {
        /// How long to stand in the queue for each lock that it lost and another holds now.
        wait_ms: Whole,
    }

    /// Binds locks to a connection: they are released when it ends.
    AttachRequest {
        /// Locks that the session holds already. What is acquired on the same socket later is bound by itself.
        lock_ids: Vec<String>,
        /// Locks that the session holds and that are not this connection's to release, unless it is the last to use them.
        used_ids: Vec<String>,
        /// A name for whoever holds them: a later connection with it takes the place of an earlier one.
        holder: String,
    }

    /// Names a file that a person is editing.
    RoomRequest {
        #[serde(alias = "key")]
        file_path: String,
        /// How long the room stays busy without another word; 5 s if left out.
        busy_ms: Whole,
    }

    /// Asks about the service itself.
    StatusRequest {}

    /// Names a feature that is worked on, and the keys that it claims.
    FeatureRequest {
        feature_id: String,
        /// Files, trees and logical keys that the feature will change.
        resource_claims: Vec<String>,
        title: String,
        branch_name: String,
        /// 1 to 10, 5 if left out; the greater is merged first.
        merge_priority: Whole,
        /// Whatever should be kept with it.
        metadata: serde_json::Map<String, serde_json::Value>,
    }

    /// Says that a feature has ended.
    FeatureEndRequest {
        feature_id: String,
        /// `completed` or `cancelled`; completed if left out.
        status: String,
    }

    /// Asks how far a feature could go beside those that are registered.
    FeatureConflictsRequest {
        candidate_feature_id: String,
        candidate_claims: Vec<String>,
    }

    /// Stops the line: nobody else gets anything new for the feature until it is resumed.
    FeaturePauseRequest {
        feature_id: String,
        #[serde(alias = "reason")]
        intention: String,
        /// How long the pause lives without a heartbeat; 120 minutes if left out.
        ttl_ms: Whole,
        ttl_minutes: Whole,
        /// How long to wait for those who are just finishing; 60 s if left out.
        wait_ms: Whole,
    }

    /// Ends a pause.
    FeatureResumeRequest {
        feature_id: String,
    }

    /// Asks whether a feature is paused, at the start of work or before its finish.
    FeatureCheckRequest {
        feature_id: String,
        /// Holds the feature's key shared for up to 30 s, so that no pause can slip in before the finish.
        finalize: bool,
        /// How long to wait for the end of a pause. Left out: not at all.
        wait_ms: Whole,
    }

    /// Asks for ports of the session's own, or for the same ones again.
    PortsRequest {
        /// Ports that something else uses where the session runs.
        taken: Vec<u16>,
    }

    /// Checks work packages.
    PackagesRequest {
        /// What problems call the file; work-packages.yaml if left out.
        file_name: String,
        /// The file itself, as YAML.
        text: String,
    }

    /// Asks what the policy says, without doing it.
    PolicyCheckRequest {
        /// As rules name it: `acquire`, `force-release`, ...; acquire if left out.
        operation: String,
        #[serde(alias = "key")]
        file_path: String,
    }
}

/// One key of a set. Read by its names only: see below.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct LockSpec {
    #[serde(alias = "key")]
    pub file_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_line: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_line: Option<Whole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeWord>,
}

impl Serialize for LockSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        LockSpec::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for LockSpec {
    /// Not an array, whose fields would have no names to check.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LockSpec, D::Error> {
        deserializer.deserialize_map(ByName)
    }
}

struct ByName;

impl<'de> Visitor<'de> for ByName {
    type Value = LockSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a file_path")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LockSpec, A::Error> {
        LockSpec::deserialize(MapAccessDeserializer::new(map))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModeWord {
    Exclusive,
    Shared,
}
