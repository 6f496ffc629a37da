//! The line of a request in the access log, made of its record; `explained` has its explanation.

use super::facts::{Facts, HttpName, RequestName, SentStatus, Target};
use crate::access_log::json_line::JsonLine;
use crate::failure::RequestFailure;
use crate::grpc::status::code;
use crate::limits::{LOG_ERROR_BYTES_MAX, LOG_NAME_BYTES_MAX, LOG_NAMES_BYTES_MAX, LOG_PATH_BYTES_MAX};
use crate::origin::{Caller, Face, Origin};
use crate::table::facts::{CallForm, Facts as EndpointFacts};
use bytes::Bytes;
use prost::encoding::{decode_key, decode_varint, skip_field};
use tensor::Fault;
use trace::{Behind, Trace};

/// Status for a client that disconnected before its response. HTTP defines none; other servers use this one.
const HTTP_CLIENT_LEFT: u16 = 499;

/// Maximum bytes of texts of clients in a line.
#[derive(Clone, Copy)]
pub(super) struct TextLimits {
    pub(super) name: usize,
    pub(super) error: usize,
}

const OF_LOGS: TextLimits = TextLimits { name: LOG_NAME_BYTES_MAX, error: LOG_ERROR_BYTES_MAX };
/// Bytes of the name of a model in `behind`.
const BEHIND_NAME_BYTES_MAX: usize = 64;

/// A request as its lines show it.
pub(super) struct RequestLine<'r> {
    pub(super) name: &'r RequestName,
    pub(super) caller: Caller,
    pub(super) facts: &'r Facts,
    pub(super) texts: TextLimits,
}

impl<'r> RequestLine<'r> {
    pub(super) fn of(name: &'r RequestName, caller: Caller, facts: &'r Facts) -> Self {
        Self { name, caller, facts, texts: OF_LOGS }
    }

    /// The client's id, as far as it is known.
    pub(super) fn id(&self) -> &[u8] {
        let measured = self.facts.measured.as_ref().and_then(|trace| trace.phases().id.get());
        if self.facts.id.is_empty() { measured.map_or(&[], |id| &id[..]) } else { self.facts.id.as_bytes() }
    }

    /// The name of the model, as far as it is known.
    pub(super) fn model(&self) -> &[u8] {
        match (&self.facts.target, self.name) {
            (Target::Found(signature), _) => signature.model.as_bytes(),
            (Target::Named(model, _), _) => model.as_bytes(),
            (Target::ByName, RequestName::Http(HttpName { names: [model, ..], .. })) => model,
            _ => &[],
        }
    }

    pub(super) fn fill(&self, line: &mut JsonLine<'_>) {
        let Self { name, caller, facts, .. } = self;
        line.time("time", facts.times.begun);
        self.who(line);
        if caller.face == Face::Embedded {
            line.word("origin", self.origin());
        }
        line.word("protocol", self.protocol());
        match name {
            RequestName::Http(HttpName { method, path, .. }) => {
                line.word("method", method.name());
                line.text("path", path, LOG_PATH_BYTES_MAX);
            }
            RequestName::Grpc(_, path) => _ = line.text("path", path, LOG_PATH_BYTES_MAX),
            RequestName::InStream => _ = line.flag("in_stream"),
        }
        self.put_request(line, true);
        if let Some(behind) = self.behind() {
            put_behind(line, behind, true);
        }
    }

    pub(super) fn behind(&self) -> Option<&'r Behind> {
        self.facts.measured.as_ref()?.phases().behind.get()
    }

    /// Writes what logs and explanations have in common.
    pub(super) fn put_request(&self, line: &mut JsonLine<'_>, is_over: bool) {
        let Self { facts, .. } = self;
        line.word("verb", self.verb());
        // Longer messages are kept for the audit log only, which parses them itself.
        self.put_target(line, facts.body.as_ref().filter(|body| body.len() <= LOG_NAMES_BYTES_MAX));
        if !self.id().is_empty() {
            line.text("id", self.id(), self.texts.name);
        }
        self.result(line, is_over);
        line.number("bytes_in", facts.sizes.bytes_in).number("bytes_out", facts.sizes.bytes_out);
        self.times(line);
        if let Some(id) = facts.measured.as_ref().and_then(Trace::id) {
            line.word("trace", &id);
        }
    }

    pub(super) fn who(&self, line: &mut JsonLine<'_>) {
        let caller = &self.caller;
        match (caller.peer, caller.origin) {
            (Some(peer), _) => line.word("peer", &peer.to_string()),
            (None, Origin::Unix) => line.word("peer", "unix"),
            // The other server of this process did not pass it on.
            (None, _) => line.word("peer", "unknown"),
        };
        if let Some(key) = &self.facts.key {
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

    pub(super) fn duration(&self) -> u64 {
        self.facts.ended().saturating_sub(self.facts.times.begun)
    }

    pub(super) fn protocol(&self) -> &'static str {
        match self.name {
            RequestName::Http(name) => name.protocol,
            RequestName::Grpc(..) | RequestName::InStream => "grpc",
        }
    }

    /// Writes how the request ended; `is_over` as in `explained`.
    pub(super) fn result(&self, line: &mut JsonLine<'_>, is_over: bool) {
        let is_http = self.name.is_http();
        match (&self.facts.status, is_http) {
            (SentStatus::Http(status), _) => _ = line.number("status", *status),
            (SentStatus::Grpc(status), _) => _ = line.number("grpc_status", *status),
            (SentStatus::None, true) => _ = line.number("status", HTTP_CLIENT_LEFT),
            (SentStatus::None, false) => _ = line.number("grpc_status", code::CANCELLED),
        }
        match &self.facts.error {
            Some((failure, text)) => {
                line.word("code", fault_code(self.facts)).text("error", text.as_bytes(), self.texts.error);
                line.word("fault", failure.fault.name());
                if failure.retry_after.is_some() {
                    line.flag("retry");
                }
            }
            None if is_over && self.facts.is_left() => {
                line.word("code", fault_code(self.facts))
                    .word("error", "the client or its stream ended before the response was sent")
                    .word("fault", Fault::Client.name());
            }
            None => {}
        }
    }

    /// Writes the phases, each from the end of the one before it. Phases that did not happen are omitted.
    fn times(&self, line: &mut JsonLine<'_>) {
        let Facts { times, sizes, .. } = self.facts;
        let phases = self.facts.measured.as_ref().map(Trace::phases);
        let measured = phases.map(|phases| phases.measured()).unwrap_or_default();
        let [start, inputs, infer, outputs] = measured.marks;
        let has_run = outputs > 0;
        line.micros("total_us", self.duration());
        line.object("phases_us", |line| {
            let mut at = times.begun;
            let mut phase = |name: &str, until: u64| {
                // Phases of a stream of responses may overlap; no time is counted twice.
                if until > 0 {
                    line.micros(name, until.saturating_sub(at));
                    at = at.max(until);
                }
            };
            phase("read", times.read);
            phase("parse", measured.accepted);
            if has_run {
                phase("queue", start);
                phase("input", inputs);
                phase("infer", infer);
                phase("output", outputs);
                // A decoupled model goes on after its execution returned.
                if matches!(&self.facts.target, Target::Found(signature) if signature.decoupled) {
                    phase("responses", measured.ended);
                }
            } else {
                // The response came from the response cache or an ensemble.
                phase("model", measured.ended);
            }
            phase("encode", if sizes.responses > 1 { 0 } else { times.sending });
            phase("write", times.sent);
        });
        let form = self.name.endpoint().map(|endpoint| endpoint.form);
        if measured.rows > 0 {
            line.number("batch", measured.rows);
        }
        if let Some(cause) = phases.and_then(|phases| phases.cause.get()) {
            line.word("cause", cause);
        }
        let copied = phases.map_or([0; 2], trace::Phases::copied);
        if copied != [0; 2] {
            line.object("copied", |line| _ = line.number("in", copied[0]).number("out", copied[1]));
        }
        if form == Some(CallForm::Inferences) {
            line.number("requests", sizes.requests);
        } else if matches!(self.name, RequestName::InStream) || sizes.responses > 1 {
            line.number("responses", sizes.responses);
            if times.first_response > 0 {
                line.micros("first_response_us", times.first_response.saturating_sub(times.begun));
            }
        }
    }

    /// Name of the operation, the same for both protocols.
    pub(super) fn verb(&self) -> &'static str {
        match self.name {
            RequestName::InStream => "infer",
            name => name.endpoint().map_or("unknown", |endpoint| endpoint.name),
        }
    }

    pub(super) fn put_target(&self, line: &mut JsonLine<'_>, body: Option<&Bytes>) {
        let mut put = |model: &[u8], version: &[u8]| {
            if !model.is_empty() {
                line.text("model", model, self.texts.name);
            }
            if !version.is_empty() {
                line.text("version", version, self.texts.name);
            }
        };
        match (&self.facts.target, self.name) {
            (Target::Found(signature), _) => put(signature.model.as_bytes(), signature.version.as_bytes()),
            (Target::Named(model, version), _) => put(model.as_bytes(), version.as_bytes()),
            (Target::ByName, RequestName::Http(HttpName { names: [model, version, region], .. })) => {
                put(model, version);
                if !region.is_empty() {
                    line.text("region", region, self.texts.name);
                }
            }
            (Target::ByName, RequestName::Grpc(Some(endpoint), _)) => {
                if let Some(message) = body {
                    put_names(endpoint, message, line);
                }
            }
            _ => {}
        }
    }
}

/// Writes the names in the message of a call that can be read.
pub(super) fn put_names(endpoint: &'static EndpointFacts, message: &[u8], line: &mut JsonLine<'_>) {
    for (key, number) in endpoint.names {
        let name = text_field(message, *number);
        if !name.is_empty() {
            line.text(key, name, LOG_NAME_BYTES_MAX);
        }
    }
}

/// The text field of this number; empty if there is none. The last occurrence counts, as protobuf demands.
fn text_field(mut message: &[u8], number: u32) -> &[u8] {
    let mut found: &[u8] = b"";
    while let Ok((tag, wire_type)) = decode_key(&mut message) {
        let from = message;
        if skip_field(wire_type, tag, &mut message, Default::default()).is_err() {
            break;
        }
        if tag == number {
            found = from.get(..from.len() - message.len()).unwrap_or_default();
            let _ = decode_varint(&mut found);
        }
    }
    found
}

/// Writes what a request waited behind. A caller that may not see the model learns that it was another one.
pub(super) fn put_behind(line: &mut JsonLine<'_>, behind: &Behind, is_seen: bool) {
    line.object("behind", |line| {
        if is_seen {
            line.text("model", behind.model.as_bytes(), BEHIND_NAME_BYTES_MAX);
            line.text("version", behind.version.as_bytes(), BEHIND_NAME_BYTES_MAX);
        } else {
            line.word("model", "another model");
        }
        line.word("for", if behind.has_resources { "resources" } else { "instances" });
        if behind.priority > 0 {
            line.number("priority", behind.priority);
        }
        line.number("rows", behind.rows);
    });
}

/// Name of the code of a failed request.
pub(super) fn fault_code(facts: &Facts) -> &'static str {
    match (&facts.error, &facts.status) {
        (Some((RequestFailure { number: Some(number), .. }, _)), _) => grpc_name(*number),
        (Some(_), SentStatus::Http(status)) => http_name(*status),
        (Some(_), _) => "UNKNOWN",
        // The client disconnected.
        (None, _) => "CANCELLED",
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
