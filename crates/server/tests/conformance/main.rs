//! What a service promises, asked through every door, on every engine: the same laws, nine times.

mod doors;
mod laws;

use doors::{DoorKind, EngineKind, House};

macro_rules! suite {
    ($($name:ident: $engine:expr, $door:expr;)*) => {$(
        mod $name {
            use super::*;

            fn house() -> House {
                House::open($engine, $door)
            }

            crate::laws!(house);
        }
    )*};
}

suite! {
    memory_api: EngineKind::Memory, DoorKind::Api;
    memory_socket: EngineKind::Memory, DoorKind::Socket;
    memory_http: EngineKind::Memory, DoorKind::Http;
    file_api: EngineKind::File, DoorKind::Api;
    file_socket: EngineKind::File, DoorKind::Socket;
    file_http: EngineKind::File, DoorKind::Http;
    interval_api: EngineKind::FileInterval, DoorKind::Api;
    interval_socket: EngineKind::FileInterval, DoorKind::Socket;
    interval_http: EngineKind::FileInterval, DoorKind::Http;
}
