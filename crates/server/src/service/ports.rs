//! Ports that sessions have to themselves.

use lockkeeper_core::command::Command;
use lockkeeper_core::limits::{PORTS_EACH, PORTS_TAKEN_MAX};
use lockkeeper_core::outcome::{Answer, Refusal};
use lockkeeper_core::ports::Ports;
use lockkeeper_core::state::State;
use lockkeeper_keeper::Keeper;
use lockkeeper_wire::answer::{PortsAllocated, PortsReleased, PortsStatus, PortsView};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{PortsRequest, SessionRequest, StatusRequest};
use sha2::{Digest, Sha256};

use super::{Acquired, Body, Caller, Noted, Service, json, no_keeper, unexpected};
use crate::door;
use crate::refusal::{self, No};
use crate::spaces::NoKeeper;
use crate::view::Viewer;

impl Service {
    pub(super) async fn allocate_ports(&self, body: PortsRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let mut taken = body.taken.clone().unwrap_or_default();
        door::at_most(taken.len(), PORTS_TAKEN_MAX)?;
        let (keeper, actor) = self.asked(Operation::AllocatePorts, &body, caller, noted, None).await?;
        // One after the other: each looks at what the others were given before.
        let _alone = self.allocating_ports.lock().await;
        let mut elsewhere = 0;
        for other in self.other_spaces(&keeper).await? {
            let given = |state: &State, _| state.ports().map(|ports| ports.base).collect::<Vec<_>>();
            // A space that can't be read keeps nobody else from theirs.
            let bases = other.read(given).await.unwrap_or_default();
            elsewhere += bases.len();
            taken.extend(bases.into_iter().flat_map(|base| base..=base.saturating_add(PORTS_EACH - 1)));
        }
        let session = actor.session.clone();
        let had = keeper.read(move |state, _| state.ports_of(&session).is_some()).await?;
        let answer = keeper.ask(Command::AllocatePorts { actor: actor.clone(), taken }).await?;
        let viewer = Viewer { now: keeper.now() };
        match answer {
            Answer::PortsAllocated { ports } => {
                let space = keeper.space().clone();
                noted.granted =
                    Some(Acquired { space, actor, locks: Vec::new(), had: Vec::new(), named: false, ports: !had });
                let allocation = view(&ports, viewer);
                json(&PortsAllocated { success: true, env_snippet: snippet(&allocation), allocation })
            }
            Answer::Refused(Refusal::NoPorts { used, sessions }) => {
                Err(refusal::refused(&Refusal::NoPorts { used: used + elsewhere, sessions }, viewer))
            }
            other => Err(unexpected(other, viewer)),
        }
    }

    /// Spaces are worlds of their own, but they share the machine; also those that nobody has asked for since the start.
    async fn other_spaces(&self, keeper: &Keeper) -> Result<Vec<Keeper>, No> {
        let opened = self.all_spaces_open.get_or_try_init(|| self.spaces.open_all()).await;
        opened.map_err(|error| no_keeper(&NoKeeper::Failed(error)))?;
        Ok(self.spaces.all().into_iter().filter(|other| other.space() != keeper.space()).collect())
    }

    pub(super) async fn release_ports(&self, body: SessionRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let (keeper, actor) = self.asked(Operation::ReleasePorts, &body, caller, noted, None).await?;
        let session_id = actor.session.to_string();
        match keeper.ask(Command::ReleasePorts { actor }).await? {
            Answer::PortsReleased { ports } => {
                json(&PortsReleased { success: true, session_id, released: ports.is_some() })
            }
            other => Err(unexpected(other, Viewer { now: keeper.now() })),
        }
    }

    pub(super) async fn ports_status(&self, body: StatusRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        self.permit_look(Operation::PortsStatus, caller, &body, None)?;
        let rules = self.settings.rules.ports;
        let mut elsewhere = 0;
        for other in self.other_spaces(&keeper).await? {
            elsewhere += other.read(|state, _| state.ports().count()).await.unwrap_or_default();
        }
        let status = keeper.read(move |state, now| {
            let viewer = Viewer { now };
            let mut allocations: Vec<_> = state.ports().map(|ports| view(ports, viewer)).collect();
            allocations.sort_unstable_by_key(|ports| ports.db_port);
            let (sessions_max, base_port, stride) = (rules.sessions, rules.base, rules.stride);
            PortsStatus { allocations, elsewhere, sessions_max, base_port, stride }
        });
        json(&status.await?)
    }
}

fn view(ports: &Ports, viewer: Viewer) -> PortsView {
    PortsView {
        session_id: ports.session.to_string(),
        owner: ports.agent.to_string(),
        db_port: ports.base,
        rest_port: ports.base + 1,
        realtime_port: ports.base + 2,
        api_port: ports.base + 3,
        compose_project_name: project_name(ports.session.as_str()),
        expires_at: viewer.time(ports.expires),
        expires_in_ms: ports.expires.since(viewer.now.time).0,
    }
}

/// The same for whoever asks about the same session, here and in the services that came before.
fn project_name(session: &str) -> String {
    let digest = Sha256::digest(session.as_bytes());
    digest.iter().take(4).fold("ac-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

fn snippet(ports: &PortsView) -> String {
    let PortsView { db_port, rest_port, realtime_port, api_port, compose_project_name, .. } = ports;
    format!(
        "export DB_PORT={db_port}\nexport REST_PORT={rest_port}\nexport REALTIME_PORT={realtime_port}\n\
         export API_PORT={api_port}\nexport COMPOSE_PROJECT_NAME={compose_project_name}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_named_after_a_digest_of_its_session() {
        // printf session-1 | sha256sum
        assert_eq!(project_name("session-1"), "ac-84097828");
    }
}
