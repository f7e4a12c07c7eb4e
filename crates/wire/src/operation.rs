//! The one table of operations: HTTP routes, socket names, OpenAPI and the client come from it.

use schemars::{Schema, SchemaGenerator};

use crate::{answer, request};

/// Something that a service does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Acquire,
    Release,
    Renew,
    ForceRelease,
    Check,
    Active,
    KeyStatus,
    History,
    Events,
    OpenSession,
    CloseSession,
    RestoreSession,
    AttachSession,
    Sessions,
    OpenRoom,
    CloseRoom,
    Rooms,
    Audit,
    Status,
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

/// Who may ask on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Anybody,
    Credential,
    Operator,
    /// Only over the socket.
    Local,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The path without its leading slash; the name on the socket.
    pub name: &'static str,
    pub method: Method,
    pub access: Access,
    pub summary: &'static str,
    pub request: fn(&mut SchemaGenerator) -> Schema,
    pub answer: fn(&mut SchemaGenerator) -> Schema,
    /// Answers with a stream of server-sent events.
    pub streams: bool,
}

impl Operation {
    pub const ALL: [Operation; 20] = [
        Operation::Acquire,
        Operation::Release,
        Operation::Renew,
        Operation::ForceRelease,
        Operation::Check,
        Operation::Active,
        Operation::KeyStatus,
        Operation::History,
        Operation::Events,
        Operation::OpenSession,
        Operation::CloseSession,
        Operation::RestoreSession,
        Operation::AttachSession,
        Operation::Sessions,
        Operation::OpenRoom,
        Operation::CloseRoom,
        Operation::Rooms,
        Operation::Audit,
        Operation::Status,
        Operation::Stop,
    ];

    pub fn named(name: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.row().name == name)
    }

    pub fn row(self) -> Row {
        use Access::{Anybody, Credential, Local, Operator};
        use Method::{Get, Post};
        let row = |name, method, access, summary, request, answer| Row {
            name,
            method,
            access,
            summary,
            request,
            answer,
            streams: false,
        };
        match self {
            Operation::Acquire => row(
                "locks/acquire", Post, Credential, "Acquire a lock, or a set of them",
                schema::<request::AcquireRequest>, schema::<answer::Granted>,
            ),
            Operation::Release => row(
                "locks/release", Post, Credential, "Give locks back",
                schema::<request::ReleaseRequest>, schema::<answer::Changed>,
            ),
            Operation::Renew => row(
                "locks/renew", Post, Credential, "Renew locks, or beat for a session",
                schema::<request::RenewRequest>, schema::<answer::Changed>,
            ),
            Operation::ForceRelease => row(
                "locks/force-release", Post, Operator, "Take a lock away from its holder",
                schema::<request::ForceReleaseRequest>, schema::<answer::Changed>,
            ),
            Operation::Check => row(
                "locks/check", Post, Credential, "Ask who stands in the way, or whether a fencing token counts",
                schema::<request::CheckRequest>, schema::<answer::Checked>,
            ),
            Operation::Active => row(
                "locks/active", Get, Credential, "List what is held",
                schema::<request::ListRequest>, schema::<answer::LockList>,
            ),
            Operation::KeyStatus => row(
                "locks/status", Get, Anybody, "Who holds one key",
                schema::<request::CheckRequest>, schema::<answer::KeyStatus>,
            ),
            Operation::History => row(
                "locks/history", Get, Credential, "List what happened, newest first",
                schema::<request::HistoryRequest>, schema::<answer::HistoryList>,
            ),
            Operation::Events => Row {
                streams: true,
                ..row(
                    "events", Get, Credential, "Follow what happens; resumes behind Last-Event-ID",
                    schema::<request::EventsRequest>, schema::<answer::EventView>,
                )
            },
            Operation::OpenSession => row(
                "sessions/open", Post, Credential, "Open a session, and restore what it lost",
                schema::<request::SessionRequest>, schema::<answer::SessionOpened>,
            ),
            Operation::CloseSession => row(
                "sessions/close", Post, Credential, "Close a session and release all that it holds",
                schema::<request::SessionRequest>, schema::<answer::SessionClosed>,
            ),
            Operation::RestoreSession => row(
                "sessions/restore", Post, Credential, "Acquire again what a session lost",
                schema::<request::SessionRequest>, schema::<answer::SessionOpened>,
            ),
            Operation::AttachSession => Row {
                streams: true,
                ..row(
                    "sessions/attach", Post, Credential,
                    "Bind a session's locks to this connection: told when one is lost, released when it ends",
                    schema::<request::AttachRequest>, schema::<answer::EventView>,
                )
            },
            Operation::Sessions => row(
                "sessions", Get, Credential, "List sessions",
                schema::<request::StatusRequest>, schema::<answer::SessionList>,
            ),
            Operation::OpenRoom => row(
                "rooms/open", Post, Credential, "Say that a person is editing a file",
                schema::<request::RoomRequest>, schema::<answer::RoomChanged>,
            ),
            Operation::CloseRoom => row(
                "rooms/close", Post, Credential, "Say that the person is done",
                schema::<request::RoomRequest>, schema::<answer::RoomChanged>,
            ),
            Operation::Rooms => row(
                "rooms", Get, Credential, "List busy rooms",
                schema::<request::StatusRequest>, schema::<answer::RoomList>,
            ),
            Operation::Audit => row(
                "audit", Get, Operator, "List what was asked and what came of it, newest first",
                schema::<request::AuditRequest>, schema::<answer::AuditList>,
            ),
            Operation::Status => row(
                "status", Get, Credential, "The service about itself",
                schema::<request::StatusRequest>, schema::<answer::ServiceStatus>,
            ),
            Operation::Stop => row(
                "stop", Post, Local, "Stop the service; nothing is released",
                schema::<request::StatusRequest>, schema::<answer::Done>,
            ),
        }
    }
}

fn schema<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
