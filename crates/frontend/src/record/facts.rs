//! The facts of one request that are known so far, and their place in a record.

use crate::access::Act;
use crate::failure::RequestFailure;
use crate::grpc::status::Status;
use crate::http::method::Method;
use crate::limits::LOG_ERROR_BYTES_MAX;
use crate::table::facts::Facts as EndpointFacts;
use crate::table::paths::PathNames;
use backend::now_ns;
use bytes::Bytes;
use protocol::Signature;
use protocol::json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tensor::{Error, Name};
use trace::limits::MEASURED_ID_BYTES_MAX;
use trace::{Activity, Trace};

/// Activities that the front end of one protocol records.
pub struct RecordedActivities {
    pub received: [Activity; 2],
    pub sent: [Activity; 2],
}

pub const HTTP: RecordedActivities = RecordedActivities {
    received: [Activity::HttpRecvStart, Activity::HttpRecvEnd],
    sent: [Activity::HttpSendStart, Activity::HttpSendEnd],
};
const GRPC: RecordedActivities = RecordedActivities {
    received: [Activity::GrpcWaitreadStart, Activity::GrpcWaitreadEnd],
    sent: [Activity::GrpcSendStart, Activity::GrpcSendEnd],
};

/// The request line of a request, in its protocol.
pub enum RequestName {
    Http(HttpName),
    /// Endpoint of a known gRPC call, and its path.
    Grpc(Option<&'static EndpointFacts>, Bytes),
    /// A request in a gRPC stream.
    InStream,
}

/// The request line of an HTTP request.
pub struct HttpName {
    /// Version of HTTP.
    pub protocol: &'static str,
    pub method: Method,
    /// The path without its query.
    pub path: Bytes,
    /// Endpoint of a known path.
    pub endpoint: Option<&'static EndpointFacts>,
    /// The path takes the method.
    pub is_allowed: bool,
    /// Names of model, version and region in the path; empty where it has none.
    pub names: [Bytes; 3],
}

impl RequestName {
    /// `endpoint`: of a known path, with whether it takes the method, and the names in it.
    pub fn http(
        protocol: &'static str,
        method: Method,
        path: Bytes,
        endpoint: Option<(&'static EndpointFacts, bool, PathNames<'_>)>,
    ) -> Self {
        let is_allowed = endpoint.is_some_and(|(_, is_allowed, _)| is_allowed);
        let names = endpoint.map(|(_, _, names)| names).unwrap_or_default();
        let names = [names.model, names.version, names.region].map(|name| path.slice_ref(name.as_bytes()));
        let endpoint = endpoint.map(|(endpoint, ..)| endpoint);
        Self::Http(HttpName { protocol, method, path, endpoint, is_allowed, names })
    }

    pub fn grpc(endpoint: Option<&'static EndpointFacts>, head: &http2::RequestHead) -> Self {
        Self::Grpc(endpoint, Bytes::copy_from_slice(head.path()))
    }

    pub fn activities(&self) -> &'static RecordedActivities {
        if self.is_http() { &HTTP } else { &GRPC }
    }

    /// Facts of a known endpoint.
    pub fn endpoint(&self) -> Option<&'static EndpointFacts> {
        match self {
            Self::Http(name) => name.endpoint,
            Self::Grpc(endpoint, _) => *endpoint,
            Self::InStream => None,
        }
    }

    pub fn is_http(&self) -> bool {
        matches!(self, Self::Http(..))
    }

    /// The same without slices of buffers that were read, and without what only logs have.
    pub fn kept(self) -> Self {
        match self {
            Self::Http(name) => Self::Http(HttpName {
                path: Bytes::new(),
                names: name.names.map(|name| Bytes::copy_from_slice(kept_id(&name))),
                ..name
            }),
            Self::Grpc(endpoint, _) => Self::Grpc(endpoint, Bytes::new()),
            Self::InStream => Self::InStream,
        }
    }

    /// The request runs a model. A stream of requests is none itself.
    pub fn is_inference(&self) -> bool {
        match self {
            Self::InStream => true,
            name => name.endpoint().is_some_and(EndpointFacts::is_inference),
        }
    }

    /// The request changes the server, or may change it.
    pub fn is_write(&self) -> bool {
        match self {
            Self::Http(name) => name.is_allowed && name.endpoint.is_some_and(|e| e.act == Act::Write),
            Self::Grpc(endpoint, _) => endpoint.is_some_and(|endpoint| endpoint.may_change()),
            Self::InStream => false,
        }
    }
}

/// The model or region that the request is for, as far as it is known.
#[derive(Default)]
pub enum Target {
    /// Named by the path or the message.
    #[default]
    ByName,
    /// Model and version as the request names them.
    Named(Name, Name),
    /// The model that accepted the request.
    Found(Arc<Signature>),
}

#[derive(Default)]
pub enum SentStatus {
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
    error: OnceLock<(RequestFailure, String)>,
}

impl EventNotes {
    pub fn note(&self, bytes: usize, error: Option<&Error>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(error) = error {
            // The first error is kept.
            _ = self.error.set((error.into(), kept(error.message())));
        }
    }
}

/// Times of a request, in ns of [`now_ns`]; 0 = not yet.
#[derive(Default)]
pub struct Times {
    /// When the head was read, or the message of a stream.
    pub begun: u64,
    /// When the wait for the request began that the trace shows.
    pub receiving: u64,
    /// When the body or message was read.
    pub read: u64,
    pub first_response: u64,
    /// When the last response was passed on to be sent.
    pub sending: u64,
    /// When the last response was sent.
    pub sent: u64,
}

/// Counts of a request.
#[derive(Default)]
pub struct Sizes {
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub responses: u64,
    /// Responses that are being sent.
    pub on_their_way: u64,
    /// Requests of a stream.
    pub requests: u64,
}

/// Facts that were noted of a request until now.
#[derive(Default)]
pub struct Facts {
    pub times: Times,
    pub sizes: Sizes,
    pub status: SentStatus,
    /// RequestFailure and text of an error.
    pub error: Option<(RequestFailure, String)>,
    /// Name of the caller's key.
    pub key: Option<Arc<str>>,
    pub target: Target,
    pub id: Name,
    pub events: Option<Arc<EventNotes>>,
    /// Trace to which activities are added.
    pub trace: Option<Trace>,
    /// Measurements of the engine, for the line of the log.
    pub measured: Option<Trace>,
    /// Body or message, kept for the names and parameters in it.
    pub body: Option<Bytes>,
}

impl Facts {
    pub fn identify(&mut self, id: &Name) {
        if !id.is_empty() {
            self.id = id.clone();
        }
    }

    pub fn sending(&mut self, name: &RequestName, bytes: usize) {
        let now = now_ns();
        self.times.sending = now;
        if self.times.first_response == 0 {
            self.times.first_response = now;
        }
        self.sizes.responses += 1;
        self.sizes.on_their_way += 1;
        self.sizes.bytes_out += bytes as u64;
        activity_of(self.trace.as_ref(), name.activities().sent[0]);
    }

    pub fn sent(&mut self, name: &RequestName) {
        self.times.sent = now_ns();
        let is_one_of_many = matches!(name, RequestName::InStream);
        self.sizes.on_their_way = if is_one_of_many { self.sizes.on_their_way.saturating_sub(1) } else { 0 };
        activity_of(self.trace.as_ref(), name.activities().sent[1]);
    }

    pub fn end(&mut self, status: &Status) {
        self.status = SentStatus::Grpc(status.code);
        if !status.is_ok() {
            self.error = Some((status.failure(), kept(&status.message)));
        }
    }

    /// Adds the events that followed the beginning of the reply.
    pub fn add_events(&mut self) {
        if let Some(events) = self.events.take() {
            self.sizes.responses += events.count.load(Ordering::Relaxed);
            self.sizes.bytes_out += events.bytes.load(Ordering::Relaxed);
            if let Some(error) = events.error.get() {
                self.error = Some(error.clone());
            }
        }
    }

    /// The same without slices of buffers that were read, and without data. A trace that is exported stays where it is.
    pub fn kept(mut self) -> Self {
        let copied = |name: &Name| Name::from_utf8_lossy(Bytes::copy_from_slice(kept_id(name.as_bytes())));
        self.id = copied(&self.id);
        if let Target::Named(model, version) = &self.target {
            self.target = Target::Named(copied(model), copied(version));
        }
        self.measured = self.measured.as_ref().map(Trace::detached);
        Self { trace: None, body: None, events: None, key: None, ..self }
    }

    /// Whether the client disconnected before it had the whole response.
    pub fn is_left(&self) -> bool {
        matches!(self.status, SentStatus::None) || self.sizes.on_their_way > 0
    }

    pub fn is_failed(&self) -> bool {
        self.error.is_some() || self.is_left()
    }

    pub fn ended(&self) -> u64 {
        if self.times.sent == 0 { now_ns() } else { self.times.sent }
    }
}

/// The beginning of an id or a name, by which a kept request is found.
pub fn kept_id(id: &[u8]) -> &[u8] {
    id.get(..MEASURED_ID_BYTES_MAX).unwrap_or(id)
}

/// The part of an error text that a log line has.
pub fn kept(text: &str) -> String {
    let end = (0..=text.len().min(LOG_ERROR_BYTES_MAX + 4)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// The text of an error in a reply's body, in the form of any endpoint.
pub fn error_text(body: &[Bytes]) -> String {
    let of = |part: &Bytes| {
        let members = Value::parse(part).ok()?;
        let error = members.get("error").or_else(|| members.get("detail"))?;
        let text = error.as_string().or_else(|_| error.member("message")?.as_string());
        text.ok().or_else(|| error.elements().ok()?.next()?.get("msg")?.as_string().ok())
    };
    body.iter().find_map(of).map_or_else(String::new, |text| kept(&text))
}

/// Notes an activity in a trace, now.
#[inline]
pub fn activity_of(trace: Option<&Trace>, activity: Activity) {
    if let Some(trace) = trace.filter(|trace| trace.is_recorded()) {
        trace.front(activity, now_ns());
    }
}
