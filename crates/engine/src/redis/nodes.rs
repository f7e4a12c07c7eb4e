//! Which Redis has the ledger of a space: always the same one, or one of a cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
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
    cluster: Mutex<Cluster>,
}

#[derive(Debug, Default)]
struct Cluster {
    /// Empty: to be asked for.
    owners: Vec<Owner>,
    learned: Option<Instant>,
    nodes: HashMap<Host, Arc<Node>>,
    patience: Patience,
}

impl Nodes {
    pub(super) fn new(dial: Dial) -> Nodes {
        let dial = Arc::new(dial);
        let single = match dial.address.kind {
            Kind::Single | Kind::Sentinel { .. } => Some(Arc::new(Node::new(dial.clone(), None))),
            Kind::Cluster => None,
        };
        Nodes { dial, single, cluster: Mutex::default() }
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
        let mut cluster = self.cluster.lock().await;
        self.learn(&mut cluster).await?;
        let owner = cluster.owners.iter().find(|(slots, _)| slots.contains(&slot)).map(|(_, host)| host.clone());
        let Some(host) = owner else {
            // Whoever mends the cluster need not wait for us to notice.
            cluster.owners.clear();
            let why = format!("no node of {} has slot {slot}; look at CLUSTER INFO", self.dial.address);
            return Err(Trouble::Unsent(crate::EngineError::Unreachable(why)));
        };
        Ok(cluster.nodes[&host].clone())
    }

    /// Every master.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Node>>, Trouble> {
        if let Some(single) = &self.single {
            return Ok(vec![single.clone()]);
        }
        let mut cluster = self.cluster.lock().await;
        self.learn(&mut cluster).await?;
        Ok(cluster.nodes.values().cloned().collect())
    }

    /// Files are shared with other clients: the user has to be allowed to, from now on.
    pub(super) async fn share(&self) -> Result<(), Trouble> {
        self.dial.share();
        for node in self.all().await? {
            node.hang_up().await;
            node.connection().await?;
        }
        Ok(())
    }

    /// A node was not the right one, or could not be reached: where everything is may have changed.
    pub(super) async fn doubt(&self) {
        let mut cluster = self.cluster.lock().await;
        if cluster.learned.is_none_or(|learned| learned.elapsed() > TRUSTED) {
            cluster.owners.clear();
        }
    }

    /// Asks the cluster who has what, if that is not known.
    async fn learn(&self, cluster: &mut Cluster) -> Result<(), Trouble> {
        if !cluster.owners.is_empty() {
            return Ok(());
        }
        if let Some(why) = cluster.patience.refusal() {
            return Err(Trouble::Unsent(why));
        }
        let known: Vec<Host> = cluster.nodes.keys().cloned().collect();
        match self.dial.owners(&known).await {
            Ok(owners) => {
                cluster.patience.succeeded();
                cluster.learned = Some(Instant::now());
                cluster.nodes.retain(|host, _| owners.iter().any(|(_, owner)| owner == host));
                for (_, host) in &owners {
                    let node = || Arc::new(Node::new(self.dial.clone(), Some(host.clone())));
                    cluster.nodes.entry(host.clone()).or_insert_with(node);
                }
                cluster.owners = owners;
                Ok(())
            }
            Err(error) => {
                cluster.patience.failed(error.clone());
                Err(Trouble::Unsent(error))
            }
        }
    }
}
