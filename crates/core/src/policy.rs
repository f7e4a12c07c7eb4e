//! Who may do what with which keys. Asked before anything is touched; knows no state, no clock and no file.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key::logical::PREFIXES;
use crate::key::{Cover, Key, KeyKind};
use crate::limits::{NAME_CHARS_MAX, POLICY_PATTERNS_MAX, POLICY_RULES_MAX};
use crate::session::AgentName;

/// How far an agent is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Trust(u8);

impl Trust {
    pub const SUSPENDED: Trust = Trust(0);
    /// Of an agent that no policy names.
    pub const DEFAULT: Trust = Trust(2);
    pub const MAX: Trust = Trust(4);

    pub fn level(self) -> u8 {
        self.0
    }
}

/// What an operation does, for whoever is trusted so far and no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Read,
    Write,
    Admin,
}

impl Right {
    pub const fn word(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Admin => "admin",
        }
    }

    const fn needs(self) -> Trust {
        match self {
            Right::Read => Trust(1),
            Right::Write => Trust(2),
            Right::Admin => Trust(3),
        }
    }
}

/// A policy as it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyText {
    /// How far agents are trusted, by name or pattern.
    pub trust: BTreeMap<String, u8>,
    pub rules: Vec<RuleText>,
}

/// A rule as it is written down. What is left out means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleText {
    pub name: String,
    /// `allow` or `deny`.
    pub effect: String,
    pub agents: Vec<String>,
    /// Only agents that are trusted less than this.
    pub trust_below: Option<u8>,
    /// Only agents that are trusted at least so far.
    pub trust_from: Option<u8>,
    /// `acquire`, `locks/acquire`, or a kind: `read`, `write`, `admin`.
    pub operations: Vec<String>,
    pub keys: Vec<String>,
}

/// Why a policy can't be used. The one before stays in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    #[error("a trust is 0 to 4, not {level} as that of '{agent}'")]
    Trust { agent: String, level: u8 },
    #[error("rule {number} needs a name, so that a refusal can name it")]
    Unnamed { number: usize },
    #[error("rule '{name}' is there twice")]
    Twice { name: String },
    #[error("the effect of rule '{name}' is allow or deny, not '{effect}'")]
    Effect { name: String, effect: String },
    #[error("rule '{name}' names '{operation}', which is no operation and not read, write or admin")]
    Operation { name: String, operation: String },
    #[error("rule '{name}' is for a trust that is not 0 to 4, or for none at all")]
    Bounds { name: String },
    #[error("rule '{name}' has an empty pattern, or one of more than 1024 bytes")]
    Pattern { name: String },
    #[error("rule '{name}' has a key that none can match: {why}")]
    NoKey { name: String, why: String },
    #[error("a policy has at most {POLICY_RULES_MAX} rules of at most {POLICY_PATTERNS_MAX} patterns each")]
    TooMany,
}

/// A policy that can be asked.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    trust: Vec<(Pattern, Trust)>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    allows: bool,
    agents: Vec<Pattern>,
    trust: std::ops::Range<u8>,
    operations: Vec<String>,
    keys: Vec<Pattern>,
}

/// What is asked of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// `None`: whoever asks has not said.
    pub agent: Option<&'a AgentName>,
    /// As the table of operations calls it: `locks/acquire`.
    pub operation: &'a str,
    pub right: Right,
    /// The local user, or an operator's credential: may do what needs an administrator.
    pub operator: bool,
    /// It is only about what the asker holds already.
    pub own: bool,
    /// `None`: it is about no key.
    pub key: Option<&'a Key>,
}

/// What a policy says, and which rule says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    pub rule: String,
    pub trust: Trust,
    /// In a sentence.
    pub because: String,
}

/// How closely a rule fits what is asked: key before agent before operation; of two that fit alike, the one that denies.
type Fit = (Exactness, Exactness, usize, Reverse<bool>);
/// A whole name before a pattern, a longer pattern before a shorter one.
type Exactness = (bool, usize);

impl Policy {
    /// `operations`: the names that rules may use.
    pub fn new(text: PolicyText, operations: &[&str]) -> Result<Policy, InvalidPolicy> {
        if text.rules.len() > POLICY_RULES_MAX || text.trust.len() > POLICY_RULES_MAX {
            return Err(InvalidPolicy::TooMany);
        }
        let mut trust = Vec::new();
        for (agent, level) in text.trust {
            if level > Trust::MAX.0 {
                return Err(InvalidPolicy::Trust { agent, level });
            }
            trust.push((Pattern::new("trust", &agent)?, Trust(level)));
        }
        let mut rules: Vec<Rule> = Vec::new();
        for (place, rule) in text.rules.into_iter().enumerate() {
            let rule = Rule::new(place + 1, rule, operations)?;
            if rules.iter().any(|other| other.name == rule.name) {
                return Err(InvalidPolicy::Twice { name: rule.name });
            }
            rules.push(rule);
        }
        Ok(Policy { trust, rules })
    }

    /// How far an agent is trusted: as the closest name or pattern says.
    pub fn trust(&self, agent: Option<&AgentName>) -> Trust {
        let Some(agent) = agent else { return Trust::DEFAULT };
        let fits = self.trust.iter().filter(|(pattern, _)| pattern.matches(agent.as_str()));
        fits.max_by_key(|(pattern, trust)| (pattern.exactness(), Reverse(*trust)))
            .map_or(Trust::DEFAULT, |(_, trust)| *trust)
    }

    pub fn judge(&self, ask: &Ask<'_>) -> Verdict {
        let trust = self.trust(ask.agent);
        let verdict = |allowed, rule: &str, because| Verdict { allowed, rule: rule.to_owned(), trust, because };
        if trust == Trust::SUSPENDED {
            let who = ask.agent.map_or("the agent", AgentName::as_str);
            return verdict(false, "trust", format!("{who} is suspended (trust 0)"));
        }
        // What one holds one may keep alive and give back: that it was acquired was judged then.
        if ask.own {
            return verdict(true, "trust", "what one holds one may keep alive and give back".to_owned());
        }
        let needs = ask.right.needs();
        if trust < needs && !(ask.right == Right::Admin && ask.operator) {
            let has = trust.0;
            let kind = match ask.right {
                Right::Read => "reading",
                Right::Write => "changing",
                Right::Admin => "administering",
            };
            return verdict(false, "trust", format!("{kind} needs trust {}; this agent has {has}", needs.0));
        }
        let fits = self.rules.iter().filter_map(|rule| Some((rule.fit(ask, trust)?, rule)));
        match fits.max_by_key(|(fit, _)| *fit) {
            Some((_, rule)) => {
                let word = if rule.allows { "allows" } else { "denies" };
                verdict(rule.allows, &rule.name, format!("rule '{}' {word} it", rule.name))
            }
            None => verdict(
                true,
                "default",
                "no rule says otherwise, and keys of the known prefixes are allowed".to_owned(),
            ),
        }
    }

    /// Whether it says nothing but what goes without saying.
    pub fn is_empty(&self) -> bool {
        self.trust.is_empty() && self.rules.is_empty()
    }

    /// The rules by their names, in the order in which they were written.
    pub fn rule_names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }
}

impl Rule {
    fn new(number: usize, text: RuleText, operations: &[&str]) -> Result<Rule, InvalidPolicy> {
        let RuleText { name, effect, agents, trust_below, trust_from, operations: named, keys } = text;
        if name.trim().is_empty() || name.chars().count() > NAME_CHARS_MAX {
            return Err(InvalidPolicy::Unnamed { number });
        }
        let allows = match effect.as_str() {
            "allow" => true,
            "deny" => false,
            _ => return Err(InvalidPolicy::Effect { name, effect }),
        };
        if [agents.len(), named.len(), keys.len()].into_iter().any(|count| count > POLICY_PATTERNS_MAX) {
            return Err(InvalidPolicy::TooMany);
        }
        let known = |operation: &str| {
            [Right::Read, Right::Write, Right::Admin].iter().any(|right| right.word() == operation)
                || operations.iter().any(|known| names(operation, known))
        };
        if let Some(operation) = named.iter().find(|operation| !known(operation)) {
            return Err(InvalidPolicy::Operation { operation: operation.clone(), name });
        }
        let (from, below) = (trust_from.unwrap_or(0), trust_below.unwrap_or(Trust::MAX.0 + 1));
        if from > Trust::MAX.0 || below > Trust::MAX.0 + 1 || from >= below {
            return Err(InvalidPolicy::Bounds { name });
        }
        let patterns =
            |texts: &[String]| texts.iter().map(|text| Pattern::new(&name, text)).collect::<Result<Vec<_>, _>>();
        let (agents, wanted) = (patterns(&agents)?, patterns(&keys)?);
        if let Some(why) = keys.iter().find_map(|key| never_matches(key)) {
            return Err(InvalidPolicy::NoKey { name, why });
        }
        Ok(Rule { agents, keys: wanted, name, allows, trust: from..below, operations: named })
    }

    /// `None`: the rule says nothing about it.
    fn fit(&self, ask: &Ask<'_>, trust: Trust) -> Option<Fit> {
        let key = closest(&self.keys, ask.key, |pattern, key| {
            // Who may not have one thing may not have all that it is part of.
            pattern.matches(key.as_str()) || (!self.allows && pattern.is_below(key))
        })?;
        let agent = closest(&self.agents, ask.agent, |pattern, agent| pattern.matches(agent.as_str()))?;
        let named = |operation: &String| names(operation, ask.operation) || operation == ask.right.word();
        let operation = if self.operations.is_empty() {
            0
        } else {
            let closest = |operation: &String| if operation == ask.right.word() { 1 } else { 2 };
            self.operations.iter().filter(|operation| named(operation)).map(closest).max()?
        };
        self.trust.contains(&trust.0).then_some((key, agent, operation, Reverse(self.allows)))
    }
}

/// The closest of the patterns that fit; no patterns fit everything, least closely.
fn closest<T>(patterns: &[Pattern], asked: Option<&T>, fits: impl Fn(&Pattern, &T) -> bool) -> Option<Exactness> {
    if patterns.is_empty() {
        return Some((false, 0));
    }
    let asked = asked?;
    patterns.iter().filter(|pattern| fits(pattern, asked)).map(Pattern::exactness).max()
}

/// Whether a rule's word is the name of an operation, whole or without its family: `acquire` for `locks/acquire`.
pub fn names(word: &str, operation: &str) -> bool {
    word == operation || operation.rsplit_once('/').is_some_and(|(_, verb)| verb == word)
}

/// What stars may stand for in keys: enough that a pattern which none of it makes a key matches none at all.
const WITNESSES: [&str; 18] = [
    "",
    "a",
    "a/b",
    "/a",
    "a/",
    "b.rs",
    ".rs",
    "GET",
    "GET /a",
    " /a",
    "a.b",
    ".b",
    "schema:a",
    "migration-slot",
    "a:pause",
    ":pause",
    "pause",
    "contract",
];

/// Why a pattern can match no key as it is kept: a rule that never speaks would pass for one that protects.
fn never_matches(pattern: &str) -> Option<String> {
    let lines = pattern.rsplit_once(':').map(|(_, lines)| lines);
    if lines.is_some_and(|lines| !lines.is_empty() && lines.bytes().all(|b| b.is_ascii_digit() || b == b'-')) {
        return Some(format!("'{pattern}' names lines, and a rule is about whole keys"));
    }
    let parts: Vec<&str> = pattern.split('*').collect();
    let kept = |text: &str| Key::parse(text).is_ok_and(|key| key.as_str() == text);
    match parts.as_slice() {
        [whole] => match Key::parse(whole) {
            Ok(key) if key.as_str() == *whole => None,
            Ok(key) => Some(format!("'{whole}' is kept as '{key}'")),
            Err(error) => Some(error.to_string()),
        },
        // The star of a tree or a level is part of the key.
        _ if kept(pattern) || WITNESSES.iter().any(|star| kept(&parts.join(star))) => None,
        [first, middle, last] if each_two(|one, two| kept(&[first, one, middle, two, last].concat())) => None,
        [_, _] | [_, _, _] => Some(match Key::parse(&parts.join("a")) {
            Err(error) => error.to_string(),
            Ok(key) => format!("no key looks like '{pattern}', but '{key}' is one"),
        }),
        // Too many stars to be sure.
        _ => None,
    }
}

fn each_two(fits: impl Fn(&str, &str) -> bool) -> bool {
    WITNESSES.iter().any(|one| WITNESSES.iter().any(|two| fits(one, two)))
}

/// A text in which a star stands for any letters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(Box<[Box<str>]>);

impl Pattern {
    fn new(rule: &str, text: &str) -> Result<Pattern, InvalidPolicy> {
        if text.is_empty() || text.len() > crate::limits::KEY_BYTES_MAX {
            return Err(InvalidPolicy::Pattern { name: rule.to_owned() });
        }
        Ok(Pattern(text.split('*').map(Into::into).collect()))
    }

    fn matches(&self, text: &str) -> bool {
        let (first, rest) = self.0.split_first().expect("a split has a part");
        let Some(mut text) = text.strip_prefix(&**first) else { return false };
        let Some((last, middle)) = rest.split_last() else { return text.is_empty() };
        // The first place where each part stands is as good as any later one.
        for part in middle {
            let Some(at) = text.find(&**part) else { return false };
            text = &text[at + part.len()..];
        }
        text.ends_with(&**last)
    }

    /// Whether it may name something that a key with stars covers.
    fn is_below(&self, key: &Key) -> bool {
        let (stem, first, exact) = (key.stem(), &*self.0[0], self.0.len() == 1);
        let logical = first.split_once(':').is_some_and(|(prefix, _)| PREFIXES.contains(&prefix));
        if key.cover() == Cover::One || (logical && key.kind() == KeyKind::Path) {
            return false;
        }
        match first.strip_prefix(stem) {
            // One level down, and no deeper.
            Some(rest) if key.cover() == Cover::Children => !rest.contains('/'),
            Some(_) => true,
            None => !exact && stem.starts_with(first),
        }
    }

    fn exactness(&self) -> Exactness {
        (self.0.len() == 1, self.0.iter().map(|part| part.len()).sum())
    }
}
