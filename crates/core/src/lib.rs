//! The rules: who may hold what, in which order, and until when.
//!
//! Pure: no I/O, no clock, no async. [`State::decide`](state::State::decide) turns a command into events and an
//! outcome; [`State::apply`](state::State::apply) folds events. Everything else in the project carries them around.

mod apply;
pub mod command;
pub mod decide;
pub mod event;
pub mod feature;
pub mod history;
mod index;
mod journal;
pub mod key;
pub mod limits;
pub mod lock;
pub mod mode;
pub mod outcome;
pub mod planted;
pub mod policy;
pub mod ports;
pub mod servers;
pub mod session;
pub mod snapshot;
pub mod space;
pub mod span;
mod span_tree;
pub mod state;
pub mod text;
pub mod time;
pub mod waiter;

/// A map that is quick for short keys. Seeded anew in each process: nobody can choose keys that collide.
pub type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::quality::RandomState>;
