//! The HTTP API without a socket: requests that another server has received, in the same process. Routing, gate, texts and limits are those of
//! the listeners; connections, framing and timeouts are the other server's.
//!
//! One thread, built as a reactor is, so that inferences run on it as they do there. A request begins with its head and, if it is there, its
//! body; one whose body is not there is told how many bytes are wanted, so that a refused one is not read. Events are pulled: what is not
//! asked for waits where it is counted.
//!
//! Invariant: every call is answered exactly once, also of a request that is given up, and of one whose server ends.

mod grpc;

pub use grpc::{CallEnd, EmbeddedCall, Piece};

use crate::control::Control;
use crate::gate::Grant;
use crate::grpc::context::GrpcContext;
use crate::hold::{self, Holds};
use crate::http::context::HttpContext;
use crate::http::events::{self, Events};
use crate::http::method::Method;
use crate::http::reply::{JSON, Reply};
use crate::http::request::{self, RequestHead};
use crate::http::service::{self, Admission};
use crate::limits::{EMBEDDED_BYTES_PER_CALL, EMBEDDED_EVENTS_PER_CALL_MAX, RETRY_AFTER, UNCHARGED_ANSWER_BYTES_MAX};
use crate::options::FrontendOptions;
use crate::origin::{Caller, Face, Origin};
use crate::server::begin_reactor;
use crate::shared::{Phase, Shared};
use bytes::Bytes;
use engine::Engine;
use memory::{Account, Kind};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use tensor::{Code, Error, Result};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

/// What logs call it: its version is known to the other server.
const PROTOCOL: &str = "http";

/// Requests at a time. The other server decides how many connections it has; this is what its requests may hold here.
pub const EMBEDDED_REQUESTS_MAX: usize = 65_536;

/// A request as another server read it. All bytes are the caller's no more.
#[derive(Debug, Default)]
pub struct EmbeddedRequest {
    /// `GET`, `POST`.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Names and values by turns, as sent.
    pub fields: Vec<String>,
    /// Of the connection; where it is not known the request comes from the network.
    pub peer: Option<SocketAddr>,
    /// This end of the connection.
    pub local: Option<SocketAddr>,
    /// `None` = not read yet.
    pub body: Option<Bytes>,
}

/// What a call is told.
#[derive(Debug)]
pub enum EmbedEvent {
    /// The body is to be read, and has at most so many bytes; [`Embedded::body`] goes on. One that is longer is not to be read to its end.
    Wanted {
        /// More is not to be read.
        bytes_max: u64,
    },
    /// The reply. With `more`, events follow its body: [`Embedded::next`].
    Reply {
        /// HTTP's.
        status: u16,
        /// Without those of the connection, and without the length.
        fields: Vec<(String, String)>,
        /// In parts. Of a HEAD that of the GET.
        body: Vec<Bytes>,
        /// Events follow.
        more: bool,
        /// The length of the body is told. Else, and where events follow, it is sent in chunks.
        sized: bool,
    },
    /// Events, and whether they are the last.
    Events {
        /// As they are sent.
        body: Bytes,
        /// None follow.
        done: bool,
    },
    /// What there is of the answer of a gRPC call; [`Embedded::next`] goes on unless it ended.
    Call {
        /// The call was accepted: its response begins.
        begun: bool,
        /// Whole ones.
        messages: Vec<Vec<u8>>,
        /// Nothing follows.
        end: Option<CallEnd>,
    },
    /// A piece of a message was taken; there is room for another.
    Taken,
}

/// Hears how a call ended: its number, and what it is told.
pub type Settle = Arc<dyn Fn(u32, Result<EmbedEvent>) + Send + Sync>;

/// What is said of a request that has begun.
enum Say {
    /// The body, or how long it would have been.
    Body(u32, Result<Bytes, u64>),
    Next(u32),
    /// Of a message; with `ends` none follows.
    Piece {
        call: u32,
        piece: Option<Piece>,
        ends: bool,
    },
    GivenUp,
}

enum Job {
    Begin { ticket: u32, request: Box<EmbeddedRequest>, said: UnboundedReceiver<Say> },
    Call { ticket: u32, request: Box<EmbeddedCall>, said: UnboundedReceiver<Say> },
    End,
}

/// Requests of other servers of this process. Dropped, it gives them up and ends its thread.
pub struct Embedded {
    jobs: UnboundedSender<Job>,
    open: Arc<Mutex<HashMap<u32, UnboundedSender<Say>>>>,
    settle: Settle,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the thread.
    ///
    /// # Errors
    /// INVALID_ARG for options that cannot be; INTERNAL when the machine refuses a thread.
    pub fn start(
        engine: Arc<Engine>,
        control: Arc<dyn Control>,
        options: FrontendOptions,
        settle: Settle,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::new(0, memory::Budget::global().clone()).with_logs(options.logs));
        let http = options.http.unwrap_or_default();
        let watched = Arc::downgrade(&shared);
        engine.on_change(move |engine| {
            if let Some(watched) = watched.upgrade() {
                watched.set_ready(|| engine.is_ready());
            }
        });
        let calls = options.grpc.unwrap_or_default();
        let calls = GrpcContext::new(engine.clone(), control.clone(), shared.clone(), &calls, options.gate.clone())?;
        let calls = Arc::new(calls);
        let context = Arc::new(HttpContext::new(engine, control, shared.clone(), &http, options.gate)?);
        let failed = |e: std::io::Error| Error::internal(format!("cannot start a reactor: {e}"));
        let runtime =
            Builder::new_current_thread().enable_all().on_thread_unpark(hold::woke).build().map_err(failed)?;
        let (jobs, mut asked) = unbounded_channel();
        let open: Arc<Mutex<HashMap<u32, UnboundedSender<Say>>>> = Arc::default();
        let (still_open, settled) = (open.clone(), settle.clone());
        let body = move || {
            memory::thread::request_short_slices();
            hold::begin(Arc::new(Holds::default()));
            let local = LocalSet::new();
            local.block_on(&runtime, async move {
                let _turns = begin_reactor();
                // The outer server's connections are not known here: the budget alone bounds what they hold together.
                let account = memory::Budget::global().common();
                let shared_account = Rc::new(account.clone());
                while let Some(job) = asked.recv().await {
                    let (open, settle) = (still_open.clone(), settled.clone());
                    match job {
                        Job::Begin { ticket, request, said } => {
                            let (context, account) = (context.clone(), account.clone());
                            hold::spawn(async move {
                                Exchange { ticket, said, settle, account }.run(&context, *request).await;
                                open.lock().remove(&ticket);
                            });
                        }
                        Job::Call { ticket, request, said } => {
                            let (context, account) = (calls.clone(), shared_account.clone());
                            hold::spawn(async move {
                                grpc::run(&context, account, ticket, *request, said, settle).await;
                                open.lock().remove(&ticket);
                            });
                        }
                        Job::End => break,
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("embedded".into()).spawn(body).map_err(failed)?;
        Ok(Self { jobs, open, settle, shared, thread: Some(thread) })
    }

    /// Begins a request. `ticket` is its number, and that of its first call, as long as it is open.
    pub fn begin(&self, ticket: u32, request: EmbeddedRequest) {
        self.open(ticket, |said| Job::Begin { ticket, request: Box::new(request), said });
    }

    /// Begins a call of gRPC. `ticket` is its number, and that of its first [`next`](Self::next), as long as it is open.
    pub fn call(&self, ticket: u32, request: EmbeddedCall) {
        self.open(ticket, |said| Job::Call { ticket, request: Box::new(request), said });
    }

    fn open(&self, ticket: u32, job: impl FnOnce(UnboundedReceiver<Say>) -> Job) {
        let (say, said) = unbounded_channel();
        {
            let mut open = self.open.lock();
            if open.len() >= EMBEDDED_REQUESTS_MAX {
                drop(open);
                let text = format!("{EMBEDDED_REQUESTS_MAX} embedded requests are open; try again later");
                return (self.settle)(ticket, Err(Error::new(Code::ResourceExhausted, text)));
            }
            open.insert(ticket, say);
        }
        if self.jobs.send(job(said)).is_err() {
            self.over(ticket);
        }
    }

    /// The next piece of what the client of call `ticket` sends, if any, and whether nothing follows it. Answers `call` when there is room for
    /// another.
    pub fn piece(&self, ticket: u32, call: u32, piece: Option<Piece>, ends: bool) {
        self.say(ticket, call, Say::Piece { call, piece, ends });
    }

    /// The server leaves: those who watch its health are told.
    pub fn leave(&self) {
        self.shared.advance(Phase::Leaving);
    }

    /// The body that was wanted of request `ticket`, or how long it would have been if it is longer than wanted. Answers `call`.
    pub fn body(&self, ticket: u32, call: u32, body: Result<Bytes, u64>) {
        self.say(ticket, call, Say::Body(call, body));
    }

    /// Answers `call` with the next events of request `ticket`, as soon as there is one.
    pub fn next(&self, ticket: u32, call: u32) {
        self.say(ticket, call, Say::Next(call));
    }

    /// Nobody waits for request `ticket` any more. Its open call is told CANCELLED.
    pub fn cancel(&self, ticket: u32) {
        if let Some(say) = self.open.lock().get(&ticket) {
            let _ = say.send(Say::GivenUp);
        }
    }

    fn say(&self, ticket: u32, call: u32, what: Say) {
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
        let _ = self.jobs.send(Job::End);
        if let Some(thread) = self.thread.take() {
            // One that panicked is gone too, which is what is wanted.
            let _ = thread.join();
        }
    }
}

/// One request, on the thread.
struct Exchange {
    /// The call to answer next.
    ticket: u32,
    said: UnboundedReceiver<Say>,
    settle: Settle,
    account: Account,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Calls that came after the last answer, or that the end of the thread cut off.
        self.said.close();
        while let Ok(Say::Body(call, _) | Say::Next(call) | Say::Piece { call, .. }) = self.said.try_recv() {
            self.tell(call, Err(Error::cancelled("the request is over")));
        }
    }
}

impl Exchange {
    fn tell(&self, call: u32, told: Result<EmbedEvent>) {
        (self.settle)(call, told);
    }

    async fn run(mut self, context: &HttpContext, request: EmbeddedRequest) {
        let first = self.ticket;
        let mut unanswered = Unanswered { settle: self.settle.clone(), call: Some(first) };
        let _inflight = context.shared.request();
        let EmbeddedRequest { method, target, fields, peer, local, body } = request;
        let is_head = method == "HEAD";
        let pairs = fields.chunks_exact(2).filter_map(|pair| Some((pair.first()?.as_bytes(), pair.get(1)?.as_bytes())));
        // Names come in any case over HTTP/1, and lookups do not care.
        let origin = peer.map_or(Origin::Network, |peer| Origin::of(peer, || local));
        let caller = Caller { origin, face: Face::Embedded, peer };
        let target = match request::origin_form(target.as_bytes()) {
            Ok(target) => target,
            Err(bad) => {
                let mut head = RequestHead::default();
                head.note(&context.shared, &caller, PROTOCOL);
                let reply = Reply::text_error(400, JSON, &bad.0);
                self.reply(&mut unanswered, reply, is_head, &Grant::default(), &head);
                if let Some(slot) = &head.trace {
                    slot.sent();
                }
                return;
            }
        };
        let mut head = RequestHead::from_parts(Method::parse(method.as_bytes()), is_head, target, pairs);
        head.note(&context.shared, &caller, PROTOCOL);
        let (grant, admission) = service::admit(context, &caller.into(), &head);
        if let Some(slot) = &head.trace {
            slot.granted(grant.key());
        }
        let admission = match admission {
            // A body that was not read yet need not be, if its request is refused anyway.
            Admission::Read { route, bytes_max } if body.is_none() => {
                let refused = service::refused_by_head(context, &route, &head).map(Admission::Reply);
                refused.unwrap_or(Admission::Read { route, bytes_max })
            }
            other => other,
        };
        let reply = match admission {
            Admission::Reply(reply) => reply,
            Admission::Read { route, bytes_max } => {
                let body = match body {
                    Some(body) if body.len() as u64 > bytes_max => Err(body.len() as u64),
                    Some(body) => Ok(body),
                    None => {
                        unanswered.answer(Ok(EmbedEvent::Wanted { bytes_max }));
                        match self.said.recv().await {
                            Some(Say::Body(call, body)) => {
                                unanswered.call = Some(call);
                                body
                            }
                            Some(Say::Next(call) | Say::Piece { call, .. }) => {
                                return self.tell(call, Err(Error::internal("events were asked for before a body")));
                            }
                            _ => return,
                        }
                    }
                };
                match body {
                    Err(bytes) => service::too_large(context, route, bytes),
                    Ok(body) => match self.account.charge(Kind::Body, false, body.len()) {
                        Err(short) => {
                            self.account.count_refusal();
                            Reply::short(&short)
                        }
                        Ok(_charge) => {
                            if let Some(slot) = &head.trace {
                                slot.received(&body);
                            }
                            grant.charge(body.len());
                            let account = self.account.clone();
                            let work = service::respond(context, &account, route, &head, body);
                            let Some(reply) = self.unless_given_up(work).await else { return };
                            reply
                        }
                    },
                }
            }
        };
        let rest = self.reply(&mut unanswered, reply, is_head, &grant, &head);
        let is_whole = match rest {
            Some(rest) => self.events(*rest).await,
            None => true,
        };
        if let Some(slot) = head.trace.as_ref().filter(|_| is_whole) {
            slot.sent();
        }
    }

    /// What comes out, or `None` when the request is given up before.
    async fn unless_given_up<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(out) => Poll::Ready(Some(out)),
            Poll::Pending => match self.said.poll_recv(cx) {
                Poll::Ready(Some(Say::GivenUp) | None) => Poll::Ready(None),
                Poll::Ready(Some(Say::Body(call, _) | Say::Next(call) | Say::Piece { call, .. })) => {
                    self.tell(call, Err(Error::internal("a request was asked for twice at once")));
                    // Something else may be there already.
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            },
        })
        .await
    }

    /// Hands the reply over, as far as it is there.
    fn reply(
        &self,
        unanswered: &mut Unanswered,
        mut reply: Reply,
        is_head: bool,
        grant: &Grant,
        head: &RequestHead,
    ) -> Option<Box<Events>> {
        let rest = reply.rest.take().filter(|_| !is_head);
        let length = reply.body_length();
        if !reply.is_charged
            && length > UNCHARGED_ANSWER_BYTES_MAX
            && let Err(short) = self.account.charge(Kind::Answer, false, length)
        {
            self.account.count_refusal();
            reply = Reply::short(&short);
        }
        grant.charge(reply.body_length());
        if let Some(slot) = &head.trace {
            slot.replying(reply.status, reply.code, &reply.body);
        }
        let (status, fields, sized) = (reply.status, fields(&reply), !reply.chunked);
        let body = reply.body.drain(..).map(|part| grant.hold(part)).collect();
        unanswered.answer(Ok(EmbedEvent::Reply { status, fields, body, more: rest.is_some(), sized }));
        rest
    }

    /// Whether all of them were asked for.
    async fn events(&mut self, mut rest: Events) -> bool {
        loop {
            let call = match self.said.recv().await {
                Some(Say::Next(call)) => call,
                Some(Say::Body(call, _) | Say::Piece { call, .. }) => {
                    self.tell(call, Err(Error::internal("a body came twice")));
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
                            for part in [events::BEFORE, &events::json(event), events::BEHIND] {
                                body.extend_from_slice(part);
                            }
                        }
                        Poll::Ready(None) => break true,
                        Poll::Pending if count == 0 => return Poll::Pending,
                        Poll::Pending => break false,
                    }
                };
                Poll::Ready((body, done))
            });
            let Some((body, done)) = self.unless_given_up(gathered).await else { return false };
            unanswered.answer(Ok(EmbedEvent::Events { body: body.into(), done }));
            if done {
                return true;
            }
        }
    }
}

/// A call that is to be answered, whatever becomes of its request.
struct Unanswered {
    settle: Settle,
    call: Option<u32>,
}

impl Unanswered {
    fn answer(&mut self, told: Result<EmbedEvent>) {
        if let Some(call) = self.call.take() {
            (self.settle)(call, told);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.answer(Err(Error::cancelled("")));
    }
}

/// The fields of a reply, but for those of the connection and the length, which are the other server's.
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
    if reply.retry_after {
        add("Retry-After", RETRY_AFTER.as_secs().to_string());
    }
    for (name, value) in reply.extra.iter().flat_map(|extra| extra.iter()) {
        add(name, value.to_string());
    }
    if let Some(load) = &reply.load {
        add("endpoint-load-metrics", load.to_string());
    }
    fields
}
