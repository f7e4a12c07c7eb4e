//! Bodies of answers.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A lock that is held.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LockView {
    pub lock_id: String,
    pub file_path: Arc<str>,
    /// Null: the whole file.
    pub start_line: Option<u32>,
    /// Null: to the end.
    pub end_line: Option<u32>,
    pub mode: Cow<'static, str>,
    pub intention: Arc<str>,
    /// The name of the agent.
    pub owner: Arc<str>,
    pub session_id: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub feature_id: Option<Arc<str>>,
    /// A later grant has a greater one. Hand it to whatever the lock protects.
    pub fencing_token: u64,
    pub created_at: String,
    pub expires_at: String,
    pub ttl_ms: u64,
    /// How long it lives from now on without a heartbeat.
    pub expires_in_ms: u64,
}

/// One lock was granted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Granted {
    pub success: bool,
    /// `acquired`, or `refreshed` when the session held it already.
    pub action: Cow<'static, str>,
    #[serde(flatten)]
    pub lock: LockView,
    /// How strong the grant is: `strict`, `quorum`, `available`, `best_effort`.
    pub strength: Cow<'static, str>,
    pub heartbeat_interval_ms: u64,
    /// Who pauses the feature that it is held for: only for what was held before.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub paused: Vec<LockView>,
}

/// Several locks changed: granted as a set, released, renewed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    pub success: bool,
    /// `acquired`, `refreshed`, `released`, `renewed` or `force_released`.
    pub action: Cow<'static, str>,
    pub locks: Vec<LockView>,
    /// What the session lost and has neither given back nor got back.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lost: Vec<String>,
    /// By which others pause the features of what is held: stop at the next good moment.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub paused: Vec<LockView>,
    /// Of a set, the ids of what the session held already.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refreshed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub strength: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub heartbeat_interval_ms: Option<u64>,
}

/// No, and why.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    pub success: bool,
    /// The word for it, such as `busy`.
    pub error: String,
    /// More precisely, such as `lock_contended`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What happened, for people and models.
    pub message: String,
    /// What to do next, as a command.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub conflicts: Vec<ConflictView>,
    /// There are more conflicts than are shown.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub more_conflicts: bool,
    /// Lines of the file, as many as were asked for, that nobody has.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub free: Vec<LinesView>,
    /// How many come before in the queue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queue_ahead: Option<usize>,
    /// Who waits for whom.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cycle: Vec<CycleView>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_after_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LinesView {
    pub start_line: u32,
    pub end_line: Option<u32>,
}

/// Something in the way.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConflictView {
    /// `held`, `waiting` (asked earlier) or `room` (a person is editing).
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lock_id: Option<String>,
    pub file_path: String,
    pub start_line: Option<u32>,
    pub end_line: Option<u32>,
    /// The wanted lines that are taken.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub overlap: Option<LinesView>,
    pub mode: String,
    pub owner: String,
    pub session_id: String,
    pub intention: String,
    pub created_at: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_in_ms: Option<u64>,
    /// What was wanted and met it.
    pub wanted: String,
    /// The same as a sentence.
    pub message: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CycleView {
    pub session_id: String,
    pub owner: String,
    pub wants: String,
    pub held_by: String,
}

/// What is held.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LockList {
    pub locks: Vec<Listed>,
    /// How many there are, also beyond those that are shown.
    pub total: usize,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waiting: Vec<WaiterView>,
    /// What is held elsewhere and only shown here.
    #[serde(flatten)]
    pub outside: OutsideList,
}

/// Locks that somebody else keeps, such as the claims of a proof. They conflict with nothing here.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OutsideList {
    #[serde(rename = "outside", skip_serializing_if = "Vec::is_empty", default)]
    pub locks: Vec<OutsideView>,
    /// What could not be read.
    #[serde(rename = "outside_problems", skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OutsideView {
    /// Such as `proof:DIR:1.2.3`.
    pub key: String,
    pub owner: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub created_at: Option<String>,
    pub expires_at: String,
    pub expires_in_ms: u64,
    /// It can't be released or renewed here.
    pub read_only: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    pub id: String,
    #[serde(flatten)]
    pub lock: LockView,
}

/// Somebody in the queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WaiterView {
    pub wants: Vec<String>,
    pub owner: String,
    pub session_id: String,
    pub intention: String,
    pub priority: u8,
    pub queued_at: String,
    pub until: String,
}

/// Whether something could be had now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    pub success: bool,
    /// Nothing stands in the way.
    pub free: bool,
    pub message: String,
    pub conflicts: Vec<ConflictView>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub more_conflicts: bool,
    /// Own locks on it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub held: Vec<LockView>,
}

/// Who holds one key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyStatus {
    pub locked: bool,
    pub file_path: String,
    pub lock: Option<HolderView>,
    pub locks: Vec<LockView>,
}

/// The first holder, in the words of existing clients.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HolderView {
    pub locked_by: String,
    pub agent_type: Option<String>,
    pub locked_at: String,
    pub expires_at: String,
    pub reason: String,
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Where it stands in the stream; resume behind it.
    pub id: String,
    pub time: String,
    pub action: String,
    /// `requested`, `active`, `released`, `expired` or `rejected`.
    pub state: String,
    pub file_path: String,
    pub start_line: Option<u32>,
    pub end_line: Option<u32>,
    pub mode: String,
    pub owner: String,
    pub session_id: String,
    pub intention: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lock_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fencing_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HistoryList {
    pub events: Vec<EventView>,
    pub total: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditList {
    pub lines: Vec<serde_json::Value>,
}

/// A session opened, or was restored.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionOpened {
    pub success: bool,
    pub session_id: String,
    pub owner: String,
    /// Lost while it was away, and acquired again as new grants.
    pub restored: Vec<LockView>,
    /// Still held, and renewed.
    pub refreshed: Vec<LockView>,
    /// Lost, and not to be had now.
    pub skipped: Vec<SkippedView>,
    /// Who pauses the features that something is held for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub paused: Vec<LockView>,
    pub heartbeat_interval_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SkippedView {
    pub file_path: String,
    pub start_line: Option<u32>,
    pub end_line: Option<u32>,
    /// The word that an acquisition would have been refused with; `lock_lost`: it was taken away, or went while others were
    /// waited for.
    #[serde(default)]
    pub error: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionClosed {
    pub success: bool,
    pub session_id: String,
    pub released: Vec<LockView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    pub sessions: Vec<SessionView>,
    pub total: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    pub session_id: String,
    pub owner: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_type: Option<String>,
    pub alive: bool,
    pub opened_at: String,
    pub seen_at: String,
    pub holds: Vec<String>,
    /// Lost without being released; `session restore` asks for them again.
    pub lost: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoomView {
    pub room_id: String,
    pub file_path: String,
    pub owner: String,
    pub session_id: String,
    pub opened_at: String,
    pub until: String,
    pub busy_for_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoomChanged {
    pub success: bool,
    /// `opened` or `closed`.
    pub action: String,
    pub file_path: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub room: Option<RoomView>,
    /// Agents that hold something in it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub present: Vec<LockView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoomList {
    pub rooms: Vec<RoomView>,
    pub total: usize,
}

/// The service about itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStatus {
    pub version: String,
    pub pid: u32,
    /// Started by a command that found none running.
    pub background: bool,
    pub engine: String,
    /// What names the engine: a flag, a variable, the settings file.
    #[serde(default)]
    pub engine_from: String,
    pub durability: String,
    pub strength: String,
    /// How often the ledger of this space lost a part of its past since the service began with it.
    #[serde(default)]
    pub rewrites: u64,
    /// The disk or server that keeps the locks took nothing new the last time.
    #[serde(default)]
    pub full: bool,
    pub space: String,
    /// Why nothing is known of the locks now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trouble: Option<String>,
    pub locks: usize,
    pub waiting: usize,
    pub sessions: usize,
    pub started_at: String,
    pub uptime_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub listen: Option<String>,
    pub settings: SettingsView,
    /// Servers of the same ledger that are set otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub differs: Vec<ServerView>,
}

/// A server, as it speaks of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerView {
    pub server: String,
    pub settings: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsView {
    pub default_ttl_ms: u64,
    pub heartbeat_interval_ms: u64,
    pub rate_limit: u32,
    pub rate_limit_window_ms: u64,
    /// Zero: as long as there is room.
    pub history_ttl_sec: u64,
}

/// A feature that is worked on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeatureView {
    pub feature_id: String,
    pub owner: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub branch_name: Option<String>,
    pub merge_priority: u8,
    pub resource_claims: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<serde_json::Value>,
    pub registered_at: String,
    /// The lock that pauses it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paused: Option<LockView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeatureChanged {
    pub success: bool,
    /// `registered`, `completed` or `cancelled`.
    pub action: String,
    pub feature: FeatureView,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub feasibility: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub conflicts: Vec<ClaimView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeatureList {
    pub features: Vec<FeatureView>,
    pub total: usize,
}

/// How far a feature could go beside the others.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeatureConflicts {
    pub success: bool,
    pub candidate_feature_id: String,
    /// `FULL` (shares nothing), `PARTIAL`, or `SEQUENTIAL` (more than half of the claims are shared).
    pub feasibility: String,
    pub conflicts: Vec<ClaimView>,
}

/// A claim that two features share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClaimView {
    pub claim: String,
    pub feature_id: String,
    /// Theirs that it meets.
    pub theirs: String,
}

/// Whether work on a feature may begin, or end.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeatureChecked {
    pub success: bool,
    pub feature_id: String,
    pub paused: bool,
    pub message: String,
    /// With `finalize`: keeps pauses away until it is released, or for 30 s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lock: Option<LockView>,
}

/// The ports of one session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PortsView {
    pub session_id: String,
    pub owner: String,
    pub db_port: u16,
    pub rest_port: u16,
    pub realtime_port: u16,
    pub api_port: u16,
    pub compose_project_name: String,
    pub expires_at: String,
    pub expires_in_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PortsAllocated {
    pub success: bool,
    pub allocation: PortsView,
    /// Lines for a shell: `export NAME=value`.
    pub env_snippet: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PortsReleased {
    pub success: bool,
    pub session_id: String,
    /// There was something to give back.
    pub released: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PortsStatus {
    pub allocations: Vec<PortsView>,
    /// How many sessions of other spaces have ports.
    #[serde(default)]
    pub elsewhere: usize,
    pub sessions_max: u16,
    pub base_port: u16,
    pub stride: u16,
}

/// What is wrong with work packages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PackagesReport {
    /// Nothing is wrong.
    pub success: bool,
    /// Each with `check`, `file`, `path`, `line`, `column`, `text`, `message` and perhaps a `hint`.
    pub problems: Vec<serde_json::Value>,
    /// Found, and not told.
    pub left_out: usize,
}

/// What the policy says, and which rule says it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyVerdict {
    pub success: bool,
    pub allowed: bool,
    pub rule: String,
    pub trust: u8,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyReloaded {
    pub success: bool,
    pub rules: Vec<String>,
}

/// Nothing more to say.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    pub success: bool,
}

/// The advisory locks of a PostgreSQL database.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AdvisoryLockList {
    /// `ok`.
    pub status: String,
    /// All, though at most 10,000 are listed.
    pub total: u64,
    pub locks: Vec<AdvisoryLockView>,
}

/// An advisory lock that is held or waited for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AdvisoryLockView {
    /// The server process of the session.
    pub pid: i32,
    pub application_name: Option<String>,
    pub state: Option<String>,
    /// When the session's last statement began.
    pub query_start: Option<String>,
    /// The name of the first integer, else the integer; null for a lock with one big integer.
    pub namespace: Option<String>,
    /// The second integer, or the one big integer.
    pub entity_id: i64,
    /// `two_integers` or `bigint`.
    pub form: String,
    pub mode: String,
    /// Held, not waited for.
    pub granted: bool,
    pub duration_seconds: Option<f64>,
    /// The processes that stand in the way.
    pub waiting_for: Vec<i32>,
}
