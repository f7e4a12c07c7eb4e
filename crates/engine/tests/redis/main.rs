//! The Redis engine on a Redis of its own: the laws, and what happens when Redis does not behave.

mod conformance;
mod server;
