//! The doors of a service: a private socket, HTTP and MCP, all of which lead to one [`service::Service`].

mod admission;
pub mod auth;
mod binding;
mod door;
mod http;
mod lane;
pub mod mcp;
mod mcp_text;
mod openapi;
mod outgoing;
mod refusal;
pub mod serve;
pub mod service;
mod socket;
mod spaces;
mod stream;
mod turns;
mod view;
mod written;

pub use openapi::document as openapi_document;
