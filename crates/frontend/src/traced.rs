//! What the front ends note of requests that are traced (O 3.4) or have a line in a log: when they came, when their
//! answers were there, when those left, and how they ended.
//!
//! Which model a request is for is known only after it was read. So where any model may be traced, or there is an
//! access log, each request has a [`RequestTrace`] as soon as its head was read; where neither is, this costs one look at one
//! counter.

use crate::access_log::entry::{EventNotes, LoggedRequest, RequestName};
use crate::grpc::status::Status;
use crate::http::method::Method;
use crate::origin::Caller;
use crate::shared::Shared;
use crate::table::Operation;
use backend::now_ns;
use bytes::Bytes;
use engine::{EngineResponse, ModelVersion};
use protocol::json::Value;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use tensor::{Code, Error, Name};
use trace::{Activity, Context, Trace};

/// Activities that a front end records.
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

/// A request that may be traced or is logged. Its line is written when the last owner drops it.
pub struct RequestTrace {
    names: &'static Names,
    begun: u64,
    read: Cell<u64>,
    trace: RefCell<Option<Trace>>,
    entry: Option<LoggedRequest>,
}

/// `None` while nothing is traced and nothing logged.
pub type Noted = Option<Rc<RequestTrace>>;

impl fmt::Debug for RequestTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestTrace").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl RequestTrace {
    /// An HTTP request that begins now, if requests are traced or logged.
    #[inline]
    pub fn http(
        shared: &Shared,
        caller: &Caller,
        protocol: &'static str,
        method: Method,
        path: impl FnOnce() -> Bytes,
    ) -> Noted {
        if !trace::is_any_on() {
            return None;
        }
        Self::new(&HTTP, shared, caller, || RequestName::Http(protocol, method, path()))
    }

    /// A gRPC call that begins now, if requests are traced or logged.
    #[inline]
    pub fn grpc(
        shared: &Shared,
        caller: &Caller,
        operation: Option<Operation>,
        head: &Rc<http2::RequestHead>,
    ) -> Noted {
        if !trace::is_any_on() {
            return None;
        }
        Self::new(&GRPC, shared, caller, || RequestName::Grpc(operation, head.clone()))
    }

    #[cold]
    fn new(names: &'static Names, shared: &Shared, caller: &Caller, asked: impl FnOnce() -> RequestName) -> Noted {
        let begun = now_ns();
        let entry = shared.logs().and_then(|logs| LoggedRequest::new(logs, caller, asked(), begun));
        Some(Rc::new(Self { names, begun, read: Cell::new(0), trace: RefCell::default(), entry }))
    }

    /// For a request of a stream, that of whose call is `call`, and which was waited for and then read. One that was
    /// read before there were any has none.
    pub fn in_stream(call: Option<&Rc<Self>>, received: [u64; 2], message: &Bytes) -> Noted {
        let [begun, read] = received;
        if read == 0 {
            return None;
        }
        let entry = call.and_then(|slot| slot.entry.as_ref()).and_then(|call| call.in_stream(read));
        if let Some(entry) = &entry {
            entry.received(message);
        }
        Some(Rc::new(Self { names: &GRPC, begun, read: Cell::new(read), trace: RefCell::default(), entry }))
    }

    /// Records that the request was read and its model found.
    pub fn was_read(&self) {
        self.read.set(now_ns());
    }

    pub fn received(&self, body: &Bytes) {
        if let Some(entry) = &self.entry {
            entry.received(body);
        }
    }

    pub fn granted(&self, key: Option<&Arc<str>>) {
        if let Some(entry) = &self.entry {
            entry.granted(key);
        }
    }

    pub fn named(&self, model: &Name, version: &Name, id: &Name) {
        if let Some(entry) = &self.entry {
            entry.named(model, version, id);
        }
    }

    pub fn identified(&self, id: &Name) {
        if let Some(entry) = &self.entry {
            entry.identified(id);
        }
    }

    /// Samples the request, now that its model is known. `context`: the client's own trace.
    pub fn begin(&self, version: &ModelVersion, context: impl FnOnce() -> Option<Context>) -> Option<Trace> {
        let mut trace = self.trace.borrow_mut();
        *trace = begin(self.names, version, [self.begun, self.read.get()], context);
        if let Some(entry) = &self.entry {
            let measured = trace.get_or_insert_with(Trace::measured);
            entry.found(&version.signature, Some(measured));
        }
        trace.clone()
    }

    /// Trace of a request that is sampled or measured.
    pub fn trace(&self) -> Option<Trace> {
        self.trace.borrow().clone()
    }

    /// Takes the trace; nothing is recorded here any more.
    pub fn take(&self) -> Option<Trace> {
        self.trace.borrow_mut().take()
    }

    pub fn is_sampled(&self) -> bool {
        self.trace.borrow().as_ref().is_some_and(Trace::is_recorded)
    }

    /// Ends the trace of a request whose body was rejected; it is kept only if [`is_no_json`].
    pub fn refused(&self, is_no_json: bool) {
        if let Some(trace) = self.take()
            && is_no_json
        {
            trace.keep();
        }
    }

    pub fn completed(&self) {
        completed(self.trace.borrow().as_ref());
    }

    /// Records an HTTP reply that is about to be sent: status, class of error, body.
    pub fn replying(&self, status: u16, code: Option<Code>, body: &[Bytes]) {
        if let Some(entry) = &self.entry {
            entry.replied(status, code, body);
        }
        self.note(self.names.sent[0]);
    }

    /// Records a message that is about to be sent, one of several.
    pub fn sending(&self, bytes: usize) {
        if let Some(entry) = &self.entry {
            entry.sending(bytes);
        }
        self.note(self.names.sent[0]);
    }

    /// Where the events of a reply are noted, which follow its beginning. Their trace is noted where they are made.
    pub fn events(&self) -> Option<Arc<EventNotes>> {
        self.entry.as_ref().map(LoggedRequest::events)
    }

    pub fn ending(&self, status: &Status) {
        if let Some(entry) = &self.entry {
            entry.ended(status);
        }
    }

    /// Records the end of a call without a message.
    pub fn refusing(&self, status: &Status) {
        self.ending(status);
        // What is in one frame with its end is sent as soon as it begins to be.
        self.note(self.names.sent[0]);
        self.note(self.names.sent[1]);
    }

    pub fn succeeded(&self) {
        if let Some(entry) = &self.entry {
            entry.succeeded();
        }
    }

    /// Records a failure, which may follow some responses.
    pub fn failed(&self, error: &Error) {
        if let Some(entry) = &self.entry {
            entry.failed(error);
        }
    }

    pub fn sent(&self) {
        if let Some(entry) = &self.entry {
            entry.sent();
        }
        self.note(self.names.sent[1]);
    }

    fn note(&self, activity: Activity) {
        note(self.trace.borrow().as_ref(), activity);
    }
}

/// Whether a body is not empty and not JSON; parses all of it.
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

fn grpc_context(head: &http2::RequestHead) -> Option<Context> {
    let states = head.fields().filter(|(name, _)| *name == "tracestate");
    Context::parse(head.get("traceparent")?, states.map(|(_, value)| value))
}

pub fn begin_grpc(slot: Option<&Rc<RequestTrace>>, head: &http2::RequestHead, version: &ModelVersion) -> Option<Trace> {
    slot?.begin(version, || grpc_context(head))
}

/// Completions that an answer of a stream adds to its trace: the end counts as one, as in Triton.
pub fn completions(answer: &EngineResponse) -> usize {
    usize::from(answer.response.is_some()) + usize::from(answer.is_final)
}

pub fn completed(trace: Option<&Trace>) {
    note(trace, Activity::InferResponseComplete);
}

pub fn http_sending(trace: Option<&Trace>) {
    note(trace, HTTP.sent[0]);
}

pub fn http_sent(trace: Option<&Trace>) {
    note(trace, HTTP.sent[1]);
}

#[inline]
fn note(trace: Option<&Trace>, activity: Activity) {
    if let Some(trace) = trace.filter(|trace| trace.is_recorded()) {
        trace.front(activity, now_ns());
    }
}
