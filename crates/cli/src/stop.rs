//! `lockkeeper stop`

use clap::Args;
use lockkeeper_client::{Client, Endpoint};
use lockkeeper_wire::answer::{Done, ServiceStatus};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::StatusRequest;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, say};

/// Locks live on until their TTL, and are there again when a service starts.
#[derive(Debug, Args)]
pub(crate) struct Stop {}

impl Stop {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let Stop {} = self;
        let config = context.config()?;
        let Ok(client) = Client::connect(Endpoint::Unix(config.socket())) else {
            if context.global.json {
                output::json(&Done { success: true });
            } else {
                say!("No service runs.");
            }
            return Ok(());
        };
        let status: ServiceStatus = client.call(Operation::Status, &StatusRequest::default())?;
        let done: Done = client.call(Operation::Stop, &StatusRequest::default())?;
        if context.global.json {
            output::json(&done);
        } else {
            say!("Stopped the service (pid {}). Nothing was released.", status.pid);
        }
        Ok(())
    }
}
