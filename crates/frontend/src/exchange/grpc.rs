//! An exchange over gRPC: a call with one message.

use super::endpoint::GrpcExchange;
use crate::operation::{Context, Permission};
use crate::record::{self, Record};
use engine::{Engine, ModelVersion};
use http2::RequestHead;
use protocol::InferRequest;
use std::sync::Arc;
use tensor::Result;

impl<'a> GrpcExchange<'a> {
    pub fn engine(&self) -> &'a Arc<Engine> {
        &self.context.engine
    }

    /// Context of an operation, which checks the rest of the permission.
    pub fn operations(&self) -> Context<'a> {
        let Self { context, call } = *self;
        let permission = Permission::OfMessage { gate: &context.gate, exchange: &call.exchange, head: &call.head };
        Context { engine: &context.engine, control: &*context.control, permission }
    }

    /// The version that the message names; see [`Exchange::version`](super::Exchange::version).
    pub fn version(&self, model: &str, version: &str) -> Result<&'a Arc<ModelVersion>> {
        self.call.exchange.version(&self.context.engine, model, version)
    }
}

/// Notes that this version accepts the inference of a message, and connects it with the record.
pub fn accept_message(record: &Record, head: &RequestHead, version: &ModelVersion, request: &mut InferRequest) {
    record.found(version, || record::grpc_context(head));
    record.follow(request);
}
