//! The answers that are made many times a second, written straight from the locks: the same text as their views in
//! `lockkeeper-wire` have, without making those.

use std::sync::Arc;

use lockkeeper_core::lock::Lock;
use lockkeeper_keeper::json::{number, plain, text};
use lockkeeper_keeper::wall::wall_time_bytes;

use crate::view::{Viewer, lines};

/// Room for an answer about one lock, so that it is made in one piece.
pub(crate) const ANSWER_BYTES: usize = 512;

/// One lock was granted, and nothing that it is held for is paused: [`lockkeeper_wire::answer::Granted`].
pub(crate) fn granted(viewer: Viewer, action: &str, lock: &Lock, strength: &str, heartbeat_ms: u64) -> Vec<u8> {
    let mut out = begun(action);
    out.push(b',');
    fields(viewer, lock, &mut out);
    out.extend_from_slice(b",\"strength\":");
    text(strength, &mut out);
    out.extend_from_slice(b",\"heartbeat_interval_ms\":");
    number(heartbeat_ms, &mut out);
    out.push(b'}');
    out
}

/// Some locks changed, and there is nothing more to say of them: [`lockkeeper_wire::answer::Changed`].
pub(crate) fn changed(viewer: Viewer, action: &str, locks: &[Arc<Lock>], file_path: Option<&str>) -> Vec<u8> {
    let mut out = begun(action);
    out.extend_from_slice(b",\"locks\":[");
    for (place, lock) in locks.iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"{" } else { b",{" });
        fields(viewer, lock, &mut out);
        out.push(b'}');
    }
    out.push(b']');
    if let Some(file_path) = file_path {
        out.extend_from_slice(b",\"file_path\":");
        text(file_path, &mut out);
    }
    out.push(b'}');
    out
}

fn begun(action: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(ANSWER_BYTES);
    out.extend_from_slice(b"{\"success\":true,\"action\":");
    text(action, &mut out);
    out
}

/// The fields of [`lockkeeper_wire::answer::LockView`].
fn fields(viewer: Viewer, lock: &Lock, out: &mut Vec<u8>) {
    let (start, end) = lines(lock.target.span);
    let line = |name: &[u8], line: Option<u32>, out: &mut Vec<u8>| {
        out.extend_from_slice(name);
        match line {
            Some(line) => number(line, out),
            None => out.extend_from_slice(b"null"),
        }
    };
    out.extend_from_slice(b"\"lock_id\":");
    plain(&lock.id.text(), out);
    out.extend_from_slice(b",\"file_path\":");
    text(lock.target.key.as_str(), out);
    line(b",\"start_line\":", start, out);
    line(b",\"end_line\":", end, out);
    out.extend_from_slice(b",\"mode\":");
    text(lock.mode.word(), out);
    out.extend_from_slice(b",\"intention\":");
    text(lock.intention.as_str(), out);
    out.extend_from_slice(b",\"owner\":");
    text(lock.agent.as_str(), out);
    out.extend_from_slice(b",\"session_id\":");
    text(lock.session.as_str(), out);
    if let Some(feature) = &lock.feature {
        out.extend_from_slice(b",\"feature_id\":");
        text(feature, out);
    }
    out.extend_from_slice(b",\"fencing_token\":");
    number(lock.token.0, out);
    out.extend_from_slice(b",\"created_at\":");
    plain(&wall_time_bytes(viewer.wall(lock.acquired)), out);
    out.extend_from_slice(b",\"expires_at\":");
    plain(&wall_time_bytes(viewer.wall(lock.expires)), out);
    out.extend_from_slice(b",\"ttl_ms\":");
    number(lock.ttl.0, out);
    out.extend_from_slice(b",\"expires_in_ms\":");
    number(lock.expires.since(viewer.now.time).0, out);
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::key::{Key, Target};
    use lockkeeper_core::lock::{LockId, Token};
    use lockkeeper_core::mode::Mode;
    use lockkeeper_core::session::{AgentName, Intention, SessionId};
    use lockkeeper_core::span::Span;
    use lockkeeper_core::time::{Millis, Stamp, Time};
    use lockkeeper_wire::answer::{Changed, Granted};

    use super::*;
    use crate::service::json;

    fn locks() -> Vec<Arc<Lock>> {
        let plain = Lock {
            id: LockId::parse("lock-2757c6049058").unwrap(),
            target: Target { key: Key::parse("src/auth.rs").unwrap(), span: Span::WHOLE },
            mode: Mode::Exclusive,
            session: SessionId::parse("claude-7").unwrap(),
            agent: AgentName::parse("claude-7").unwrap(),
            intention: Intention::parse("").unwrap(),
            feature: None,
            token: Token(1_763_460_000_123_456),
            acquired: Time(5_000_000),
            expires: Time(35_000_000),
            ttl: Millis(30_000),
        };
        let odd = Lock {
            target: Target {
                key: Key::parse("src/größe \"1\".rs").unwrap(),
                span: Span::checked(Some(10), Some(50)).unwrap(),
            },
            mode: Mode::Shared,
            agent: AgentName::parse("Grace \\ Hopper").unwrap(),
            intention: Intention::parse("says \"why\": a\\b").unwrap(),
            feature: Some(Arc::from("login")),
            // Before the epoch, and overdue.
            acquired: Time(0),
            expires: Time(1),
            ..plain.clone()
        };
        let to_the_end = Lock {
            target: Target { key: plain.target.key.clone(), span: Span::checked(Some(7), None).unwrap() },
            expires: Time(u64::MAX),
            ..plain.clone()
        };
        [plain, odd, to_the_end].map(Arc::new).into()
    }

    #[test]
    fn what_is_written_is_the_text_of_the_view() {
        let viewer = Viewer { now: Stamp { time: Time(9_000_000), wall: 4_000_000 } };
        let told = |text: Vec<u8>| String::from_utf8(text).unwrap();
        for lock in locks() {
            let view = Granted {
                success: true,
                action: "acquired".into(),
                lock: viewer.lock(&lock),
                strength: "strict".into(),
                heartbeat_interval_ms: 10_000,
                paused: Vec::new(),
            };
            let written = granted(viewer, "acquired", &lock, "strict", 10_000);
            assert_eq!(told(written), told(json(&view).ok().unwrap()));
        }
        for (count, file_path) in [(0, None), (1, Some("src/a \"b\".rs")), (3, None)] {
            let locks = &locks()[..count];
            let view = Changed {
                success: true,
                action: "released".into(),
                locks: viewer.locks(locks),
                lost: Vec::new(),
                paused: Vec::new(),
                refreshed: Vec::new(),
                file_path: file_path.map(str::to_owned),
                strength: None,
                heartbeat_interval_ms: None,
            };
            assert_eq!(told(changed(viewer, "released", locks, file_path)), told(json(&view).ok().unwrap()));
        }
    }
}
