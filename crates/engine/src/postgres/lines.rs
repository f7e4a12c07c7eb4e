//! The connections that statements go over: a few, taken and given back; one on which something went wrong is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::dial::{Dial, Line};
use super::trouble;
use crate::EngineError;
use crate::remote::{Patience, Trouble};

/// How many statements are under way at once; each ledger has one writer.
const LINES_MAX: usize = 8;
/// How many bytes are given another second.
const BYTES_A_SECOND: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Lines {
    pub(super) dial: Arc<Dial>,
    idle: Mutex<Vec<Line>>,
    places: Semaphore,
    patience: Mutex<Patience>,
    is_durable: AtomicBool,
}

impl Lines {
    pub(super) fn new(dial: Arc<Dial>) -> Lines {
        Lines {
            dial,
            idle: Mutex::default(),
            places: Semaphore::new(LINES_MAX),
            patience: Mutex::default(),
            is_durable: AtomicBool::new(false),
        }
    }

    /// What it acknowledged survives power loss, as far as it was said when it was last connected to.
    pub(super) fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::Relaxed)
    }

    /// Runs statements on a connection of their own, and waits no longer than the limit; many bytes are given more.
    pub(super) async fn ask<T>(
        &self,
        bytes: usize,
        statement: impl AsyncFnOnce(&Line) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Trouble> {
        let place = &self.dial.address;
        let millis = self.dial.time_limit().as_millis();
        let late = || EngineError::Unreachable(format!("{place} has not answered within {millis} ms"));
        let waiting = tokio::time::timeout(self.dial.time_limit(), self.places.acquire());
        let _place = waiting.await.map_err(|_| Trouble::Unchanged(late()))?.expect("never closed");
        let line = self.line().await.map_err(Trouble::Unchanged)?;
        let time_limit = self.dial.time_limit() + Duration::from_millis(bytes as u64 * 1000 / BYTES_A_SECOND);
        let Ok(answer) = tokio::time::timeout(time_limit, statement(&line)).await else {
            // The connection is closed with it: an answer that comes after all must not be taken for another.
            return Err(Trouble::Late(late()));
        };
        let answer = answer.map_err(|error| (trouble::of(&error, place), trouble::is_missing(&error)));
        // One whose statement was refused is as good as before, unless the tables have to be made anew.
        if matches!(answer, Ok(_) | Err((Trouble::Unchanged(_) | Trouble::Full, false))) {
            self.idle.lock().expect("no holder panics").push(line);
        }
        answer.map_err(|(trouble, _)| trouble)
    }

    /// A connection that nobody uses; made, if there is none. As long as that has just failed, it is not tried again.
    async fn line(&self) -> Result<Line, EngineError> {
        while let Some(line) = self.idle.lock().expect("no holder panics").pop() {
            if !line.client.is_closed() {
                return Ok(line);
            }
        }
        if let Some(why) = self.patience.lock().expect("no holder panics").refusal() {
            return Err(why);
        }
        let made = self.dial.line().await;
        let mut patience = self.patience.lock().expect("no holder panics");
        let place = &self.dial.address;
        match &made {
            Ok(line) => {
                if patience.succeeded() {
                    tracing::info!(%place, "PostgreSQL is there again");
                }
                self.is_durable.store(line.facts.is_durable, Ordering::Relaxed);
            }
            Err(error) => {
                if patience.failed(error.clone()).1 {
                    tracing::warn!(%place, %error, "PostgreSQL can't be used; trying again and again");
                }
            }
        }
        made
    }
}
