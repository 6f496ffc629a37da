//! The HTTP API without a socket, for requests that another server in the same process has received. Routing, access
//! rules, texts and limits are those of the listeners. Connections, framing and timeouts belong to the other server.
//!
//! All requests run on one thread, which is a reactor, so that cheap inferences run inline. A request begins with its
//! head and, if it was read already, its body. Otherwise the body is requested only once the head is accepted. Events
//! are pulled, so that those which were not requested wait where they are counted.
//!
//! Invariant: every call is answered exactly once, even if its request is cancelled or the server ends.

mod crossing;
mod grpc;
mod piece;

pub use crossing::{EmbedEvent, Settle};
pub use grpc::EmbeddedCall;
pub use piece::{CallEnd, Piece};

use crate::control::Control;
use crate::exchange::{HttpExchange, refuse_head};
use crate::failure::FAULT;
use crate::grpc::context::GrpcContext;
use crate::hold::{self, Holds};
use crate::http::context::HttpContext;
use crate::http::events::Events;
use crate::http::method::Method;
use crate::http::reply::{JSON, Reply};
use crate::http::request::{self, RequestHead};
use crate::http::service;
use crate::limits::{EMBEDDED_BYTES_PER_CALL, EMBEDDED_EVENTS_PER_CALL_MAX};
use crate::origin::{Caller, Client, Face, Origin};
use crate::server::FrontendOptions;
use crate::server::begin_reactor;
use crate::shared::{Phase, Shared};
use crate::table::routes;
use bytes::Bytes;
use crossing::EmbedInput;
use engine::Engine;
use memory::{Account, Kind};
use options::ListenOptions;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;
use tensor::{Error, Fault, Result};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;
use tokio::time::timeout;

/// Protocol in log lines. The version of HTTP is known only to the other server.
const PROTOCOL: &str = "http";

/// Maximum number of open requests. The other server limits its connections itself.
pub const EMBEDDED_REQUESTS_MAX: usize = 65_536;

/// Time that open requests have at the end, for callers to pull what is ready.
const LAST_PULLS_TIME_MAX: Duration = Duration::from_millis(250);

/// A request that another server has received. Owns all its bytes.
#[derive(Debug, Default)]
pub struct EmbeddedRequest {
    /// `GET`, `POST`.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Header names and values by turns, as sent.
    pub fields: Vec<String>,
    /// Address of the client. Without it the request counts as one from the network.
    pub peer: Option<SocketAddr>,
    /// Address of the server's end of the connection.
    pub local: Option<SocketAddr>,
    /// `None` = not read yet.
    pub body: Option<Bytes>,
}

enum EmbedJob {
    Begin { ticket: u32, request: Box<EmbeddedRequest>, said: UnboundedReceiver<EmbedInput> },
    Call { ticket: u32, request: Box<EmbeddedCall>, said: UnboundedReceiver<EmbedInput> },
    End,
}

/// Requests of other servers of this process. Dropping it cancels them and ends its thread.
pub struct Embedded {
    jobs: UnboundedSender<EmbedJob>,
    open: Arc<Mutex<HashMap<u32, UnboundedSender<EmbedInput>>>>,
    settle: Settle,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the thread.
    ///
    /// # Errors
    /// INVALID_ARG for invalid options; INTERNAL if the system cannot start a thread.
    pub fn start(
        engine: Arc<Engine>,
        control: Arc<dyn Control>,
        options: FrontendOptions,
        settle: Settle,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::new(0, options.budget()).with_logs(options.logs.clone()));
        let gate = options.gate();
        let ListenOptions { http, grpc, openai_errors_as_triton, .. } = options.listen;
        let http = http.unwrap_or_default();
        let watched = Arc::downgrade(&shared);
        engine.on_change(move |engine| {
            if let Some(watched) = watched.upgrade() {
                watched.set_ready(|| engine.is_ready());
            }
        });
        let calls = grpc.unwrap_or_default();
        let calls = GrpcContext::new(engine.clone(), control.clone(), shared.clone(), &calls, gate.clone())?;
        let calls = Arc::new(calls);
        let context =
            Arc::new(HttpContext::new(engine, control, shared.clone(), &http, gate, openai_errors_as_triton)?);
        let failed = |e: std::io::Error| Error::internal(format!("cannot start a reactor: {e}"));
        let runtime =
            Builder::new_current_thread().enable_all().on_thread_unpark(hold::woke).build().map_err(failed)?;
        let (jobs, mut asked) = unbounded_channel();
        let open: Arc<Mutex<HashMap<u32, UnboundedSender<EmbedInput>>>> = Arc::default();
        let (still_open, settled) = (open.clone(), settle.clone());
        let budget = shared.budget().clone();
        let body = move || {
            memory::thread::request_short_slices();
            hold::begin(Arc::new(Holds::default()));
            let local = LocalSet::new();
            local.block_on(&runtime, async move {
                let _turns = begin_reactor();
                // The other server's connections are unknown here, so all share one account, bounded by the budget.
                let account = budget.common().clone();
                let shared_account = Rc::new(account.clone());
                let over = Rc::new(Notify::new());
                while let Some(job) = asked.recv().await {
                    let (open, settle) = (still_open.clone(), settled.clone());
                    match job {
                        EmbedJob::Begin { ticket, request, said } => {
                            let (context, account, over) = (context.clone(), account.clone(), over.clone());
                            hold::spawn(async move {
                                EmbeddedHttp { ticket, said, settle, account }.run(&context, *request).await;
                                open.lock().remove(&ticket);
                                over.notify_one();
                            });
                        }
                        EmbedJob::Call { ticket, request, said } => {
                            let (context, account, over) = (calls.clone(), shared_account.clone(), over.clone());
                            hold::spawn(async move {
                                grpc::run(&context, account, ticket, *request, said, settle).await;
                                open.lock().remove(&ticket);
                                over.notify_one();
                            });
                        }
                        EmbedJob::End => {
                            // Callers may not have pulled the last messages yet, such as the end of a health watch.
                            let all_over = async {
                                while !open.lock().is_empty() {
                                    over.notified().await;
                                }
                            };
                            let _ = timeout(LAST_PULLS_TIME_MAX, all_over).await;
                            break;
                        }
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("embedded".into()).spawn(body).map_err(failed)?;
        Ok(Self { jobs, open, settle, shared, thread: Some(thread) })
    }

    /// Begins a request. `ticket` is its number while it is open, and the number of its first call.
    pub fn begin(&self, ticket: u32, request: EmbeddedRequest) {
        self.open(ticket, |said| EmbedJob::Begin { ticket, request: Box::new(request), said });
    }

    /// Begins a gRPC call. `ticket` is its number while it is open, and that of its first [`next`](Self::next).
    pub fn call(&self, ticket: u32, request: EmbeddedCall) {
        self.open(ticket, |said| EmbedJob::Call { ticket, request: Box::new(request), said });
    }

    fn open(&self, ticket: u32, job: impl FnOnce(UnboundedReceiver<EmbedInput>) -> EmbedJob) {
        let (say, said) = unbounded_channel();
        {
            let mut open = self.open.lock();
            if open.len() >= EMBEDDED_REQUESTS_MAX {
                drop(open);
                let text = format!("{EMBEDDED_REQUESTS_MAX} embedded requests are open; try again later");
                return (self.settle)(ticket, Err(Error::exhausted(text).by(Fault::Server)));
            }
            open.insert(ticket, say);
        }
        if self.jobs.send(job(said)).is_err() {
            self.over(ticket);
        }
    }

    /// Passes on the next piece that the client of the gRPC call `ticket` sent. `ends`: no piece follows. Answers
    /// `call` when there is room for another piece.
    pub fn piece(&self, ticket: u32, call: u32, piece: Option<Piece>, ends: bool) {
        self.say(ticket, call, EmbedInput::Piece { call, piece, ends });
    }

    /// Begins the shutdown and notifies clients that watch the server's health.
    pub fn leave(&self) {
        self.shared.advance(Phase::Leaving);
    }

    /// Rejects new inferences.
    pub fn refuse(&self) {
        self.shared.advance(Phase::Refusing);
    }

    /// Passes on the body of request `ticket`, or the length of one that is too long. Answers `call`.
    pub fn body(&self, ticket: u32, call: u32, body: Result<Bytes, u64>) {
        self.say(ticket, call, EmbedInput::Body(call, body));
    }

    /// Answers `call` with the next events of request `ticket`, as soon as there are any.
    pub fn next(&self, ticket: u32, call: u32) {
        self.say(ticket, call, EmbedInput::Next(call));
    }

    /// Cancels request `ticket`. Its open call fails with CANCELLED.
    pub fn cancel(&self, ticket: u32) {
        if let Some(say) = self.open.lock().get(&ticket) {
            let _ = say.send(EmbedInput::Cancel);
        }
    }

    fn say(&self, ticket: u32, call: u32, what: EmbedInput) {
        let said = self.open.lock().get(&ticket).is_some_and(|say| say.send(what).is_ok());
        if !said {
            self.over(call);
        }
    }

    fn over(&self, call: u32) {
        (self.settle)(call, Err(Error::cancelled("the request is over")));
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = self.jobs.send(EmbedJob::End);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// One request, as its thread has it.
struct EmbeddedHttp {
    /// The call to answer next.
    ticket: u32,
    said: UnboundedReceiver<EmbedInput>,
    settle: Settle,
    account: Account,
}

impl Drop for EmbeddedHttp {
    fn drop(&mut self) {
        // Calls made after the last answer, or when the thread ended.
        self.said.close();
        while let Ok(EmbedInput::Body(call, _) | EmbedInput::Next(call) | EmbedInput::Piece { call, .. }) =
            self.said.try_recv()
        {
            self.report(call, Err(Error::cancelled("the request is over")));
        }
    }
}

impl EmbeddedHttp {
    fn report(&self, call: u32, event: Result<EmbedEvent>) {
        (self.settle)(call, event);
    }

    async fn run(mut self, context: &HttpContext, request: EmbeddedRequest) {
        let first = self.ticket;
        let mut unanswered = Unanswered { settle: self.settle.clone(), call: Some(first) };
        let EmbeddedRequest { method, target, fields, peer, local, body } = request;
        let is_head = method == "HEAD";
        let pairs = fields.chunks_exact(2).filter_map(|pair| Some((pair.first()?.as_bytes(), pair.get(1)?.as_bytes())));
        let origin = peer.map_or(Origin::Network, |peer| Origin::of(peer, || local));
        let client = Client::from(Caller { origin, face: Face::Embedded, peer });
        let target = match request::origin_form(target.as_bytes()) {
            Ok(target) => target,
            Err(bad) => {
                let reply = Reply::text_error(400, JSON, &bad.0);
                let refused = refuse_head(context, &client.caller, PROTOCOL, &reply);
                answer(&mut unanswered, reply, is_head);
                return refused.sent();
            }
        };
        let head = RequestHead::from_parts(Method::parse(method.as_bytes()), is_head, target, pairs);
        let (exchange, admission) = HttpExchange::begin(context, &client, &head, PROTOCOL, routes::find, &self.account);
        let admission = match (admission, &body) {
            // The body is not read if the request is rejected by its head.
            (Ok(bytes_max), None) => exchange.reject_early().map_or(Ok(bytes_max), |reply| Err(Box::new(reply))),
            (other, _) => other,
        };
        let mut reply = match admission {
            Err(reply) => *reply,
            Ok(bytes_max) => {
                let body = match body {
                    Some(body) if body.len() as u64 > bytes_max => Err(body.len() as u64),
                    Some(body) => Ok(body),
                    None => {
                        unanswered.answer(Ok(EmbedEvent::ReadBody { bytes_max }));
                        match self.said.recv().await {
                            Some(EmbedInput::Body(call, body)) => {
                                unanswered.call = Some(call);
                                body
                            }
                            Some(EmbedInput::Next(call) | EmbedInput::Piece { call, .. }) => {
                                return self.report(call, Err(Error::internal("events were requested before a body")));
                            }
                            _ => return,
                        }
                    }
                };
                match body {
                    Err(bytes) => exchange.too_large(bytes),
                    Ok(body) => match self.account.charge(Kind::Body, false, body.len()) {
                        Err(short) => exchange.short(&short),
                        Ok(_charge) => {
                            let Some(reply) = self.unless_cancelled(service::respond(&exchange, body.into())).await
                            else {
                                return;
                            };
                            reply
                        }
                    },
                }
            }
        };
        exchange.complete(&mut reply, 0);
        exchange.hand_over(&mut reply);
        let is_whole = match answer(&mut unanswered, reply, is_head) {
            Some(rest) => self.events(*rest).await,
            None => true,
        };
        if is_whole {
            exchange.sent();
        }
    }

    /// Output of `work`, or `None` if the request is cancelled before.
    async fn unless_cancelled<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            Poll::Pending => match self.said.poll_recv(cx) {
                Poll::Ready(Some(EmbedInput::Cancel) | None) => Poll::Ready(None),
                Poll::Ready(Some(
                    EmbedInput::Body(call, _) | EmbedInput::Next(call) | EmbedInput::Piece { call, .. },
                )) => {
                    self.report(call, Err(Error::internal("a request was requested twice at the same time")));
                    // More input may be waiting.
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            },
        })
        .await
    }

    /// Answers calls with the events of a reply. Returns whether all were sent.
    async fn events(&mut self, mut rest: Events) -> bool {
        loop {
            let call = match self.said.recv().await {
                Some(EmbedInput::Next(call)) => call,
                Some(EmbedInput::Body(call, _) | EmbedInput::Piece { call, .. }) => {
                    self.report(call, Err(Error::internal("a body was sent twice")));
                    return false;
                }
                _ => return false,
            };
            let mut unanswered = Unanswered { settle: self.settle.clone(), call: Some(call) };
            let gathered = poll_fn(|cx| {
                let (mut body, mut count) = (Vec::new(), 0);
                let done = loop {
                    if count == EMBEDDED_EVENTS_PER_CALL_MAX || body.len() >= EMBEDDED_BYTES_PER_CALL {
                        break false;
                    }
                    match rest.poll_next(cx) {
                        Poll::Ready(Some(event)) => {
                            count += 1;
                            event.parts.iter().for_each(|part| body.extend_from_slice(part));
                        }
                        Poll::Ready(None) => break true,
                        Poll::Pending if count == 0 => return Poll::Pending,
                        Poll::Pending => break false,
                    }
                };
                Poll::Ready((body, done))
            });
            let Some((body, done)) = self.unless_cancelled(gathered).await else { return false };
            unanswered.answer(Ok(EmbedEvent::Events { body: body.into(), done }));
            if done {
                return true;
            }
        }
    }
}

/// A call that is answered with CANCELLED if it is dropped unanswered.
struct Unanswered {
    settle: Settle,
    call: Option<u32>,
}

impl Unanswered {
    fn answer(&mut self, event: Result<EmbedEvent>) {
        if let Some(call) = self.call.take() {
            (self.settle)(call, event);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.answer(Err(Error::cancelled("")));
    }
}

/// Answers the current call with a reply. Returns the events that follow it.
fn answer(unanswered: &mut Unanswered, mut reply: Reply, is_head: bool) -> Option<Box<Events>> {
    let rest = reply.rest.take().filter(|_| !is_head);
    let (status, fields, sized) = (reply.status, fields(&reply), !reply.chunked);
    let body = reply.body.into_vec();
    unanswered.answer(Ok(EmbedEvent::Reply { status, fields, body, more: rest.is_some(), sized }));
    rest
}

/// Header fields of a reply. The other server adds those of the connection and the length.
fn fields(reply: &Reply) -> Vec<(String, String)> {
    let mut fields = vec![("Content-Type".to_owned(), reply.content_type.to_owned())];
    let mut add = |name: &str, value: String| fields.push((name.to_owned(), value));
    if let Some(n) = reply.header_length {
        add("Inference-Header-Content-Length", n.to_string());
    }
    if let Some(encoding) = reply.content_encoding {
        add("Content-Encoding", encoding.to_owned());
    }
    if reply.accept_encoding {
        add("Accept-Encoding", "gzip, deflate".to_owned());
    }
    if let Some(failure) = reply.failure {
        add(FAULT, failure.fault.name().to_owned());
        failure.retry_seconds().into_iter().for_each(|seconds| add("Retry-After", seconds.to_string()));
    }
    for (name, value) in reply.extra.iter().flat_map(|extra| extra.iter()) {
        add(name, value.to_string());
    }
    if let Some(load) = &reply.load {
        add("endpoint-load-metrics", load.to_string());
    }
    fields
}
