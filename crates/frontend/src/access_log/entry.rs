//! Collects the facts about one request. Its line is written when its [`LoggedRequest`] is dropped, no matter whether
//! the request was answered, rejected or cancelled.

use super::Logs;
use super::json_line::JsonLine;
use crate::grpc::status::{Status, code};
use crate::http::method::Method;
use crate::limits::{LOG_ERROR_BYTES_MAX, LOG_NAME_BYTES_MAX, LOG_PATH_BYTES_MAX};
use crate::origin::{Caller, Face, Origin};
use crate::table::Operation;
use crate::table::routes::Route;
use backend::now_ns;
use bytes::Bytes;
use protocol::Signature;
use protocol::json::Value;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tensor::{Code, Error, Name, Result};
use trace::Trace;

/// Status for a client that disconnected before its response. HTTP defines none; other servers use this one.
const HTTP_CLIENT_LEFT: u16 = 499;

/// The request line of a request, in its protocol.
pub enum RequestName {
    /// HTTP version, method, and the path without its query.
    Http(&'static str, Method, Bytes),
    /// Operation of a known gRPC call, and its head.
    Grpc(Option<Operation>, Rc<http2::RequestHead>),
    /// A request in a gRPC stream.
    InStream,
}

/// The model or region that the request is for, as far as it is known.
#[derive(Default)]
enum Target {
    /// Named by the path or the message.
    #[default]
    ByName,
    /// Model and version as the request names them.
    Named(Name, Name),
    /// The model that accepted the request.
    Found(Arc<Signature>),
}

#[derive(Default)]
enum SentStatus {
    /// No response was sent.
    #[default]
    None,
    Http(u16),
    Grpc(u8),
}

/// Counts of the events of a response, written by the thread that makes them.
#[derive(Debug, Default)]
pub struct EventNotes {
    count: AtomicU64,
    bytes: AtomicU64,
    error: OnceLock<(u8, String)>,
}

impl EventNotes {
    pub fn note(&self, event: &Result<Bytes>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        match event {
            Ok(json) => _ = self.bytes.fetch_add(json.len() as u64, Ordering::Relaxed),
            // The first error is kept.
            Err(error) => _ = self.error.set((error.code().grpc_status(), kept(error.message()))),
        }
    }
}

/// A request that is logged.
pub struct LoggedRequest {
    logs: Arc<Logs>,
    caller: Caller,
    asked: RequestName,
    begun: u64,
    /// The path or call changes the server.
    pub(super) is_write: bool,
    read: Cell<u64>,
    sending: Cell<u64>,
    /// Number of responses that are being sent.
    on_their_way: Cell<u64>,
    sent: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    responses: Cell<u64>,
    /// Number of requests of a stream.
    requests: Cell<u64>,
    first_response: Cell<u64>,
    outcome: RefCell<SentStatus>,
    error: RefCell<Option<(Option<u8>, String)>>,
    key: RefCell<Option<Arc<str>>>,
    target: RefCell<Target>,
    id: RefCell<Name>,
    events: RefCell<Option<Arc<EventNotes>>>,
    trace: RefCell<Option<Trace>>,
    /// Body or message, kept for the names and parameters in it.
    pub(super) body: RefCell<Option<Bytes>>,
}

impl fmt::Debug for LoggedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedRequest").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// Maximum size of a message that is kept for the names in it, for calls other than inference.
const NAMES_BYTES_MAX: usize = 4096;

impl LoggedRequest {
    /// Begins to log a request; `None` if it is not logged.
    pub fn new(logs: &Arc<Logs>, caller: &Caller, asked: RequestName, begun: u64) -> Option<Self> {
        let is_write = logs.has_audit() && is_write(&asked);
        (logs.has_access() || is_write).then(|| Self {
            logs: logs.clone(),
            caller: *caller,
            asked,
            begun,
            is_write,
            read: Cell::new(0),
            sending: Cell::new(0),
            on_their_way: Cell::new(0),
            sent: Cell::new(0),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            responses: Cell::new(0),
            requests: Cell::new(0),
            first_response: Cell::new(0),
            outcome: RefCell::default(),
            error: RefCell::default(),
            key: RefCell::default(),
            target: RefCell::default(),
            id: RefCell::default(),
            events: RefCell::default(),
            trace: RefCell::default(),
            body: RefCell::default(),
        })
    }

    /// Begins to log a request in the stream of this call.
    pub fn in_stream(&self, begun: u64) -> Option<Self> {
        self.requests.set(self.requests.get() + 1);
        let entry = Self::new(&self.logs, &self.caller, RequestName::InStream, begun)?;
        entry.key.replace(self.key.borrow().clone());
        Some(entry)
    }

    /// Counts bytes of the body that lie elsewhere.
    pub fn received_behind(&self, bytes: usize) {
        self.bytes_in.set(self.bytes_in.get() + bytes as u64);
    }

    /// Records that the body or message was read.
    pub fn received(&self, body: &Bytes) {
        self.read.set(now_ns());
        self.bytes_in.set(self.bytes_in.get() + body.len() as u64);
        let says_more = match &self.asked {
            RequestName::Http(..) => self.is_write,
            RequestName::Grpc(Some(Operation::Infer | Operation::StreamInfer), _) | RequestName::InStream => false,
            RequestName::Grpc(..) => self.is_write || body.len() <= NAMES_BYTES_MAX,
        };
        if says_more {
            self.body.replace(Some(body.clone()));
        }
    }

    pub fn granted(&self, key: Option<&Arc<str>>) {
        if let Some(key) = key {
            self.key.replace(Some(key.clone()));
        }
    }

    /// Records the model that the request names, which may not exist.
    pub fn named(&self, model: &Name, version: &Name, id: &Name) {
        self.target.replace(Target::Named(model.clone(), version.clone()));
        self.identified(id);
    }

    /// Records the model that accepts the request, and its trace.
    pub fn found(&self, signature: &Arc<Signature>, trace: Option<&Trace>) {
        self.target.replace(Target::Found(signature.clone()));
        self.trace.replace(trace.cloned());
    }

    pub fn identified(&self, id: &Name) {
        if !id.is_empty() {
            self.id.replace(id.clone());
        }
    }

    pub fn sending(&self, bytes: usize) {
        let now = now_ns();
        self.sending.set(now);
        if self.first_response.get() == 0 {
            self.first_response.set(now);
        }
        self.responses.set(self.responses.get() + 1);
        self.on_their_way.set(self.on_their_way.get() + 1);
        self.bytes_out.set(self.bytes_out.get() + bytes as u64);
    }

    /// Records an HTTP reply before it is written.
    pub fn replied(&self, status: u16, code: Option<Code>, bytes: usize, body: &[Bytes]) {
        self.sending(bytes);
        self.outcome.replace(SentStatus::Http(status));
        if status >= 400 {
            self.error.replace(Some((code.map(Code::grpc_status), error_text(body))));
        }
    }

    /// Records success, unless one of the responses was an error.
    pub fn succeeded(&self) {
        if self.error.borrow().is_some() {
            return;
        }
        self.outcome.replace(SentStatus::Grpc(code::OK));
    }

    pub fn ended(&self, status: &Status) {
        self.outcome.replace(SentStatus::Grpc(status.code));
        if !status.is_ok() {
            self.error.replace(Some((Some(status.code), kept(&status.message))));
        }
    }

    /// Records a failure after some responses.
    pub fn failed(&self, error: &Error) {
        let number = error.code().grpc_status();
        self.error.replace(Some((Some(number), kept(error.message()))));
        if matches!(self.asked, RequestName::InStream) {
            self.outcome.replace(SentStatus::Grpc(number));
        }
    }

    /// Counts the events that follow the beginning of a reply.
    pub fn events(&self) -> Arc<EventNotes> {
        self.events.borrow_mut().get_or_insert_default().clone()
    }

    fn add_events(&self) {
        if let Some(events) = self.events.take() {
            self.responses.set(self.responses.get() + events.count.load(Ordering::Relaxed));
            self.bytes_out.set(self.bytes_out.get() + events.bytes.load(Ordering::Relaxed));
            if let Some((number, text)) = events.error.get() {
                self.error.replace(Some((Some(*number), text.clone())));
            }
        }
    }

    /// Records that one message of a stream was sent, or the whole response of another request.
    pub fn sent(&self) {
        self.sent.set(now_ns());
        let left =
            if matches!(self.asked, RequestName::InStream) { self.on_their_way.get().saturating_sub(1) } else { 0 };
        self.on_their_way.set(left);
    }

    fn ended_at(&self) -> u64 {
        let sent = self.sent.get();
        if sent == 0 { now_ns() } else { sent }
    }

    /// Whether the client disconnected before it had the whole response.
    fn is_left(&self) -> bool {
        matches!(&*self.outcome.borrow(), SentStatus::None) || self.on_their_way.get() > 0
    }

    pub(super) fn fill(&self, line: &mut JsonLine<'_>) {
        line.time("time", self.begun);
        self.who(line);
        if self.caller.face == Face::Embedded {
            line.word("origin", self.origin());
        }
        line.word("protocol", self.protocol());
        match &self.asked {
            RequestName::Http(_, method, path) => {
                line.word("method", method.name());
                line.text("path", path, LOG_PATH_BYTES_MAX);
            }
            RequestName::Grpc(_, head) => _ = line.text("path", head.path(), LOG_PATH_BYTES_MAX),
            RequestName::InStream => _ = line.flag("in_stream"),
        }
        line.word("verb", self.verb());
        // Longer messages are kept for the audit log only, which parses them itself.
        self.put_target(line, self.body.borrow().as_ref().filter(|body| body.len() <= NAMES_BYTES_MAX));
        let id = self.id.borrow();
        if !id.is_empty() {
            line.text("id", id.as_bytes(), LOG_NAME_BYTES_MAX);
        }
        self.result(line);
        line.number("bytes_in", self.bytes_in.get()).number("bytes_out", self.bytes_out.get());
        self.times(line);
        if let Some(id) = self.trace.borrow().as_ref().and_then(Trace::id) {
            line.word("trace", &id);
        }
    }

    pub(super) fn who(&self, line: &mut JsonLine<'_>) {
        match (self.caller.peer, self.caller.origin) {
            (Some(peer), _) => line.word("peer", &peer.to_string()),
            (None, Origin::Unix) => line.word("peer", "unix"),
            // The other server of this process did not pass it on.
            (None, _) => line.word("peer", "unknown"),
        };
        if let Some(key) = &*self.key.borrow() {
            line.text("key", key.as_bytes(), LOG_NAME_BYTES_MAX);
        }
    }

    /// Origin of the request. For the server's own sockets, the one that the kernel reports.
    pub(super) fn origin(&self) -> &'static str {
        match (self.caller.face, self.caller.origin) {
            (Face::Embedded, _) => "embed",
            (_, Origin::Loopback) => "loopback",
            (_, Origin::Unix) => "unix",
            (_, Origin::Network) => "network",
        }
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn logs(&self) -> &Logs {
        &self.logs
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    pub(super) fn duration(&self) -> u64 {
        self.ended_at().saturating_sub(self.begun)
    }

    pub(super) fn protocol(&self) -> &'static str {
        match &self.asked {
            RequestName::Http(protocol, ..) => protocol,
            RequestName::Grpc(..) | RequestName::InStream => "grpc",
        }
    }

    pub(super) fn asked(&self) -> &RequestName {
        &self.asked
    }

    pub(super) fn result(&self, line: &mut JsonLine<'_>) {
        let is_http = matches!(self.asked, RequestName::Http(..));
        match (&*self.outcome.borrow(), is_http) {
            (SentStatus::Http(status), _) => _ = line.number("status", *status),
            (SentStatus::Grpc(status), _) => _ = line.number("grpc_status", *status),
            (SentStatus::None, true) => _ = line.number("status", HTTP_CLIENT_LEFT),
            (SentStatus::None, false) => _ = line.number("grpc_status", code::CANCELLED),
        }
        match &*self.error.borrow() {
            Some((number, text)) => {
                let name = match (number, &*self.outcome.borrow()) {
                    (Some(number), _) => grpc_name(*number),
                    (None, SentStatus::Http(status)) => http_name(*status),
                    (None, _) => "UNKNOWN",
                };
                line.word("code", name).text("error", text.as_bytes(), LOG_ERROR_BYTES_MAX);
            }
            None if self.is_left() => {
                line.word("code", "CANCELLED")
                    .word("error", "the client or its stream was gone before the answer had left");
            }
            None => {}
        }
    }

    fn is_failed(&self) -> bool {
        self.error.borrow().is_some() || self.is_left()
    }

    /// Writes the phases, each from the end of the one before it. Phases that did not happen are omitted.
    fn times(&self, line: &mut JsonLine<'_>) {
        let end = self.ended_at();
        let measured = self.trace.borrow().as_ref().map(|trace| trace.phases().measured()).unwrap_or_default();
        let (sending, sent) = (self.sending.get(), self.sent.get());
        let [start, inputs, infer, outputs] = measured.marks;
        let has_run = outputs > 0;
        let first = self.first_response.get();
        line.micros("total_us", end.saturating_sub(self.begun));
        line.object("phases_us", |line| {
            let mut at = self.begun;
            let mut phase = |name: &str, until: u64| {
                // Phases of a stream of responses may overlap; no time is counted twice.
                if until > 0 {
                    line.micros(name, until.saturating_sub(at));
                    at = at.max(until);
                }
            };
            phase("read", self.read.get());
            phase("parse", measured.accepted);
            if has_run {
                phase("queue", start);
                phase("input", inputs);
                phase("infer", infer);
                phase("output", outputs);
            } else {
                // The response came from the response cache or an ensemble.
                phase("model", measured.ended);
            }
            phase("encode", if self.responses.get() > 1 { 0 } else { sending });
            phase("write", sent);
        });
        if measured.rows > 0 {
            line.number("batch", measured.rows);
        }
        let trace = self.trace.borrow();
        let phases = trace.as_ref().map(Trace::phases);
        if let Some(cause) = phases.and_then(|phases| phases.cause.get()) {
            line.word("cause", cause);
        }
        if let Some(behind) = phases.and_then(|phases| phases.behind.get()) {
            line.object("behind", |line| {
                line.text("model", behind.model.as_bytes(), LOG_NAME_BYTES_MAX);
                line.text("version", behind.version.as_bytes(), LOG_NAME_BYTES_MAX);
                if behind.priority > 0 {
                    line.number("priority", behind.priority);
                }
                line.number("rows", behind.rows);
            });
        }
        if matches!(self.asked, RequestName::Grpc(Some(Operation::StreamInfer), _)) {
            line.number("requests", self.requests.get());
        } else if matches!(self.asked, RequestName::InStream) || self.responses.get() > 1 {
            line.number("responses", self.responses.get());
            if first > 0 {
                line.micros("first_response_us", first.saturating_sub(self.begun));
            }
        }
    }

    /// Name of the operation, the same for both protocols.
    pub(super) fn verb(&self) -> &'static str {
        match &self.asked {
            RequestName::Http(_, method, path) => {
                route(*method, path).map_or("unknown", |route| route.operation.name())
            }
            RequestName::Grpc(operation, _) => operation.map_or("unknown", Operation::name),
            RequestName::InStream => "infer",
        }
    }

    pub(super) fn put_target(&self, line: &mut JsonLine<'_>, body: Option<&Bytes>) {
        let mut put = |model: &[u8], version: &[u8]| {
            if !model.is_empty() {
                line.text("model", model, LOG_NAME_BYTES_MAX);
            }
            if !version.is_empty() {
                line.text("version", version, LOG_NAME_BYTES_MAX);
            }
        };
        match (&*self.target.borrow(), &self.asked) {
            (Target::Found(signature), _) => put(signature.model.as_bytes(), signature.version.as_bytes()),
            (Target::Named(model, version), _) => put(model.as_bytes(), version.as_bytes()),
            (Target::ByName, RequestName::Http(_, method, path)) => {
                let Some(Route { names, .. }) = route(*method, path) else { return };
                put(names.model.as_bytes(), names.version.as_bytes());
                if !names.region.is_empty() {
                    line.text("region", names.region.as_bytes(), LOG_NAME_BYTES_MAX);
                }
            }
            (Target::ByName, RequestName::Grpc(Some(operation), _)) => {
                if let Some(message) = body {
                    super::messages::put_names(*operation, message, line);
                }
            }
            _ => {}
        }
    }
}

impl Drop for LoggedRequest {
    fn drop(&mut self) {
        self.add_events();
        self.logs.access(self.is_failed(), |line| self.fill(line));
        if self.is_write {
            self.audit();
        }
    }
}

fn kept(text: &str) -> String {
    let end = (0..=text.len().min(LOG_ERROR_BYTES_MAX + 4)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// The `error` member of a reply's body.
fn error_text(body: &[Bytes]) -> String {
    let of = |part: &Bytes| Value::parse(part).ok()?.get("error")?.as_string().ok();
    body.iter().find_map(of).map_or_else(String::new, |text| kept(&text))
}

fn route(method: Method, path: &[u8]) -> Option<Route<'_>> {
    std::str::from_utf8(path).ok().and_then(|path| Route::find(method, path))
}

fn is_write(asked: &RequestName) -> bool {
    match asked {
        RequestName::Http(_, method, path) => {
            route(*method, path).is_some_and(|route| route.is_allowed && route.operation.is_change())
        }
        RequestName::Grpc(operation, _) => operation.is_some_and(Operation::may_change),
        RequestName::InStream => false,
    }
}

/// Name of a gRPC status code, used for both protocols.
fn grpc_name(number: u8) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(usize::from(number)).copied().unwrap_or("UNKNOWN")
}

/// Name for an HTTP status that was set without an error code.
fn http_name(status: u16) -> &'static str {
    grpc_name(match status {
        401 => 16,
        403 => 7,
        404 => 5,
        405 | 501 => 12,
        408 => 4,
        429 => 8,
        500 => 13,
        503 => 14,
        _ => 3,
    })
}
