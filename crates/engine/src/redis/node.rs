//! One Redis that is asked: its connections, made anew when they are lost, and what it tells by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Value};
use tokio::sync::Mutex;

use super::address::Host;
use super::connection::Connection;
use super::dial::Dial;
use super::notices::Notices;
use super::trouble::Trouble;
use crate::remote::Patience;

/// What is larger goes by a way of its own: on a slow line, nobody's lock waits behind a snapshot.
const LIGHT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Node {
    dial: Arc<Dial>,
    /// None: whichever is the master when a connection is made.
    host: Option<Host>,
    lines: Mutex<Lines>,
    is_durable: AtomicBool,
    pub(super) notices: Notices,
}

/// Many ask on one at the same time. Both lead to the same Redis, and none outlives the other: which one is the master is asked once.
#[derive(Debug, Default)]
struct Lines {
    light: Option<Arc<Connection>>,
    /// For what is large; made when it is needed.
    heavy: Option<Arc<Connection>>,
    patience: Patience,
}

impl Lines {
    fn hang_up(&mut self) {
        for connection in [self.light.take(), self.heavy.take()].into_iter().flatten() {
            connection.give_up();
        }
    }
}

impl Node {
    pub(super) fn new(dial: Arc<Dial>, host: Option<Host>) -> Node {
        let notices = Notices::start(dial.clone(), host.clone());
        Node { dial, host, lines: Mutex::default(), is_durable: AtomicBool::new(false), notices }
    }

    /// None: whichever is the master.
    pub(super) fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// What it acknowledged survives power loss, as far as it was said when it was last connected to.
    pub(super) fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::Relaxed)
    }

    pub(super) async fn ask(&self, command: &Cmd, bytes: usize) -> Result<Value, Trouble> {
        self.connection(bytes > LIGHT_BYTES_MAX).await?.ask(command, bytes).await
    }

    /// Makes sure that it can be asked.
    pub(super) async fn connect(&self) -> Result<(), Trouble> {
        self.connection(false).await.map(|_| ())
    }

    /// The connection, made and examined if there is none. As long as that has just failed, it is not tried again.
    async fn connection(&self, is_heavy: bool) -> Result<Arc<Connection>, Trouble> {
        // Held while connecting: whoever comes meanwhile gets the same connection, or the same failure.
        let mut lines = self.lines.lock().await;
        if [&lines.light, &lines.heavy].into_iter().flatten().any(|connection| connection.is_gone()) {
            lines.hang_up();
        }
        if lines.light.is_none() {
            lines.light = Some(self.dialled(&mut lines.patience, self.host.as_ref()).await?);
        }
        if is_heavy
            && lines.heavy.is_none()
            && let Some(host) = lines.light.as_ref().map(|light| light.host().clone())
        {
            lines.heavy = Some(self.dialled(&mut lines.patience, Some(&host)).await?);
        }
        let line = if is_heavy { &lines.heavy } else { &lines.light };
        Ok(line.clone().expect("just made"))
    }

    async fn dialled(&self, patience: &mut Patience, host: Option<&Host>) -> Result<Arc<Connection>, Trouble> {
        if let Some(why) = patience.refusal() {
            return Err(Trouble::Unsent(why));
        }
        let place = &self.dial.address;
        match self.dial.command(host).await {
            Ok((connection, facts)) => {
                if patience.succeeded() {
                    tracing::info!(%place, host = %connection.host(), "Redis is there again");
                }
                self.is_durable.store(facts.is_durable, Ordering::Relaxed);
                Ok(Arc::new(connection))
            }
            Err(error) => {
                let (_, first) = patience.failed(error.clone());
                if first {
                    tracing::warn!(%place, %error, "Redis can't be used; trying again and again");
                }
                Err(Trouble::Unsent(error))
            }
        }
    }

    /// Looks for the right Redis anew before the next command.
    pub(super) async fn hang_up(&self) {
        self.lines.lock().await.hang_up();
    }
}
