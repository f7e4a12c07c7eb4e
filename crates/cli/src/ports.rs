//! `lockkeeper ports ...`

use clap::{Args, Subcommand};
use lockkeeper_core::limits::PORTS_EACH;
use lockkeeper_wire::answer::{PortsAllocated, PortsReleased, PortsStatus};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{PortsRequest, SessionRequest, StatusRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};

#[derive(Debug, Subcommand)]
pub(crate) enum Ports {
    /// Get four ports that no other session has; asking again gives the same ones.
    Allocate(Allocate),
    /// Give the session's ports back.
    Release,
    /// Show who has which ports, and for how long.
    Status,
}

const EXAMPLES: &str = "\
Examples:
  lockkeeper ports allocate                      shows them
  eval \"$(lockkeeper ports allocate --env)\"      sets DB_PORT, REST_PORT, REALTIME_PORT, API_PORT, COMPOSE_PROJECT_NAME

They stay the session's for two hours, and longer as long as it beats. Ports that something listens on are passed over.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Allocate {
    /// Print lines for a shell only.
    #[arg(long)]
    env: bool,
}

impl Ports {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Ports::Allocate(allocate) => allocate.run(context),
            Ports::Release => release(context),
            Ports::Status => status(context),
        }
    }
}

impl Allocate {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let status: PortsStatus = context.look(Operation::PortsStatus, StatusRequest::default())?;
        let taken = lockkeeper_client::ports::taken(offered(&status));
        let request = PortsRequest { taken: Some(taken), ..PortsRequest::default() };
        let answer: PortsAllocated = context.ask(Operation::AllocatePorts, request)?;
        if context.global.json {
            output::json(&answer);
            return Ok(());
        }
        if !self.env {
            let ports = &answer.allocation;
            say!("Session {} has these ports for {}:", ports.session_id, output::millis(ports.expires_in_ms));
        }
        answer.env_snippet.lines().for_each(|line| say!("{line}"));
        Ok(())
    }
}

/// Every port that a session could be given.
pub(crate) fn offered(status: &PortsStatus) -> impl Iterator<Item = u16> {
    let PortsStatus { sessions_max, base_port, stride, .. } = *status;
    let first = move |place: u16| base_port.checked_add(place.checked_mul(stride)?);
    (0..sessions_max).filter_map(first).flat_map(|first| first..=first.saturating_add(PORTS_EACH - 1))
}

fn release(context: &Context) -> Result<(), Failure> {
    let answer: PortsReleased = context.ask(Operation::ReleasePorts, SessionRequest::default())?;
    if context.global.json {
        output::json(&answer);
    } else if answer.released {
        say!("Session {} has given its ports back", answer.session_id);
    } else {
        say!("Session {} has no ports", answer.session_id);
    }
    Ok(())
}

fn status(context: &Context) -> Result<(), Failure> {
    let status: PortsStatus = context.look(Operation::PortsStatus, StatusRequest::default())?;
    if context.global.json {
        output::json(&status);
        return Ok(());
    }
    let elsewhere = output::counted(status.elsewhere, "session");
    if status.allocations.is_empty() {
        say!("No session has ports; there is room for {}, from {} on.", status.sessions_max, status.base_port);
        if status.elsewhere > 0 {
            note!("{elsewhere} of other spaces on this machine have some of it.");
        }
        return Ok(());
    }
    output::table(
        ["Session", "Owner", "Ports", "Project", "For"],
        status.allocations.into_iter().map(|ports| {
            let range = format!("{}-{}", ports.db_port, ports.api_port);
            let more = output::millis(ports.expires_in_ms);
            [ports.session_id, ports.owner, range, ports.compose_project_name, more]
        }),
    );
    if status.elsewhere > 0 {
        note!("{elsewhere} of other spaces on this machine have ports, too.");
    }
    Ok(())
}
