//! The policy in force: asked before anything is touched, and read anew without a pause.

use std::fmt;
use std::sync::{Arc, RwLock};

use lockkeeper_core::key::Key;
use lockkeeper_core::policy::{self, Ask, InvalidPolicy, Policy, PolicyText, Right, Trust, Verdict};
use lockkeeper_core::session::AgentName;
use lockkeeper_core::text::shell_word;
use lockkeeper_wire::answer::PolicyVerdict;
use lockkeeper_wire::operation::{Operation, TABLE};
use lockkeeper_wire::request::{Asker, PolicyCheckRequest};
use lockkeeper_wire::word::Word;

use super::{Body, Caller, Service, json};
use crate::door;
use crate::refusal::{No, sentence};

/// Reads the policy as it is written now; what is wrong with it, in words.
pub type ReadPolicy = Box<dyn Fn() -> Result<Policy, String> + Send + Sync>;

/// The policy that is asked, and where the next one comes from.
#[derive(Default)]
pub(super) struct PolicyInForce {
    now: RwLock<Arc<Policy>>,
    read: Option<ReadPolicy>,
}

impl fmt::Debug for PolicyInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyInForce").field("now", &self.now).finish_non_exhaustive()
    }
}

/// A policy that names only operations which there are.
pub fn policy(text: PolicyText) -> Result<Policy, InvalidPolicy> {
    Policy::new(text, &TABLE.each_ref().map(|row| row.name))
}

/// What an operation does, in the words of a policy.
pub(super) fn right_of(operation: Operation) -> Right {
    match operation {
        Operation::Check
        | Operation::Active
        | Operation::KeyStatus
        | Operation::History
        | Operation::Events
        | Operation::Sessions
        | Operation::Rooms
        | Operation::Status
        | Operation::Features
        | Operation::FeatureConflicts
        | Operation::PortsStatus
        | Operation::CheckPolicy
        | Operation::ValidatePackages
        | Operation::AdvisoryLocks => Right::Read,
        Operation::Acquire
        | Operation::Release
        | Operation::Renew
        | Operation::OpenSession
        | Operation::CloseSession
        | Operation::RestoreSession
        | Operation::AttachSession
        | Operation::OpenRoom
        | Operation::CloseRoom
        | Operation::RegisterFeature
        | Operation::EndFeature
        | Operation::PauseFeature
        | Operation::ResumeFeature
        | Operation::CheckFeature
        | Operation::AllocatePorts
        | Operation::ReleasePorts => Right::Write,
        Operation::ForceRelease | Operation::Audit | Operation::Stop | Operation::ReloadPolicy => Right::Admin,
    }
}

impl Service {
    /// Asks this policy from now on, and reads the next one there.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy, read: ReadPolicy) -> Service {
        self.policy = PolicyInForce { now: RwLock::new(Arc::new(policy)), read: Some(read) };
        self
    }

    fn policy_now(&self) -> Arc<Policy> {
        self.policy.now.read().expect("no holder panics").clone()
    }

    /// Reads the policy anew; its rules by name. A broken one changes nothing.
    pub(super) fn reload_policy(&self) -> Result<Vec<String>, No> {
        let Some(read) = &self.policy.read else { return Ok(Vec::new()) };
        let policy = read().map_err(|why| {
            No::new(Word::InvalidRequest, format!("{} The policy before stays in force.", sentence(&why)))
        })?;
        let rules = policy.rule_names().map(str::to_owned).collect();
        *self.policy.now.write().expect("no holder panics") = Arc::new(policy);
        Ok(rules)
    }

    /// As somebody outside asks for it, with a signal.
    pub fn reload(&self) {
        match self.reload_policy() {
            Ok(rules) => tracing::info!(rules = rules.len(), "the policy was read anew"),
            Err(no) => tracing::error!(message = no.body.message, "the policy can't be read"),
        }
    }

    /// Whether the policy permits an operation on each of the keys, or on none.
    pub(crate) fn permit<'k>(
        &self,
        operation: Operation,
        caller: &Caller,
        agent: Option<&AgentName>,
        keys: impl IntoIterator<Item = &'k Key>,
    ) -> Result<(), No> {
        let policy = self.policy_now();
        if policy.is_empty() && right_of(operation) != Right::Admin {
            return Ok(());
        }
        let mut keys = keys.into_iter().map(Some).peekable();
        let none = keys.peek().is_none().then_some(None);
        for key in keys.chain(none) {
            let verdict = judged(&policy, operation, caller, agent, key);
            if !verdict.allowed {
                return Err(not_permitted(&verdict, operation, agent, key));
            }
        }
        Ok(())
    }

    /// As [`Service::permit`], for whoever may look without saying who they are.
    pub(crate) fn permit_look(
        &self,
        operation: Operation,
        caller: &Caller,
        body: &impl Asker,
        key: Option<&Key>,
    ) -> Result<(), No> {
        let named = body.who().agent_id.map(AgentName::parse).transpose()?;
        self.permit(operation, caller, caller.agent.as_ref().or(named.as_ref()), key)
    }

    pub(super) fn check_policy(&self, body: &PolicyCheckRequest, caller: &Caller) -> Body {
        let word = body.operation.as_deref().unwrap_or("acquire");
        let Some(row) = TABLE.iter().find(|row| policy::names(word, row.name)) else {
            let known: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
            return Err(No::new(Word::InvalidRequest, format!("There is no operation '{}'.", door::shown(word)))
                .hint(format!("there are {}", known.join(", "))));
        };
        let key = body.file_path.as_deref().map(|path| door::key(Some(path))).transpose()?;
        let agent = match &body.agent_id {
            Some(agent) => Some(AgentName::parse(agent)?),
            None => caller.agent.clone(),
        };
        // Of the agent that is asked about: whoever asks may be the operator.
        let stranger = Caller { operator: false, ..caller.clone() };
        let mut verdict = judged(&self.policy_now(), row.operation, &stranger, agent.as_ref(), key.as_ref());
        let suspended = verdict.trust == Trust::SUSPENDED;
        if !verdict.allowed && !suspended && right_of(row.operation) == Right::Admin && verdict.rule == "trust" {
            verdict.because.push_str("; the local user and an operator's credential may do it all the same");
        }
        json(&PolicyVerdict {
            success: true,
            allowed: verdict.allowed,
            trust: verdict.trust.level(),
            message: sentence(&verdict.because),
            rule: verdict.rule,
        })
    }
}

/// Judges an operation, and the other one that it comes down to: a pause and a room keep others out as a lock does, and
/// whoever takes the key of a pause pauses.
fn judged(
    policy: &Policy,
    operation: Operation,
    caller: &Caller,
    agent: Option<&AgentName>,
    key: Option<&Key>,
) -> Verdict {
    let verdict = judged_alone(policy, operation, caller, agent, key);
    let also = match operation {
        Operation::PauseFeature | Operation::OpenRoom => Some(Operation::Acquire),
        Operation::Acquire if key.is_some_and(|key| key.paused_feature().is_some()) => Some(Operation::PauseFeature),
        _ => None,
    };
    match also.map(|also| judged_alone(policy, also, caller, agent, key)) {
        Some(other) if verdict.allowed && !other.allowed => other,
        Some(_) | None => verdict,
    }
}

fn judged_alone(
    policy: &Policy,
    operation: Operation,
    caller: &Caller,
    agent: Option<&AgentName>,
    key: Option<&Key>,
) -> Verdict {
    let (right, operator) = (right_of(operation), caller.operator);
    let own = matches!(
        operation,
        Operation::Release
            | Operation::Renew
            | Operation::AttachSession
            | Operation::CloseSession
            | Operation::CloseRoom
            | Operation::ReleasePorts
            | Operation::ResumeFeature
    );
    policy.judge(&Ask { agent, operation: operation.row().name, right, operator, own, key })
}

fn not_permitted(verdict: &Verdict, operation: Operation, agent: Option<&AgentName>, key: Option<&Key>) -> No {
    let who = agent.map_or_else(|| "Whoever asks".to_owned(), ToString::to_string);
    let about = key.map_or_else(String::new, |key| format!(" with {key}"));
    let name = operation.row().name;
    let mut no =
        No::new(Word::OperationNotPermitted, format!("{who} may not do that{about} ({name}): {}.", verdict.because));
    no.body.reason = Some(verdict.rule.clone());
    let key = key.map_or_else(String::new, |key| format!(" {}", shell_word(key.as_str())));
    let agent = agent.map_or_else(String::new, |agent| format!(" --agent {}", shell_word(agent.as_str())));
    no.hint(format!("lockkeeper policy check{key} --operation {name}{agent}"))
}
