//! Whom HTTP lets in: for whom a request is, where it comes from, and who sends it. Knows no connection and no body.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, Uri, header};
use lockkeeper_keeper::trace::TraceParent;
use lockkeeper_wire::word::Word;

use crate::auth::Credentials;
use crate::refusal::No;
use crate::service::Caller;

/// Headers that the library has no names for: looked for in every request, and so read once.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What opens the service on TCP.
pub(crate) struct Admission {
    pub(crate) credentials: Credentials,
    /// Names besides addresses and `localhost` that a request may be for.
    pub(crate) hosts: Vec<String>,
}

impl Admission {
    /// Before anything else.
    pub(crate) fn admit(&self, said: &Said<'_>, uri: &Uri) -> Result<Caller, No> {
        let caller = self.caller(said, uri.authority().map(axum::http::uri::Authority::as_str))?;
        if !caller.known && needs_credential(uri.path()) {
            return Err(No::new(Word::Unauthorized, "That needs a credential: Authorization: Bearer ...")
                .hint("the credential is in the file 'credential' in LOCKKEEPER_HOME of the service"));
        }
        Ok(caller)
    }

    /// Who asks, if the request is for this service, comes from no other's page, and shows no wrong credential. Whoever shows none is
    /// a stranger.
    pub(crate) fn caller(&self, said: &Said<'_>, authority: Option<&str>) -> Result<Caller, No> {
        said.check_host(authority, &self.hosts)?;
        said.check_origin()?;
        let mut caller = match said.secret() {
            None => Caller::default(),
            Some(secret) => {
                let opened = self.credentials.caller(secret);
                opened.ok_or_else(|| No::new(Word::Unauthorized, "That credential opens nothing here."))?
            }
        };
        caller.trace = said.traceparent.and_then(TraceParent::parse);
        Ok(caller)
    }
}

/// Everything but what tells nothing, and who holds one key.
fn needs_credential(path: &str) -> bool {
    !(matches!(path, "/healthz" | "/openapi.json") || path.starts_with("/locks/status/"))
}

/// What the headers of a request say of it, read in one go: every request has some, and few that matter. A Host that stands there
/// twice is refused, and of Origins and sites all count. Of each of the others the first counts; what is no text counts as nothing.
#[derive(Default)]
pub(crate) struct Said<'a> {
    host: Option<&'a str>,
    hosts: usize,
    authorization: Option<&'a str>,
    api_key: Option<&'a str>,
    traceparent: Option<&'a str>,
    origins: Vec<&'a [u8]>,
    /// A picture or a script of another page has no Origin, but browsers say this of it.
    is_of_another_site: bool,
}

impl<'a> Said<'a> {
    /// Of headers each of which stands there once or not at all, with no word of where a page comes from.
    pub(crate) fn once(
        host: &'a str,
        authorization: Option<&'a str>,
        api_key: Option<&'a str>,
        traceparent: Option<&'a str>,
    ) -> Said<'a> {
        Said { host: Some(host), hosts: 1, authorization, api_key, traceparent, ..Said::default() }
    }

    pub(crate) fn read(headers: &'a HeaderMap) -> Said<'a> {
        let mut said = Said::default();
        let mut seen = [false; 3];
        let mut first = |place: usize, kept: &mut Option<&'a str>, value: &'a [u8]| {
            if !std::mem::replace(&mut seen[place], true) {
                *kept = printable(value);
            }
        };
        for (name, value) in headers {
            let value = value.as_bytes();
            if name == header::HOST {
                said.hosts += 1;
                said.host = printable(value);
            } else if name == header::AUTHORIZATION {
                first(0, &mut said.authorization, value);
            } else if name == header::ORIGIN {
                said.origins.push(value);
            } else if name == X_API_KEY {
                first(1, &mut said.api_key, value);
            } else if name == TRACEPARENT {
                first(2, &mut said.traceparent, value);
            } else if name == SEC_FETCH_SITE {
                said.is_of_another_site |= matches!(value, b"cross-site" | b"same-site");
            }
        }
        said
    }

    /// A page of another site can make a browser ask by that site's name (DNS rebinding); by an address it can't. Whoever names the
    /// host in the first line, too, names a known one there.
    fn check_host(&self, authority: Option<&str>, allowed: &[String]) -> Result<(), No> {
        let first_line = authority.is_none_or(|authority| is_known(authority, allowed));
        if self.hosts == 1 && is_known(self.host.unwrap_or_default(), allowed) && first_line {
            Ok(())
        } else {
            Err(No::new(Word::OperationNotPermitted, "This service does not answer for that Host."))
        }
    }

    /// A browser says where a request comes from: only the service's own pages may ask.
    fn check_origin(&self) -> Result<(), No> {
        let host = self.host.unwrap_or_default();
        let own = |origin: &&[u8]| {
            printable(origin)
                .and_then(|origin| origin.split_once("://"))
                .is_some_and(|(scheme, of)| matches!(scheme, "http" | "https") && of == host)
        };
        if self.is_of_another_site || !self.origins.iter().all(own) {
            return Err(No::new(Word::OperationNotPermitted, "Pages of another origin may not ask."));
        }
        Ok(())
    }

    /// The credential: a bearer first, then the older header.
    fn secret(&self) -> Option<&'a str> {
        let bearer = self.authorization.map(|value| {
            value
                .split_once(' ')
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map_or("", |(_, secret)| secret.trim())
        });
        bearer.or(self.api_key)
    }
}

/// The text of a header, if it is one: letters, digits and signs that can be seen, blanks and tabs.
pub(crate) fn printable(value: &[u8]) -> Option<&str> {
    // All of it at once, and without a branch: most are printable to the end.
    let all = value.iter().fold(true, |all, byte| all & matches!(byte, b' '..=b'~' | b'\t'));
    if all { std::str::from_utf8(value).ok() } else { None }
}

fn is_known(host: &str, allowed: &[String]) -> bool {
    let (name, rest) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    port && (name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)))
}
