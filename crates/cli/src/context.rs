//! What every command needs: the settings, the service, and who asks.

use std::cell::OnceCell;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use lockkeeper_client::{Client, Identity};
use lockkeeper_wire::answer::Changed;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{Asker, RenewRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, note};
use crate::{start, who};

/// A wait that is shorter is not worth a word.
const MOMENT: Duration = Duration::from_millis(300);
/// How often somebody who waits beats for what the session holds, at least; more often if it would not live so long.
const BEAT_EVERY: Duration = Duration::from_secs(10);

/// Flags of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Who owns the locks [env: SESSION_ID=] [default: the session of the terminal]
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// The agent's name, as others see it [env: AGENT_ID=] [default: the session]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// The service: unix:PATH or http://HOST:PORT [env: LOCKKEEPER_URL=] [default: this user's own]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) global: Global,
    config: OnceCell<Config>,
}

impl Context {
    pub(crate) fn new(global: Global) -> Context {
        Context { global, config: OnceCell::new() }
    }

    pub(crate) fn config(&self) -> Result<&Config, Failure> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let loaded = Config::load().map_err(|error| Failure::usage(format!("{error:#}")))?;
        Ok(self.config.get_or_init(|| loaded))
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        if let Some(url) = &self.global.url {
            lockkeeper_client::Endpoint::parse(url, None).map_err(|error| Failure::usage(error.to_string()))?;
        }
        Ok(start::client(self.config()?, self.global.url.as_deref())?)
    }

    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        let session = who::session(self.global.session.as_deref())?;
        let agent = who::agent(self.global.agent.as_deref(), &session);
        Ok(Identity { session, agent, agent_type: who::agent_type(), space: Some(self.config()?.space()?) })
    }

    /// Asks as the session that this command belongs to.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        operation: Operation,
        body: impl Asker + Serialize,
    ) -> Result<T, Failure> {
        let body = self.identity()?.sign(body);
        Ok(self.client()?.call(operation, &body)?)
    }

    /// As [`Context::ask`], for something that may wait for so long before it is answered.
    pub(crate) fn ask_within<T: DeserializeOwned>(
        &self,
        operation: Operation,
        body: impl Asker + Serialize,
        patience: Duration,
    ) -> Result<T, Failure> {
        self.ask_in_rounds(operation, body, patience, 1)
    }

    /// The same, for what waits several times, each for so long.
    pub(crate) fn ask_in_rounds<T: DeserializeOwned>(
        &self,
        operation: Operation,
        body: impl Asker + Serialize,
        patience: Duration,
        rounds: u32,
    ) -> Result<T, Failure> {
        let body = self.identity()?.sign(body);
        let client = self.client()?;
        let _waiting = self.says_it_waits(&client, patience);
        Ok(client.call_within(operation, &body, patience * rounds)?)
    }

    /// Says that a command waits, if it does so for longer than a moment, and keeps alive what its session holds meanwhile, until what
    /// comes back is dropped.
    pub(crate) fn says_it_waits(&self, client: &Client, patience: Duration) -> Option<mpsc::Sender<()>> {
        if patience.is_zero() {
            return None;
        }
        let (answered, waits) = mpsc::channel::<()>();
        let (is_told, client, identity) = (!self.global.json, client.clone(), self.identity().ok()?);
        std::thread::spawn(move || {
            let mut pause = MOMENT;
            let mut told = !is_told;
            while waits.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                if !std::mem::replace(&mut told, true) {
                    let patience = output::millis(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
                    note!(
                        "Waiting in the queue for up to {patience}; lockkeeper lock list and room list show who is in the way."
                    );
                }
                // What failed is tried again as soon.
                pause = beat(&client, &identity).unwrap_or(pause);
            }
        });
        Some(answered)
    }

    /// Looks at something, which anybody may.
    pub(crate) fn look<T: DeserializeOwned>(
        &self,
        operation: Operation,
        mut body: impl Asker + Serialize,
    ) -> Result<T, Failure> {
        *body.who_mut().space = Some(self.config()?.space()?);
        // Who says who they are is told what the policy lets them see.
        if body.who().agent_id.is_none()
            && let Ok(session) = who::session(self.global.session.as_deref())
        {
            *body.who_mut().agent_id = Some(who::agent(self.global.agent.as_deref(), &session));
        }
        Ok(self.client()?.call(operation, &body)?)
    }
}

/// Renews all that a session holds. When to do so again, if that is known.
fn beat(client: &Client, identity: &Identity) -> Option<Duration> {
    let renewed: Changed = client.call(Operation::Renew, &identity.sign(RenewRequest::default())).ok()?;
    let shortest = renewed.locks.iter().map(|lock| lock.ttl_ms).min();
    Some(shortest.map_or(BEAT_EVERY, |ttl_ms| BEAT_EVERY.min(Duration::from_millis(ttl_ms / 3))))
}
