//! The tables of routes and calls, and what their callers need.
//!
//! [`routes`] and [`calls`] list the paths of [`endpoints`](crate::endpoints) over HTTP and gRPC.

pub mod calls;
pub mod facts;
pub mod paths;
pub mod routes;

use crate::access::{Act, Ask, Category};

/// Requirement of an operation in addition to configured keys and restricted APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// The server was started with this flag, which is off by default. The operation checks it, not the gate.
    Flag(&'static str),
    /// The request has a secret for this category, or the server was started with this flag.
    SecretOr(&'static str),
}

/// Requirements of an operation by the origin of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// For a process of this machine: over loopback or a Unix socket, and not through a proxy.
    pub near: Needs,
    /// For all others.
    pub far: Needs,
}

/// Requirements of an operation. A category that is not listed with [`Act::Write`] has those of
/// settings: a new one is closed to the network until a row opens it.
pub fn wants(ask: &Ask<'_>) -> Wants {
    let both = |needs| Wants { near: needs, far: needs };
    match (ask.category, ask.act) {
        _ if ask.is_near => Wants { near: Needs::Nothing, far: Needs::SecretOr("--allow-remote-settings") },
        (_, Act::Read) => both(Needs::Nothing),
        (Category::ModelRepository, Act::Write) => both(Needs::Flag("--model-control-mode=explicit")),
        (Category::SharedMemory, Act::Write) => both(Needs::Flag("--allow-client-shm=true")),
        (_, Act::Write) => Wants { near: Needs::Nothing, far: Needs::SecretOr("--allow-remote-settings") },
    }
}
