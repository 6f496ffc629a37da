//! The record of a request: its times, sizes, names and outcome, noted where they happen.
//!
//! The access log, the audit log and the trace of the request (O 3.4) read it. What the engine measures of the request
//! is in [`Trace`], which the record holds: it is filled from the values that statistics count.
//!
//! The model of a request is known only after the request was read. So if any model may be traced, or if there is a
//! log, each request has a record as soon as its head was read, and so has one whose client asks for it. Otherwise the
//! record is empty, and every note of it is one branch: what the record of an inference needs is in a few cells of
//! [`Record`], from which it begins when the inference fails, ends slowly or is left. [`mod@kept`] has these.
//!
//! Invariant: the lines of the logs are written when the last owner drops the record, no matter whether the request was
//! answered, rejected or cancelled.

mod audit;
mod explained;
mod facts;
mod kept;
mod line;

pub use crate::http::request::{WHY, asks_why};
pub use facts::{EventNotes, RequestName, error_text};
pub use kept::Kept;

use crate::access_log::Logs;
use crate::failure::RequestFailure;
use crate::grpc::status::{Status, code};
use crate::hold;
use crate::limits::LOG_NAMES_BYTES_MAX;
use crate::origin::Caller;
use crate::shared::Shared;
use crate::table::facts::Facts as EndpointFacts;
use backend::now_ns;
use bytes::Bytes;
use engine::{EngineResponse, ModelVersion};
use facts::{Facts, SentStatus, Target, Times, activity_of, kept};
use line::RequestLine;
use protocol::Signature;
use protocol::grpc::InferHead;
use protocol::json::Value;
use protocol::{InferRequest, Parameter};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tensor::{Error, Fault, Name};
use trace::{Activity, Context, Trace};

/// A request of which something is noted.
struct Noted {
    /// Where an inference is kept if it was slow or failed.
    kept: Arc<Kept>,
    is_inference: bool,
    /// The client asks for the record.
    is_asked: Cell<bool>,
    /// The logs that have a line of the request; `None` if it is only traced.
    logs: Option<Arc<Logs>>,
    caller: Caller,
    name: RequestName,
    /// The request changes the server, or may change it, and there is an audit log.
    is_write: bool,
    facts: RefCell<Facts>,
}

impl Noted {
    /// `received`: when the wait for the request began, and when it was there.
    fn new(logs: Option<&Arc<Logs>>, kept: &Arc<Kept>, caller: &Caller, name: RequestName, received: [u64; 2]) -> Self {
        let is_inference = name.is_inference();
        let is_write = logs.is_some_and(|logs| logs.has_audit()) && name.is_write();
        let logs = logs.filter(|logs| logs.has_access() || is_write).cloned();
        let [receiving, begun] = received;
        let times = Times { receiving, begun, ..Times::default() };
        let facts = RefCell::new(Facts { times, ..Facts::default() });
        let is_asked = Cell::new(false);
        Self { kept: kept.clone(), is_inference, is_asked, logs, caller: *caller, name, is_write, facts }
    }
}

/// The record of one request, shared by all that note something of it.
#[derive(Clone, Default)]
pub struct Record {
    noted: OnceCell<Rc<Noted>>,
    /// When the head of an inference was read; 0 for other requests without a record.
    begun: u64,
    /// When its body was read, if that was later, and its bytes, for a record that begins after that.
    read: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    /// The version that the request waits for with its measurements, likewise.
    waits: OnceCell<(Arc<Signature>, Option<Trace>)>,
}

impl Record {
    /// Begins the record of a request whose head was read. `endpoint`: `None` for an unknown one. `is_asked`: its
    /// client asks for the record.
    #[inline]
    pub fn begin(
        shared: &Shared,
        caller: &Caller,
        endpoint: Option<&'static EndpointFacts>,
        is_asked: bool,
        name: impl FnOnce() -> RequestName,
    ) -> Self {
        let mut record = Self::default();
        if endpoint.is_some_and(EndpointFacts::is_inference) {
            record.begun = hold::poll_began();
        }
        let begins = trace::is_any_on() || is_asked || (record.begun > 0 && shared.kept().begins_early(record.begun));
        if begins {
            if record.begun == 0 {
                record.begun = hold::poll_began();
            }
            record.begin_now(shared, caller, name(), [record.begun; 2]).is_asked.set(is_asked);
        }
        record
    }

    #[cold]
    fn begin_now(&self, shared: &Shared, caller: &Caller, name: RequestName, received: [u64; 2]) -> &Noted {
        self.noted.get_or_init(|| {
            let noted = Noted::new(shared.logs(), shared.kept(), caller, name, received);
            let mut facts = noted.facts.borrow_mut();
            facts.times.read = self.read.get();
            (facts.sizes.bytes_in, facts.sizes.bytes_out) = (self.bytes_in.get(), self.bytes_out.get());
            if let Some((signature, measured)) = self.waits.get() {
                (facts.target, facts.measured) = (Target::Found(signature.clone()), measured.clone());
            }
            drop(facts);
            Rc::new(noted)
        })
    }

    /// Notes that the body came later than its head.
    pub fn body_came(&self) {
        if self.begun > 0 {
            self.read.set(now_ns());
        }
    }

    /// Begins the record of an inference that failed, or whose end may not be seen. True if it had none.
    #[inline]
    pub fn begin_late(&self, shared: &Shared, caller: &Caller, name: impl FnOnce() -> RequestName) -> bool {
        let begins = self.noted.get().is_none() && self.begun > 0;
        if begins {
            self.begin_now(shared, caller, name(), [self.begun; 2]);
        }
        begins
    }

    /// Begins the record of an inference that succeeded, if it belongs to the slowest. One that was read, run and sent
    /// within one poll is none of them.
    #[inline]
    pub fn begin_at_end(&self, shared: &Shared, caller: &Caller, name: impl FnOnce() -> RequestName) {
        if self.noted.get().is_none() && self.begun > 0 && (self.begun != hold::poll_began() || engine::ran_long()) {
            let now = now_ns();
            if shared.kept().wants(now.saturating_sub(self.begun), now) {
                let noted = self.begin_now(shared, caller, name(), [self.begun; 2]);
                noted.facts.borrow_mut().status =
                    if noted.name.is_http() { SentStatus::Http(200) } else { SentStatus::Grpc(code::OK) };
            }
        }
    }

    /// Begins the record of a request in the stream of this call. `received`: when the wait for the request before it
    /// began, and when that was read; 0 without one. Becomes those of this request.
    pub fn in_stream(&self, shared: &Shared, caller: &Caller, received: &mut [u64; 2], message: &Bytes) -> Self {
        let (now, [_, before]) = (hold::poll_began(), *received);
        // The wait for a request begins when the one before it was read.
        *received = [if before == 0 { now } else { before }, now];
        let record = Self { begun: now, ..Self::default() };
        let is_asked = self.noted.get().is_some_and(|call| call.is_asked.get());
        if trace::is_any_on() || is_asked || shared.kept().begins_early(now) {
            record.begin_now(shared, caller, RequestName::InStream, *received).is_asked.set(is_asked);
        }
        self.note(|_, of_call| {
            of_call.sizes.requests += 1;
            record.note(|_, facts| facts.key.clone_from(&of_call.key));
        });
        record.received(message, 0);
        // The trace has the end of the wait, which `received` noted later.
        record.note(|_, facts| facts.times.read = now);
        record
    }

    #[inline]
    fn note(&self, note: impl FnOnce(&Noted, &mut Facts)) {
        if let Some(noted) = self.noted.get() {
            note(noted, &mut noted.facts.borrow_mut());
        }
    }

    /// Whether the client asks for the record.
    pub fn is_asked(&self) -> bool {
        self.noted.get().is_some_and(|noted| noted.is_asked.get())
    }

    /// Time since the head was read, in ns.
    pub fn age(&self) -> u64 {
        now_ns().saturating_sub(self.begun)
    }

    /// The client asks for the record, in the request itself.
    pub fn ask(&self) {
        if let Some(noted) = self.noted.get() {
            noted.is_asked.set(true);
        }
    }

    /// The record as a client gets it that asks for it, with the response or behind its events; `None` for others.
    /// `covers`: whether the client may see a model.
    #[inline]
    pub fn why(&self, covers: impl Fn(&str) -> bool) -> Option<String> {
        let noted = self.noted.get().filter(|noted| noted.is_asked.get())?;
        Some(noted.explained(covers))
    }

    /// Notes the key of the caller.
    #[inline]
    pub fn granted(&self, key: Option<&Arc<str>>) {
        self.note(|_, facts| {
            if key.is_some() {
                facts.key = key.cloned();
            }
        });
    }

    /// Notes that the body or message was read. `behind`: bytes of it that lie elsewhere.
    #[inline]
    pub fn received(&self, body: &Bytes, behind: usize) {
        let bytes = (body.len() + behind) as u64;
        self.bytes_in.set(bytes);
        self.note(|noted, facts| {
            facts.times.read = now_ns();
            facts.sizes.bytes_in += bytes;
            let has_names = match &noted.name {
                RequestName::Http(..) => noted.is_write,
                RequestName::Grpc(Some(endpoint), _) if endpoint.names.is_empty() => noted.is_write,
                RequestName::Grpc(..) => noted.is_write || body.len() <= LOG_NAMES_BYTES_MAX,
                RequestName::InStream => false,
            };
            if has_names && noted.logs.is_some() {
                facts.body = Some(body.clone());
            }
        });
    }

    /// Notes the model that the request names, which may not exist, and its id.
    #[inline]
    pub fn named(&self, head: &InferHead) {
        self.note(|_, facts| {
            facts.target = Target::Named(head.model_name.clone(), head.model_version.clone());
            facts.identify(&head.id);
        });
    }

    /// Notes the version that accepts the request and samples the request. `context`: the client's own trace.
    #[inline]
    pub fn found(&self, version: &ModelVersion, context: impl FnOnce() -> Option<Context>) {
        self.note(|noted, facts| {
            facts.trace = version.trace().begin(context);
            if let Some(trace) = &facts.trace {
                let [begin, end] = noted.name.activities().received;
                trace.front(begin, facts.times.receiving);
                trace.front(end, facts.times.read);
            }
            facts.measured = Some(facts.trace.get_or_insert_with(Trace::measured).clone());
            facts.target = Target::Found(version.signature.clone());
        });
    }

    /// Notes that the request waits for this version, and what the engine measures of it.
    pub fn waits(&self, version: &ModelVersion, measured: Option<&Trace>) {
        match self.noted.get() {
            Some(noted) => {
                let facts = &mut *noted.facts.borrow_mut();
                if facts.measured.is_none() {
                    facts.measured = measured.cloned();
                    facts.target = Target::Found(version.signature.clone());
                }
            }
            None if self.begun > 0 => _ = self.waits.set((version.signature.clone(), measured.cloned())),
            None => {}
        }
    }

    /// Makes the engine note in the record what it measures of a request, and notes the id of the request.
    #[inline]
    pub fn follow(&self, request: &mut InferRequest) {
        self.note(|_, facts| {
            request.trace = facts.trace.clone();
            facts.identify(&request.id);
        });
    }

    /// Notes the id of a request that was rejected.
    pub fn identify(&self, id: &Name) {
        self.note(|_, facts| facts.identify(id));
    }

    /// Takes the trace, for events that are made elsewhere; nothing more is traced here.
    #[inline]
    pub fn take_trace(&self) -> Option<Trace> {
        self.noted.get()?.facts.borrow_mut().trace.take()
    }

    /// Whether a rejected body has to be examined for [`refused`](Self::refused).
    pub fn is_sampled(&self) -> bool {
        self.noted.get().is_some_and(|noted| noted.facts.borrow().trace.as_ref().is_some_and(Trace::is_recorded))
    }

    /// Ends the trace of a request whose body was rejected. The trace is kept only if the body [`is_no_json`].
    pub fn refused(&self, is_no_json: bool) {
        if let Some(trace) = self.take_trace()
            && is_no_json
        {
            trace.keep();
        }
    }

    /// Notes that the responses are complete.
    pub fn completed(&self) {
        self.note(|_, facts| completed(facts.trace.as_ref()));
    }

    /// Notes one of several responses. The end counts as one more, as in Triton.
    #[inline]
    pub fn responded(&self, answer: &EngineResponse) {
        self.note(|_, facts| responded(facts.trace.as_ref(), answer));
    }

    /// Notes an HTTP reply that is about to be sent: status, failure, length, and body as far as it is text.
    #[inline]
    pub fn replying(&self, status: u16, failure: Option<RequestFailure>, bytes: usize, body: &[Bytes]) {
        self.bytes_out.set(bytes as u64);
        self.note(|noted, facts| {
            facts.sending(&noted.name, bytes);
            facts.status = SentStatus::Http(status);
            if status >= 400 {
                let failure = failure.unwrap_or(RequestFailure::new(None, Fault::Server));
                facts.error = Some((failure, error_text(body)));
            }
        });
    }

    /// Notes a message that is about to be sent, one of several.
    #[inline]
    pub fn sending(&self, bytes: usize) {
        self.bytes_out.set(bytes as u64);
        self.note(|noted, facts| facts.sending(&noted.name, bytes));
    }

    /// Notes that one message of a stream was sent, or the whole response of another request.
    #[inline]
    pub fn sent(&self) {
        self.note(|noted, facts| facts.sent(&noted.name));
    }

    /// Counter for the events that follow the head of a reply. Their activities are traced where they are made.
    pub fn events(&self) -> Option<Arc<EventNotes>> {
        let noted = self.noted.get()?;
        Some(noted.facts.borrow_mut().events.get_or_insert_default().clone())
    }

    /// Notes the status at the end of a call.
    #[inline]
    pub fn ending(&self, status: &Status) {
        self.note(|_, facts| facts.end(status));
    }

    /// Notes the end of a call without a message.
    #[inline]
    pub fn refusing(&self, status: &Status) {
        self.note(|noted, facts| {
            facts.end(status);
            // The whole response is one frame, so its sending begins and ends at once.
            noted.name.activities().sent.into_iter().for_each(|activity| activity_of(facts.trace.as_ref(), activity));
        });
    }

    /// Notes success, unless one of the responses was an error.
    #[inline]
    pub fn succeeded(&self) {
        self.note(|_, facts| {
            if facts.error.is_none() {
                facts.status = SentStatus::Grpc(code::OK);
            }
        });
    }

    /// Notes a failure, which may follow some responses.
    #[inline]
    pub fn failed(&self, error: &Error) {
        self.note(|noted, facts| {
            facts.error = Some((error.into(), kept(error.message())));
            if matches!(noted.name, RequestName::InStream) {
                facts.status = SentStatus::Grpc(error.code().grpc_status());
            }
        });
    }
}

/// Takes the parameter out of a request that asks for its record as the field of this name does.
#[inline]
pub fn take_question(request: &mut InferRequest) -> bool {
    !request.parameters.is_empty() && take_parameter(request)
}

fn take_parameter(request: &mut InferRequest) -> bool {
    let mut is_asked = false;
    request.parameters.retain(|(name, value)| {
        if name.as_bytes() != WHY.as_bytes() {
            return true;
        }
        is_asked |= match value {
            Parameter::Bool(value) => *value,
            Parameter::String(value) => asks_why(value.as_bytes()),
            Parameter::Int(value) => *value != 0,
            Parameter::Double(value) => *value != 0.0,
        };
        false
    });
    is_asked
}

/// Whether a body is not empty and not JSON; parses all of it.
pub fn is_no_json(text: &[u8]) -> bool {
    !text.is_empty() && Value::parse(text).is_err()
}

/// Trace of the client of a call.
pub fn grpc_context(head: &http2::RequestHead) -> Option<Context> {
    let states = head.fields().filter(|(name, _)| *name == "tracestate");
    Context::parse(head.get("traceparent")?, states.map(|(_, value)| value))
}

/// Notes in a trace that the response is complete.
#[inline]
pub fn completed(trace: Option<&Trace>) {
    activity_of(trace, Activity::InferResponseComplete);
}

/// Notes one of several responses in a trace.
pub fn responded(trace: Option<&Trace>, answer: &EngineResponse) {
    let count = usize::from(answer.response.is_some()) + usize::from(answer.is_final);
    (0..count).for_each(|_| completed(trace));
}

/// Notes in a trace that an event is about to be sent.
pub fn event_sending(trace: Option<&Trace>) {
    activity_of(trace, facts::HTTP.sent[0]);
}

/// Notes in a trace that an event was sent.
pub fn event_sent(trace: Option<&Trace>) {
    activity_of(trace, facts::HTTP.sent[1]);
}

impl Noted {
    #[cold]
    fn explained(&self, covers: impl Fn(&str) -> bool) -> String {
        let mut facts = self.facts.borrow_mut();
        facts.add_events();
        RequestLine::of(&self.name, self.caller, &facts).explained(false, covers)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if self.logs.is_none() && !self.is_inference {
            return;
        }
        let facts = self.facts.get_mut();
        facts.add_events();
        if let Some(logs) = &self.logs {
            let line = RequestLine::of(&self.name, self.caller, facts);
            logs.access(facts.is_failed(), |to| line.fill(to));
            if self.is_write {
                line.audit(logs, facts.body.clone());
            }
        }
        if self.is_inference && self.kept.takes(facts) {
            let name = std::mem::replace(&mut self.name, RequestName::InStream);
            self.kept.keep(name, self.caller, std::mem::take(facts));
        }
    }
}
