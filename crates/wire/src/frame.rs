//! The lines of the local socket: one JSON object each, with the same bodies as HTTP.

use std::borrow::Cow;

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
    /// Some writers of JSON escape what need not be.
    #[serde(borrow)]
    pub op: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub body: Option<&'a RawValue>,
    /// W3C trace context of whoever asks.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Cow<'a, str>>,
}

/// A question as it is taken apart: its body is a text yet, to be read by whoever knows what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    pub id: u64,
    pub op: Cow<'a, str>,
    /// Empty: there is none.
    pub body: &'a str,
    pub traceparent: Option<Cow<'a, str>>,
}

impl<'a> Asked<'a> {
    /// Reads the line of a question. What is wrong inside of a body may be left to whoever reads that.
    pub fn read(line: &'a [u8]) -> Result<Asked<'a>, serde_json::Error> {
        if let Ok(text) = std::str::from_utf8(line)
            && let Some(asked) = Asked::at_once(text)
        {
            return Ok(asked);
        }
        let Question { id, op, body, traceparent } = serde_json::from_slice(line)?;
        Ok(Asked { id, op, body: body.map_or("", RawValue::get), traceparent })
    }

    /// Takes a line apart that looks as clients write it. A body that is an object and stands last is what lies between, to the letter:
    /// nothing else that may follow it ends in two braces.
    fn at_once(line: &'a str) -> Option<Asked<'a>> {
        let rest = line.strip_prefix("{\"id\":")?;
        let digits = rest.bytes().position(|byte| !byte.is_ascii_digit())?;
        let (number, rest) = rest.split_at(digits);
        let id = number.parse().ok().filter(|_| number == "0" || !number.starts_with('0'))?;
        let rest = rest.strip_prefix(",\"op\":\"")?;
        let letters = rest.bytes().position(|byte| !matches!(byte, b'a'..=b'z' | b'/' | b'-'))?;
        let (op, rest) = rest.split_at(letters);
        let body = rest.strip_prefix("\",\"body\":")?.strip_suffix('}')?;
        let is_object = body.len() > 1 && body.starts_with('{') && body.ends_with('}');
        is_object.then_some(Asked { id, op: Cow::Borrowed(op), body, traceparent: None })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As the long way reads it, if that can read it at all.
    fn in_full(line: &str) -> Option<Asked<'_>> {
        let Question { id, op, body, traceparent } = serde_json::from_str(line).ok()?;
        Some(Asked { id, op, body: body.map_or("", RawValue::get), traceparent })
    }

    #[test]
    fn a_line_is_taken_apart_as_it_is_read_in_full() {
        let quick = r#"{"id":7,"op":"locks/acquire","body":{"a":"}}","b":{"c":[{}]}}}"#;
        assert!(Asked::at_once(quick).is_some());
        let lines = [
            quick,
            r#"{"id":0,"op":"status","body":{}}"#,
            r#"{"id":18446744073709551615,"op":"a-b","body":{}}"#,
            r#"{"id":1,"op":"status"}"#,
            r#"{"id":1,"op":"status","body":null}"#,
            r#"{"id":1,"op":"status","body":{},"traceparent":"00-x"}"#,
            r#"{"id":1,"op":"status","body":{},"traceparent":null}"#,
            r#"{"op":"status","id":1,"body":{}}"#,
            r#" {"id":1, "op":"status" , "body" : { } }"#,
            r#"{"id":1,"op":"status","body":{} }"#,
            r#"{"id":1,"op":"status","body":[{}]}"#,
            r#"{"id":3,"op":"locks\/acquire","body":{},"traceparent":"\u0030"}"#,
        ];
        for line in lines {
            assert_eq!(Asked::read(line.as_bytes()).ok(), in_full(line), "{line}");
            assert!(in_full(line).is_some(), "{line}");
        }
    }

    /// What is no line is either told at once, or has a body that is no JSON by itself.
    #[test]
    fn what_can_not_be_read_in_full_is_not_read_at_once_either() {
        let lines = [
            "",
            "{",
            r#"{"id":01,"op":"a","body":{}}"#,
            r#"{"id":18446744073709551616,"op":"a","body":{}}"#,
            r#"{"id":-1,"op":"a","body":{}}"#,
            r#"{"id":1,"op":"a","body":}}"#,
            r#"{"id":1,"op":"a","body":{}}}"#,
            r#"{"id":1,"op":"a","body":{},"id":{}}"#,
            r#"{"id":1,"op":"a","body":{},"body":{}}"#,
            r#"{"id":1,"op":"a","body":{},"other":{}}"#,
            r#"{"id":1,"op":"a","body":{"x":1}{}}"#,
        ];
        for line in lines {
            assert!(in_full(line).is_none(), "{line}");
            if let Ok(asked) = Asked::read(line.as_bytes()) {
                assert!(serde_json::from_str::<serde_json::Value>(asked.body).is_err(), "{line}");
            }
        }
        assert!(Asked::read(b"{\"id\":1,\"op\":\"a\",\"body\":{\"\xff\":1}}").is_err());
    }
}
