//! Which Redis has the ledger of a space: always the same one, or one of a cluster.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::address::{Host, Kind};
use super::dial::{Dial, Owner};
use super::node::Node;
use super::trouble::Trouble;
use crate::remote::Patience;

/// How long nobody asks a cluster again who has what.
const TRUSTED: Duration = Duration::from_millis(100);

/// All that a URL leads to.
#[derive(Debug)]
pub(super) struct Nodes {
    dial: Arc<Dial>,
    /// None: a cluster.
    single: Option<Arc<Node>>,
    /// What is known of a cluster. Never held while somebody is asked.
    cluster: Mutex<Cluster>,
    /// Held while a cluster is asked who has what: whoever needs it meanwhile gets the same answer.
    learning: tokio::sync::Mutex<Patience>,
}

#[derive(Debug, Default)]
struct Cluster {
    /// Empty: to be asked for.
    owners: Vec<Owner>,
    learned: Option<Instant>,
    nodes: HashMap<Host, Arc<Node>>,
    /// Those that did not answer, or not for what they were asked, since that was learned.
    doubted: HashSet<Host>,
    /// Who told it.
    told_by: Option<Host>,
}

impl Cluster {
    /// The node that has a slot; none, if that has to be asked for.
    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let (_, host) = self.owners.iter().find(|(slots, _)| slots.contains(&slot))?;
        self.nodes.get(host).filter(|_| !self.doubted.contains(host)).cloned()
    }

    /// Whom to ask: first who told it the last time, last who did not answer.
    fn hosts(&self, named: &[Host]) -> Vec<Host> {
        let mut hosts: Vec<Host> = Vec::new();
        for host in self.told_by.iter().chain(named).chain(self.nodes.keys()) {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        hosts.sort_by_key(|host| self.doubted.contains(host));
        hosts
    }
}

impl Nodes {
    pub(super) fn new(dial: Dial) -> Nodes {
        let dial = Arc::new(dial);
        let single = match dial.address.kind {
            Kind::Single | Kind::Sentinel { .. } => Some(Arc::new(Node::new(dial.clone(), None))),
            Kind::Cluster => None,
        };
        Nodes { dial, single, cluster: Mutex::default(), learning: tokio::sync::Mutex::default() }
    }

    pub(super) fn place(&self) -> String {
        self.dial.address.to_string()
    }

    pub(super) fn time_limit(&self) -> Duration {
        self.dial.time_limit()
    }

    pub(super) fn database(&self) -> u16 {
        self.dial.address.database
    }

    /// Whether failing over loses nothing that was acknowledged: only where nothing fails over.
    pub(super) fn is_durable(&self) -> bool {
        self.single.as_ref().is_some_and(|node| node.is_durable())
    }

    /// Whether keys may lie on different nodes.
    pub(super) fn are_many(&self) -> bool {
        self.single.is_none()
    }

    /// The node that has a slot.
    pub(super) async fn of(&self, slot: u16) -> Result<Arc<Node>, Trouble> {
        if let Some(single) = &self.single {
            return Ok(single.clone());
        }
        if let Some(node) = self.cluster().owner(slot) {
            return Ok(node);
        }
        self.learn(Some(slot)).await?;
        let cluster = self.cluster();
        let owner = cluster.owners.iter().find(|(slots, _)| slots.contains(&slot));
        // One that was doubted again meanwhile is asked all the same: nobody else has it.
        owner.and_then(|(_, host)| cluster.nodes.get(host)).cloned().ok_or_else(|| {
            let why = format!("no node of {} has slot {slot}; look at CLUSTER INFO", self.dial.address);
            Trouble::Unsent(crate::EngineError::Unreachable(why))
        })
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().expect("no holder panics")
    }

    /// Every master.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Node>>, Trouble> {
        if let Some(single) = &self.single {
            return Ok(vec![single.clone()]);
        }
        self.learn(None).await?;
        Ok(self.cluster().nodes.values().cloned().collect())
    }

    /// Files are shared with other clients: the user has to be allowed to, from now on.
    pub(super) async fn share(&self) -> Result<(), Trouble> {
        self.dial.share();
        for node in self.all().await? {
            node.hang_up().await;
            node.connect().await?;
        }
        Ok(())
    }

    /// A node was not the right one, or could not be reached: who has what it had may have changed. What others have has
    /// not.
    pub(super) fn doubt(&self, node: &Node) {
        let mut cluster = self.cluster();
        if let Some(host) = node.host().filter(|_| cluster.learned.is_none_or(|learned| learned.elapsed() > TRUSTED)) {
            cluster.doubted.insert(host.clone());
        }
    }

    /// Asks the cluster who has what, if that is not known; for a slot, if it is not known who has that.
    async fn learn(&self, slot: Option<u16>) -> Result<(), Trouble> {
        let mut patience = self.learning.lock().await;
        let hosts = {
            let cluster = self.cluster();
            // Somebody else may have asked meanwhile.
            let known = slot.map_or(!cluster.owners.is_empty(), |slot| cluster.owner(slot).is_some());
            if known {
                return Ok(());
            }
            cluster.hosts(&self.dial.address.hosts)
        };
        if let Some(why) = patience.refusal() {
            return Err(Trouble::Unsent(why));
        }
        match self.dial.owners(&hosts).await {
            Ok((owners, told_by)) => {
                patience.succeeded();
                let mut cluster = self.cluster();
                cluster.learned = Some(Instant::now());
                cluster.nodes.retain(|host, _| owners.iter().any(|(_, owner)| owner == host));
                for (_, host) in &owners {
                    let node = || Arc::new(Node::new(self.dial.clone(), Some(host.clone())));
                    cluster.nodes.entry(host.clone()).or_insert_with(node);
                }
                cluster.doubted.clear();
                cluster.told_by = Some(told_by);
                cluster.owners = owners;
                Ok(())
            }
            Err(error) => {
                patience.failed(error.clone());
                Err(Trouble::Unsent(error))
            }
        }
    }
}
