//! W3C trace context: who called, so that audit lines can be joined with the caller's own traces.

/// The ids of a caller's span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: String,
    pub span_id: String,
}

impl TraceParent {
    /// Reads a `traceparent` header. What does not follow the standard is ignored, as the standard asks.
    pub fn parse(header: &str) -> Option<TraceParent> {
        let mut parts = header.trim().split('-');
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex =
            |text: &str, len: usize| text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let zero = |text: &str| text.bytes().all(|b| b == b'0');
        // Version 00 has exactly four parts; later ones may have more.
        let shape = hex(version, 2) && version != "ff" && hex(flags, 2) && (version != "00" || parts.next().is_none());
        let ids = hex(trace_id, 32) && !zero(trace_id) && hex(span_id, 16) && !zero(span_id);
        (shape && ids).then(|| TraceParent { trace_id: trace_id.to_owned(), span_id: span_id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_the_standard_is_taken() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parsed = TraceParent::parse(good).unwrap();
        assert_eq!(parsed.trace_id, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parsed.span_id, "b7ad6b7169203331");
        for bad in [
            "",
            "00",
            "00-0-0-00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
