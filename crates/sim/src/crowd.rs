//! Very many servers on one ledger, some with a short way to it and some with a long one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_core::command::{Command, Which};
use lockkeeper_core::key::{Key, Target};
use lockkeeper_core::outcome::Answer;
use lockkeeper_core::session::SessionId;
use lockkeeper_core::span::Span;
use lockkeeper_core::state::Rules;
use lockkeeper_keeper::settings::Settings;

use crate::air::Air;
use crate::link::Store;
use crate::server::{Reply, Server};
use crate::weather::Weather;
use crate::wishes::{actor, wanting};

/// How one server of a crowd fared.
#[derive(Clone, Copy, Debug)]
pub struct Fared {
    /// The longest way to the ledger, in milliseconds.
    pub way: u64,
    /// Locks that were acquired and released.
    pub pairs: u64,
    /// The longest that anybody waited for an answer, in milliseconds.
    pub longest: u64,
}

/// Lets so many servers work on one ledger for so long: one client each, which always wants something.
pub fn crowd(seed: u64, servers: usize, time: Duration) -> Vec<Fared> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let air = Arc::new(Air::new(Weather::fair(), Rng::with_seed(seed)));
        let store = Store::new(air.clone()).await;
        let mut fared = Vec::new();
        for number in 0..servers as u64 {
            let rules = Rules { quota_limit: 0, ..Rules::default() };
            let settings = Settings { rules, writer: Some(number + 1), has_threads: false, ..Settings::default() };
            // A tenth of them is five times as far away as the others.
            let way = if number % 10 == 0 { 10 } else { 2 };
            let server = Server::new(store.clone(), settings, way);
            assert!(server.start().await, "nothing goes wrong on such a day");
            let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
            tokio::spawn(work(number, server, air.clone(), counts.clone()));
            fared.push((way, counts));
        }
        tokio::time::sleep(time).await;
        let told = fared.iter().map(|(way, counts)| Fared {
            way: *way,
            pairs: counts.0.load(Ordering::Relaxed),
            longest: counts.1.load(Ordering::Relaxed),
        });
        told.collect()
    })
}

async fn work(number: u64, server: Server, air: Arc<Air>, counts: Arc<(AtomicU64, AtomicU64)>) {
    let session = SessionId::parse(&format!("s{number}")).expect("a session");
    let key = Key::parse(&format!("src/{number}.rs")).expect("a key");
    let target = Target::new(key, Span::WHOLE).expect("a target");
    loop {
        let (actor, which) = (actor(&session), Which::Everything);
        for command in [wanting(&session, &target), Command::Release { actor, which, token: None, request: None }] {
            let sent = air.now();
            let reply = server.ask(command, false).await;
            assert!(matches!(reply, Reply::Said(Ok(Answer::Granted { .. } | Answer::Released { .. }))), "{reply:?}");
            counts.1.fetch_max((air.now() - sent) / 1000, Ordering::Relaxed);
        }
        counts.0.fetch_add(1, Ordering::Relaxed);
    }
}
