//! The lines of the local socket: one JSON object each, with the same bodies as HTTP.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest line that a service reads.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A question: `{"id":7,"op":"locks/acquire","body":{...}}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question<'a> {
    /// Carried by every answer to it.
    pub id: u64,
    pub op: &'a str,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub body: Option<&'a RawValue>,
    /// W3C trace context of whoever asks.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<&'a str>,
}

/// An answer: `{"id":7,"status":200,"body":{...}}`. A stream has many, the last with `"end":true`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reply<'a> {
    pub id: u64,
    pub status: u16,
    /// More answers to the same question follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    #[serde(borrow)]
    pub body: &'a RawValue,
}
