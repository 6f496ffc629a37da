//! One request, from its accepted head to the last byte of its response. An exchange does no I/O: HTTP/1.1, HTTP/2,
//! gRPC and the in-process API drive it, and tell it what they read and wrote.
//!
//! ARCHITECTURE.md has the chart of its phases ([`ExchangePhase`]).
//!
//! Invariants: a call by name becomes a version, or an error, in [`Exchange::version`] or [`EarlyVersion::version`],
//! nowhere else in this crate, and once for each request. So all decisions about a request, such as where its body
//! goes, are about one load of the model. Nothing of a request is noted in a record that does not exist, and no driver
//! asks whether it does.

mod endpoint;
mod grpc;
mod http;

pub use endpoint::{
    BodyPlace, Endpoint, EndpointRef, GrpcAnswer, GrpcExchange, GrpcStream, HttpAnswer, HttpExchange, Later, Route,
};
pub use grpc::{MessageExchange, accept_message, admit_message, read_question};
pub use http::refuse_head;

use crate::gate::Grant;
use crate::grpc::status::Status;
use crate::origin::Caller;
use crate::record::Record;
use bytes::Bytes;
use engine::{Engine, ModelVersion};
use memory::Account;
use protocol::InferRequest;
use protocol::grpc::InferHead;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use tensor::{Error, Name, Result};
use trace::Context;

/// Phases of an exchange, in their order. A request may skip phases: one that is rejected by its head is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangePhase {
    /// The head was read, and nothing checked.
    Accepted,
    /// Route, permissions and method were checked.
    Admitted,
    /// The whole body or message was read.
    Received,
    /// The response is complete, or its first part.
    Answered,
    /// The last byte was written, or left to the connection.
    Sent,
}

/// A request and all that belongs to it, whatever its protocol.
pub struct Exchange {
    pub caller: Caller,
    /// Permission, and the place in the quotas of the caller's key.
    pub grant: Grant,
    /// Memory of the connection, to which what the request holds is charged.
    pub account: Account,
    pub record: Record,
    version: OnceCell<Result<Arc<ModelVersion>>>,
    phase: Cell<ExchangePhase>,
}

impl Exchange {
    pub fn new(caller: Caller, account: Account, record: Record) -> Self {
        let phase = Cell::new(ExchangePhase::Accepted);
        Self { caller, grant: Grant::default(), account, record, version: OnceCell::new(), phase }
    }

    /// The request passed the checks of its head.
    pub fn admitted(&mut self, grant: Grant) {
        self.advance(ExchangePhase::Admitted);
        self.record.granted(grant.key());
        self.grant = grant;
    }

    /// The body or message was read. `behind`: bytes of it that lie elsewhere.
    #[inline]
    pub fn received(&self, body: &Bytes, behind: usize) {
        self.advance(ExchangePhase::Received);
        self.record.received(body, behind);
        self.grant.charge(body.len() + behind);
    }

    /// The version that the request names. The first call finds it, and later calls return the same.
    ///
    /// # Errors
    /// INVALID_ARG, NOT_FOUND or UNAVAILABLE if no version serves under this name and number.
    #[inline]
    pub fn version(&self, engine: &Engine, model: &str, version: &str) -> Result<&Arc<ModelVersion>> {
        self.version.get_or_init(|| resolve(engine, model, version)).as_ref().map_err(Error::clone)
    }

    /// This version rejects the request with this id.
    pub fn rejected(&self, version: &ModelVersion, id: &Name) {
        self.record.waits(version, None);
        self.record.identify(id);
    }

    /// Notes the names in the message of a call.
    pub fn named(&self, head: &InferHead) {
        self.record.named(head);
    }

    /// Notes that this version accepts the inference, which is sampled now. `context`: the client's own trace.
    #[inline]
    pub fn accept(&self, version: &ModelVersion, context: impl FnOnce() -> Option<Context>) {
        self.record.found(version, context);
    }

    /// Connects an inference with the record, before it is started.
    #[inline]
    pub fn follow(&self, request: &mut InferRequest) {
        self.record.follow(request);
    }

    /// The record, as the field of the response that its client asked for: see [`Record::why`].
    #[inline]
    pub fn why(&self) -> Option<String> {
        self.record.why(|model| self.grant.covers(model))
    }

    /// A call ends with this status, which is about to be sent, and without a message.
    #[inline]
    pub fn refuse(&self, status: &Status) {
        self.advance(ExchangePhase::Sent);
        self.record.refusing(status);
    }

    /// The message of a call is about to be sent.
    #[inline]
    pub fn sending(&self, bytes: usize) {
        self.advance(ExchangePhase::Answered);
        self.record.sending(bytes);
    }

    /// The call succeeds, unless a response was an error: its record is sent before it ends, or its client ends it.
    #[inline]
    pub fn succeeds(&self) {
        self.record.succeeded();
    }

    /// A call was left to the connection, with this status.
    #[inline]
    pub fn ended(&self, status: &Status) {
        self.advance(ExchangePhase::Sent);
        self.record.ending(status);
        self.record.sent();
    }

    /// A stream whose requests have exchanges of their own ends with this status.
    pub fn closed(&self, status: &Status) {
        self.record.ending(status);
    }

    #[inline]
    fn advance(&self, to: ExchangePhase) {
        debug_assert!(self.phase.get() <= to, "{:?} before {to:?}", self.phase);
        self.phase.set(to);
    }
}

/// The version that a gRPC message names, found when its beginning was received, because the version decides where the
/// rest is read to. Empty if nothing had to be decided.
#[derive(Clone, Default)]
pub struct EarlyVersion(Option<(Box<str>, Box<str>, Arc<ModelVersion>)>);

impl EarlyVersion {
    pub fn find(engine: &Engine, model: &str, version: &str) -> Self {
        Self(resolve(engine, model, version).ok().map(|found| (model.into(), version.into(), found)))
    }

    pub fn found(&self) -> Option<&Arc<ModelVersion>> {
        self.0.as_ref().map(|(.., found)| found)
    }

    /// The version of this name: the one that was found early, unless the rest of the message names another.
    ///
    /// # Errors
    /// INVALID_ARG, NOT_FOUND or UNAVAILABLE if no version serves under this name and number.
    #[inline]
    pub fn version(&self, engine: &Engine, model: &str, version: &str) -> Result<Arc<ModelVersion>> {
        match &self.0 {
            Some((name, number, found)) if **name == *model && **number == *version => Ok(found.clone()),
            _ => resolve(engine, model, version),
        }
    }
}

/// The only lookup of a version by name in this crate.
#[inline]
fn resolve(engine: &Engine, model: &str, version: &str) -> Result<Arc<ModelVersion>> {
    engine.model(model, version)
}
