//! One inference as the front ends see it: started, then done at once or awaited, and cancelled if its future is
//! dropped. Callers match on [`Inference`] before they await, so that no future has to hold a whole response.

use crate::encoding::Encoding;
use crate::limits::{
    DEFLATE_BYTES_ON_REACTOR_MAX, ENTRIES_ON_REACTOR_MAX, PRINT_BYTES_ON_REACTOR_MAX, STRINGS_BYTES_ON_REACTOR_MAX,
};
use crate::offload;
use crate::record;
use crate::rope::charged;
use crate::shared::Shared;
use crate::verbose;
use engine::{Engine, EngineResponse, HandOver, ModelVersion, Sink, Ticket};
use memory::Charge;
use protocol::{InferRequest, InferResponse, InputTensor};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::{Data, Error, Name, Result};
use trace::Trace;

pub enum Inference {
    /// The inference ran inline, without a wait.
    Done(Result<Box<InferResponse>>),
    /// The inference is queued, or another thread runs it.
    Pending(InferenceFuture),
}

/// Resolves with the response of an accepted inference. Dropping it before cancels the inference.
pub struct InferenceFuture {
    reply: Arc<Reply>,
    /// `None` once the response was taken: the request cannot be cancelled any more.
    ticket: Option<Ticket>,
    /// Trace of the request, which shows when its response was complete.
    trace: Option<Trace>,
    /// Id of the request, for verbose log lines about its response. `None` while verbose logging is off.
    id: Option<Box<Name>>,
}

impl InferenceFuture {
    /// Measurements of the request, if it came without a trace; see [`Ticket::measured`].
    pub fn measured(&self) -> Option<&Trace> {
        self.ticket.as_ref().and_then(Ticket::measured)
    }
}

/// The start of a request. After an error nothing was queued.
pub enum Started<T> {
    Done(Result<T>),
    /// A thread of [`offload`] checks and starts the request, because the check takes long.
    Offloaded(OffloadedStart<T>),
}

/// Resolves once the request was started. If it is dropped before, the request may never be started.
pub type OffloadedStart<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

impl<T: Send + 'static> Started<T> {
    /// Starts a request on a thread of [`offload`], by `start`, which checks it.
    pub fn offload(
        request: Box<InferRequest>,
        start: impl FnOnce(Box<InferRequest>) -> Result<T> + Send + 'static,
    ) -> Self {
        let bytes = request.inputs.iter().map(|input| input.data.len()).sum();
        Self::Offloaded(Box::pin(async move { offload::run(bytes, move |_| start(request)).await? }))
    }

    /// # Errors
    /// The reason why the request was rejected, and the errors of [`offload::run`].
    pub async fn get(self) -> Result<T> {
        match self {
            Self::Done(started) => started,
            Self::Offloaded(work) => work.await,
        }
    }
}

/// Starts an inference of any size. A cheap one is done when this returns.
#[inline]
pub fn start(version: &Arc<ModelVersion>, request: Box<InferRequest>) -> Started<Inference> {
    if !is_long_to_check(&request) {
        return Started::Done(start_here(version, request));
    }
    let version = version.clone();
    Started::offload(request, move |request| start_here(&version, request))
}

fn start_here(version: &Arc<ModelVersion>, request: Box<InferRequest>) -> Result<Inference> {
    if !verbose::is_on() {
        return begin(version, request, None);
    }
    let id = request.id.clone();
    let started = logged(version, request, |request, id| begin(version, request, id))?;
    if let Inference::Done(result) = &started {
        verbose::answered(&id, result);
    }
    Ok(started)
}

/// Starts a request by `begin` and writes its lines of `--log-verbose`. `begin` gets the request's id if they are on.
pub fn logged<T>(
    version: &ModelVersion,
    request: Box<InferRequest>,
    begin: impl FnOnce(Box<InferRequest>, Option<Box<Name>>) -> Result<T>,
) -> Result<T> {
    if !verbose::is_on() {
        return begin(request, None);
    }
    let id = request.id.clone();
    let prepared = verbose::prepared_text(&version.signature, &request);
    let started = begin(request, Some(Box::new(id.clone())));
    // A rejected request has no line that says it was prepared.
    match &started {
        Ok(_) => verbose::prepared(&prepared),
        Err(error) => verbose::infer_failed(Some(&id), error),
    }
    started
}

fn begin(version: &Arc<ModelVersion>, request: Box<InferRequest>, id: Option<Box<Name>>) -> Result<Inference> {
    let (trace, mut receiver) = (request.trace.clone(), None);
    let sink = || {
        let reply = Arc::new(Reply(HandOver::to_this_thread()));
        receiver = Some(reply.clone());
        reply as Arc<dyn Sink>
    };
    let started = version.call(request, sink, None)?;
    Ok(match (started, receiver) {
        (engine::Started::Answered(result), _) => {
            record::completed(trace.as_ref());
            Inference::Done(result)
        }
        (engine::Started::Queued(ticket), Some(reply)) => {
            Inference::Pending(InferenceFuture { reply, ticket: Some(ticket), trace, id })
        }
        (engine::Started::Queued(_), None) => Inference::Done(lost()),
    })
}

/// Whether the check of a request takes long: it counts strings, and its error may list all names.
pub fn is_long_to_check(request: &InferRequest) -> bool {
    let is_long = |i: &InputTensor| {
        i.data.len() > STRINGS_BYTES_ON_REACTOR_MAX && i.datatype.is_none_or(|t| t.byte_size().is_none())
    };
    request.inputs.len() + request.outputs.len() > ENTRIES_ON_REACTOR_MAX || request.inputs.iter().any(is_long)
}

/// Whether printing, ranking or compressing a response takes so long that another thread does it.
pub fn is_long_to_encode(response: &InferResponse, encoding: Encoding) -> bool {
    let mut bytes = response.id.len();
    for output in &response.outputs {
        let length = output.answered_bytes();
        bytes += length;
        if length > PRINT_BYTES_ON_REACTOR_MAX && (!output.form.binary || output.form.classification > 0) {
            return true;
        }
    }
    response.id.len() > PRINT_BYTES_ON_REACTOR_MAX
        || (encoding != Encoding::Identity && bytes > DEFLATE_BYTES_ON_REACTOR_MAX)
}

/// Whether another thread prints a response whose tensors are all text.
pub fn is_long_to_print(response: &InferResponse) -> bool {
    is_long_to_encode(response, Encoding::Identity)
        || response.outputs.iter().any(|output| output.answered_bytes() > PRINT_BYTES_ON_REACTOR_MAX)
}

/// Whether new inferences are rejected because the server is shutting down and no sequence is in progress.
#[inline]
pub fn is_closed(shared: &Shared, engine: &Engine) -> bool {
    shared.is_draining() && engine.sequences() == 0
}

/// Makes [`offload`] free the memory of large tensors, no matter which thread drops them last.
pub fn dispose_offloaded(request: &mut InferRequest) {
    for input in &mut request.inputs {
        if let Data::Bytes(bytes) = &mut input.data {
            *bytes = offload::disposed(std::mem::take(bytes));
        }
    }
}

/// Attaches the charge for a body to the largest tensor made of it, usually the only one.
pub fn charge(request: &mut InferRequest, charge: Charge) {
    if charge.bytes() == 0 {
        return;
    }
    let bytes =
        request.inputs.iter_mut().filter_map(|i| if let Data::Bytes(bytes) = &mut i.data { Some(bytes) } else { None });
    if let Some(largest) = bytes.max_by_key(|bytes| bytes.len()) {
        *largest = charged(std::mem::take(largest), charge);
    }
}

/// Sink of a request, which its [`InferenceFuture`] waits for.
struct Reply(HandOver<Result<Box<InferResponse>>>);

impl Sink for Reply {
    fn put(&self, answer: EngineResponse) {
        match answer.response {
            Some(result) => self.0.give(result),
            None if answer.is_final => {
                self.0.give(Err(Error::internal("expected a single response, got 0").by_model()));
            }
            None => {}
        }
    }
}

fn lost() -> Result<Box<InferResponse>> {
    Err(Error::internal("a request was dropped without a response; this is a defect of the server, please report it"))
}

impl Future for InferenceFuture {
    type Output = Result<Box<InferResponse>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let taken = ready!(self.reply.0.poll(cx));
        self.ticket = None;
        let result = taken.unwrap_or_else(lost);
        record::completed(self.trace.as_ref());
        if let Some(id) = &self.id {
            verbose::answered(id, &result);
        }
        Poll::Ready(result)
    }
}

impl Drop for InferenceFuture {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.cancel();
        }
    }
}
