//! What a Redis or a PostgreSQL may send, also one that lies: it is understood or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    lockkeeper_engine::fuzzing::read_from_redis(bytes);
    lockkeeper_engine::fuzzing::read_from_postgres(bytes);
});
