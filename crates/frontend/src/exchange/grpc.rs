//! Exchanges over gRPC: a call with one message, and a request in a stream of messages.

use super::Exchange;
use super::endpoint::GrpcExchange;
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::operation::{Context, Permission};
use crate::record::{self, Record, RequestName};
use crate::shared::Shared;
use bytes::Bytes;
use engine::{Engine, ModelVersion};
use http2::RequestHead;
use protocol::InferRequest;
use protocol::grpc::InferHead;
use std::sync::Arc;
use tensor::{Error, Name, Result};
use trace::Trace;

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

/// Reads whether the request itself asks for its record, which `begin` begins if there is none.
pub fn read_question(record: &Record, request: &mut InferRequest, begin: impl FnOnce()) {
    if record::take_question(request) {
        begin();
        record.ask();
    }
}

/// Notes the names in the message of a call, and checks that the caller may name the model.
///
/// # Errors
/// The reason why the message is rejected.
#[inline]
pub fn admit_message(exchange: &Exchange, head: &InferHead) -> std::result::Result<(), GateError> {
    exchange.record.named(head);
    exchange.grant.admit_model(&head.model_name)
}

/// A request in a stream, which holds what the call has not.
#[derive(Clone, Default)]
pub struct MessageExchange(Record);

impl MessageExchange {
    /// Begins with a message of a call. `received`: as in [`Record::in_stream`].
    pub fn begin(shared: &Shared, call: &Exchange, received: &mut [u64; 2], message: &Bytes) -> Self {
        call.grant.charge(message.len());
        Self(call.record.in_stream(shared, &call.caller, received, message))
    }

    /// See [`read_question`].
    pub fn read_question(&self, request: &mut InferRequest, begin: impl FnOnce()) {
        read_question(&self.0, request, begin);
    }

    /// From now on there is a record of the request: it waits in a stream that may end first, or it fails.
    pub fn needs_record(&self, shared: &Shared, call: &Exchange) {
        self.0.begin_late(shared, &call.caller, || RequestName::InStream);
    }

    /// The id of a request that was rejected.
    pub fn identified(&self, id: &Name) {
        self.0.identify(id);
    }

    /// The last byte of a response is left to the connection.
    pub fn ends(&self, shared: &Shared, call: &Exchange) {
        self.0.begin_at_end(shared, &call.caller, || RequestName::InStream);
    }

    /// Notes what is measured of a request that waits.
    pub fn waits_for(&self, version: &ModelVersion, measured: Option<&Trace>) {
        self.0.waits(version, measured);
    }

    /// The record, if the client of the stream asked for records, with the time that the request took until now.
    pub fn why(&self, grant: &Grant) -> Option<(u64, String)> {
        Some((self.0.age(), self.0.why(|model| grant.covers(model))?))
    }

    /// The beginning of the message was read.
    pub fn named(&self, head: &InferHead) {
        self.0.named(head);
    }

    pub fn accept(&self, head: &RequestHead, version: &ModelVersion, request: &mut InferRequest) {
        accept_message(&self.0, head, version, request);
    }

    /// All responses were made.
    pub fn completed(&self) {
        self.0.completed();
    }

    /// A response, or the error of the request, goes to the output.
    pub fn answered(&self, error: Option<&Error>, is_final: bool) {
        match error {
            Some(error) => self.0.failed(error),
            None if is_final => self.0.succeeded(),
            None => {}
        }
    }

    /// A message of `bytes` bytes is about to be sent.
    pub fn sending(&self, bytes: usize) {
        self.0.sending(bytes);
    }

    /// The message was sent.
    pub fn sent(&self) {
        self.0.sent();
    }
}
