//! Policies: the closest rule decides, and a broken policy is said to be one.

use lockkeeper_core::key::Key;
use lockkeeper_core::policy::{Ask, InvalidPolicy, Policy, PolicyText, Right, RuleText};
use lockkeeper_core::session::AgentName;

const OPERATIONS: [&str; 3] = ["locks/acquire", "locks/force-release", "locks/check"];

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn rule(name: &str, effect: &str, agents: &[&str], operations: &[&str], keys: &[&str]) -> RuleText {
    RuleText {
        name: name.to_owned(),
        effect: effect.to_owned(),
        agents: texts(agents),
        operations: texts(operations),
        keys: texts(keys),
        ..RuleText::default()
    }
}

fn policy(trust: &[(&str, u8)], rules: Vec<RuleText>) -> Result<Policy, InvalidPolicy> {
    let trust = trust.iter().map(|(agent, level)| ((*agent).to_owned(), *level)).collect();
    Policy::new(PolicyText { trust, rules }, &OPERATIONS)
}

/// Whether it is allowed, and which rule says so.
fn judged(policy: &Policy, agent: &str, operation: &str, right: Right, key: Option<&str>) -> (bool, String) {
    let (agent, key) = (AgentName::parse(agent).unwrap(), key.map(|key| Key::parse(key).unwrap()));
    let ask = Ask { agent: Some(&agent), operation, right, operator: false, own: false, key: key.as_ref() };
    let verdict = policy.judge(&ask);
    (verdict.allowed, verdict.rule)
}

fn acquires(policy: &Policy, agent: &str, key: &str) -> (bool, String) {
    judged(policy, agent, "locks/acquire", Right::Write, Some(key))
}

#[test]
fn without_a_policy_every_known_agent_may_lock_and_nobody_may_take_away() {
    let policy = Policy::default();
    assert_eq!(acquires(&policy, "a", "src/x"), (true, "default".to_owned()));
    assert_eq!(judged(&policy, "a", "locks/force-release", Right::Admin, Some("x")), (false, "trust".to_owned()));
}

#[test]
fn trust_decides_what_an_agent_may_do_at_all() {
    let policy = policy(&[("gone", 0), ("guest-*", 1), ("ops", 3)], Vec::new()).unwrap();
    assert!(!judged(&policy, "gone", "locks/check", Right::Read, None).0);
    assert!(judged(&policy, "guest-7", "locks/check", Right::Read, None).0);
    assert!(!acquires(&policy, "guest-7", "x").0);
    assert!(acquires(&policy, "somebody", "x").0);
    assert!(judged(&policy, "ops", "locks/force-release", Right::Admin, None).0);
}

#[test]
fn the_closest_rule_decides_key_before_agent_before_operation() {
    let rules = vec![
        rule("contracts are closed", "deny", &[], &[], &["contract:*"]),
        rule("but v1 is open", "allow", &[], &[], &["contract:openapi/v1*"]),
        rule("the lead may", "allow", &["lead"], &[], &["contract:*"]),
        rule("nothing for bots", "deny", &["bot-*"], &[], &[]),
        rule("bots may look", "allow", &["bot-*"], &["check"], &[]),
        rule("bots may read docs", "allow", &["bot-*"], &["write"], &["docs/*"]),
    ];
    let policy = policy(&[], rules).unwrap();
    let table = [
        ("a", "contract:x.yaml", false, "contracts are closed"),
        ("a", "contract:openapi/v1.yaml", true, "but v1 is open"),
        ("lead", "contract:x.yaml", true, "the lead may"),
        ("bot-1", "src/x", false, "nothing for bots"),
        ("bot-1", "docs/a/b.md", true, "bots may read docs"),
        ("bot-1", "contract:x.yaml", false, "contracts are closed"),
        ("a", "src/x", true, "default"),
    ];
    for (agent, key, allowed, rule) in table {
        assert_eq!(acquires(&policy, agent, key), (allowed, rule.to_owned()), "{agent} {key}");
    }
    assert!(judged(&policy, "bot-1", "locks/check", Right::Read, Some("src/x")).0);
}

#[test]
fn of_two_rules_that_fit_alike_the_one_that_denies_decides_whatever_their_order() {
    for order in [[0, 1], [1, 0]] {
        let both = [rule("yes", "allow", &[], &[], &["x*"]), rule("no", "deny", &[], &[], &["x*"])];
        let rules = order.map(|at: usize| both[at].clone()).to_vec();
        assert_eq!(acquires(&policy(&[], rules).unwrap(), "a", "x1"), (false, "no".to_owned()));
    }
}

#[test]
fn who_may_not_have_one_thing_may_not_have_all_that_it_is_part_of() {
    let rules = vec![
        rule("no secrets", "deny", &[], &[], &["src/secret.rs"]),
        rule("no vaults", "deny", &[], &[], &["vault/*"]),
        rule("no billing", "deny", &[], &[], &["flag:billing/*"]),
        rule("no key", "deny", &[], &[], &["docs/deep/key.pem"]),
        rule("all of src", "allow", &[], &[], &["src/*"]),
    ];
    let policy = policy(&[], rules).unwrap();
    for (key, allowed) in [
        ("src/**", false),
        ("src/*", false),
        ("**", false),
        ("src/a.rs", true),
        ("src/deep/**", true),
        ("vault/deep/**", false),
        ("flag:*", false),
        ("flag:billing/new/*", false),
        ("flag:other/*", true),
        ("docs/*", true),
        ("*", true),
    ] {
        assert_eq!(acquires(&policy, "a", key).0, allowed, "{key}");
    }
}

#[test]
fn what_one_holds_one_may_keep_alive_and_give_back_unless_suspended() {
    let policy = policy(&[("gone", 0), ("reader", 1)], vec![rule("nothing", "deny", &[], &[], &[])]).unwrap();
    for (name, allowed) in [("a", true), ("reader", true), ("gone", false)] {
        let agent = AgentName::parse(name).unwrap();
        let ask = Ask {
            agent: Some(&agent),
            operation: "locks/release",
            right: Right::Write,
            operator: false,
            own: true,
            key: None,
        };
        assert_eq!(policy.judge(&ask).allowed, allowed, "{name}");
    }
}

#[test]
fn a_rule_may_be_for_some_trust_only() {
    let only = RuleText { trust_below: Some(3), ..rule("seniors only", "deny", &[], &[], &["db:*"]) };
    let policy = policy(&[("senior", 3)], vec![only]).unwrap();
    assert!(!acquires(&policy, "a", "db:migration-slot").0);
    assert!(acquires(&policy, "senior", "db:migration-slot").0);
}

#[test]
fn a_rule_about_keys_says_nothing_about_what_has_none() {
    let policy = policy(&[], vec![rule("all keys", "deny", &[], &[], &["*"])]).unwrap();
    assert!(judged(&policy, "a", "locks/check", Right::Read, None).0);
    assert!(!judged(&policy, "a", "locks/check", Right::Read, Some("x")).0);
}

#[test]
fn a_broken_policy_is_said_to_be_one() {
    let broken = |rules| policy(&[], rules).unwrap_err();
    assert!(matches!(policy(&[("a", 5)], Vec::new()), Err(InvalidPolicy::Trust { level: 5, .. })));
    assert_eq!(broken(vec![rule(" ", "deny", &[], &[], &[])]), InvalidPolicy::Unnamed { number: 1 });
    assert!(matches!(broken(vec![rule("r", "forbid", &[], &[], &[])]), InvalidPolicy::Effect { .. }));
    assert!(matches!(broken(vec![rule("r", "deny", &[], &["fly"], &[])]), InvalidPolicy::Operation { .. }));
    assert!(matches!(broken(vec![rule("r", "deny", &[], &[], &[""])]), InvalidPolicy::Pattern { .. }));
    let twice = vec![rule("r", "deny", &[], &[], &[]), rule("r", "allow", &[], &[], &[])];
    assert!(matches!(broken(twice), InvalidPolicy::Twice { .. }));
    let bounds = RuleText { trust_from: Some(9), ..rule("r", "deny", &[], &[], &[]) };
    assert!(matches!(broken(vec![bounds]), InvalidPolicy::Bounds { .. }));
}

#[test]
fn a_key_that_none_can_match_is_refused_with_what_is_wrong() {
    for never in [
        "./src/*",
        "/src/*",
        "../x",
        "src//a.rs",
        "a/./b*",
        "a\\b*",
        "http:*",
        "db:schema:Users",
        "api:get /x",
        "nope:x",
        "a/",
        "api:GET /a//b",
        "src/auth.rs:10-50",
        "api:get *",
        "api:GET  *",
        "api:GET v1*",
        "db:schema:Us*",
        "db:schemas:*",
        "event:User.*",
        "flag:Billing/*",
        "feature:*:stop",
        "contract:/x*",
        ".git/*",
        "src/*/../y",
    ] {
        let refused = policy(&[], vec![rule("r", "deny", &[], &[], &[never])]).expect_err(never);
        assert!(matches!(refused, InvalidPolicy::NoKey { .. }), "{never}: {refused}");
    }
    for fine in [
        "*",
        "*.rs",
        "src/*",
        "src/**",
        "src/*/test*.rs",
        ".github/*",
        "api:* /v1/*",
        "contract:*",
        "flag:a/*",
        "x.rs",
        "feature:*:pause",
        "feature:*",
        "*:*",
        "api:GET *",
        "api:*",
        "db:*",
        "db:schema:*",
        "event:*.created",
        "flag:*",
        "env:*",
        "src/*/b/*/c*",
        "**/test_*.py",
        "src/a b*",
        "?*",
    ] {
        policy(&[], vec![rule("r", "deny", &[], &[], &[fine])]).expect(fine);
    }
}
