//! `lockkeeper status`

use clap::Args;
use lockkeeper_core::text::one_line;
use lockkeeper_wire::answer::ServiceStatus;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::StatusRequest;
use lockkeeper_wire::word::Word;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};

#[derive(Debug, Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let Status {} = self;
        let status: ServiceStatus = context.look(Operation::Status, StatusRequest::default())?;
        let done = match &status.trouble {
            None => Ok(()),
            Some(_) => Err(Failure::Silent(Word::Unavailable.exit_code())),
        };
        if context.global.json {
            output::json(&status);
            return done;
        }
        let kind = if status.background { ", started in the background" } else { "" };
        let settings = &status.settings;
        say!("Service     {} (pid {}{kind}), up {}", status.version, status.pid, output::millis(status.uptime_ms));
        say!("Space       {}", status.space);
        match &status.trouble {
            None => {
                say!("Holds       {} locks of {} sessions, {} waiting", status.locks, status.sessions, status.waiting);
            }
            Some(trouble) => say!("Trouble     {trouble}"),
        }
        say!("Engine      {} from {} ({})", status.engine, status.engine_from, how_safe(&status));
        if status.rewrites > 0 {
            say!(
                "Warning     the engine lost a part of its past {} times; whoever lost a lock by that is told",
                status.rewrites
            );
        }
        if status.full {
            say!("Warning     it is full: new locks are refused, and releases still work");
        }
        if let Some(socket) = &status.socket {
            say!("Socket      {socket}");
        }
        say!("HTTP        {}", status.listen.as_deref().unwrap_or("none; lockkeeper serve opens it"));
        say!(
            "Settings    TTL {}, heartbeat {}, quota {}",
            ttl(context, settings.default_ttl_ms),
            output::millis(settings.heartbeat_interval_ms),
            match settings.rate_limit {
                0 => "none".to_owned(),
                limit => format!("{limit} in {}", output::millis(settings.rate_limit_window_ms)),
            }
        );
        for other in &status.differs {
            let (server, settings) = (one_line(&other.server), one_line(&other.settings));
            note!("Warning: {server} serves this space with other settings: {settings}");
        }
        done
    }
}

/// The TTL that counts for commands here: what is set for this repository or user comes before what the service was started with.
fn ttl(context: &Context, of_service: u64) -> String {
    let here = context.config().ok().and_then(|config| config.default_ttl().ok().flatten());
    match here.filter(|here| here.0 != of_service) {
        Some(here) => format!("{here} here ({} for whoever asks the service itself)", output::millis(of_service)),
        None => output::millis(of_service),
    }
}

/// What a grant is worth, as far as the engine has said so.
pub(crate) fn how_safe(status: &ServiceStatus) -> String {
    if status.strength.is_empty() {
        format!("durability {}", status.durability)
    } else {
        format!("durability {}, strength {}", status.durability, status.strength)
    }
}
