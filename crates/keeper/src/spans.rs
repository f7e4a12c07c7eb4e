//! One span for each request, for whoever collects traces. Handed on without waiting; what can't be is counted.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

use crate::metrics::Metrics;

/// Spans that may wait for the collector.
const QUEUE_MAX: usize = 4096;

/// What one request was, from its beginning to its answer.
#[derive(Clone, Debug)]
pub struct Span {
    /// 32 hexadecimal digits: those of the caller, if it has some.
    pub trace_id: String,
    pub span_id: String,
    /// The caller's span.
    pub parent_span_id: Option<String>,
    /// The operation.
    pub name: &'static str,
    pub began: SystemTime,
    pub ended: SystemTime,
    /// `ok`, or the word of the refusal.
    pub outcome: &'static str,
    pub attributes: Vec<(&'static str, Attribute)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
    Number(u64),
}

/// Where spans go.
#[derive(Clone, Debug)]
pub struct Spans {
    queue: SyncSender<Span>,
    metrics: Arc<Metrics>,
}

impl Spans {
    /// The other end is for whoever sends them on.
    pub fn new(metrics: Arc<Metrics>) -> (Spans, Receiver<Span>) {
        let (queue, spans) = sync_channel(QUEUE_MAX);
        (Spans { queue, metrics }, spans)
    }

    pub fn send(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.metrics.span_dropped();
        }
    }
}

/// A name for a span that no other has, and for a trace that nobody began before.
pub fn draw_ids() -> (String, String) {
    let hash = blake3::hash(uuid::Uuid::now_v7().as_bytes()).to_hex();
    (hash[..32].to_owned(), hash[32..48].to_owned())
}
