//! A cluster of three: each space lies on one of its nodes, and may move to another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_engine::conformance::{self, Builder, Scribe};
use lockkeeper_engine::{Engine, Position, Record, Redis, Strength};

use crate::server::RedisServer;
use crate::{insist, open, records};

struct Cluster(Vec<RedisServer>);

impl Cluster {
    fn start() -> Cluster {
        let nodes: Vec<RedisServer> = (0..3).map(|_| RedisServer::cluster_node()).collect();
        for (node, slots) in nodes.iter().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]]) {
            assert_eq!(node.ask(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]), "OK");
        }
        for node in &nodes[1..] {
            let bus = node.ask(&["CONFIG", "GET", "cluster-port"]).lines().nth(1).expect("a port").to_owned();
            let port = node.port.to_string();
            assert_eq!(nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]), "OK");
        }
        let cluster = Cluster(nodes);
        let give_up = Instant::now() + Duration::from_secs(30);
        while !cluster.0.iter().all(|node| node.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok")) {
            assert!(Instant::now() < give_up, "the nodes do not find each other");
            std::thread::sleep(Duration::from_millis(50));
        }
        cluster
    }

    /// Names one node only: the others are found.
    fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{}", self.0[1].port)
    }

    fn flush(&self) {
        for node in &self.0 {
            node.ask(&["FLUSHALL"]);
        }
    }

    /// The place of the node that has a slot.
    fn owner(&self, slot: &str) -> usize {
        let owns = |node: &RedisServer| node.ask(&["CLUSTER", "COUNTKEYSINSLOT", slot]) != "0";
        self.0.iter().position(owns).expect("somebody has it")
    }
}

impl Builder for Cluster {
    type Guard = ();

    async fn build(&self) -> ((), Arc<dyn Engine>) {
        self.flush();
        ((), open(&self.url()).await)
    }

    async fn reopen(&self, (): &()) -> Arc<dyn Engine> {
        open(&self.url()).await
    }

    async fn beside(&self, (): &()) -> Option<Arc<dyn Engine>> {
        Some(open(&self.url()).await)
    }

    fn following(&self, before: Position, record: &Record) -> Position {
        Redis::following(before, record)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_the_laws_and_follows_a_space_that_moves() {
    let cluster = Cluster::start();
    conformance::run(&cluster).await;
    cluster.flush();
    spaces_are_spread(&cluster).await;
    cluster.flush();
    a_space_moves(&cluster).await;
}

/// A cluster that serves what it has though a node is away, and a space on each of its nodes.
fn incomplete() -> (Cluster, Vec<Vec<String>>) {
    let cluster = Cluster::start();
    for node in &cluster.0 {
        assert_eq!(node.ask(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]), "OK");
    }
    let mut spaces = vec![Vec::new(); 3];
    for number in 0..100 {
        let slot = cluster.0[0].ask(&["CLUSTER", "KEYSLOT", &format!("{{s{number}}}")]);
        let slot: usize = slot.parse().expect("a number");
        spaces[(slot / 5461).min(2)].push(format!("s{number}"));
    }
    (cluster, spaces)
}

/// A space whose node is there again is, too, before long.
async fn is_served(engine: &Arc<dyn Engine>, space: &str) {
    let name = lockkeeper_core::space::Space::parse(space).expect("a name");
    let give_up = Instant::now() + Duration::from_secs(10);
    while let Err(error) = engine.open(&name).await {
        assert!(Instant::now() < give_up, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    insist(&mut Scribe::at_origin(engine, space).await, b"there again").await;
}

/// What nobody who has nothing to do with a node that is away may notice of it.
const UNNOTICED: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_keeps_nobody_waiting_who_does_not_need_it() {
    let (cluster, spaces) = incomplete();
    // The node that the URL names is the one that goes away.
    let (here, there) = (&spaces[0], &spaces[1]);
    let engine = open(&cluster.url()).await;
    let mut alive = Scribe::at_origin(&engine, &here[0]).await;
    let mut dead = Scribe::at_origin(&engine, &there[0]).await;
    alive.append(b"x").await;
    dead.append(b"x").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.0[1].pause();
    let others = tokio::spawn({
        let (engine, there) = (engine.clone(), there.clone());
        async move {
            // Somebody who needs it, and somebody who opens what lies there.
            let opening = async {
                for space in &there[1..4] {
                    let _ = engine.open(&lockkeeper_core::space::Space::parse(space).expect("a name")).await;
                }
            };
            let asking = async {
                for _ in 0..3 {
                    let _ = dead.try_append(b"y").await;
                }
            };
            tokio::join!(opening, asking);
        }
    });
    let mut new = 1;
    while !others.is_finished() {
        let began = Instant::now();
        alive.append(b"y").await;
        assert!(began.elapsed() < UNNOTICED, "a ledger of another node waited for {:?}", began.elapsed());
        if new < 10 {
            let began = Instant::now();
            Scribe::at_origin(&engine, &here[new]).await;
            assert!(began.elapsed() < UNNOTICED, "one that is opened waited for {:?}", began.elapsed());
            new += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(new, 10, "it was away for a while");
    cluster.0[1].resume();
    is_served(&engine, &there[5]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_opened_though_a_node_is_away() {
    let (cluster, spaces) = incomplete();
    cluster.0[2].pause();
    let engine = open(&cluster.url()).await;
    Scribe::at_origin(&engine, &spaces[0][0]).await.append(b"x").await;
    cluster.0[2].resume();
    is_served(&engine, &spaces[2][0]).await;
}

async fn spaces_are_spread(cluster: &Cluster) {
    let engine = open(&cluster.url()).await;
    for space in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        Scribe::at_origin(&engine, space).await.append(b"x").await;
    }
    assert_eq!(engine.spaces().await.expect("lists").len(), 8);
    assert!(cluster.0.iter().all(|node| node.ask(&["DBSIZE"]) != "0"), "every node has some of them");
}

async fn a_space_moves(cluster: &Cluster) {
    let engine = open(&cluster.url()).await;
    let mut scribe = Scribe::at_origin(&engine, "a").await;
    assert_eq!(scribe.ledger.strength(), Strength::BestEffort);
    scribe.append_numbers(1, 10).await;
    scribe.ledger.compact(scribe.written[4].position, vec![1; 2 << 20]).await.expect("compacts");
    let slot = cluster.0[0].ask(&["CLUSTER", "KEYSLOT", "lockkeeper:{a}:head"]);
    let from = cluster.owner(&slot);
    let to = (from + 1) % 3;
    let id = |place: usize| cluster.0[place].ask(&["CLUSTER", "MYID"]);
    let (from_id, to_id) = (id(from), id(to));
    cluster.0[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    cluster.0[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    let keys = cluster.0[from].ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    let port = cluster.0[to].port.to_string();
    for key in keys.lines() {
        assert_eq!(cluster.0[from].ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]), "OK", "{key}");
    }
    for place in [to, from, (from + 2) % 3] {
        assert_eq!(cluster.0[place].ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]), "OK");
    }
    assert_eq!(cluster.owner(&slot), to);
    insist(&mut scribe, b"at the other node").await;
    let delta = scribe.read(scribe.written[4].position).await;
    assert_eq!(delta.records, scribe.written[5..]);
    // Changes are heard from there.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut writer = Scribe::at_origin(&open(&cluster.url()).await, "a").await;
    writer.at = scribe.at;
    let mut moved = scribe.ledger.moved();
    let began = Instant::now();
    writer.append(b"news").await;
    moved.wait_for(|moved| *moved == 12).await.expect("lives");
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    let _ = records(&Scribe::at_origin(&engine, "never written").await).await;
}
