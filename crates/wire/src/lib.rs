//! The words on the wire: bodies of requests and answers, error words, and the one table of operations that HTTP, the
//! socket, MCP, the client and the command line share. No behaviour.

pub mod answer;
pub mod frame;
pub mod number;
pub mod operation;
pub mod request;
pub mod word;
