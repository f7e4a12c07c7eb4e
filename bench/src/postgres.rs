//! PostgreSQL: a row with a lease, and advisory locks; one connection a client, statements prepared.

use std::time::Instant;

use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

use crate::flood::Times;
use crate::{HAND_OVER_PAUSE, Load};

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS leases (key text PRIMARY KEY, token text NOT NULL, expires timestamptz NOT NULL)";
const ACQUIRE: &str = "INSERT INTO leases VALUES ($1, $2, now() + interval '30 s') ON CONFLICT (key) DO UPDATE \
    SET token = excluded.token, expires = excluded.expires WHERE leases.expires < now()";
const RELEASE: &str = "DELETE FROM leases WHERE key = $1 AND token = $2";

pub(crate) async fn connect(place: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(place, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// One thread, as every load has: the rest of the machine is the server's.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

pub(crate) fn pairs(place: &str, load: Load) -> anyhow::Result<Times> {
    runtime()?.block_on(async {
        connect(place).await?.batch_execute(TABLE).await?;
        let mut clients = Vec::new();
        for number in 0..load.clients {
            let client = connect(place).await?;
            let statements = (client.prepare(ACQUIRE).await?, client.prepare(RELEASE).await?);
            clients.push((number, client, statements));
        }
        let mut tasks = JoinSet::new();
        let end = Instant::now() + load.length();
        for (number, client, statements) in clients {
            tasks.spawn(ask_in_turn(number, client, statements, end));
        }
        let mut all = Times { elapsed: load.length(), ..Times::default() };
        while let Some(times) = tasks.join_next().await {
            all.rounds.extend(times??);
        }
        Ok(all)
    })
}

async fn ask_in_turn(
    number: usize,
    client: Client,
    (acquire, release): (Statement, Statement),
    end: Instant,
) -> anyhow::Result<Vec<u64>> {
    let (key, token) = (format!("src/file-{number}.rs"), format!("token-{number}"));
    let mut rounds = Vec::new();
    loop {
        let began = Instant::now();
        for statement in [&acquire, &release] {
            let rows = client.execute(statement, &[&key, &token]).await?;
            anyhow::ensure!(rows == 1, "{rows} rows changed");
        }
        if Instant::now() > end {
            return Ok(rounds);
        }
        rounds.push(began.elapsed().as_nanos() as u64);
    }
}

pub(crate) fn hand_over(place: &str, load: Load) -> anyhow::Result<Times> {
    runtime()?.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..2 {
            let client = connect(place).await?;
            let lock = client.prepare("SELECT pg_advisory_lock(1)").await?;
            let unlock = client.prepare("SELECT pg_advisory_unlock(1)").await?;
            clients.push((std::sync::Arc::new(client), lock, unlock));
        }
        let (holder, lock, _) = &clients[0];
        holder.query_one(lock, &[]).await?;
        let mut times = Times::default();
        let began = Instant::now();
        while began.elapsed() < load.length() {
            let (waiter, lock) = (clients[1].0.clone(), clients[1].1.clone());
            let waits = tokio::spawn(async move { waiter.query_one(&lock, &[]).await.map(|_| Instant::now()) });
            tokio::time::sleep(HAND_OVER_PAUSE).await;
            let asked = Instant::now();
            let (holder, _, unlock) = &clients[0];
            let released: bool = holder.query_one(unlock, &[]).await?.get(0);
            anyhow::ensure!(released, "it was not held");
            times.rounds.push((waits.await?? - asked).as_nanos() as u64);
            clients.swap(0, 1);
        }
        times.elapsed = began.elapsed();
        Ok(times)
    })
}
