//! Policies: a text is one or is said to be none, and one that is judges every key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::key::Key;
use lockkeeper_core::policy::{Ask, Policy, PolicyText, Right};
use lockkeeper_core::session::AgentName;

fuzz_target!(|text: &str| {
    let Ok(text) = toml::from_str::<PolicyText>(text) else { return };
    let Ok(policy) = Policy::new(text, &["locks/acquire"]) else { return };
    let agent = AgentName::parse("ci-1").expect("a name");
    for key in ["contract:openapi/v1.yaml", "src/a.rs", "db:migration-slot"] {
        let key = Key::parse(key).expect("a key");
        let ask = Ask {
            agent: Some(&agent),
            operation: "locks/acquire",
            right: Right::Write,
            operator: false, own: false,
            key: Some(&key),
        };
        let verdict = policy.judge(&ask);
        assert!(!verdict.rule.is_empty() && !verdict.because.is_empty());
    }
});
