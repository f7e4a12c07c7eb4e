//! The tools that a model sees, over stdio and over HTTP. Few words: every model that is connected pays for them.

use std::sync::Arc;

use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::word::Word;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use crate::mcp_text;
use crate::service::{Caller, Input, Service};

/// The seed's best practices, for the model.
const INSTRUCTIONS: &str = "Other agents edit this repository too. Before you change a file, acquire_lock the lines \
you will change (few lines, one file) with a specific intention; release_lock as soon as you are done. If it is busy, \
do something else first, take the free lines that the answer names, or call again with wait_seconds. A result with \
lock_lost means: stop editing that file, and acquire again.";

/// Marks what the one who asks holds.
pub(crate) const YOURS: &str = "yours";
/// Arguments that every tool takes which changes something, where the connection does not say who asks.
const SESSION_ID: &str = "session_id";
const AGENT_ID: &str = "agent_id";

/// The longest that a tool call waits: clients give up on silent tools.
const WAIT_SECONDS_MAX: u64 = 50;

/// Who uses a tool.
#[derive(Clone, Debug, Default)]
pub struct ToolUser {
    /// The name of the program, as it introduced itself.
    pub agent: Option<String>,
    /// The name that the tool's arguments give: before every other.
    pub named: Option<String>,
    /// What the tool's arguments or the connection's headers say.
    pub session: Option<String>,
    pub caller: Option<Caller>,
}

/// Carries a tool's request to a service.
pub trait Backend: Send + Sync + 'static {
    /// Asks; answers with the status and the body.
    fn call(
        &self,
        operation: Operation,
        body: Map<String, Value>,
        user: ToolUser,
    ) -> impl Future<Output = (u16, Value)> + Send;

    /// Whether locks are renewed by themselves, and the session is the connection's own.
    fn beats(&self) -> bool;

    /// The session of all calls, if there is one.
    fn session_id(&self) -> Option<String> {
        None
    }
}

/// The tools, before a service.
#[derive(Debug)]
pub struct Tools<B> {
    backend: B,
    /// Lists `force_release_lock` too.
    operator: bool,
}

impl<B: Backend> Tools<B> {
    pub fn new(backend: B, operator: bool) -> Tools<B> {
        Tools { backend, operator }
    }

    fn tools(&self) -> Vec<Tool> {
        let rows = tool_table();
        let offered = rows.into_iter().filter(|row| self.operator || row.operation != Operation::ForceRelease);
        offered.map(|row| row.tool(!self.backend.beats())).collect()
    }

    async fn run(&self, request: CallToolRequestParams, user: ToolUser) -> Result<CallToolResult, ErrorData> {
        let row = tool_table()
            .into_iter()
            .filter(|row| self.operator || row.operation != Operation::ForceRelease)
            .find(|row| row.name == request.name);
        let Some(row) = row else {
            return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
        };
        let mut body = request.arguments.unwrap_or_default();
        let mut own = |name: &str| match body.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(refused(&format!("{name} is a text."))),
        };
        let (session, named) = match (own(SESSION_ID), if self.backend.beats() { Ok(None) } else { own(AGENT_ID) }) {
            (Ok(session), Ok(named)) => (session, named),
            (Err(no), _) | (_, Err(no)) => return Ok(no),
        };
        if let Some(wait) = body.remove("wait_seconds") {
            let Some(seconds) = wait.as_f64() else { return Ok(refused("wait_seconds is a number of seconds.")) };
            let seconds = seconds.clamp(0.0, WAIT_SECONDS_MAX as f64);
            body.insert("wait_ms".to_owned(), json!((seconds * 1000.0) as u64));
        }
        let operation = match row.name {
            "check_locks" if !body.contains_key("file_paths") => Operation::Active,
            _ => row.operation,
        };
        let user = ToolUser { session: session.or(user.session), named, ..user };
        let asking = user.session.clone();
        let (status, mut answer) = self.backend.call(operation, body, user).await;
        if operation == Operation::Active
            && let Some(own) = self.backend.session_id().or(asking)
        {
            mark_own(&mut answer, &own);
        }
        let text = mcp_text::told(operation, status, &answer, self.backend.beats());
        let content = vec![ContentBlock::text(text)];
        let mut result = if status == 200 { CallToolResult::success(content) } else { CallToolResult::error(content) };
        result.structured_content = Some(answer);
        Ok(result)
    }
}

impl<B: Backend> rmcp::ServerHandler for Tools<B> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let about = Implementation::new("lockkeeper", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(about).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let user = user_of(&context);
        let cancelled = context.ct.clone();
        tokio::select! {
            done = self.run(request, user) => done.map(CallToolResponse::Complete),
            // Dropping the call gives up its place in the queue.
            () = cancelled.cancelled() => Err(ErrorData::internal_error("the call was cancelled", None)),
        }
    }
}

/// Several agents may have one name: each is told which of the locks are its own.
fn mark_own(answer: &mut Value, session: &str) {
    for lock in answer.get_mut("locks").and_then(Value::as_array_mut).into_iter().flatten() {
        if lock[SESSION_ID] == session
            && let Some(lock) = lock.as_object_mut()
        {
            lock.insert(YOURS.to_owned(), json!(true));
        }
    }
}

/// What the service would say, had it been asked.
fn refused(message: &str) -> CallToolResult {
    let answer = json!({ "success": false, "error": Word::Malformed.text(), "message": message });
    let mut result = CallToolResult::error(vec![ContentBlock::text(format!("{}: {message}", Word::Malformed.text()))]);
    result.structured_content = Some(answer);
    result
}

fn user_of(context: &RequestContext<RoleServer>) -> ToolUser {
    let parts = context.extensions.get::<axum::http::request::Parts>();
    let header = |name: &str| {
        let value = parts.and_then(|parts| parts.headers.get(name)).and_then(|value| value.to_str().ok());
        value.map(str::to_owned)
    };
    // Over HTTP nobody has introduced themselves, and the library gives its own name.
    let introduced = context.client_info().map(|client| client.name).filter(|_| parts.is_none());
    ToolUser {
        agent: header("x-agent-id").or(introduced),
        named: None,
        session: header("x-session-id"),
        caller: parts.and_then(|parts| parts.extensions.get::<Caller>().cloned()),
    }
}

/// One tool.
struct Row {
    name: &'static str,
    operation: Operation,
    description: &'static str,
    properties: Value,
    required: &'static [&'static str],
    read_only: bool,
}

impl Row {
    fn tool(self, with_session: bool) -> Tool {
        let mut properties = match self.properties {
            Value::Object(properties) => properties,
            _ => JsonObject::new(),
        };
        if with_session && !self.read_only {
            let about = "The session_id of your first answer; leave out the first time";
            properties.insert(SESSION_ID.to_owned(), json!({ "type": "string", "description": about }));
            let about = "Your name, for other agents";
            properties.insert(AGENT_ID.to_owned(), json!({ "type": "string", "description": about }));
        }
        let mut schema = JsonObject::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !self.required.is_empty() {
            schema.insert("required".to_owned(), json!(self.required));
        }
        schema.insert("additionalProperties".to_owned(), json!(false));
        let destructive = self.operation == Operation::ForceRelease;
        let annotations = ToolAnnotations::new().read_only(self.read_only).destructive(destructive).open_world(false);
        Tool::new(self.name, self.description, Arc::new(schema)).with_annotations(annotations)
    }
}

fn tool_table() -> Vec<Row> {
    lock_tools().into_iter().chain(team_tools()).collect()
}

fn lock_tools() -> Vec<Row> {
    let path = json!({ "type": "string", "description": "Path in the repository (src/** for a tree), or a key like api:GET /v1/users" });
    let line = json!({ "type": "integer" });
    let lock_id = json!({ "type": "string" });
    vec![
        Row {
            name: "acquire_lock",
            operation: Operation::Acquire,
            description: "Lock lines of a file (or a whole file, tree or key) before changing it. Asking again for what you hold renews it.",
            properties: json!({
                "file_path": path,
                "start_line": { "type": "integer", "description": "First line; leave lines out for the whole file" },
                "end_line": { "type": "integer", "description": "Last line, included; -1 for the end" },
                "intention": { "type": "string", "description": "What you will change and why, for other agents" },
                "mode": { "enum": ["exclusive", "shared"] },
                "ttl_minutes": { "type": "integer", "description": "1 to 480" },
                "wait_seconds": { "type": "number", "description": "Wait in the queue if it is taken; at most 50" },
                "feature_id": { "type": "string", "description": "What the work is for, if it can be paused" },
                "locks": {
                    "type": "array",
                    "description": "Several at once, all or nothing, in place of file_path",
                    "items": {
                        "type": "object",
                        "properties": { "file_path": { "type": "string" }, "start_line": line, "end_line": line },
                        "required": ["file_path"],
                    },
                },
            }),
            required: &["intention"],
            read_only: false,
        },
        Row {
            name: "release_lock",
            operation: Operation::Release,
            description: "Give a lock back: by lock_id, by file_path (all your lines of it, or those named), or all.",
            properties: json!({
                "lock_id": lock_id, "file_path": { "type": "string" }, "start_line": line, "end_line": line,
                "all": { "type": "boolean" },
            }),
            required: &[],
            read_only: false,
        },
        Row {
            name: "check_locks",
            operation: Operation::Check,
            description: "Who stands in the way of these files, without locking. Without file_paths: all locks.",
            properties: json!({ "file_paths": { "type": "array", "items": { "type": "string" } } }),
            required: &[],
            read_only: true,
        },
        Row {
            name: "list_locks",
            operation: Operation::Active,
            description: "All locks that are held: file, lines, intention, owner, expiry.",
            properties: json!({ "file_path": { "type": "string", "description": "Only what overlaps it" } }),
            required: &[],
            read_only: true,
        },
        Row {
            name: "heartbeat",
            operation: Operation::Renew,
            description: "Renew all your locks and see which you still hold.",
            properties: json!({}),
            required: &[],
            read_only: false,
        },
        Row {
            name: "lock_history",
            operation: Operation::History,
            description: "What happened to locks lately, newest first.",
            properties: json!({ "file_path": { "type": "string" }, "limit": { "type": "integer" } }),
            required: &[],
            read_only: true,
        },
        Row {
            name: "force_release_lock",
            operation: Operation::ForceRelease,
            description: "Take a lock away from its holder. Only when a person asked for it.",
            properties: json!({ "lock_id": lock_id, "file_path": { "type": "string" }, "reason": { "type": "string" } }),
            required: &["reason"],
            read_only: false,
        },
    ]
}

/// For agents that work on features together.
fn team_tools() -> [Row; 2] {
    [
        Row {
            name: "feature_check",
            operation: Operation::CheckFeature,
            description: "Whether your feature is paused: call it before you start and, with finalize, before you finish.",
            properties: json!({
                "feature_id": { "type": "string" },
                "finalize": { "type": "boolean", "description": "Keep pauses away for 30 s, to finish" },
                "wait_seconds": { "type": "number", "description": "Wait for the end of a pause; at most 50" },
            }),
            required: &["feature_id"],
            read_only: false,
        },
        Row {
            name: "allocate_ports",
            operation: Operation::AllocatePorts,
            description: "Four ports of your own (database, REST, realtime, API) and a compose project name. Asking again gives the same.",
            properties: json!({}),
            required: &[],
            read_only: false,
        },
    ]
}

/// Tools inside the service itself: no session of their own, so each user gets a handle.
#[derive(Clone, Debug)]
pub(crate) struct InProcess {
    service: Arc<Service>,
}

impl InProcess {
    pub(crate) fn new(service: Arc<Service>) -> InProcess {
        InProcess { service }
    }
}

impl Backend for InProcess {
    async fn call(&self, operation: Operation, mut body: Map<String, Value>, user: ToolUser) -> (u16, Value) {
        let bound = user.caller.as_ref().and_then(|caller| caller.agent.clone());
        // A credential that speaks for one agent has only sessions that are named after it.
        let prefix = bound.as_ref().map_or_else(|| "mcp".to_owned(), ToString::to_string);
        let session = user.session.unwrap_or_else(|| format!("{prefix}-{}", uuid::Uuid::now_v7().simple()));
        let agent = user.named.or(bound.map(|agent| agent.to_string())).or(user.agent);
        body.insert(SESSION_ID.to_owned(), json!(session));
        if let Some(agent) = agent {
            let agent: String = lockkeeper_core::text::one_line(&agent).chars().take(128).collect();
            if !agent.is_empty() {
                body.insert(AGENT_ID.to_owned(), json!(agent));
            }
        }
        let caller = user.caller.unwrap_or_default();
        let body = Value::Object(body).to_string();
        let reply = self.service.call(operation, Input::Json(&body), &caller).await;
        (reply.status, serde_json::from_slice(&reply.body).unwrap_or(Value::Null))
    }

    fn beats(&self) -> bool {
        false
    }
}
