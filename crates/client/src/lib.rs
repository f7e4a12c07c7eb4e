//! A client for a Lockkeeper service: plain threads and blocking calls, so that a command starts and ends quickly.
//!
//! ```no_run
//! use lockkeeper_client::{Client, Endpoint, Holding, Identity};
//! use lockkeeper_wire::request::AcquireRequest;
//!
//! let endpoint = Endpoint::parse("unix:/run/user/1000/lockkeeper/socket", None)?;
//! let client = Client::connect(endpoint)?;
//! let me = Identity { session: "claude-7".into(), agent: "claude".into(), agent_type: None, space: None };
//! let wanted = AcquireRequest { file_path: Some("src/auth.rs".into()), ..AcquireRequest::default() };
//! let holding = Holding::acquire(client, &me, wanted)?;
//! // Work. The lock renews itself; `holding.next_lost()` says when it is gone all the same.
//! holding.release()?;
//! # Ok::<(), lockkeeper_client::Error>(())
//! ```

mod book;
mod boot_clock;
mod client;
mod endpoint;
mod error;
mod holding;
mod http;
mod lines;
pub mod ports;

pub use book::{Lost, Pause};
pub use client::{Client, Identity, Revive};
pub use endpoint::Endpoint;
pub use error::Error;
pub use holding::Holding;
pub use lines::{Answers, listens};
