//! Messages of an MCP client: whatever comes, the server answers the next proper question.
#![no_main]

mod desk;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use desk::Desk;
use libfuzzer_sys::fuzz_target;
use lockkeeper_server::mcp::{Backend, ToolUser, Tools};
use lockkeeper_server::service::{Caller, Input, Service};
use lockkeeper_wire::operation::Operation;
use rmcp::ServiceExt;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

struct Direct(Arc<Service>);

impl Backend for Direct {
    async fn call(&self, operation: Operation, mut body: Map<String, Value>, user: ToolUser) -> (u16, Value) {
        body.insert("session_id".to_owned(), json!(user.session.unwrap_or_else(|| "fuzz".to_owned())));
        // Nobody waits here.
        body.remove("wait_ms");
        let body = Value::Object(body).to_string();
        let reply = self.0.call(operation, Input::Json(&body), &Caller::local()).await;
        (reply.status, serde_json::from_slice(&reply.body).expect("an answer is JSON"))
    }

    fn beats(&self) -> bool {
        true
    }
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::open());
}

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"fuzz","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
"#;
const LAST: &str = "{\"jsonrpc\":\"2.0\",\"id\":\"the last\",\"method\":\"tools/list\"}\n";

fuzz_target!(|messages: &[u8]| {
    // A message that says the last word itself, or ends the conversation, proves nothing.
    if messages.windows(8).any(|window| window == b"the last") || messages.len() > 4096 {
        return;
    }
    DESK.with_borrow(|desk| {
        desk.runtime.block_on(async {
            let talk = talk(desk.service.clone(), messages);
            tokio::time::timeout(Duration::from_secs(10), talk).await.expect("it goes on answering");
        });
    });
});

async fn talk(service: Arc<Service>, messages: &[u8]) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let serving = tokio::spawn(async move {
        if let Ok(running) = Tools::new(Direct(service), true).serve(theirs).await {
            let _ = running.waiting().await;
        }
    });
    let (reader, mut writer) = tokio::io::split(ours);
    for part in [HELLO.as_bytes(), messages, b"\n", LAST.as_bytes()] {
        writer.write_all(part).await.expect("the server reads");
    }
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let answer: Value = serde_json::from_str(&line).expect("an answer is JSON");
        if answer["id"] == "the last" {
            serving.abort();
            return;
        }
    }
    panic!("the server ended");
}
