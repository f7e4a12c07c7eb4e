//! The laws of advisory locks, tried on a real PostgreSQL.

mod circles;
mod crowd;
mod faults;
mod ground;
mod monitor;
mod pooler;
mod pools;
mod race;
mod reentry;
mod scenarios;
mod tls;
