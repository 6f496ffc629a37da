//! The context of operations that are not inferences: what is left to check of their permission, and the operations
//! that TypeScript decides.

use crate::control::{Control, ControlOperation};
use crate::exchange::Exchange;
use crate::gate::Gate;
use crate::gate_error::Result;
use crate::limits::CONTROL_ARGUMENT_BYTES_MAX;
use crate::table::facts::Facts;
use crate::text::Text;
use engine::Engine;
use http2::RequestHead;
use std::sync::Arc;
use tensor::Error;

/// Context of an operation that is not an inference, whatever its protocol.
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
    OfMessage { gate: &'a Gate, exchange: &'a Exchange, head: &'a RequestHead },
}

impl Context<'_> {
    /// Checks that the caller may name this model.
    pub fn admit_model(&self, model: &str) -> Result<()> {
        match &self.permission {
            Permission::Checked => Ok(()),
            Permission::OfMessage { exchange, .. } => Ok(exchange.grant.admit_model(model)?),
        }
    }

    /// Checks that the caller may change settings: those of a model, or of all if `model` is empty.
    pub fn admit_change(&self, facts: &'static Facts, model: &str) -> Result<()> {
        match (&self.permission, facts.ask((!model.is_empty()).then_some(model))) {
            (Permission::OfMessage { gate, exchange: Exchange { caller, grant, .. }, head }, Some(ask)) => {
                Ok(gate.admit_change(caller, grant, &ask, &|name, at| head.all(name).nth(at))?)
            }
            _ => Ok(()),
        }
    }

    /// Runs an operation that TypeScript decides. Its argument and response are the JSON of the native contract.
    ///
    /// # Errors
    /// INVALID_ARG for an argument above [`CONTROL_ARGUMENT_BYTES_MAX`]; the errors of the operation.
    pub async fn control(&self, operation: ControlOperation, argument: Text) -> Result<String> {
        let (bytes, most) = (argument.len(), CONTROL_ARGUMENT_BYTES_MAX);
        if bytes <= most {
            return Ok(self.control.call(operation, argument.into_string()?.into()).await?);
        }
        // The caller is a reactor, which unmaps 60 MB in 3 ms.
        memory::reclaim::drop_later(bytes, argument.into_bytes());
        let text = format!("the request has {bytes} bytes, and a control operation other than load may have {most}");
        Err(Error::invalid(text).into())
    }
}
