//! Real faults on the real program: it is killed, starved, lied to, crowded and fought over.
//!
//! `LOCKKEEPER_DEEP=1` makes the campaigns as long as they are promised to be.

#[path = "../cli/house.rs"]
#[allow(dead_code, reason = "each target takes what it needs of the house")]
mod house;

mod attack;
mod crowd;
mod disk;
mod excess;
mod fencing;
mod fight;
mod history;
mod kill;
mod model;
mod redis;
#[path = "../../../engine/tests/redis/server.rs"]
mod redis_server;
mod servers;
mod service;
mod shim;
mod site;
mod wall;
