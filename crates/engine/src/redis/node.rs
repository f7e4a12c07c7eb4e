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
    /// For what is light, and for the rest. Many ask on one at the same time; each is made when it is needed.
    light: Mutex<Line>,
    heavy: Mutex<Line>,
    is_durable: AtomicBool,
    pub(super) notices: Notices,
}

#[derive(Debug, Default)]
struct Line {
    connection: Option<Arc<Connection>>,
    patience: Patience,
}

impl Node {
    pub(super) fn new(dial: Arc<Dial>, host: Option<Host>) -> Node {
        let notices = Notices::start(dial.clone(), host.clone());
        let (light, heavy) = (Mutex::default(), Mutex::default());
        Node { dial, host, light, heavy, is_durable: AtomicBool::new(false), notices }
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
        let line = if bytes > LIGHT_BYTES_MAX { &self.heavy } else { &self.light };
        self.connection(line).await?.ask(command, bytes).await
    }

    /// Makes sure that it can be asked.
    pub(super) async fn connect(&self) -> Result<(), Trouble> {
        self.connection(&self.light).await.map(|_| ())
    }

    /// The connection, made and examined if there is none. As long as that has just failed, it is not tried again.
    async fn connection(&self, line: &Mutex<Line>) -> Result<Arc<Connection>, Trouble> {
        // Held while connecting: whoever comes meanwhile gets the same connection, or the same failure.
        let mut line = line.lock().await;
        if let Some(connection) = line.connection.as_ref().filter(|connection| !connection.is_gone()) {
            return Ok(connection.clone());
        }
        line.connection = None;
        if let Some(why) = line.patience.refusal() {
            return Err(Trouble::Unsent(why));
        }
        let place = &self.dial.address;
        match self.dial.command(self.host.as_ref()).await {
            Ok((connection, facts)) => {
                if line.patience.succeeded() {
                    tracing::info!(%place, host = %connection.host(), "Redis is there again");
                }
                self.is_durable.store(facts.is_durable, Ordering::Relaxed);
                let connection = Arc::new(connection);
                line.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                let (_, first) = line.patience.failed(error.clone());
                if first {
                    tracing::warn!(%place, %error, "Redis can't be used; trying again and again");
                }
                Err(Trouble::Unsent(error))
            }
        }
    }

    /// Looks for the right Redis anew before the next command.
    pub(super) async fn hang_up(&self) {
        for line in [&self.light, &self.heavy] {
            if let Some(connection) = line.lock().await.connection.take() {
                connection.give_up();
            }
        }
    }
}
