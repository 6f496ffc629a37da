//! `TRITONSERVER_InferenceTrace`: that a request is traced, and traces for calls that are made for it.
//!
//! The server records a request and its calls itself. Activities that a library reports are not in the record: the
//! protocol has no frame for them.

use super::c_text;
use super::exports::{Cleared, Lent, exports, objects};
use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A trace of a request, which owns it, or for a call, which the library owns until it is sent.
pub(crate) struct InferenceTrace {
    id: u64,
    /// 0 without a parent.
    parent: u64,
    model: CString,
    version: i64,
    request: CString,
    /// W3C context as JSON, or "".
    context: CString,
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl InferenceTrace {
    pub(crate) fn new(model: &str, version: i64, request: &str, context: &str) -> Box<Self> {
        let (model, request, context) = (c_text(model), c_text(request), c_text(context));
        Box::new(Self { id: next_id(), parent: 0, model, version, request, context })
    }

    /// A trace for a call. Its model and request are those of the call, and not known yet.
    fn child(&self) -> Box<Self> {
        let (model, request) = (CString::default(), CString::default());
        Box::new(Self { id: next_id(), parent: self.id, model, version: -1, request, context: self.context.clone() })
    }
}

objects! {
    InferenceTrace: "trace";
}

exports! {
    "trace" get TRITONSERVER_InferenceTraceId(trace: &InferenceTrace) -> u64 = trace.id;
    "trace" get TRITONSERVER_InferenceTraceParentId(trace: &InferenceTrace) -> u64 = trace.parent;
    "trace" get TRITONSERVER_InferenceTraceModelName(trace: &InferenceTrace) -> Lent<c_char> = trace.model.as_ptr();
    "trace" get TRITONSERVER_InferenceTraceModelVersion(trace: &InferenceTrace) -> i64 = trace.version;
    "trace" get TRITONSERVER_InferenceTraceRequestId(trace: &InferenceTrace) -> Lent<c_char> = trace.request.as_ptr();
    "trace" get TRITONSERVER_InferenceTraceContext(trace: &InferenceTrace) -> Lent<c_char> = trace.context.as_ptr();

    /// Accepts an activity; it is not recorded.
    "trace" fn TRITONSERVER_InferenceTraceReportActivity(_trace: &InferenceTrace, _at: u64, _name: Lent<c_char>) {}

    "trace" fn TRITONSERVER_InferenceTraceSpawnChildTrace(
        trace: &InferenceTrace,
        child_trace: Cleared<*mut InferenceTrace>,
    ) => child_trace.put(Box::into_raw(trace.child()));

    "trace" delete TRITONSERVER_InferenceTraceDelete(InferenceTrace);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{pass, text_at, to};
    use std::ptr::{null, null_mut};

    #[test]
    fn a_child_names_its_parent_and_has_its_context() {
        let trace = InferenceTrace::new("m", 3, "r", r#"{"traceparent":"x"}"#);
        let (mut child, mut parent, mut id, mut context) = (null_mut(), 0, 0, null());
        assert!(TRITONSERVER_InferenceTraceSpawnChildTrace(pass(&raw const *trace), to(&mut child)).is_null());
        TRITONSERVER_InferenceTraceParentId(pass(child), to(&mut parent));
        TRITONSERVER_InferenceTraceId(pass(child), to(&mut id));
        TRITONSERVER_InferenceTraceContext(pass(child), to(&mut context));
        assert_eq!((trace.parent, parent), (0, trace.id));
        assert_ne!(id, trace.id);
        assert_eq!(text_at(context), "{\"traceparent\":\"x\"}");
        assert!(TRITONSERVER_InferenceTraceReportActivity(pass(child), 1, c"A".as_ptr()).is_null());
        assert!(TRITONSERVER_InferenceTraceDelete(pass(child)).is_null());
    }
}
