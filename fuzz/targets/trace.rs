//! Headers of traces: what is taken is as the standard writes it, and a trace that is taken is taken again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_keeper::trace::TraceParent;

fuzz_target!(|header: &str| {
    let Some(parent) = TraceParent::parse(header) else { return };
    for (id, length) in [(&parent.trace_id, 32), (&parent.span_id, 16)] {
        let plain = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        assert!(plain && id.len() == length && id.bytes().any(|byte| byte != b'0'), "{header}");
    }
    let again = format!("00-{}-{}-01", parent.trace_id, parent.span_id);
    assert_eq!(
        TraceParent::parse(&again).map(|again| (again.trace_id, again.span_id)),
        Some((parent.trace_id, parent.span_id))
    );
});
