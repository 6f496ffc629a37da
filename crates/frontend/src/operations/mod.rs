//! Operations besides inference: a typed request in, a typed response out.
//!
//! HTTP and gRPC decode requests and encode responses, also for an embedded server. The decisions are here: which model
//! a caller may name, the limits of arguments, the order of checks. [`table`](crate::table) lists routes and calls;
//! `access_log::audit` writes a line for each request that changes the server.

pub mod models;
pub mod regions;
pub mod repository;
pub mod settings;

use crate::control::{Control, ControlOperation};
use crate::gate::{Gate, Grant, Headers};
use crate::gate_error::GateError;
use crate::limits::CONTROL_ARGUMENT_BYTES_MAX;
use crate::origin::Caller;
use crate::table::Operation;
use crate::text::Text;
use engine::Engine;
use std::sync::Arc;
use tensor::Error;

/// Context of an operation.
pub struct Context<'a> {
    pub engine: &'a Arc<Engine>,
    pub control: &'a dyn Control,
    pub permission: Permission<'a>,
}

/// Permission of a request, as checked before its body was read.
pub enum Permission<'a> {
    /// Checked completely: the path of an HTTP request names the operation and the model.
    Checked,
    /// Checked except for facts of the message of a gRPC call: the model, and whether settings change.
    OfMessage { gate: &'a Gate, grant: &'a Grant, caller: &'a Caller, headers: Headers<'a, 'a> },
}

/// Reason why an operation has no response: the gate rejected it, or it failed.
#[derive(Debug)]
pub enum OperationError {
    Rejected(GateError),
    Failed(Error),
}

pub type Result<T> = std::result::Result<T, OperationError>;

impl From<GateError> for OperationError {
    fn from(error: GateError) -> Self {
        Self::Rejected(error)
    }
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Context<'_> {
    /// Checks that the caller may name this model.
    fn admit_model(&self, model: &str) -> Result<()> {
        match &self.permission {
            Permission::Checked => Ok(()),
            Permission::OfMessage { grant, .. } => Ok(grant.admit_model(model)?),
        }
    }

    /// Checks that the caller may change settings: those of a model, or of all if `model` is empty.
    fn admit_change(&self, operation: Operation, model: &str) -> Result<()> {
        match (&self.permission, operation.ask((!model.is_empty()).then_some(model))) {
            (Permission::OfMessage { gate, grant, caller, headers }, Some(ask)) => {
                Ok(gate.admit_change(caller, grant, &ask, headers)?)
            }
            _ => Ok(()),
        }
    }

    /// Runs an operation that TypeScript decides. Its argument and response are the JSON of the native contract.
    ///
    /// # Errors
    /// INVALID_ARG for an argument above [`CONTROL_ARGUMENT_BYTES_MAX`]; those of the operation.
    pub async fn control(&self, operation: ControlOperation, argument: Text) -> Result<String> {
        let (bytes, most) = (argument.len(), CONTROL_ARGUMENT_BYTES_MAX);
        if bytes <= most {
            return Ok(self.control.call(operation, argument.into_string()?.into()).await?);
        }
        // The caller is a reactor, which unmaps 60 MB in 3 ms.
        memory::reclaim::drop_later(bytes, argument.into_bytes());
        let text = format!("the request has {bytes} bytes, and a control operation other than a load may have {most}");
        Err(Error::invalid(text).into())
    }
}
