//! Lines of the audit log: who requested which change of the server, with which parameters, and the result. Contents of
//! files and configurations are logged as their size and SHA-256, which `sha256sum` prints for the original file.

use super::line::{RequestLine, put_names};
use crate::access_log::Logs;
use crate::access_log::json_line::JsonLine;
use crate::limits::AUDIT_BYTES_ON_REACTOR_MAX;
use crate::origin::Face;
use crate::table::facts::Facts as EndpointFacts;
use bytes::Bytes;
use protocol::json::Value;

impl RequestLine<'_> {
    /// Writes the line of a request that changed the server. `body`: its body or message, if it was kept.
    pub(super) fn audit(&self, logs: &Logs, body: Option<Bytes>) {
        let is_http = self.name.is_http();
        let source = self.name.endpoint().zip(body);
        // One call both reads and writes settings; a call that only reads is not logged.
        if let Some((endpoint, message)) = &source
            && !is_http
            && message.len() <= AUDIT_BYTES_ON_REACTOR_MAX
            && endpoint.reads.is_some_and(|reads| reads(message))
        {
            return;
        }
        let facts = |line: &mut JsonLine<'_>, body: Option<&Bytes>| {
            line.time("time", self.facts.times.begun);
            self.who(line);
            line.word("origin", self.origin());
            if self.caller.face == Face::Control {
                line.flag("control_address");
            }
            line.word("protocol", self.protocol()).word("verb", self.verb());
            self.put_target(line, body);
            self.result(line, true);
            line.micros("duration_us", self.duration());
        };
        let Some((endpoint, body)) = source else {
            return logs.audit(|line| facts(line, None));
        };
        if body.len() <= AUDIT_BYTES_ON_REACTOR_MAX {
            return logs.audit(|line| {
                facts(line, Some(&body));
                line.object("parameters", |line| put_parameters(endpoint, is_http, &body, line));
            });
        }
        // Decoding and hashing many files takes long.
        logs.audit_later(
            |line| facts(line, None),
            move |line| {
                if !is_http {
                    put_names(endpoint, &body, line);
                }
                line.object("parameters", |line| put_parameters(endpoint, is_http, &body, line));
            },
        );
    }
}

/// Writes the parameters that can be read.
fn put_parameters(endpoint: &'static EndpointFacts, is_http: bool, body: &[u8], line: &mut JsonLine<'_>) {
    if !is_http {
        _ = (endpoint.audit_message)(body, line);
    } else if let Ok(body) = Value::parse(body) {
        (endpoint.audit_body)(body, line);
    }
}
