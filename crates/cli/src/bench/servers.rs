//! Two servers of one ledger in this process, each with a thread of its own, as services have it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lockkeeper_core::space::Space;
use lockkeeper_engine::Durability;

use super::HAND_OVER_PAUSE;
use super::flood::Times;
use super::library::{Prepared, answer, keeper};

/// From a release through one server to the grant through another.
pub(super) fn hand_over(
    mut servers: [Server; 2],
    mut clients: Vec<Vec<Prepared>>,
    length: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<Times> {
    let mut times = Times::default();
    let began = Instant::now();
    if !servers[0].ask(&clients[0][0])?.recv()?.success? {
        bail!("the first lock was refused");
    }
    while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
        let waiting = servers[1].ask(&clients[1][0])?;
        std::thread::sleep(HAND_OVER_PAUSE);
        let released = servers[0].ask(&clients[0][1])?.recv()?;
        let granted = waiting.recv()?;
        if granted.success? && released.success? {
            times.rounds.push((granted.at - released.asked).as_nanos() as u64);
        } else {
            times.failed(|| "a hand-over was refused".to_owned());
        }
        clients.swap(0, 1);
        servers.swap(0, 1);
    }
    times.elapsed = began.elapsed();
    Ok(times)
}

/// A server of the ledger: one thread with all that it needs, as a service has it.
pub(super) struct Server {
    asked: tokio::sync::mpsc::UnboundedSender<(Prepared, std::sync::mpsc::Sender<Answered>)>,
}

/// Whether the answer was the expected one, when it was asked, and when it came.
struct Answered {
    success: anyhow::Result<bool>,
    asked: Instant,
    at: Instant,
}

impl Server {
    pub(super) fn start(engine: String, durability: Durability, space: Space) -> anyhow::Result<Server> {
        let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel::<(Prepared, std::sync::mpsc::Sender<Answered>)>();
        let (told, ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let (keeper, _) = keeper(&engine, durability, &space).await?;
                let _ = told.send(());
                while let Some((step, reply)) = asks.recv().await {
                    let asked = Instant::now();
                    let success = answer(&keeper, &step).await.map_err(anyhow::Error::from);
                    let _ = reply.send(Answered { success, asked, at: Instant::now() });
                }
                anyhow::Ok(())
            })
        });
        ready.recv().context("a server could not be started")?;
        Ok(Server { asked })
    }

    fn ask(&self, step: &Prepared) -> anyhow::Result<std::sync::mpsc::Receiver<Answered>> {
        let (reply, answered) = std::sync::mpsc::channel();
        self.asked.send((step.clone(), reply)).map_err(|_| anyhow::anyhow!("a server ended"))?;
        Ok(answered)
    }
}
