//! Inference by calls with one request and one response.

use super::context::{Call, GrpcContext};
use super::message::{Packing, frame_encoded};
use super::status::{Status, code};
use crate::exchange::EndpointRef;
use crate::exchange::{EarlyVersion, Exchange, GrpcExchange, accept_message, admit_message, read_question};
use crate::forward::HeaderForward;
use crate::gate::Grant;
use crate::inference::{self, Inference, InferenceFuture, Started};
use crate::limits::MESSAGE_BYTES_ON_REACTOR_MAX;
use crate::offload::{self, CancelFlag};
use crate::record::Record;
use crate::rope::Rope;
use crate::table::facts::CallForm;
use crate::verbose;
use bytes::Bytes;
use engine::ModelVersion;
use http2::RequestHead;
use memory::{Account, Kind};
use protocol::{InferRequest, InferResponse, Parameter};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::{Error, Name, Result};

/// Reads the request of a call and answers it.
pub async fn answer(context: &Arc<GrpcContext>, endpoint: EndpointRef, call: &mut Call) -> Result<Rope, Status> {
    let message = required(poll_fn(|cx| call.messages.poll_next(cx)).await)?;
    call.exchange.record.body_came();
    if endpoint.facts().form == CallForm::Inference {
        return Box::pin(send(context, call, message)?.finish()).await;
    }
    call.exchange.received(&message, 0);
    endpoint.grpc(GrpcExchange { context, call }, message).await
}

/// The message that a unary call must have.
pub fn required(message: Result<Option<Bytes>, Status>) -> Result<Bytes, Status> {
    message?.ok_or_else(|| Status::new(code::INTERNAL, "the call has no request message"))
}

fn respond(version: &ModelVersion, response: &InferResponse, packing: Packing) -> Result<Rope, Status> {
    let encoded = protocol::grpc::encode(response, &version.signature)?;
    Ok(frame_encoded(encoded, packing)?)
}

/// Resolves with a response that is not ready yet.
pub type LaterAnswer = Pin<Box<dyn Future<Output = Result<Rope, Status>>>>;

pub enum Sent {
    Answered(Rope),
    Waits(Waits),
    /// Another thread reads the request, checks it or encodes its response, because that takes long.
    Later(LaterAnswer),
}

/// An inference that was started and has no response yet.
pub struct Waits {
    version: Arc<ModelVersion>,
    pending: InferenceFuture,
    packing: Packing,
    /// Set while another thread frames the response.
    later: Option<LaterAnswer>,
}

/// Written by hand, so that the future has no space for a response.
impl Future for Waits {
    type Output = Result<Rope, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(later) = &mut this.later {
            return later.as_mut().poll(cx);
        }
        let result = ready!(Pin::new(&mut this.pending).poll(cx));
        let response = result?;
        match answered(this.version.clone(), response, this.packing) {
            Sent::Answered(rope) => Poll::Ready(Ok(rope)),
            Sent::Later(answer) => this.later.insert(answer).as_mut().poll(cx),
            Sent::Waits(_) => Poll::Ready(Err(Status::new(code::INTERNAL, "a request got two responses"))),
        }
    }
}

fn answered(version: Arc<ModelVersion>, response: Box<InferResponse>, packing: Packing) -> Sent {
    if packing.is_long(&response) {
        let bytes = response.answered_bytes();
        let work = offload::run(bytes, move |_| respond(&version, &response, packing));
        return Sent::Later(Box::pin(async move { work.await? }));
    }
    match respond(&version, &response, packing) {
        Ok(rope) => Sent::Answered(rope),
        Err(status) => Sent::Later(Box::pin(std::future::ready(Err(status)))),
    }
}

/// Starts an inference. Not an async function, so that none of its variables are kept while the inference runs.
pub fn send(context: &Arc<GrpcContext>, call: &Call, message: Bytes) -> Result<Sent, Status> {
    let packing = Packing::new(context.compression_level, call.response_encoding);
    call.exchange.received(&message, 0);
    if message.len() > MESSAGE_BYTES_ON_REACTOR_MAX && protocol::grpc::is_long(&message, MESSAGE_BYTES_ON_REACTOR_MAX) {
        let Exchange { grant, account, record, .. } = &call.exchange;
        call.needs_record(&context.shared);
        let with = (grant.clone(), account.clone(), record.clone());
        let (context, head, early) = (context.clone(), call.head.clone(), call.messages.early().clone());
        return Ok(Sent::Later(Box::pin(infer_large(context, head, early, with, message, packing))));
    }
    let (version, request) = read(context, call, message)?;
    let id = request.id.clone();
    match inference::start(&version, request) {
        Started::Done(Ok(inference)) => sent(version, inference, packing, &call.exchange.record),
        Started::Done(Err(error)) => {
            reject(context, call, &version, &id);
            Err(error.into())
        }
        later @ Started::Offloaded(_) => {
            call.needs_record(&context.shared);
            let record = call.exchange.record.clone();
            Ok(Sent::Later(Box::pin(finish(version, later, packing, record))))
        }
    }
}

#[inline]
fn sent(version: Arc<ModelVersion>, inference: Inference, packing: Packing, record: &Record) -> Result<Sent, Status> {
    Ok(match inference {
        Inference::Done(result) => answered(version, result?, packing),
        Inference::Pending(pending) => {
            record.waits(&version, pending.measured());
            Sent::Waits(Waits { version, pending, packing, later: None })
        }
    })
}

/// Notes what is known of a request that its version rejects.
#[cold]
fn reject(context: &GrpcContext, call: &Call, version: &ModelVersion, id: &Name) {
    call.needs_record(&context.shared);
    call.exchange.rejected(version, id);
}

/// Decodes a message. Returns the version that runs the request, and the request.
fn read(context: &GrpcContext, call: &Call, message: Bytes) -> Result<(Arc<ModelVersion>, Box<InferRequest>), Status> {
    let log = |e: &Error| verbose::infer_failed(None, e);
    let head = protocol::grpc::peek(&message).inspect_err(log)?;
    // Dropped here so that the buffer can be reused as soon as the last tensor is dropped.
    drop(message);
    let exchange = &call.exchange;
    admit_message(exchange, &head)?;
    let read = move || -> Result<_> {
        let version = call.messages.early().version(&context.engine, &head.model_name, &head.model_version);
        let version = version.inspect_err(|_| {
            call.needs_record(&context.shared);
            exchange.named(&head);
        })?;
        let id = head.id.clone();
        let fails = |_: &Error| reject(context, call, &version, &id);
        protocol::grpc::reject_decoupled(&version.signature).inspect_err(fails)?;
        let mut request = head.into_request(&version.signature, &*context.engine).inspect_err(fails)?;
        read_question(&exchange.record, &mut request, || call.needs_record(&context.shared));
        accept_message(&exchange.record, &call.head, &version, &mut request);
        forward(&context.forward, &call.head, &mut request)?;
        Ok((version, request))
    };
    Ok(read().inspect_err(log)?)
}

/// Like `send`, for a message that another thread decodes.
async fn infer_large(
    context: Arc<GrpcContext>,
    head: Rc<RequestHead>,
    early: EarlyVersion,
    (grant, account, record): (Grant, Account, Record),
    message: Bytes,
    packing: Packing,
) -> Result<Rope, Status> {
    let engine = context.engine.clone();
    let read = move |_: &CancelFlag<'_>| -> Result<_> {
        let head = protocol::grpc::peek(&message)?;
        if let Err(refusal) = grant.admit_model(&head.model_name) {
            return Ok(Err(refusal));
        }
        let version = early.version(&engine, &head.model_name, &head.model_version)?;
        protocol::grpc::reject_decoupled(&version.signature)?;
        let mut request = head.into_request(&version.signature, &*engine)?;
        inference::dispose_offloaded(&mut request);
        Ok(Ok((version, request)))
    };
    let read = offload::run_charged(&account, Kind::Unpacked, usize::MAX, read).await;
    let read = read.and_then(|(read, charge)| {
        let (version, mut request) = match read? {
            Ok(read) => read,
            Err(refusal) => return Ok(Err(refusal)),
        };
        inference::charge(&mut request, charge);
        read_question(&record, &mut request, || {});
        accept_message(&record, &head, &version, &mut request);
        forward(&context.forward, &head, &mut request)?;
        Ok(Ok((version, request)))
    });
    let (version, request) = read.inspect_err(|e| verbose::infer_failed(None, e))??;
    let started = inference::start(&version, request);
    finish(version, started, packing, record).await
}

/// Waits for the start and the response of a request that another thread reads or checks.
async fn finish(
    version: Arc<ModelVersion>,
    started: Started<Inference>,
    packing: Packing,
    record: Record,
) -> Result<Rope, Status> {
    sent(version, started.get().await?, packing, &record)?.finish().await
}

impl Sent {
    async fn finish(self) -> Result<Rope, Status> {
        match self {
            Self::Answered(rope) => Ok(rope),
            Self::Waits(waits) => waits.await,
            Self::Later(answer) => answer.await,
        }
    }
}

/// Adds forwarded metadata to a request.
///
/// # Errors
/// INVALID_ARG for a reserved key.
pub fn forward(pattern: &HeaderForward, head: &RequestHead, request: &mut InferRequest) -> Result<()> {
    if !pattern.is_active() {
        return Ok(());
    }
    for (name, value) in head.fields() {
        if pattern.wants(name)? {
            let value = Name::from_utf8_lossy(Bytes::copy_from_slice(value));
            request.parameters.push((name.into(), Parameter::String(value)));
        }
    }
    Ok(())
}
