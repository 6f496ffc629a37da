//! The line of a request in the access log, made of its record.

use super::facts::{Facts, HttpName, Noted, RequestName, SentStatus, Target};
use crate::access_log::json_line::JsonLine;
use crate::grpc::status::code;
use crate::limits::{LOG_ERROR_BYTES_MAX, LOG_NAME_BYTES_MAX, LOG_NAMES_BYTES_MAX, LOG_PATH_BYTES_MAX};
use crate::origin::{Face, Origin};
use crate::table::facts::{CallForm, Facts as EndpointFacts};
use bytes::Bytes;
use prost::encoding::{decode_key, decode_varint, skip_field};
use tensor::Fault;
use trace::Trace;

/// Status for a client that disconnected before its response. HTTP defines none; other servers use this one.
const HTTP_CLIENT_LEFT: u16 = 499;

/// A request as its lines show it.
pub(super) struct RequestLine<'r> {
    pub(super) noted: &'r Noted,
    pub(super) facts: &'r Facts,
}

impl RequestLine<'_> {
    pub(super) fn fill(&self, line: &mut JsonLine<'_>) {
        let Self { noted, facts } = self;
        line.time("time", facts.times.begun);
        self.who(line);
        if noted.caller.face == Face::Embedded {
            line.word("origin", self.origin());
        }
        line.word("protocol", self.protocol());
        match &noted.name {
            RequestName::Http(HttpName { method, path, .. }) => {
                line.word("method", method.name());
                line.text("path", path, LOG_PATH_BYTES_MAX);
            }
            RequestName::Grpc(_, head) => _ = line.text("path", head.path(), LOG_PATH_BYTES_MAX),
            RequestName::InStream => _ = line.flag("in_stream"),
        }
        line.word("verb", self.verb());
        // Longer messages are kept for the audit log only, which parses them itself.
        self.put_target(line, facts.body.as_ref().filter(|body| body.len() <= LOG_NAMES_BYTES_MAX));
        if !facts.id.is_empty() {
            line.text("id", facts.id.as_bytes(), LOG_NAME_BYTES_MAX);
        }
        self.result(line);
        line.number("bytes_in", facts.sizes.bytes_in).number("bytes_out", facts.sizes.bytes_out);
        self.times(line);
        if let Some(id) = facts.measured.as_ref().and_then(Trace::id) {
            line.word("trace", &id);
        }
    }

    pub(super) fn who(&self, line: &mut JsonLine<'_>) {
        let caller = &self.noted.caller;
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
        match (self.noted.caller.face, self.noted.caller.origin) {
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
        match &self.noted.name {
            RequestName::Http(name) => name.protocol,
            RequestName::Grpc(..) | RequestName::InStream => "grpc",
        }
    }

    pub(super) fn result(&self, line: &mut JsonLine<'_>) {
        let is_http = matches!(self.noted.name, RequestName::Http(..));
        match (&self.facts.status, is_http) {
            (SentStatus::Http(status), _) => _ = line.number("status", *status),
            (SentStatus::Grpc(status), _) => _ = line.number("grpc_status", *status),
            (SentStatus::None, true) => _ = line.number("status", HTTP_CLIENT_LEFT),
            (SentStatus::None, false) => _ = line.number("grpc_status", code::CANCELLED),
        }
        match &self.facts.error {
            Some((failure, text)) => {
                let name = match (failure.number, &self.facts.status) {
                    (Some(number), _) => grpc_name(number),
                    (None, SentStatus::Http(status)) => http_name(*status),
                    (None, _) => "UNKNOWN",
                };
                line.word("code", name).text("error", text.as_bytes(), LOG_ERROR_BYTES_MAX);
                line.word("fault", failure.fault.name());
                if failure.retry_after.is_some() {
                    line.flag("retry");
                }
            }
            None if self.facts.is_left() => {
                line.word("code", "CANCELLED")
                    .word("error", "the client or its stream was gone before the answer had left")
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
            } else {
                // The response came from the response cache or an ensemble.
                phase("model", measured.ended);
            }
            phase("encode", if sizes.responses > 1 { 0 } else { times.sending });
            phase("write", times.sent);
        });
        let form = self.noted.name.endpoint().map(|endpoint| endpoint.form);
        if measured.rows > 0 {
            line.number("batch", measured.rows);
        }
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
        if form == Some(CallForm::Inferences) {
            line.number("requests", sizes.requests);
        } else if matches!(self.noted.name, RequestName::InStream) || sizes.responses > 1 {
            line.number("responses", sizes.responses);
            if times.first_response > 0 {
                line.micros("first_response_us", times.first_response.saturating_sub(times.begun));
            }
        }
    }

    /// Name of the operation, the same for both protocols.
    pub(super) fn verb(&self) -> &'static str {
        match &self.noted.name {
            RequestName::InStream => "infer",
            name => name.endpoint().map_or("unknown", |endpoint| endpoint.name),
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
        match (&self.facts.target, &self.noted.name) {
            (Target::Found(signature), _) => put(signature.model.as_bytes(), signature.version.as_bytes()),
            (Target::Named(model, version), _) => put(model.as_bytes(), version.as_bytes()),
            (Target::ByName, RequestName::Http(HttpName { names: [model, version, region], .. })) => {
                put(model, version);
                if !region.is_empty() {
                    line.text("region", region, LOG_NAME_BYTES_MAX);
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
