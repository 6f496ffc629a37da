//! Notes of the front ends about requests that are traced (O 3.4) or logged: times of arrival, completion and sending,
//! and the result.
//!
//! The model of a request is known only after the request was read. So if any model may be traced, or if there is an
//! access log, each request gets a [`RequestTrace`] as soon as its head was read. Otherwise the cost is one read of a
//! counter.

use crate::access_log::entry::{EventNotes, LoggedRequest, RequestName};
use crate::failure::Failure;
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
use tensor::{Error, Name};
use trace::{Activity, Context, Trace};

/// Activities that the front end of one protocol records.
#[derive(Debug)]
pub struct RecordedActivities {
    received: [Activity; 2],
    sent: [Activity; 2],
}

const HTTP: RecordedActivities = RecordedActivities {
    received: [Activity::HttpRecvStart, Activity::HttpRecvEnd],
    sent: [Activity::HttpSendStart, Activity::HttpSendEnd],
};
const GRPC: RecordedActivities = RecordedActivities {
    received: [Activity::GrpcWaitreadStart, Activity::GrpcWaitreadEnd],
    sent: [Activity::GrpcSendStart, Activity::GrpcSendEnd],
};

/// A request that may be traced or is logged. Its log line is written when the last owner drops it.
pub struct RequestTrace {
    names: &'static RecordedActivities,
    begun: u64,
    read: Cell<u64>,
    trace: RefCell<Option<Trace>>,
    entry: Option<LoggedRequest>,
}

/// `None` while nothing is traced and nothing logged.
pub type OptionalTrace = Option<Rc<RequestTrace>>;

impl fmt::Debug for RequestTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestTrace").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl RequestTrace {
    /// Begins to note an HTTP request, if requests are traced or logged.
    #[inline]
    pub fn http(
        shared: &Shared,
        caller: &Caller,
        protocol: &'static str,
        method: Method,
        path: impl FnOnce() -> Bytes,
    ) -> OptionalTrace {
        if !trace::is_any_on() {
            return None;
        }
        Self::new(&HTTP, shared, caller, || RequestName::Http(protocol, method, path()))
    }

    /// Begins to note a gRPC call, if requests are traced or logged.
    #[inline]
    pub fn grpc(
        shared: &Shared,
        caller: &Caller,
        operation: Option<Operation>,
        head: &Rc<http2::RequestHead>,
    ) -> OptionalTrace {
        if !trace::is_any_on() {
            return None;
        }
        Self::new(&GRPC, shared, caller, || RequestName::Grpc(operation, head.clone()))
    }

    #[cold]
    fn new(
        names: &'static RecordedActivities,
        shared: &Shared,
        caller: &Caller,
        name: impl FnOnce() -> RequestName,
    ) -> OptionalTrace {
        let begun = now_ns();
        let entry = shared.logs().and_then(|logs| LoggedRequest::new(logs, caller, name(), begun));
        Some(Rc::new(Self { names, begun, read: Cell::new(0), trace: RefCell::default(), entry }))
    }

    /// Begins to note a request of the stream `call`. `received`: when the wait for the request began, and when it was
    /// read; `None` is returned if requests were not traced or logged then.
    pub fn in_stream(call: Option<&Rc<Self>>, received: [u64; 2], message: &Bytes) -> OptionalTrace {
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

    /// See [`LoggedRequest::received_behind`].
    pub fn received_behind(&self, bytes: usize) {
        if let Some(entry) = &self.entry {
            entry.received_behind(bytes);
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

    /// Ends the trace of a request whose body was rejected. The trace is kept only if the body [`is_no_json`].
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

    /// Records an HTTP reply that is about to be sent: status, failure, length, and body as far as it is text.
    pub fn replying(&self, status: u16, failure: Option<Failure>, bytes: usize, body: &[Bytes]) {
        if let Some(entry) = &self.entry {
            entry.replied(status, failure, bytes, body);
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

    /// Counter for the events that follow the head of a reply. Their activities are traced where they are made.
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
        // The whole response is one frame, so its sending begins and ends at once.
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
    names: &RecordedActivities,
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

/// Number of completions that a response of a stream adds to its trace. The end counts as one, as in Triton.
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
