//! `ModelStreamInfer` (P 2.5): any number of requests, started as they arrive, for any mix of models.
//!
//! Responses of models that are not decoupled are sent in request order, those of decoupled models as they arrive.
//! Errors are messages and do not end the stream, unless the client requested that with `triton_grpc_error: true`.
//!
//! One future, no task per request. Nothing is read while too many requests have no response or the client does not
//! read. Meanwhile responses of decoupled models wait in the stream's inbox, where they are counted and charged. A
//! request with too many responses there is cancelled, and its last message is the error.

use super::context::{Call, GrpcContext};
use super::message::{Packing, frame_encoded};
use super::reply;
use super::status::{Status, code};
use super::unary::forward;
use crate::answers::Inbox;
use crate::exchange::{EarlyVersion, GrpcStream, MessageExchange};
use crate::failure::RequestFailure;
use crate::gate::Grant;
use crate::hold;
use crate::inference::{self, Inference, Started};
use crate::limits::{
    ANSWERS_PER_LOOK, ANSWERS_SENT_AHEAD_BYTES_MAX, MESSAGE_BYTES_ON_REACTOR_MAX, SEND_BUFFER_BYTES_MAX,
    STREAM_REQUESTS_PENDING_MAX,
};
use crate::offload::{self, CancelFlag, Offloaded};
use crate::rope::Rope;
use crate::shared::Counted;
use crate::verbose;
use bytes::{Buf, Bytes};
use engine::{EngineResponse, ModelVersion};
use http2::{RequestHead, StreamWriter};
use memory::{Account, Kind};
use protocol::grpc::{Encoded, InferHead, StreamFailure, encode_stream_error, encode_stream_response, peek};
use protocol::{InferRequest, InferResponse};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::{Error, Name, Result};

/// A request that waits for its only response.
struct UnaryRequest<'a> {
    state: Answering,
    version: Arc<ModelVersion>,
    names: ResponseNames,
    _counted: Counted<'a>,
}

// The large variant is the usual one; owners box it.
#[allow(clippy::large_enum_variant)]
enum Answering {
    /// `None` once the response was taken.
    Inference(Option<Inference>),
    /// Another thread frames the response, because that takes long.
    Framing(Offloaded<Result<Rope>>),
}

impl UnaryRequest<'_> {
    /// Polls for the framed response.
    fn poll(&mut self, cx: &mut Context<'_>, packing: Packing) -> Poll<Result<Rope>> {
        let inference = match &mut self.state {
            Answering::Framing(work) => return Pin::new(work).poll(cx).map(|framed| framed.and_then(|framed| framed)),
            Answering::Inference(inference) => inference,
        };
        let result = if let Some(Inference::Pending(pending)) = inference {
            ready!(Pin::new(pending).poll(cx))
        } else if let Some(Inference::Done(result)) = inference.take() {
            result
        } else {
            Err(Error::internal("a request got two responses"))
        };
        let response = match result {
            Ok(response) => response,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if !packing.is_long(&response) {
            return Poll::Ready(framed(&response, &self.version, true, packing));
        }
        match frame_offloaded(response, self.version.clone(), true, packing) {
            Ok(mut work) => {
                let polled = Pin::new(&mut work).poll(cx);
                self.state = Answering::Framing(work);
                polled.map(|framed| framed.and_then(|framed| framed))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

fn framed(response: &InferResponse, version: &ModelVersion, is_final: bool, packing: Packing) -> Result<Rope> {
    frame_encoded(encode_stream_response(response, &version.signature, is_final)?, packing)
}

/// Like `framed`, on another thread, for a response slow to classify or compress.
fn frame_offloaded(
    response: Box<InferResponse>,
    version: Arc<ModelVersion>,
    is_final: bool,
    packing: Packing,
) -> Result<Offloaded<Result<Rope>>> {
    let bytes = response.answered_bytes();
    offload::start(bytes, move |_| framed(&response, &version, is_final, packing))
}

/// An open request to a decoupled model.
struct DecoupledCall<'a> {
    version: Arc<ModelVersion>,
    names: Rc<ResponseNames>,
    /// The client wants a final message even if the model ends the request without a response.
    wants_empty_final: bool,
    _counted: Counted<'a>,
}

/// Names of a request, which its responses repeat.
struct ResponseNames {
    id: Name,
    model: Name,
    /// Possibly empty.
    version: Name,
    exchange: MessageExchange,
}

impl ResponseNames {
    fn of(head: &InferHead, exchange: MessageExchange) -> Self {
        Self { id: head.id.clone(), model: head.model_name.clone(), version: head.model_version.clone(), exchange }
    }

    fn failed(&self, error: &Error, is_final: bool) -> Encoded {
        let Self { id, model, version, .. } = self;
        RequestFailure::from(error).count();
        encode_stream_error(
            error,
            id,
            StreamFailure::AfterEnqueue { model_name: model, model_version: version, is_final },
        )
    }

    /// Final message without a response.
    fn empty_final(&self, version: &ModelVersion) -> Result<Encoded> {
        let response = InferResponse {
            id: self.id.clone(),
            model_name: self.model.clone(),
            model_version: self.version.clone(),
            ..InferResponse::default()
        };
        encode_stream_response(&response, &version.signature, true)
    }
}

/// A response of a decoupled model that another thread frames. Later responses wait for it.
struct Framing {
    work: Offloaded<Result<Rope>>,
    key: u32,
    names: Rc<ResponseNames>,
    is_final: bool,
}

enum UnaryCall<'a> {
    Waiting(Box<UnaryRequest<'a>>),
    /// Rejected before it was queued. The error keeps the request's position in the order.
    Refused(Encoded, MessageExchange),
}

/// Resolves when another thread has read or checked a request. Later requests wait, because sequences need the order.
type Starting<'a> = Pin<Box<dyn Future<Output = ReadResult<'a>> + 'a>>;

/// Result of reading a message. The outer error means that the message has no readable request.
type ReadResult<'a> = Result<Result<Read<'a>, Box<StreamError>>>;

/// Why a request was rejected.
struct StreamError {
    error: Error,
    id: Name,
    exchange: MessageExchange,
}

/// A request that was read.
// The large variant is the usual one.
#[allow(clippy::large_enum_variant)]
enum Read<'a> {
    /// The request was started.
    Unary(UnaryRequest<'a>),
    /// The request has to be started with the stream's inbox.
    Decoupled(Box<InferRequest>, DecoupledCall<'a>),
    /// Another thread started the request with this key, or rejected it.
    Checked(u32, Result<()>),
}

struct Session<'a> {
    context: &'a GrpcContext,
    call: Call,
    respond: StreamWriter,
    packing: Packing,
    starting: Option<Starting<'a>>,
    /// Requests with one response, in request order.
    ordered: VecDeque<UnaryCall<'a>>,
    decoupled: Decoupled<'a>,
    inbox: Inbox,
    framing: Option<Framing>,
    output: SendQueue,
    errors_end_stream: bool,
    /// Number of messages read in this poll, which decides when the clock is read.
    read_in_poll: u32,
    /// When the wait for the current request began, and when it was read; 0 unless requests were traced or logged then.
    received: [u64; 2],
    /// The record of the slowest request, with its time, if the client asked for records.
    slowest: Option<(u64, String)>,
    /// Set once no more requests are read: the status that ends the stream when all responses were sent.
    ending: Option<Status>,
}

/// Open requests to decoupled models.
#[derive(Default)]
struct Decoupled<'a> {
    /// Requests by their keys in the inbox.
    open: Vec<Option<DecoupledCall<'a>>>,
    count: usize,
}

/// Messages that wait to be sent.
#[derive(Default)]
struct SendQueue {
    /// Encoded messages that were not passed to HTTP/2 yet, with their requests' traces.
    frames: VecDeque<(Rope, MessageExchange)>,
    bytes: usize,
    /// A part of the first message was passed to HTTP/2.
    is_mid_message: bool,
}

/// The client disconnected.
struct Gone;

/// Number of requests that are started between checks of the time.
const MESSAGES_PER_LOOK: u32 = 8;

fn reject_draining(context: &GrpcContext) -> Result<()> {
    let refuses = inference::is_closed(&context.shared, &context.engine);
    if refuses { Err(Error::unavailable(Status::shutting_down().message)) } else { Ok(()) }
}

/// Turns a started request with one response into one that waits.
fn waiting<'a>(
    started: Result<Inference>,
    version: Arc<ModelVersion>,
    head: &InferHead,
    exchange: MessageExchange,
    counted: Counted<'a>,
) -> Result<Read<'a>, Box<StreamError>> {
    match started {
        Ok(inference) => {
            let (state, names) = (Answering::Inference(Some(inference)), ResponseNames::of(head, exchange));
            Ok(Read::Unary(UnaryRequest { state, version, names, _counted: counted }))
        }
        Err(error) => {
            exchange.waits_for(&version, None);
            Err(Box::new(StreamError { error, id: head.id.clone(), exchange }))
        }
    }
}

fn open<'a>(
    version: Arc<ModelVersion>,
    head: &InferHead,
    exchange: MessageExchange,
    counted: Counted<'a>,
) -> DecoupledCall<'a> {
    let wants_empty_final = head.wants_empty_final_response();
    DecoupledCall { version, names: Rc::new(ResponseNames::of(head, exchange)), wants_empty_final, _counted: counted }
}

/// Reads a large message on another thread and starts its request.
async fn read_large<'a>(
    context: &'a GrpcContext,
    early: EarlyVersion,
    grant: Grant,
    account: Account,
    metadata: Rc<RequestHead>,
    message: Bytes,
    exchange: MessageExchange,
) -> ReadResult<'a> {
    let counted = context.shared.request();
    let engine = context.engine.clone();
    let read = move |_: &CancelFlag<'_>| {
        let head = peek(&message)?;
        let permitted = grant.admit_model(&head.model_name).map_err(Error::from);
        let found = permitted.and_then(|()| early.version(&engine, &head.model_name, &head.model_version));
        let request = found.and_then(|version| {
            let mut request = head.into_request(&version.signature, &*engine)?;
            inference::dispose_offloaded(&mut request);
            Ok((version, request))
        });
        Ok::<_, Error>((head, request))
    };
    // A message that is rejected for lack of room is still a request.
    let (read, charge) = match offload::run_charged(&account, Kind::Unpacked, usize::MAX, read).await {
        Ok(read) => read,
        Err(error) => return Ok(Err(Box::new(StreamError { error, id: Name::new(), exchange }))),
    };
    let (head, request) = read?;
    exchange.named(&head);
    let request = reject_draining(context).and(request).and_then(|(version, mut request)| {
        inference::charge(&mut request, charge);
        exchange.read_question(&mut request, || {});
        exchange.accept(&metadata, &version, &mut request);
        forward(&context.forward, &metadata, &mut request)?;
        Ok((version, request))
    });
    Ok(match request {
        Ok((version, request)) if version.signature.decoupled => {
            Ok(Read::Decoupled(request, open(version, &head, exchange, counted)))
        }
        Ok((version, request)) => {
            let started = inference::start(&version, request).get().await;
            waiting(started, version, &head, exchange, counted)
        }
        Err(error) => {
            verbose::infer_failed(Some(&head.id), &error);
            Err(Box::new(StreamError { error, id: head.id.clone(), exchange }))
        }
    })
}

/// Serves one stream to its end.
pub async fn serve(stream: GrpcStream<'_>) {
    let GrpcStream { context, call, mut respond, deadline } = stream;
    if reply::begin(&mut respond, call.response_encoding).is_err() {
        return;
    }
    let errors_end_stream = call.head.get("triton_grpc_error").is_some_and(|v| v == b"true");
    let packing = Packing::new(context.compression_level, call.response_encoding);
    let inbox = Inbox::new(&call.exchange.account);
    let mut session = Session {
        context,
        call,
        respond,
        packing,
        starting: None,
        ordered: VecDeque::new(),
        decoupled: Decoupled::default(),
        inbox,
        framing: None,
        output: SendQueue::default(),
        errors_end_stream,
        read_in_poll: 1,
        received: [0; 2],
        slowest: None,
        ending: None,
    };
    let ended = match deadline {
        None => poll_fn(|cx| session.poll(cx)).await,
        Some(limit) => {
            let limited = tokio::time::timeout(limit, poll_fn(|cx| session.poll(cx))).await;
            limited.unwrap_or_else(|_| Ok(Status::deadline_exceeded()))
        }
    };
    // Dropping the session cancels its requests, and resets the stream if it was not ended. A deadline inside a message
    // does not end it: trailers after part of a message would mean that the message is complete.
    if let Ok(status) = ended
        && !session.output.is_mid_message
    {
        session.call.exchange.closed(&status);
        let why = session.slowest.take().map(|(_, why)| why).or_else(|| session.call.exchange.why());
        reply::end_with(&mut session.respond, &status, why.as_ref());
    }
}

impl<'a> Session<'a> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Status, Gone>> {
        self.read_in_poll = 1;
        loop {
            let read = match self.read(cx) {
                Ok(read) => read,
                Err(Gone) => return Poll::Ready(Err(Gone)),
            };
            self.collect(cx);
            let more = self.collect_decoupled(cx);
            match self.flush(cx) {
                Ok(()) => {}
                Err(Gone) => return Poll::Ready(Err(Gone)),
            }
            let idle = self.output.frames.is_empty()
                && self.ordered.is_empty()
                && self.decoupled.count == 0
                && self.framing.is_none()
                && self.starting.is_none();
            if idle && let Some(status) = self.ending.take() {
                return Poll::Ready(Ok(status));
            }
            if self.respond.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            // A step may have stopped at a limit that later steps lifted. Nothing would wake the stream then.
            let goes_on = (read && self.may_read()) || (more && self.output.frames.is_empty());
            if !goes_on {
                return Poll::Pending;
            }
        }
    }

    fn may_read(&self) -> bool {
        self.ending.is_none()
            && self.ordered.len() + self.decoupled.count < STREAM_REQUESTS_PENDING_MAX
            && self.output.bytes < SEND_BUFFER_BYTES_MAX
    }

    /// Starts requests until there are no more or a limit is reached; returns true in the latter case.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Gone> {
        while self.may_read() {
            if let Some(starting) = &mut self.starting {
                let Poll::Ready(started) = starting.as_mut().poll(cx) else { return Ok(false) };
                self.starting = None;
                self.started(started);
                continue;
            }
            if self.read_in_poll.is_multiple_of(MESSAGES_PER_LOOK) && hold::is_due() {
                // Lets others run. Received messages do not wake the stream, so it wakes itself.
                hold::yield_turn(cx);
                return Ok(false);
            }
            self.read_in_poll += 1;
            match self.call.messages.poll_next(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(Some(message))) => self.accept(&message),
                Poll::Ready(Ok(None)) => self.ending = Some(Status::ok()),
                Poll::Ready(Err(status)) if status.code == code::CANCELLED => return Err(Gone),
                Poll::Ready(Err(status)) if self.call.messages.lost_one() => {
                    // The message could not be read, so neither its id nor its model is known.
                    self.reject(
                        &Error::exhausted(status.message).by(status.fault),
                        &Name::new(),
                        MessageExchange::default(),
                    );
                }
                Poll::Ready(Err(status)) => self.end(status),
            }
        }
        Ok(true)
    }

    fn accept(&mut self, message: &Bytes) {
        verbose::stream_read();
        let call = &self.call.exchange;
        let exchange = MessageExchange::begin(&self.context.shared, call, &mut self.received, message);
        if message.len() > MESSAGE_BYTES_ON_REACTOR_MAX
            && protocol::grpc::is_long(message, MESSAGE_BYTES_ON_REACTOR_MAX)
        {
            exchange.needs_record(&self.context.shared, call);
            self.starting = Some(Box::pin(read_large(
                self.context,
                self.call.messages.early().clone(),
                self.call.exchange.grant.clone(),
                self.call.exchange.account.clone(),
                self.call.head.clone(),
                message.clone(),
                exchange,
            )));
            return;
        }
        let head = match peek(message) {
            Ok(head) => head,
            // Without its fields there is no request to answer, and later messages may be wrong, too.
            Err(error) => return self.end(error.into()),
        };
        let counted = self.context.shared.request();
        exchange.named(&head);
        match self.read_one(&head, &exchange) {
            Ok((version, request)) if version.signature.decoupled => {
                self.start_decoupled(request, open(version, &head, exchange, counted));
            }
            Ok((version, request)) => match inference::start(&version, request) {
                Started::Done(started) => self.started(Ok(waiting(started, version, &head, exchange, counted))),
                Started::Offloaded(work) => {
                    let rest = async move { Ok(waiting(work.await, version, &head, exchange, counted)) };
                    self.starting = Some(Box::pin(rest));
                }
            },
            Err(error) => {
                exchange.needs_record(&self.context.shared, &self.call.exchange);
                exchange.named(&head);
                self.started(Ok(Err(Box::new(StreamError { error, id: head.id.clone(), exchange }))));
            }
        }
    }

    fn read_one(&self, head: &InferHead, exchange: &MessageExchange) -> Result<(Arc<ModelVersion>, Box<InferRequest>)> {
        reject_draining(self.context)?;
        let read = || {
            self.call.exchange.grant.admit_model(&head.model_name)?;
            let (name, number) = (&head.model_name, &head.model_version);
            let version = self.call.messages.early().version(&self.context.engine, name, number)?;
            if version.signature.decoupled {
                exchange.needs_record(&self.context.shared, &self.call.exchange);
            }
            let mut request = head.into_request(&version.signature, &*self.context.engine)?;
            exchange.read_question(&mut request, || exchange.needs_record(&self.context.shared, &self.call.exchange));
            exchange.accept(&self.call.head, &version, &mut request);
            forward(&self.context.forward, &self.call.head, &mut request)?;
            Ok((version, request))
        };
        read().inspect_err(|e| verbose::infer_failed(Some(&head.id), e))
    }

    fn started(&mut self, started: ReadResult<'a>) {
        match started {
            Ok(Ok(Read::Unary(waiting))) => {
                if let Answering::Inference(Some(Inference::Pending(pending))) = &waiting.state {
                    let exchange = &waiting.names.exchange;
                    exchange.needs_record(&self.context.shared, &self.call.exchange);
                    exchange.waits_for(&waiting.version, pending.measured());
                }
                self.ordered.push_back(UnaryCall::Waiting(Box::new(waiting)));
            }
            Ok(Ok(Read::Decoupled(request, open))) => self.start_decoupled(request, open),
            Ok(Ok(Read::Checked(_, Ok(())))) => {}
            Ok(Ok(Read::Checked(key, Err(error)))) => self.refused(key, &error),
            Ok(Err(failed)) => {
                let StreamError { error, id, exchange } = *failed;
                self.reject(&error, &id, exchange);
            }
            // As in `accept`.
            Err(error) => self.end(error.into()),
        }
    }

    fn reject(&mut self, error: &Error, id: &Name, exchange: MessageExchange) {
        RequestFailure::from(error).count();
        exchange.needs_record(&self.context.shared, &self.call.exchange);
        exchange.identified(id);
        let refusal = encode_stream_error(error, id, StreamFailure::BeforeEnqueue);
        exchange.answered(Some(error), true);
        self.ordered.push_back(UnaryCall::Refused(refusal, exchange));
    }

    /// Starts a request whose responses go to the inbox. It is registered before its first response can arrive.
    fn start_decoupled(&mut self, request: Box<InferRequest>, open: DecoupledCall<'a>) {
        let (version, key) = (open.version.clone(), self.inbox.reserve());
        let at = key as usize;
        if self.decoupled.open.len() <= at {
            self.decoupled.open.resize_with(at + 1, || None);
        }
        if let Some(place) = self.decoupled.open.get_mut(at) {
            *place = Some(open);
            self.decoupled.count += 1;
        }
        match self.inbox.starter().start(key, &version, request) {
            Started::Done(Ok(())) => {}
            Started::Done(Err(error)) => self.refused(key, &error),
            Started::Offloaded(work) => {
                self.starting = Some(Box::pin(async move { Ok(Ok(Read::Checked(key, work.await))) }));
            }
        }
    }

    /// Handles the rejection of a request of the inbox.
    fn refused(&mut self, key: u32, error: &Error) {
        self.inbox.release(key);
        if let Some(open) = self.over(key) {
            self.reject(error, &open.names.id, open.names.exchange.clone());
        }
    }

    /// Removes an ended request of the inbox.
    fn over(&mut self, key: u32) -> Option<DecoupledCall<'a>> {
        let open = self.decoupled.open.get_mut(key as usize)?.take()?;
        self.decoupled.count -= 1;
        Some(open)
    }

    /// Moves responses of decoupled models to the output while HTTP/2 takes them. Returns true if there may be more.
    fn collect_decoupled(&mut self, cx: &mut Context<'_>) -> bool {
        let mut taken = 0u32;
        while self.decoupled.count > 0 || self.framing.is_some() {
            if let Some(framing) = &mut self.framing {
                let Poll::Ready(frame) = Pin::new(&mut framing.work).poll(cx) else { return false };
                if let Some(Framing { key, names, is_final, .. }) = self.framing.take() {
                    self.put(key, &names, frame.and_then(|frame| frame), is_final);
                }
                continue;
            }
            // Other responses stay in the inbox, which cancels a request that has too many.
            if self.output.bytes > ANSWERS_SENT_AHEAD_BYTES_MAX {
                return true;
            }
            if self.respond.poll_queued(ANSWERS_SENT_AHEAD_BYTES_MAX, cx).is_pending() {
                return false;
            }
            taken += 1;
            if taken.is_multiple_of(ANSWERS_PER_LOOK) && hold::is_due() {
                hold::yield_turn(cx);
                return false;
            }
            let Poll::Ready(answer) = self.inbox.poll_next(cx) else { return false };
            self.take(answer);
        }
        false
    }

    /// Moves one response of a decoupled model to the output, unless another thread frames it first.
    fn take(&mut self, EngineResponse { response, is_final, key, .. }: EngineResponse) {
        let Some(open) = self.decoupled.open.get(key as usize).and_then(Option::as_ref) else { return };
        let (names, packing) = (open.names.clone(), self.packing);
        let frame = match response {
            Some(Ok(response)) if packing.is_long(&response) => {
                match frame_offloaded(response, open.version.clone(), is_final, packing) {
                    Ok(work) => {
                        self.framing = Some(Framing { work, key, names: names.clone(), is_final });
                        None
                    }
                    Err(error) => Some(Err(error)),
                }
            }
            Some(Ok(response)) => Some(framed(&response, &open.version, is_final, packing)),
            Some(Err(error)) => Some(Err(error)),
            None if is_final && open.wants_empty_final => {
                Some(names.empty_final(&open.version).and_then(|message| frame_encoded(message, packing)))
            }
            None => None,
        };
        if is_final {
            names.exchange.completed();
            self.over(key);
        }
        match frame {
            Some(frame) => self.put(key, &names, frame, is_final),
            None if self.framing.is_none() => names.exchange.answered(None, is_final),
            None => {}
        }
    }

    /// Moves a framed response of a decoupled model to the output, if there is memory for it.
    fn put(&mut self, key: u32, names: &ResponseNames, frame: Result<Rope>, is_final: bool) {
        match frame.map(|frame| reply::charge(frame, &self.call.exchange.account)) {
            // The error becomes the last response.
            Ok(Err(error)) if !is_final => self.inbox.overrun(key, error),
            Ok(charged) => self.answer(names, charged, is_final),
            Err(error) => self.answer(names, Err(error), is_final),
        }
    }

    /// Moves responses to the output in request order, until one is not ready.
    fn collect(&mut self, cx: &mut Context<'_>) {
        while let Some(slot) = self.ordered.front_mut() {
            let result = match slot {
                UnaryCall::Refused(..) => None,
                UnaryCall::Waiting(waiting) => match waiting.poll(cx, self.packing) {
                    Poll::Pending => return,
                    Poll::Ready(result) => Some(result),
                },
            };
            match (self.ordered.pop_front(), result) {
                (Some(UnaryCall::Waiting(waiting)), Some(result)) => {
                    let charged = result.and_then(|frame| reply::charge(frame, &self.call.exchange.account));
                    self.answer(&waiting.names, charged, true);
                }
                (Some(UnaryCall::Refused(refusal, exchange)), _) => self.put_encoded(refusal, exchange),
                _ => {}
            }
        }
    }

    /// Moves a charged response, or the error of its request, to the output.
    fn answer(&mut self, names: &ResponseNames, result: Result<Rope>, is_final: bool) {
        names.exchange.answered(result.as_ref().err(), is_final);
        match result {
            Ok(frame) => self.queue(frame, names.exchange.clone()),
            Err(error) if self.errors_end_stream => self.end(error.into()),
            Err(error) => self.put_encoded(names.failed(&error, is_final), names.exchange.clone()),
        }
    }

    /// Ends the stream with an error. Encoded messages are still sent; all requests are cancelled.
    fn end(&mut self, status: Status) {
        self.ordered.clear();
        self.inbox.close();
        self.decoupled.open.clear();
        self.decoupled.count = 0;
        self.framing = None;
        self.starting = None;
        self.ending = Some(status);
    }

    fn put_encoded(&mut self, encoded: Encoded, exchange: MessageExchange) {
        // If there is no room even for an error, the stream ends.
        match frame_encoded(encoded, self.packing).and_then(|frame| reply::charge(frame, &self.call.exchange.account)) {
            Ok(frame) => self.queue(frame, exchange),
            Err(error) => self.end(error.into()),
        }
    }

    fn queue(&mut self, frame: Rope, exchange: MessageExchange) {
        exchange.sending(frame.remaining());
        self.output.bytes += frame.remaining();
        self.output.frames.push_back((frame, exchange));
    }

    /// Passes as much to HTTP/2 as the client's windows allow.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), Gone> {
        while let Some((frame, _)) = self.output.frames.front_mut() {
            let capacity = match self.respond.poll_capacity(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(capacity)) => capacity,
                Poll::Ready(None) => return Err(Gone),
            };
            let piece = frame.take_front(capacity);
            self.output.bytes -= piece.remaining();
            self.output.is_mid_message = frame.has_remaining();
            let sent = if self.output.is_mid_message { None } else { self.output.frames.pop_front() };
            self.respond.send_data(piece, false).map_err(|_| Gone)?;
            if let Some((_, exchange)) = sent {
                exchange.ends(&self.context.shared, &self.call.exchange);
                exchange.sent();
                let why = exchange.why(&self.call.exchange.grant);
                if why.is_some() && why > self.slowest {
                    self.slowest = why;
                }
            }
        }
        Ok(())
    }
}
