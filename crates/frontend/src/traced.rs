//! What the front ends note of requests that are traced (O 3.4): when they came, when their answers were there, when those left.
//!
//! Which model a request is for is known only after it was read. So where any model may be traced each request has a [`Slot`] as soon
//! as its head was read; where none may, this costs one look at one counter.

use crate::http::request::RequestHead as HttpHead;
use backend::now_ns;
use engine::{Answer, ModelVersion};
use protocol::json::Value;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use trace::{Activity, Context, Trace};

/// Which activities a front end notes.
#[derive(Debug)]
pub struct Names {
    received: [Activity; 2],
    sent: [Activity; 2],
}

const HTTP: Names = Names {
    received: [Activity::HttpRecvStart, Activity::HttpRecvEnd],
    sent: [Activity::HttpSendStart, Activity::HttpSendEnd],
};
const GRPC: Names = Names {
    received: [Activity::GrpcWaitreadStart, Activity::GrpcWaitreadEnd],
    sent: [Activity::GrpcSendStart, Activity::GrpcSendEnd],
};

/// A request that may turn out to be traced.
pub struct Slot {
    names: &'static Names,
    begun: u64,
    read: Cell<u64>,
    trace: RefCell<Option<Trace>>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl Slot {
    /// For an HTTP request that comes now, if any is traced.
    #[inline]
    pub fn http() -> Option<Rc<Self>> {
        trace::is_any_on().then(|| Self::new(&HTTP))
    }

    /// Likewise for a call of gRPC.
    #[inline]
    pub fn grpc() -> Option<Rc<Self>> {
        trace::is_any_on().then(|| Self::new(&GRPC))
    }

    #[cold]
    fn new(names: &'static Names) -> Rc<Self> {
        Rc::new(Self { names, begun: now_ns(), read: Cell::new(0), trace: RefCell::default() })
    }

    /// The request is read to its end.
    pub fn was_read(&self) {
        self.read.set(now_ns());
    }

    /// Samples the request, now that its model is known.
    fn begin(&self, version: &ModelVersion, context: impl FnOnce() -> Option<Context>) -> Option<Trace> {
        let mut trace = self.trace.borrow_mut();
        *trace = begin(self.names, version, [self.begun, self.read.get()], context);
        trace.clone()
    }

    /// For the request, if it was sampled.
    pub fn trace(&self) -> Option<Trace> {
        self.trace.borrow().clone()
    }

    /// Likewise; nothing is noted here any more.
    pub fn take(&self) -> Option<Trace> {
        self.trace.borrow_mut().take()
    }

    /// Whether the request was sampled.
    pub fn is_sampled(&self) -> bool {
        self.trace.borrow().is_some()
    }

    /// The request was refused because of its body. One that [`is_no_json`] leaves a trace of its own.
    pub fn refused(&self, is_no_json: bool) {
        if let Some(trace) = self.take()
            && is_no_json
        {
            trace.keep();
        }
    }

    /// An answer is there.
    pub fn completed(&self) {
        completed(self.trace.borrow().as_ref());
    }

    /// The answer begins to leave.
    pub fn sending(&self) {
        self.note(self.names.sent[0]);
    }

    /// It has left.
    pub fn sent(&self) {
        self.note(self.names.sent[1]);
    }

    fn note(&self, activity: Activity) {
        if let Some(trace) = &*self.trace.borrow() {
            trace.front(activity, now_ns());
        }
    }
}

/// Whether a body has something, and that is not JSON. Takes as long as the text.
pub fn is_no_json(text: &[u8]) -> bool {
    !text.is_empty() && Value::parse(text).is_err()
}

fn begin(
    names: &Names,
    version: &ModelVersion,
    received: [u64; 2],
    context: impl FnOnce() -> Option<Context>,
) -> Option<Trace> {
    let trace = version.trace().begin(context)?;
    for (activity, ns) in names.received.into_iter().zip(received) {
        trace.front(activity, ns);
    }
    Some(trace)
}

/// Samples an HTTP request.
pub fn begin_http(head: &HttpHead, version: &ModelVersion) {
    if let Some(slot) = &head.trace {
        slot.begin(version, || {
            let fields = || head.headers.pairs();
            let states = fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"tracestate"));
            Context::parse(head.headers.get("traceparent")?, states.map(|(_, value)| value))
        });
    }
}

fn grpc_context(head: &http2::RequestHead) -> Option<Context> {
    let states = head.fields().filter(|(name, _)| *name == "tracestate");
    Context::parse(head.get("traceparent")?, states.map(|(_, value)| value))
}

/// Samples the request of a call.
pub fn begin_grpc(slot: Option<&Rc<Slot>>, head: &http2::RequestHead, version: &ModelVersion) -> Option<Trace> {
    slot?.begin(version, || grpc_context(head))
}

/// Samples a request of a stream that was waited for and then read. One that was read before any model was traced is not.
pub fn begin_in_stream(received: [u64; 2], head: &http2::RequestHead, version: &ModelVersion) -> Option<Trace> {
    if received == [0; 2] {
        return None;
    }
    begin(&GRPC, version, received, || grpc_context(head))
}

/// How many answers of one trace are there with this one of a stream: the end counts as one, as in Triton.
pub fn completions(answer: &Answer) -> usize {
    usize::from(answer.response.is_some()) + usize::from(answer.is_final)
}

/// An answer is there.
pub fn completed(trace: Option<&Trace>) {
    note(trace, Activity::InferResponseComplete);
}

/// Something of an HTTP answer begins to leave.
pub fn http_sending(trace: Option<&Trace>) {
    note(trace, HTTP.sent[0]);
}

/// It has left.
pub fn http_sent(trace: Option<&Trace>) {
    note(trace, HTTP.sent[1]);
}

/// A message of a stream begins to leave.
pub fn grpc_sending(trace: Option<&Trace>) {
    note(trace, GRPC.sent[0]);
}

/// It has left.
pub fn grpc_sent(trace: Option<&Trace>) {
    note(trace, GRPC.sent[1]);
}

#[inline]
fn note(trace: Option<&Trace>, activity: Activity) {
    if let Some(trace) = trace {
        trace.front(activity, now_ns());
    }
}
