//! `lockkeeper watch`

use std::time::{Duration, Instant};

use clap::Args;
use lockkeeper_client::{Answers, Error};
use lockkeeper_wire::answer::EventView;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::EventsRequest;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, note, say};

/// How long a service that went away is waited for.
const AWAY_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a service may take to open the stream.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);
/// How often is looked whether anybody still reads.
const READER_LOOK: Duration = Duration::from_millis(500);
const AGAIN_PAUSE: Duration = Duration::from_millis(50);

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
        let client = context.client()?;
        let mut away_since: Option<Instant> = None;
        while !output::is_over() {
            let request = EventsRequest { after: after.clone(), space: space.clone(), ..EventsRequest::default() };
            match client.stream(Operation::Events, &request, OPEN_TIME_MAX) {
                Ok(events) => {
                    away_since = None;
                    follow(context, &events, &mut after)?;
                }
                Err(Error::Unreachable(_)) if away_since.is_none_or(|since| since.elapsed() < AWAY_TIME_MAX) => {}
                Err(error) => return Err(error.into()),
            }
            if output::is_over() {
                break;
            }
            if away_since.is_none() {
                note!("The service went away; waiting for it.");
            }
            away_since.get_or_insert_with(Instant::now);
            std::thread::sleep(AGAIN_PAUSE);
            client.reopen();
        }
        Ok(())
    }
}

/// Shows events until the stream ends, or nobody reads them any more.
fn follow(context: &Context, events: &Answers, after: &mut Option<String>) -> Result<(), Failure> {
    while let Ok(next) = events.next(READER_LOOK) {
        if let Some(body) = next {
            let event: EventView = serde_json::from_slice(&body).map_err(anyhow::Error::from)?;
            *after = Some(event.id.clone());
            show(context, &event);
        }
        if output::is_over() {
            break;
        }
    }
    Ok(())
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
