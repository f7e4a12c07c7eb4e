//! The program as people and agents use it: real processes, real sockets, real signals.

mod advisory;
mod bench;
#[path = "../../../engine/tests/certificates/mod.rs"]
mod certificates;
mod config;
mod crash;
mod doors;
mod features;
mod folders;
mod house;
mod kind;
mod locks;
mod mcp;
mod packages;
mod proof;
mod readme;
#[path = "../../../engine/tests/redis/server.rs"]
mod redis_server;
mod run;
mod security;
mod slips;
mod spans;
