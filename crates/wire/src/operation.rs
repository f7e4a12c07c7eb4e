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
    RegisterFeature,
    EndFeature,
    FeatureConflicts,
    Features,
    PauseFeature,
    ResumeFeature,
    CheckFeature,
    AllocatePorts,
    ReleasePorts,
    PortsStatus,
    CheckPolicy,
    ReloadPolicy,
    ValidatePackages,
    AdvisoryLocks,
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
    pub operation: Operation,
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
    pub fn named(name: &str) -> Option<Operation> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.operation)
    }

    pub fn row(self) -> &'static Row {
        let row = &TABLE[self as usize];
        assert!(row.operation == self, "the table has the order of the operations");
        row
    }
}

/// Every operation, in the order of [`Operation`].
pub static TABLE: [Row; 34] = [
    Row {
        operation: Operation::Acquire,
        name: "locks/acquire",
        method: Method::Post,
        access: Access::Credential,
        summary: "Acquire a lock, or a set of them",
        request: schema::<request::AcquireRequest>,
        answer: schema::<answer::Granted>,
        streams: false,
    },
    Row {
        operation: Operation::Release,
        name: "locks/release",
        method: Method::Post,
        access: Access::Credential,
        summary: "Give locks back",
        request: schema::<request::ReleaseRequest>,
        answer: schema::<answer::Changed>,
        streams: false,
    },
    Row {
        operation: Operation::Renew,
        name: "locks/renew",
        method: Method::Post,
        access: Access::Credential,
        summary: "Renew locks, or beat for a session",
        request: schema::<request::RenewRequest>,
        answer: schema::<answer::Changed>,
        streams: false,
    },
    Row {
        operation: Operation::ForceRelease,
        name: "locks/force-release",
        method: Method::Post,
        access: Access::Operator,
        summary: "Take a lock away from its holder",
        request: schema::<request::ForceReleaseRequest>,
        answer: schema::<answer::Changed>,
        streams: false,
    },
    Row {
        operation: Operation::Check,
        name: "locks/check",
        method: Method::Post,
        access: Access::Credential,
        summary: "Ask who stands in the way, or whether a fencing token counts",
        request: schema::<request::CheckRequest>,
        answer: schema::<answer::Checked>,
        streams: false,
    },
    Row {
        operation: Operation::Active,
        name: "locks/active",
        method: Method::Get,
        access: Access::Credential,
        summary: "List what is held",
        request: schema::<request::ListRequest>,
        answer: schema::<answer::LockList>,
        streams: false,
    },
    Row {
        operation: Operation::KeyStatus,
        name: "locks/status",
        method: Method::Get,
        access: Access::Anybody,
        summary: "Who holds one key",
        request: schema::<request::CheckRequest>,
        answer: schema::<answer::KeyStatus>,
        streams: false,
    },
    Row {
        operation: Operation::History,
        name: "locks/history",
        method: Method::Get,
        access: Access::Credential,
        summary: "List what happened, newest first",
        request: schema::<request::HistoryRequest>,
        answer: schema::<answer::HistoryList>,
        streams: false,
    },
    Row {
        operation: Operation::Events,
        name: "events",
        method: Method::Get,
        access: Access::Credential,
        summary: "Follow what happens; resumes behind Last-Event-ID",
        request: schema::<request::EventsRequest>,
        answer: schema::<answer::EventView>,
        streams: true,
    },
    Row {
        operation: Operation::OpenSession,
        name: "sessions/open",
        method: Method::Post,
        access: Access::Credential,
        summary: "Open a session, and restore what it lost",
        request: schema::<request::RestoreRequest>,
        answer: schema::<answer::SessionOpened>,
        streams: false,
    },
    Row {
        operation: Operation::CloseSession,
        name: "sessions/close",
        method: Method::Post,
        access: Access::Credential,
        summary: "Close a session and release all that it holds",
        request: schema::<request::SessionRequest>,
        answer: schema::<answer::SessionClosed>,
        streams: false,
    },
    Row {
        operation: Operation::RestoreSession,
        name: "sessions/restore",
        method: Method::Post,
        access: Access::Credential,
        summary: "Acquire again what a session lost",
        request: schema::<request::RestoreRequest>,
        answer: schema::<answer::SessionOpened>,
        streams: false,
    },
    Row {
        operation: Operation::AttachSession,
        name: "sessions/attach",
        method: Method::Post,
        access: Access::Credential,
        summary: "Bind a session's locks to this connection: told when one is lost, released when it ends",
        request: schema::<request::AttachRequest>,
        answer: schema::<answer::EventView>,
        streams: true,
    },
    Row {
        operation: Operation::Sessions,
        name: "sessions",
        method: Method::Get,
        access: Access::Credential,
        summary: "List sessions",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::SessionList>,
        streams: false,
    },
    Row {
        operation: Operation::OpenRoom,
        name: "rooms/open",
        method: Method::Post,
        access: Access::Credential,
        summary: "Say that a person is editing a file",
        request: schema::<request::RoomRequest>,
        answer: schema::<answer::RoomChanged>,
        streams: false,
    },
    Row {
        operation: Operation::CloseRoom,
        name: "rooms/close",
        method: Method::Post,
        access: Access::Credential,
        summary: "Say that the person is done",
        request: schema::<request::RoomRequest>,
        answer: schema::<answer::RoomChanged>,
        streams: false,
    },
    Row {
        operation: Operation::Rooms,
        name: "rooms",
        method: Method::Get,
        access: Access::Credential,
        summary: "List busy rooms",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::RoomList>,
        streams: false,
    },
    Row {
        operation: Operation::Audit,
        name: "audit",
        method: Method::Get,
        access: Access::Operator,
        summary: "List what was asked and what came of it, newest first",
        request: schema::<request::AuditRequest>,
        answer: schema::<answer::AuditList>,
        streams: false,
    },
    Row {
        operation: Operation::Status,
        name: "status",
        method: Method::Get,
        access: Access::Credential,
        summary: "The service about itself",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::ServiceStatus>,
        streams: false,
    },
    Row {
        operation: Operation::Stop,
        name: "stop",
        method: Method::Post,
        access: Access::Local,
        summary: "Stop the service; nothing is released",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::Done>,
        streams: false,
    },
    Row {
        operation: Operation::RegisterFeature,
        name: "features/register",
        method: Method::Post,
        access: Access::Credential,
        summary: "Say which keys a feature will change",
        request: schema::<request::FeatureRequest>,
        answer: schema::<answer::FeatureChanged>,
        streams: false,
    },
    Row {
        operation: Operation::EndFeature,
        name: "features/deregister",
        method: Method::Post,
        access: Access::Credential,
        summary: "Say that a feature has ended",
        request: schema::<request::FeatureEndRequest>,
        answer: schema::<answer::FeatureChanged>,
        streams: false,
    },
    Row {
        operation: Operation::FeatureConflicts,
        name: "features/conflicts",
        method: Method::Post,
        access: Access::Credential,
        summary: "Ask how far a feature could go beside the others",
        request: schema::<request::FeatureConflictsRequest>,
        answer: schema::<answer::FeatureConflicts>,
        streams: false,
    },
    Row {
        operation: Operation::Features,
        name: "features",
        method: Method::Get,
        access: Access::Credential,
        summary: "List features",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::FeatureList>,
        streams: false,
    },
    Row {
        operation: Operation::PauseFeature,
        name: "features/pause",
        method: Method::Post,
        access: Access::Credential,
        summary: "Stop the line: nobody else gets anything new for a feature",
        request: schema::<request::FeaturePauseRequest>,
        answer: schema::<answer::Granted>,
        streams: false,
    },
    Row {
        operation: Operation::ResumeFeature,
        name: "features/resume",
        method: Method::Post,
        access: Access::Credential,
        summary: "End a pause",
        request: schema::<request::FeatureResumeRequest>,
        answer: schema::<answer::Changed>,
        streams: false,
    },
    Row {
        operation: Operation::CheckFeature,
        name: "features/check",
        method: Method::Post,
        access: Access::Credential,
        summary: "Ask whether a feature is paused, and keep pauses away from a finish",
        request: schema::<request::FeatureCheckRequest>,
        answer: schema::<answer::FeatureChecked>,
        streams: false,
    },
    Row {
        operation: Operation::AllocatePorts,
        name: "ports/allocate",
        method: Method::Post,
        access: Access::Credential,
        summary: "Get ports of one's own, or the same ones again",
        request: schema::<request::PortsRequest>,
        answer: schema::<answer::PortsAllocated>,
        streams: false,
    },
    Row {
        operation: Operation::ReleasePorts,
        name: "ports/release",
        method: Method::Post,
        access: Access::Credential,
        summary: "Give ports back",
        request: schema::<request::SessionRequest>,
        answer: schema::<answer::PortsReleased>,
        streams: false,
    },
    Row {
        operation: Operation::PortsStatus,
        name: "ports/status",
        method: Method::Get,
        access: Access::Credential,
        summary: "List ports that sessions have",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::PortsStatus>,
        streams: false,
    },
    Row {
        operation: Operation::CheckPolicy,
        name: "policy/check",
        method: Method::Post,
        access: Access::Credential,
        summary: "Ask what the policy says, without doing it",
        request: schema::<request::PolicyCheckRequest>,
        answer: schema::<answer::PolicyVerdict>,
        streams: false,
    },
    Row {
        operation: Operation::ReloadPolicy,
        name: "policy/reload",
        method: Method::Post,
        access: Access::Local,
        summary: "Read the policy anew; a broken one changes nothing",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::PolicyReloaded>,
        streams: false,
    },
    Row {
        operation: Operation::ValidatePackages,
        name: "packages/validate",
        method: Method::Post,
        access: Access::Credential,
        summary: "Check work packages",
        request: schema::<request::PackagesRequest>,
        answer: schema::<answer::PackagesReport>,
        streams: false,
    },
    Row {
        operation: Operation::AdvisoryLocks,
        name: "api/advisory-locks",
        method: Method::Get,
        access: Access::Credential,
        summary: "List the advisory locks of the database in DATABASE_URL",
        request: schema::<request::StatusRequest>,
        answer: schema::<answer::AdvisoryLockList>,
        streams: false,
    },
];

fn schema<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_operations_and_no_name_twice() {
        for row in &TABLE {
            assert_eq!(row.operation.row().name, row.name);
            assert_eq!(Operation::named(row.name), Some(row.operation));
        }
    }
}
