//! The service about itself: its state, and what it was asked.

use lockkeeper_core::limits::HISTORY_KEPT_MAX;
use lockkeeper_core::servers::Server;
use lockkeeper_keeper::Keeper;
use lockkeeper_keeper::audit::Line;
use lockkeeper_keeper::settings::Settings;
use lockkeeper_wire::answer::{AuditList, ServerView, ServiceStatus, SettingsView};
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::{AuditRequest, StatusRequest};
use lockkeeper_wire::word::Word;

use super::{Body, Caller, HISTORY_DEFAULT, LIST_MAX, Noted, Service, json};
use crate::door;
use crate::refusal::No;

impl Service {
    pub(super) async fn read_audit(&self, body: AuditRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        let keeper = self.keeper_noted(&body, noted).await?;
        self.permit_look(Operation::Audit, caller, &body, None)?;
        let most = door::limit(body.limit, HISTORY_DEFAULT, LIST_MAX)?;
        let (audit, space) = (self.audit.clone(), keeper.space().to_string());
        let failed = |error: String| No::new(Word::Internal, format!("The audit log can't be read: {error}."));
        let make = move || {
            let meant = |line: &Line| {
                line.space == space && body.outcome.as_ref().is_none_or(|outcome| line.outcome == *outcome)
            };
            let lines = audit.last(most, meant).map_err(|error| failed(error.to_string()))?;
            let lines = lines.iter().map(serde_json::to_value).collect::<Result<_, _>>();
            Ok(AuditList { lines: lines.map_err(|error| failed(error.to_string()))? })
        };
        // However few are wanted, the whole end of the file is read: one at a time, beside everything else.
        self.list(usize::MAX, noted, make).await
    }

    pub(super) async fn status(&self, body: StatusRequest, caller: &Caller, noted: &mut Noted<'_>) -> Body {
        self.permit_look(Operation::Status, caller, &body, None)?;
        let space = door::space(&body, &self.default_space)?;
        let keeper = self.keeper_noted(&body, noted).await;
        let seen = match &keeper {
            Ok(keeper) => self.seen(keeper).await,
            Err(no) => Err(no.clone()),
        };
        // Whoever asks how the service is has an answer also when its engine is away.
        let (Seen { locks, waiting, sessions, differs }, trouble) = match seen {
            Ok(seen) => (seen, None),
            Err(no) if no.word == Word::Unavailable => (Seen::default(), Some(no.body.message.clone())),
            Err(no) => return Err(no),
        };
        let keeper = keeper.ok();
        // One engine, one strength, also for a space that nobody has used.
        let lasting = self.spaces.keeper(&self.default_space).await.ok();
        let Settings { rules, default_ttl, heartbeat_interval, .. } = &self.settings;
        json(&ServiceStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            background: self.about.background,
            engine: self.engine.place(),
            engine_from: self.about.engine_from.clone(),
            durability: self.about.durability.clone(),
            strength: lasting.map(|keeper| keeper.strength().to_string()).unwrap_or_default(),
            rewrites: keeper.as_ref().map_or(0, Keeper::rewrites),
            full: keeper.as_ref().is_some_and(Keeper::is_full),
            space: space.to_string(),
            trouble,
            locks,
            waiting,
            sessions,
            started_at: self.started_at.to_string(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            socket: self.about.socket.clone(),
            listen: self.about.listen.clone(),
            settings: SettingsView {
                default_ttl_ms: default_ttl.0,
                heartbeat_interval_ms: heartbeat_interval.0,
                rate_limit: rules.quota_limit,
                rate_limit_window_ms: rules.quota_window.0,
                history_ttl_sec: if rules.history_kept == HISTORY_KEPT_MAX { 0 } else { rules.history_kept.0 / 1000 },
            },
            differs,
        })
    }

    async fn seen(&self, keeper: &Keeper) -> Result<Seen, No> {
        let own = self.settings.in_words();
        let seen = keeper.read(move |state, now| {
            let others = state.servers(now.time).filter(|(_, server)| server.settings != own);
            let view = |(name, server): (&str, &Server)| ServerView {
                server: name.to_owned(),
                settings: server.settings.clone(),
            };
            Seen {
                locks: state.lock_count(),
                waiting: state.waiter_count(),
                sessions: state.session_count(),
                differs: others.map(view).collect(),
            }
        });
        Ok(seen.await?)
    }
}

/// What a ledger says about itself.
#[derive(Default)]
struct Seen {
    locks: usize,
    waiting: usize,
    sessions: usize,
    differs: Vec<ServerView>,
}
