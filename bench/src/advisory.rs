//! Advisory locks of PostgreSQL: by the library, and by the two statements as they are, over connections that are kept.

use std::time::Instant;

use lockkeeper_advisory::{Address, LockNamespace, Locks};
use tokio::task::JoinSet;

use crate::Load;
use crate::flood::Times;
use crate::postgres::{connect, runtime};

pub(crate) fn bare(place: &str, load: Load) -> anyhow::Result<Times> {
    runtime()?.block_on(async {
        let mut clients = Vec::new();
        for number in 0..i32::try_from(load.clients)? {
            let client = connect(place).await?;
            let lock = client.prepare("SELECT pg_advisory_lock($1::int, $2::int)").await?;
            let unlock = client.prepare("SELECT pg_advisory_unlock($1::int, $2::int)").await?;
            clients.push((number, client, lock, unlock));
        }
        let mut tasks = JoinSet::new();
        let end = Instant::now() + load.length();
        for (number, client, lock, unlock) in clients {
            tasks.spawn(async move {
                let mut rounds = Vec::new();
                loop {
                    let began = Instant::now();
                    client.execute(&lock, &[&1_i32, &number]).await?;
                    let held: bool = client.query_one(&unlock, &[&1_i32, &number]).await?.get(0);
                    anyhow::ensure!(held, "it was not held");
                    if Instant::now() > end {
                        return Ok(rounds);
                    }
                    rounds.push(began.elapsed().as_nanos() as u64);
                }
            });
        }
        gathered(tasks, load).await
    })
}

pub(crate) fn library(place: &str, load: Load) -> anyhow::Result<Times> {
    runtime()?.block_on(async {
        let locks = Locks::open(Address::parse(place)?, load.clients)?;
        // All connections are made before the clock runs.
        let mut guards = Vec::new();
        for number in 0..i32::try_from(load.clients)? {
            guards.push(locks.lock(LockNamespace::AGENT, number, None).await?);
        }
        for guard in guards {
            guard.release().await?;
        }
        let mut tasks = JoinSet::new();
        let end = Instant::now() + load.length();
        for number in 0..i32::try_from(load.clients)? {
            let locks = locks.clone();
            tasks.spawn(async move {
                let mut rounds = Vec::new();
                loop {
                    let began = Instant::now();
                    locks.lock(LockNamespace::AGENT, number, None).scope(async || anyhow::Ok(())).await?;
                    if Instant::now() > end {
                        return Ok(rounds);
                    }
                    rounds.push(began.elapsed().as_nanos() as u64);
                }
            });
        }
        gathered(tasks, load).await
    })
}

async fn gathered(mut tasks: JoinSet<anyhow::Result<Vec<u64>>>, load: Load) -> anyhow::Result<Times> {
    let mut all = Times { elapsed: load.length(), ..Times::default() };
    while let Some(times) = tasks.join_next().await {
        all.rounds.extend(times??);
    }
    Ok(all)
}
