//! Logical keys: one type for each namespace, with its own grammar. Knows nothing of paths in the repository.

use std::fmt;

use super::path;
use crate::limits::NAME_CHARS_MAX;
use crate::lock::FeatureId;
use crate::span::Span;

/// The prefixes that a logical key may have.
pub const PREFIXES: [&str; 7] = ["api", "db", "event", "flag", "env", "contract", "feature"];

/// What every logical key looks like from afar. The grammars below are narrower.
pub const LOGICAL_PATTERN: &str = "^(api|db|event|flag|env|contract|feature):.+$";

/// What every path looks like from afar.
pub const PATH_PATTERN: &str = r"^(?!/)(?!.*\s+$).+";

/// What a feature can be locked for.
pub const PURPOSES: [&str; 3] = ["pause", "merge", "plan"];

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

/// A right key of each namespace, for whoever wrote a wrong one.
pub(super) fn example(prefix: &str) -> &'static str {
    match prefix {
        "api" => "api:GET /v1/users",
        "db" => "db:schema:users",
        "event" => "event:user.created",
        "flag" => "flag:billing/new-checkout",
        "env" => "env:shared-fixtures",
        "contract" => "contract:openapi/v1.yaml",
        // Not the one that stops others when it is copied.
        "feature" => "feature:FEAT-123:plan",
        other => unreachable!("{other} is no prefix"),
    }
}

/// Why a text is no key of its namespace, and one that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub why: &'static str,
    pub right: &'static str,
}

/// A logical key, taken apart. Printed, it is in its one spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logical {
    Api(ApiRoute),
    Db(DbResource),
    Event(EventChannel),
    Flag(FlagName),
    Env(EnvResource),
    Contract(ContractPath),
    Feature(FeatureKey),
}

impl Logical {
    /// `prefix` is one of [`PREFIXES`], `rest` what stands behind its colon.
    pub(super) fn parse(prefix: &str, rest: &str) -> Result<Logical, Fault> {
        let logical = match prefix {
            "api" => Logical::Api(ApiRoute::parse(rest)?),
            "db" => Logical::Db(DbResource::parse(rest)?),
            "event" => Logical::Event(EventChannel::parse(rest)?),
            "flag" => Logical::Flag(FlagName::parse(rest)?),
            "env" => Logical::Env(EnvResource::parse(rest)?),
            "contract" => Logical::Contract(ContractPath::parse(rest)?),
            "feature" => Logical::Feature(FeatureKey::parse(rest)?),
            other => unreachable!("{other} is no prefix"),
        };
        // Taken for a part of the key, it would be another key, and conflict with nothing.
        let has_lines = |text: &str| text.rsplit_once(':').is_some_and(|(_, behind)| Span::parse(behind).is_ok());
        // Also in the form that it is given: a slash may have stood behind.
        if has_lines(rest) || rest.contains(':') && has_lines(&logical.to_string()[prefix.len() + 1..]) {
            return Err(Fault { why: "only files have lines", right: example(prefix) });
        }
        Ok(logical)
    }
}

impl fmt::Display for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Logical::Api(ApiRoute { method, path }) => write!(f, "api:{method} {path}"),
            Logical::Db(DbResource::MigrationSlot) => f.write_str("db:migration-slot"),
            Logical::Db(DbResource::Schema { table }) => write!(f, "db:schema:{table}"),
            Logical::Event(EventChannel(channel)) => write!(f, "event:{channel}"),
            Logical::Flag(FlagName(name)) => write!(f, "flag:{name}"),
            Logical::Env(EnvResource(name)) => write!(f, "env:{name}"),
            Logical::Contract(ContractPath(path)) => write!(f, "contract:{path}"),
            Logical::Feature(FeatureKey { id, purpose }) => write!(f, "feature:{id}:{purpose}"),
        }
    }
}

/// A route of an API: `api:GET /v1/users`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRoute {
    pub method: &'static str,
    pub path: String,
}

impl ApiRoute {
    fn parse(rest: &str) -> Result<ApiRoute, Fault> {
        let fault = |why| Fault { why, right: example("api") };
        let Some((word, path)) = rest.split_once(' ') else {
            return Err(fault("a route is a method, one space and a path"));
        };
        let Some(method) = METHODS.into_iter().find(|method| *method == word) else {
            let known = METHODS.iter().any(|method| method.eq_ignore_ascii_case(word));
            return Err(fault(if known { "a method is written in capitals" } else { "that is no method of HTTP" }));
        };
        if path.starts_with(' ') {
            return Err(fault("there is exactly one space between method and path"));
        }
        if !path.starts_with('/') {
            return Err(fault("the path of a route starts with a slash"));
        }
        if path.contains(['?', '#']) {
            return Err(fault("a route has no query and no fragment"));
        }
        if path.contains('*') {
            return Err(fault("a key names one route; there are no stars"));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte)) {
            return Err(fault("a path of a route has only the letters that a URL has; write others as %C3%A9"));
        }
        // Before the dots are looked at: %2e is one.
        let path = percent_ordered(path).ok_or_else(|| fault("a % stands before two digits"))?;
        let mut segments: Vec<&str> = Vec::new();
        for segment in path.split('/') {
            match segment {
                "" | "." => {}
                ".." if segments.pop().is_none() => return Err(fault("the path leads out of the API")),
                ".." => {}
                plain => segments.push(plain),
            }
        }
        Ok(ApiRoute { method, path: format!("/{}", segments.join("/")) })
    }
}

/// With what needs no percent sign written without, and the digits behind the others in capitals: `%75` is `u`, `%c3` is `%C3`.
fn percent_ordered(path: &str) -> Option<String> {
    let mut ordered = String::with_capacity(path.len());
    let mut parts = path.split('%');
    ordered.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let byte = u8::from_str_radix(digits, 16).ok()?;
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            ordered.push(char::from(byte));
        } else {
            ordered.push('%');
            ordered.push_str(&digits.to_ascii_uppercase());
        }
        ordered.push_str(&part[2..]);
    }
    Some(ordered)
}

/// A part of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbResource {
    /// Only one migration at a time.
    MigrationSlot,
    Schema {
        table: String,
    },
}

impl DbResource {
    fn parse(rest: &str) -> Result<DbResource, Fault> {
        if rest == "migration-slot" {
            return Ok(DbResource::MigrationSlot);
        }
        let Some(table) = rest.strip_prefix("schema:") else {
            return Err(Fault {
                why: "a part of a database is db:migration-slot, or db:schema: with a table",
                right: example("db"),
            });
        };
        if table.is_empty() || !table.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
            let why = "a table is written in lower-case letters, digits and underscores";
            return Err(Fault { why, right: example("db") });
        }
        Ok(DbResource::Schema { table: table.to_owned() })
    }
}

/// A channel of events: `event:user.created`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventChannel(pub String);

impl EventChannel {
    fn parse(rest: &str) -> Result<EventChannel, Fault> {
        if rest.split('.').all(|part| is_word(part, b'_')) {
            return Ok(EventChannel(rest.to_owned()));
        }
        let why = "a channel is lower-case words between dots; inside a word an underscore may stand";
        Err(Fault { why, right: example("event") })
    }
}

/// A flag, or with `/*` at its end all flags below: `flag:billing/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagName(pub String);

impl FlagName {
    fn parse(rest: &str) -> Result<FlagName, Fault> {
        let named = rest.strip_suffix("/*").unwrap_or(rest);
        if rest == "*" || named.split('/').all(|part| is_word(part, b'-')) {
            return Ok(FlagName(rest.to_owned()));
        }
        let why = "a flag is lower-case words between slashes; inside a word a hyphen may stand, and /* at the end";
        Err(Fault { why, right: example("flag") })
    }
}

/// Lower-case letters and digits, with single joints inside.
fn is_word(text: &str, joint: u8) -> bool {
    let part = |part: &[u8]| !part.is_empty() && part.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.as_bytes().split(|byte| *byte == joint).all(part)
}

/// Something of the environment that is shared and is no port: `env:shared-fixtures`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvResource(pub String);

impl EnvResource {
    fn parse(rest: &str) -> Result<EnvResource, Fault> {
        let fault = |why| Fault { why, right: example("env") };
        if names_a_port(rest) {
            return Err(fault("a port is not locked; get one of your own with lockkeeper ports allocate"));
        }
        let plain = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphanumeric())
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        };
        if !rest.split('/').all(plain) {
            return Err(fault("a resource is letters, digits, dots, underscores and hyphens, with slashes between"));
        }
        Ok(EnvResource(rest.to_owned()))
    }
}

/// Whether a text names a port, however it is written: `5432`, `:5432`, `tcp/5432`, `db-port-5432`.
fn names_a_port(text: &str) -> bool {
    const BESIDE_A_PORT: [&str; 4] = ["port", "ports", "tcp", "udp"];
    let digits = |c: char| c.is_ascii_digit();
    if !text.is_empty() && text.chars().all(|c| digits(c) || !c.is_alphanumeric()) && text.contains(digits) {
        return true;
    }
    let words: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .flat_map(|word| {
            let end = word.find(digits).unwrap_or(word.len());
            [&word[..end], &word[end..]]
        })
        .filter(|word| !word.is_empty())
        .collect();
    let number = |word: &str| word.chars().all(digits);
    let beside = |word: &str| BESIDE_A_PORT.iter().any(|known| known.eq_ignore_ascii_case(word));
    let host = text.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && number(port));
    host || words.windows(2).any(|pair| (beside(pair[0]) && number(pair[1])) || (number(pair[0]) && beside(pair[1])))
}

/// A contract between packages: `contract:openapi/v1.yaml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractPath(pub String);

impl ContractPath {
    fn parse(rest: &str) -> Result<ContractPath, Fault> {
        let fault = |why| Fault { why, right: example("contract") };
        let ordered = path::parse(rest).map_err(fault)?;
        if ordered.contains('*') {
            return Err(fault("a contract is one file; there are no stars"));
        }
        Ok(ContractPath(ordered.into_owned()))
    }
}

/// A feature, and what it is locked for: `feature:FEAT-123:pause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureKey {
    pub id: FeatureId,
    pub purpose: &'static str,
}

impl FeatureKey {
    fn parse(rest: &str) -> Result<FeatureKey, Fault> {
        let fault = |why| Fault { why, right: example("feature") };
        let Some((id, word)) = rest.rsplit_once(':') else {
            return Err(fault("a feature's key is its id, a colon and a purpose"));
        };
        let Some(id) = feature_id(id) else {
            return Err(fault("a feature's id is 1 to 128 letters, digits, dots, underscores and hyphens"));
        };
        match PURPOSES.into_iter().find(|purpose| *purpose == word) {
            Some(purpose) => Ok(FeatureKey { id, purpose }),
            None => Err(fault("a feature's purpose is pause, merge or plan")),
        }
    }
}

/// The id of a feature, if a text is one.
pub fn feature_id(text: &str) -> Option<FeatureId> {
    let plain = (1..=NAME_CHARS_MAX).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    plain.then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_names_the_prefixes() {
        assert_eq!(LOGICAL_PATTERN, format!("^({}):.+$", PREFIXES.join("|")));
    }

    #[test]
    fn a_port_is_seen_in_any_spelling_and_a_name_with_a_number_is_none() {
        for text in ["5432", ":5432", "port-5432", "PORT_5432", "port5432", "tcp/5432", "5432/tcp", "localhost:5432"] {
            assert!(names_a_port(text), "{text}");
        }
        for text in ["127.0.0.1:80", "http:8080", "host-port-1", "db-port-5432", "postgres:5432"] {
            assert!(names_a_port(text), "{text}");
        }
        for text in ["fixtures-2024", "port-authority", "git-index", "s3", "node18", "ports", "host1", "http2", ""] {
            assert!(!names_a_port(text), "{text}");
        }
    }
}
