//! What is shown outside of the ledger, to clients that know nothing of it.

use lockkeeper_core::space::Space;
use lockkeeper_core::time::Millis;
use lockkeeper_engine::{Append, Batch, BatchId, Engine, EngineError, Ledger, Outside, Position, Redis, Shown};

use crate::server::RedisServer;

struct Shop {
    ledger: std::sync::Arc<dyn Ledger>,
    at: Position,
}

impl Shop {
    async fn open(server: &RedisServer) -> Shop {
        let space = Space::parse("shop").unwrap();
        let engine = Redis::open(&server.url()).await.unwrap().sharing(Some(space.clone())).await.unwrap();
        let ledger = engine.open(&space).await.unwrap();
        assert!(ledger.shows());
        assert!(!engine.open(&Space::parse("other").unwrap()).await.unwrap().shows(), "only that one");
        Shop { ledger, at: Position::ORIGIN }
    }

    async fn show(&mut self, name: &str, left: Option<u64>) -> Append {
        let shown = vec![Shown { name: name.to_owned(), left: left.map(Millis) }];
        let id = BatchId(u128::from(self.at.revision) + 1);
        let batch = Batch { id, payload: b"x".to_vec(), frees: false, awaited: true, shown, posted: Vec::new() };
        let append = self.ledger.append(self.at, self.ledger.now(), batch).await;
        if let Append::Appended(appended) = &append {
            self.at = appended.position;
        }
        append
    }
}

const NAME: &str = "lock:file:src/a.rs";

fn left(server: &RedisServer) -> i64 {
    server.ask(&["PTTL", NAME]).parse().unwrap()
}

#[tokio::test]
async fn a_name_is_shown_lengthened_and_removed_with_its_batch() {
    let server = RedisServer::start();
    let mut shop = Shop::open(&server).await;
    assert!(matches!(shop.show(NAME, Some(5000)).await, Append::Appended(_)));
    assert!((4000..=5000).contains(&left(&server)));
    assert_eq!(server.ask(&["SET", NAME, "mine", "NX", "PX", "1000"]), "(nil)", "it is taken");
    assert!(matches!(shop.show(NAME, Some(60_000)).await, Append::Appended(_)));
    assert!(left(&server) > 50_000);
    assert_eq!(shop.ledger.look_outside(vec![NAME.to_owned()]).await.unwrap(), [], "it is our own");
    assert!(matches!(shop.show(NAME, None).await, Append::Appended(_)));
    assert_eq!(server.ask(&["SET", NAME, "mine", "NX", "PX", "1000"]), "OK", "it is free");
}

#[tokio::test]
async fn what_somebody_else_has_keeps_a_batch_out_and_is_never_overwritten() {
    let server = RedisServer::start();
    let mut shop = Shop::open(&server).await;
    assert_eq!(server.ask(&["SET", NAME, "theirs", "PX", "5000"]), "OK");
    let Append::Taken(outside) = shop.show(NAME, Some(9000)).await else { panic!("it is taken") };
    let [Outside { name, left: Some(left) }] = outside.as_slice() else { panic!("{outside:?}") };
    assert!(name == NAME && (4000..=5000).contains(&left.0), "{outside:?}");
    assert_eq!(shop.ledger.read(Position::ORIGIN).await.unwrap().records, [], "nothing was recorded");
    // Whoever only gives back goes on, and theirs stays.
    assert!(matches!(shop.show(NAME, None).await, Append::Appended(_)));
    assert_eq!(server.ask(&["GET", NAME]), "theirs");
    assert_eq!(shop.ledger.look_outside(vec![NAME.to_owned(), "lock:file:b".to_owned()]).await.unwrap().len(), 1);
    // For longer than anybody lives: a number all the same.
    server.ask(&["SET", NAME, "theirs", "PX", "9000000000000000"]);
    let Append::Taken(outside) = shop.show(NAME, Some(9000)).await else { panic!("it is taken") };
    assert!(outside[0].left.is_some_and(|left| left.0 > 8_000_000_000_000_000), "{outside:?}");
    assert_eq!(shop.ledger.look_outside(vec![NAME.to_owned()]).await.unwrap().len(), 1);
    // For ever, and of another kind: taken all the same.
    server.ask(&["DEL", NAME]);
    server.ask(&["LPUSH", NAME, "odd"]);
    let Append::Taken(outside) = shop.show(NAME, Some(9000)).await else { panic!("it is taken") };
    assert_eq!(outside, [Outside { name: NAME.to_owned(), left: None }]);
}

#[tokio::test]
async fn a_cluster_shares_no_files() {
    let node = RedisServer::cluster_node();
    node.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    while !node.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let engine = Redis::open(&format!("redis+cluster://127.0.0.1:{}", node.port)).await.unwrap();
    let refused = engine.sharing(Some(Space::parse("shop").unwrap())).await.map(|_| ()).unwrap_err();
    assert!(matches!(&refused, EngineError::Invalid(why) if why.contains("redis.shared_space")), "{refused}");
}

#[tokio::test]
async fn a_writer_that_does_not_share_is_kept_out_of_a_ledger_that_does() {
    let server = RedisServer::start();
    let mut shop = Shop::open(&server).await;
    assert!(matches!(shop.show(NAME, Some(5000)).await, Append::Appended(_)));
    let space = Space::parse("shop").unwrap();
    let alone = Redis::open(&server.url()).await.unwrap().open(&space).await.unwrap();
    let batch = Batch {
        id: BatchId(9),
        payload: b"x".to_vec(),
        frees: false,
        awaited: true,
        shown: Vec::new(),
        posted: Vec::new(),
    };
    let append = alone.append(shop.at, alone.now(), batch).await;
    assert!(
        matches!(&append, Append::Down(EngineError::Invalid(why)) if why.contains("redis.shared_space")),
        "{append:?}"
    );
    assert!(matches!(shop.show(NAME, None).await, Append::Appended(_)), "nothing was recorded");
}
