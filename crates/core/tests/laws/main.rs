//! The rules as laws: small stories told to a state, with time as an argument.

mod crowds;
mod external;
mod features;
mod grants;
mod house;
mod leases;
mod ports;
mod queue;
mod requests;
mod rooms;
mod sessions;
mod stories;
