//! What is not whole any more is refused, and never taken for something else.

use lockkeeper_engine::conformance::Scribe;
use lockkeeper_engine::{EngineError, Position};
use lockkeeper_postgres_fixture::{Options, Postgres};

use crate::open;

async fn written(server: &Postgres, space: &str) -> Scribe {
    let mut scribe = Scribe::at_origin(&open(&server.url()).await, space).await;
    scribe.append_numbers(1, 10).await;
    scribe.ledger.compact(scribe.written[3].position, vec![5; 3 << 20]).await.expect("compacts");
    scribe
}

fn assert_damaged(error: EngineError, what: &str) {
    match error {
        EngineError::Corrupt { place, .. } => assert!(place.contains("the ledger of "), "{what}: {place}"),
        other => panic!("{what}: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_not_whole_is_refused() {
    let server = Postgres::start_with(&Options::quick());
    let damages = [
        "delete from lockkeeper_records where revision = 7 and ledger = ID",
        "update lockkeeper_records set payload = 'x' where revision = 7 and ledger = ID",
        "update lockkeeper_records set stamp = stamp + 1 where revision = 7 and ledger = ID",
        "update lockkeeper_records set digest = digest + 1 where revision = 10 and ledger = ID",
        "update lockkeeper_records set batch = 'x' where revision = 7 and ledger = ID",
        "update lockkeeper_snapshots set bytes = 'x' where part = 1 and ledger = ID",
        "delete from lockkeeper_snapshots where part = 1 and ledger = ID",
        "update lockkeeper_ledgers set base_digest = 5 where id = ID",
    ];
    for (index, damage) in damages.iter().enumerate() {
        let space = format!("s{index}");
        let scribe = written(&server, &space).await;
        let id = server.sql(&format!("select id from lockkeeper_ledgers where space = '{space}'"));
        server.sql(&damage.replace("ID", &id));
        assert_damaged(scribe.ledger.read(Position::ORIGIN).await.expect_err(damage), damage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_nobody_finished_go_by_themselves() {
    let server = Postgres::start_with(&Options::quick());
    let scribe = written(&server, "a").await;
    let parts = || server.sql("select count(distinct name) from lockkeeper_snapshots");
    assert_eq!(parts(), "1");
    let other = Position { digest: scribe.at.digest ^ 1, ..scribe.at };
    scribe.ledger.compact(other, vec![1; 2 << 20]).await.expect_err("no place of this ledger");
    scribe.ledger.compact(scribe.written[2].position, vec![1; 2 << 20]).await.expect("an older one is not needed");
    assert_eq!(parts(), "1");
    server.sql(
        "insert into lockkeeper_snapshots (ledger, name, part, stored, bytes)
         select id, 'left', 0, clock_timestamp() - interval '1 hour', 'x' from lockkeeper_ledgers",
    );
    scribe.ledger.compact(scribe.at, vec![1; 2 << 20]).await.expect("compacts");
    assert_eq!(parts(), "1", "the older snapshot is gone, and what was left");
    assert_eq!(server.sql("select count(*) from lockkeeper_records"), "0");
}
