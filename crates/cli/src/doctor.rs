//! `lockkeeper doctor`

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use clap::Args;
use lockkeeper_client::{Client, Endpoint};
use lockkeeper_core::space::Space;
use lockkeeper_core::text::one_line;
use lockkeeper_engine::Options;
use lockkeeper_wire::answer::ServiceStatus;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::StatusRequest;
use serde::Serialize;

use crate::config::{Config, EngineChoice};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::{serve, status, who};

/// Free space below which a disk is said to be nearly full.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Changes nothing, and starts no service.
#[derive(Debug, Args)]
pub(crate) struct Doctor {}

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    well: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

fn well(what: &'static str, found: impl Into<String>) -> Finding {
    Finding { what, well: true, found: found.into(), mend: None }
}

fn ill(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
    // One line each: what is wrong may come from a file.
    let found = one_line(&found.into()).into_owned();
    Finding { what, well: false, found, mend: Some(mend.into()) }
}

impl Doctor {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let Doctor {} = self;
        let findings = match context.config() {
            Ok(config) => examine(context, config),
            Err(failure) => vec![ill("settings", describe(&failure), "mend the file that is named")],
        };
        if context.global.json {
            output::json(&findings);
        } else {
            for finding in &findings {
                say!("{} {:<11} {}", if finding.well { "ok " } else { "BAD" }, finding.what, finding.found);
                if let Some(mend) = &finding.mend {
                    say!("                mend: {mend}");
                }
            }
        }
        if findings.iter().all(|finding| finding.well) { Ok(()) } else { Err(Failure::Silent(1)) }
    }
}

fn describe(failure: &Failure) -> String {
    match failure {
        Failure::Other(error) => format!("{error:#}"),
        Failure::Service(error) => error.to_string(),
        Failure::Question { message, .. } | Failure::Written { message, .. } => message.clone(),
        Failure::Silent(_) => String::new(),
    }
}

/// The space of this folder, if it can be one.
fn space(config: &Config) -> anyhow::Result<String> {
    let space = config.space()?;
    Space::parse(&space)?;
    Ok(space)
}

fn examine(context: &Context, config: &Config) -> Vec<Finding> {
    let (settings, policy) = (config.settings(), config.policy());
    let home = home(&config.home);
    let to_serve = to_serve(config, settings.is_ok(), policy.is_ok(), home.well);
    let can_start = to_serve.well;
    let mut findings = vec![
        match settings {
            Ok(settings) => well(
                "settings",
                format!(
                    "TTL {}, quota {} in {}",
                    settings.default_ttl, settings.rules.quota_limit, settings.rules.quota_window
                ),
            ),
            Err(error) => ill("settings", format!("{error:#}"), "mend the setting that is named"),
        },
        to_serve,
        match space(config) {
            Ok(space) if config.place.is_alone() => well(
                "space",
                format!(
                    "{space}, this folder only: other folders are other spaces (git init, or an empty lockkeeper.toml at the top, joins them)"
                ),
            ),
            Ok(space) => well("space", format!("{space}, keys are relative to {}", config.place.root.display())),
            Err(error) => ill("space", format!("{error:#}"), "mend lockkeeper.toml"),
        },
        match who::session(context.global.session.as_deref()) {
            Ok(session) => well("session", session),
            Err(_) => {
                let mend = format!("export SESSION_ID={}", who::new_name());
                ill("session", "no terminal, and SESSION_ID is not set", mend)
            }
        },
        match policy {
            Ok(policy) if policy.is_empty() => {
                well("policy", "none: every agent may lock, and only the operator takes away")
            }
            Ok(policy) => well("policy", output::counted(policy.rule_names().count(), "rule")),
            Err(error) => {
                ill("policy", format!("{error:#}"), "correct it, then lockkeeper policy reload if a service runs")
            }
        },
        home,
        private("credential", &config.credential_file(), 0o077),
        disk(&config.home),
    ];
    findings.extend(service(context, config, can_start));
    findings
}

/// Whether a service could start, if none runs or the one that runs ends.
fn to_serve(config: &Config, settings_well: bool, policy_well: bool, home_well: bool) -> Finding {
    match serve::check(config) {
        Err(failure) => ill("to serve", describe(&failure), "correct it: no service starts with it"),
        Ok(()) if !settings_well => ill("to serve", "no service starts with these settings", "see the line settings"),
        Ok(()) if !policy_well => ill("to serve", "no service starts with this policy", "see the line policy"),
        Ok(()) if !home_well => ill("to serve", "no service starts in this home", "see the line home"),
        Ok(()) => well("to serve", "nothing keeps a service from starting"),
    }
}

/// Whether a service can live there.
fn home(path: &Path) -> Finding {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let may_write = rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    match private("home", path, 0o077) {
        finding if finding.well && (may_write.is_err() || !can_be_made(path, there)) => {
            let found = format!("{}: nothing can be written to {}", path.display(), there.display());
            ill("home", found, "set LOCKKEEPER_HOME to a folder that you may write to")
        }
        finding => finding,
    }
}

/// Whether a folder is there, or lies on a file system where one can be made.
fn can_be_made(path: &Path, there: &Path) -> bool {
    path == there || rustix::fs::statvfs(there).is_ok_and(|found| found.f_blocks > 0)
}

/// Whether others are kept out of a file or folder.
fn private(what: &'static str, path: &Path, forbidden: u32) -> Finding {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            well(what, format!("{} (made at the first start)", path.display()))
        }
        Err(error) => ill(what, format!("{}: {error}", path.display()), "make it readable for you"),
        Ok(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            ill(what, format!("{} belongs to another user", path.display()), "set LOCKKEEPER_HOME to a folder of yours")
        }
        Ok(found) if found.permissions().mode() & forbidden != 0 => {
            ill(what, format!("{} is open to others", path.display()), format!("chmod go-rwx {}", path.display()))
        }
        Ok(_) => well(what, path.display().to_string()),
    }
}

fn disk(home: &Path) -> Finding {
    let there = home.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(there) {
        Err(error) => ill("disk", error.to_string(), "look at the file system of LOCKKEEPER_HOME"),
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let told = format!("{} MiB free at {}", free >> 20, there.display());
            if free < FREE_BYTES_MIN {
                ill("disk", told, "make room: new locks are refused on a full disk")
            } else {
                well("disk", told)
            }
        }
    }
}

fn service(context: &Context, config: &Config, can_start: bool) -> Vec<Finding> {
    let configured = context.global.url.clone().or_else(|| config.url());
    let endpoint = match &configured {
        None => Ok(Endpoint::Unix(config.socket())),
        Some(url) => Endpoint::parse(url, config.credential()),
    };
    let status = endpoint.clone().and_then(Client::connect).and_then(|client| {
        // Of this space: another one may be well.
        let request = StatusRequest { space: config.space().ok(), ..StatusRequest::default() };
        client.call::<ServiceStatus>(Operation::Status, &request)
    });
    let is_silent = || lockkeeper_client::listens(&config.socket());
    match status {
        Err(lockkeeper_client::Error::Refused(refused)) => {
            vec![ill("service", format!("it refuses: {}", refused.message), "see its log")]
        }
        Err(error) if configured.is_none() && is_silent() => {
            let mend = "look at service.log beside it, and end it if it hangs; the next command starts another";
            vec![ill("service", format!("one runs, and gives no answer: {error}"), mend)]
        }
        Err(_) if configured.is_none() && can_start => {
            vec![well("service", "none runs; the next command starts one"), engine(config)]
        }
        Err(_) if configured.is_none() => {
            vec![ill("service", "none runs, and none can start", "see the line to serve"), engine(config)]
        }
        Err(error) => {
            vec![ill("service", error.to_string(), "start it there, or unset LOCKKEEPER_URL to use one of your own")]
        }
        Ok(status) => {
            let own = env!("CARGO_PKG_VERSION");
            let version = if status.version == own {
                well("service", format!("{} (pid {})", status.version, status.pid))
            } else {
                let told = format!("the service is {}, this command is {own}", status.version);
                ill("service", told, "lockkeeper stop; the next command starts the new one")
            };
            let engine = format!("{} from {} ({})", status.engine, status.engine_from, status::how_safe(&status));
            let engine = match &status.trouble {
                None if status.full => {
                    ill("engine", format!("{engine}: it is full, and new locks are refused"), "make room there")
                }
                None => well("engine", engine),
                Some(trouble) => {
                    ill("engine", format!("{engine}: {trouble}"), reach(&status.engine, &status.engine_from))
                }
            };
            let mut findings = vec![version, engine];
            if configured.is_none() {
                findings.extend(another_engine(&config.engine(), &status.engine));
            }
            findings
        }
    }
}

/// The service that runs keeps its locks elsewhere than a new one would. Whoever names none goes on with what runs.
fn another_engine(choice: &EngineChoice, used: &str) -> Option<Finding> {
    let (found, mend) = choice.beside(used)?;
    Some(if choice.is_default() { well("engine", found) } else { ill("engine", found, mend) })
}

/// What to look at when an engine can't be used.
fn reach(place: &str, from: &str) -> String {
    if place.starts_with("file:") {
        format!("look whether {place} can be written to, and whether its disk has room")
    } else {
        format!("look whether a server runs at {place}, and whether user and password are right in {from}")
    }
}

/// The engine that the next service would use. One on a server is asked whether it can be used.
fn engine(config: &Config) -> Finding {
    let choice = config.engine();
    let place = match lockkeeper_engine::place_of(&choice.url) {
        Ok(place) => place,
        Err(error) => {
            let mend = format!("write it right in {}, or name another with LOCKKEEPER_ENGINE", choice.from);
            return ill("engine", choice.explain(&error), mend);
        }
    };
    let found = format!("{place} from {}", choice.from);
    if place.starts_with("file:") || place.starts_with("memory:") {
        return well("engine", found);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let opened = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let opened = runtime.block_on(lockkeeper_engine::open(&choice.url, &Options::default()));
        opened.map(drop).map_err(|error| anyhow::anyhow!(choice.explain(&error)))
    });
    match opened {
        Ok(()) => well("engine", found),
        Err(error) => ill("engine", format!("{found}: {error}"), reach(&place, choice.from)),
    }
}
