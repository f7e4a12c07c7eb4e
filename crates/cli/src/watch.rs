//! `lockkeeper watch`

use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper_client::{Client, Error};
use lockkeeper_wire::answer::EventView;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::EventsRequest;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};

/// How long a service that went away is waited for.
const AWAY_TIME_MAX: Duration = Duration::from_secs(60);

/// Goes on where it stopped when the service restarts.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Start behind this event, as --json shows its id.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

impl Watch {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let space = Some(context.config()?.space()?);
        let mut after = self.after;
        let mut client = context.client()?;
        loop {
            let request = EventsRequest { after: after.clone(), space: space.clone(), ..EventsRequest::default() };
            let events = client.stream(Operation::Events, &request)?;
            loop {
                match events.next(Duration::from_secs(3600)) {
                    Ok(None) => {}
                    Ok(Some(body)) => {
                        let event: EventView = serde_json::from_slice(&body).map_err(anyhow::Error::from)?;
                        after = Some(event.id.clone());
                        show(context, &event);
                    }
                    Err(ended) => {
                        tracing::debug!(?ended, "the stream ended");
                        break;
                    }
                }
            }
            client = again(context, client)?;
        }
    }
}

/// The service went away: waits for it, or for another in its place.
fn again(context: &Context, old: Client) -> Result<Client, Failure> {
    note!("The service went away; waiting for it.");
    let endpoint = old.endpoint().clone();
    drop(old);
    let give_up = Instant::now() + AWAY_TIME_MAX;
    loop {
        match Client::connect(endpoint.clone()) {
            Ok(client) => return Ok(client),
            Err(Error::Unreachable(_)) if Instant::now() < give_up => std::thread::sleep(Duration::from_millis(100)),
            Err(_) => return context.client(),
        }
    }
}

fn show(context: &Context, event: &EventView) {
    if context.global.json {
        output::json(event);
        return;
    }
    let target = output::target(&event.file_path, event.start_line, event.end_line);
    let intention = if event.intention.is_empty() { String::new() } else { format!("  \"{}\"", event.intention) };
    let note = event.note.as_ref().map(|note| format!("  ({note})")).unwrap_or_default();
    say!("{}  {:<14} {target}  {}{intention}{note}", output::moment(&event.time), event.action, event.owner);
}
