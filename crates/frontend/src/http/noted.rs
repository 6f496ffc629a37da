//! Requests over HTTP that are traced or logged.

use super::request::RequestHead;
use crate::origin::Caller;
use crate::shared::Shared;
use crate::traced::RequestTrace;
use engine::ModelVersion;
use trace::Context;

impl RequestHead {
    /// Begins to note the request, while any is traced or logged.
    #[inline]
    pub fn note(&mut self, shared: &Shared, caller: &Caller, protocol: &'static str) {
        self.trace = RequestTrace::http(shared, caller, protocol, self.method, || self.path_bytes());
    }

    /// Samples the request, now that its model is known.
    pub fn sample(&self, version: &ModelVersion) {
        if let Some(slot) = &self.trace {
            slot.begin(version, || {
                let states = self.headers.pairs().filter(|(name, _)| name.eq_ignore_ascii_case(b"tracestate"));
                Context::parse(self.headers.get("traceparent")?, states.map(|(_, value)| value))
            });
        }
    }
}
