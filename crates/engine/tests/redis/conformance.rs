//! The laws of every engine, on Redis.

use std::sync::Arc;

use lockkeeper_engine::conformance::{self, Builder};
use lockkeeper_engine::{Engine, Position, Record, Redis};

use crate::server::RedisServer;

struct InRedis(fn() -> RedisServer);

async fn open(server: &RedisServer) -> Arc<dyn Engine> {
    Arc::new(Redis::open(&server.url()).await.expect("opens"))
}

impl Builder for InRedis {
    type Guard = RedisServer;

    async fn build(&self) -> (RedisServer, Arc<dyn Engine>) {
        let server = (self.0)();
        let engine = open(&server).await;
        (server, engine)
    }

    async fn reopen(&self, server: &RedisServer) -> Arc<dyn Engine> {
        open(server).await
    }

    async fn beside(&self, server: &RedisServer) -> Option<Arc<dyn Engine>> {
        Some(open(server).await)
    }

    fn following(&self, before: Position, record: &Record) -> Position {
        Redis::following(before, record)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_in_memory_keeps_the_laws() {
    conformance::run(&InRedis(RedisServer::start)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_syncs_always_keeps_the_laws() {
    conformance::run(&InRedis(RedisServer::durable)).await;
}
