//! What a service promises, asked through every door, on every engine, and by several services on one: the same laws.

mod doors;
mod laws;
mod loss;
mod postgres_server;
#[path = "../../../engine/tests/redis/server.rs"]
mod redis_server;
mod restore;
mod settings;

use doors::{DoorKind, EngineKind, House};

macro_rules! suite {
    ($($name:ident: $engine:expr, $door:expr, $services:expr;)*) => {$(
        mod $name {
            use super::*;

            fn house() -> House {
                House::open($engine, $door, $services)
            }

            crate::laws!(house);
        }
    )*};
}

suite! {
    memory_api: EngineKind::Memory, DoorKind::Api, 1;
    memory_socket: EngineKind::Memory, DoorKind::Socket, 1;
    memory_http: EngineKind::Memory, DoorKind::Http, 1;
    file_api: EngineKind::File, DoorKind::Api, 1;
    file_socket: EngineKind::File, DoorKind::Socket, 1;
    file_http: EngineKind::File, DoorKind::Http, 1;
    interval_api: EngineKind::FileInterval, DoorKind::Api, 1;
    interval_socket: EngineKind::FileInterval, DoorKind::Socket, 1;
    interval_http: EngineKind::FileInterval, DoorKind::Http, 1;
    redis_api: EngineKind::Redis, DoorKind::Api, 1;
    redis_socket: EngineKind::RedisAlways, DoorKind::Socket, 1;
    redis_http: EngineKind::Redis, DoorKind::Http, 1;
    three_on_redis_api: EngineKind::Redis, DoorKind::Api, 3;
    three_on_redis_socket: EngineKind::Redis, DoorKind::Socket, 3;
    three_on_redis_http: EngineKind::RedisAlways, DoorKind::Http, 3;
    postgres_api: EngineKind::Postgres, DoorKind::Api, 1;
    postgres_http: EngineKind::PostgresAlways, DoorKind::Http, 1;
    three_on_postgres_socket: EngineKind::Postgres, DoorKind::Socket, 3;
}
