//! A crowd on few connections: nobody is forgotten, nothing leaks, and no two are inside at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_advisory::{AdvisoryLockError, Connection};

use crate::ground::{deep, eventually, held, namespace, pools, server};

const TASKS: i32 = 200;
/// Fewer than tasks, so that they meet.
const AGENTS: i32 = 40;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Beyond its timeout nobody waits longer than this: a busy machine may be late, a lost wake-up never comes.
const LATE_MAX: Duration = Duration::from_secs(5);

/// Whichever way a body ends, it is no longer inside.
struct Leaves<'a>(&'a AtomicBool);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Tally {
    done: AtomicU64,
    skipped: AtomicU64,
    timed_out: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_tasks_on_twenty_five_connections() {
    let server = server();
    let (pools, namespace) = (pools(&server), namespace());
    let inside: Arc<Vec<AtomicBool>> = Arc::new((0..AGENTS).map(|_| AtomicBool::new(false)).collect());
    let tally = Arc::new(Tally::default());
    let end = Instant::now() + Duration::from_secs(if deep() { 60 } else { 5 });
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (pools, inside, tally) = (pools.clone(), inside.clone(), tally.clone());
            tokio::spawn(async move {
                let mut turn = task;
                while Instant::now() < end {
                    turn = turn.wrapping_mul(31).wrapping_add(7) & 0xffff;
                    let agent = turn % AGENTS;
                    let work = async || {
                        let here = &inside[usize::try_from(agent).expect("small")];
                        assert!(!here.swap(true, Ordering::SeqCst), "two are inside of {agent}");
                        let _leaves = Leaves(here);
                        if turn % 3 == 0 {
                            pools.connection().await?.query_one("SELECT 1", &[]).await?;
                        }
                        anyhow::Ok(())
                    };
                    let began = Instant::now();
                    let ended = match turn % 5 {
                        0 => {
                            let skip = async |acquired| if acquired { work().await } else { count(&tally.skipped) };
                            pools.locks().lock_or_skip(namespace, agent).scope(skip).await
                        }
                        // With a connection of the application in hand, which serves the work, too.
                        1 => match pools.connection().await {
                            Ok(connection) => {
                                let alone = async || inside_with(&inside, agent, &connection).await;
                                pools.locks().lock(namespace, agent, TIMEOUT).scope(alone).await
                            }
                            Err(error) => Err(error.into()),
                        },
                        _ => pools.locks().lock(namespace, agent, TIMEOUT).scope(work).await,
                    };
                    // A connection and a lock are waited for one after the other.
                    let patience = Duration::from_secs(15) + TIMEOUT + LATE_MAX;
                    assert!(began.elapsed() < patience, "{:?}", began.elapsed());
                    match ended {
                        Ok(()) => drop(count(&tally.done)),
                        Err(error) => match error.downcast_ref() {
                            Some(AdvisoryLockError::Timeout { .. } | AdvisoryLockError::PoolTimeout { .. }) => {
                                drop(count(&tally.timed_out));
                            }
                            _ => panic!("{error:#}"),
                        },
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        let left = end.saturating_duration_since(Instant::now());
        tokio::time::timeout(left + Duration::from_secs(60), task).await.expect("no deadlock").expect("no panic");
    }
    let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
    let (done, skipped, timed_out) = (count(&tally.done), count(&tally.skipped), count(&tally.timed_out));
    assert!(done > 200 && timed_out < done / 10, "{done} done, {skipped} skipped, {timed_out} timed out");
    eventually("all places are free", || pools.free_places() == 25).await;
    eventually("nothing is held", || held(&server, namespace) == 0).await;
    eventually("the overflow is closed", || pools.open_connections() <= 15).await;
    assert_eq!(pools.open_connections(), pools.idle_connections(), "nothing has leaked");
}

async fn inside_with(inside: &[AtomicBool], agent: i32, connection: &Connection) -> anyhow::Result<()> {
    let here = &inside[usize::try_from(agent).expect("small")];
    assert!(!here.swap(true, Ordering::SeqCst), "two are inside of {agent}");
    let _leaves = Leaves(here);
    connection.query_one("SELECT 1", &[]).await?;
    Ok(())
}

#[allow(clippy::unnecessary_wraps, reason = "the other way out of a body has a result, too")]
fn count(of: &AtomicU64) -> anyhow::Result<()> {
    of.fetch_add(1, Ordering::SeqCst);
    Ok(())
}
