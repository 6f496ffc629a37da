//! `TRITONSERVER_InferenceTrace`: that a request is traced, and traces for calls that are made for it.
//!
//! The server records a request and its calls itself. Activities that a library reports are not in the record: the
//! protocol has no frame for them.

use super::c_text;
use super::exports::{Cleared, Out, exports, objects};
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
    /// The number of a trace.
    fn TRITONSERVER_InferenceTraceId(trace: &InferenceTrace, id: Out<u64>) {
        id.put(trace.id);
    }

    /// The number of its parent, 0 without one.
    fn TRITONSERVER_InferenceTraceParentId(trace: &InferenceTrace, parent_id: Out<u64>) {
        parent_id.put(trace.parent);
    }

    /// The name of the model, which belongs to the trace.
    fn TRITONSERVER_InferenceTraceModelName(trace: &InferenceTrace, model_name: Out<*const c_char>) {
        model_name.put(trace.model.as_ptr());
    }

    /// The version of the model.
    fn TRITONSERVER_InferenceTraceModelVersion(trace: &InferenceTrace, model_version: Out<i64>) {
        model_version.put(trace.version);
    }

    /// The id of the request, which belongs to the trace.
    fn TRITONSERVER_InferenceTraceRequestId(trace: &InferenceTrace, request_id: Out<*const c_char>) {
        request_id.put(trace.request.as_ptr());
    }

    /// The context as JSON, or "", which belongs to the trace.
    fn TRITONSERVER_InferenceTraceContext(trace: &InferenceTrace, trace_context: Out<*const c_char>) {
        trace_context.put(trace.context.as_ptr());
    }

    /// Accepts an activity; it is not recorded.
    fn TRITONSERVER_InferenceTraceReportActivity(
        _trace: &InferenceTrace,
        _timestamp: u64,
        _activity_name: *const c_char,
    ) {
    }

    /// A new trace for a call that is made for a traced request.
    fn TRITONSERVER_InferenceTraceSpawnChildTrace(trace: &InferenceTrace, child_trace: Cleared<*mut InferenceTrace>) {
        child_trace.put(Box::into_raw(trace.child()));
    }

    /// Deletes a trace that the library owns.
    fn TRITONSERVER_InferenceTraceDelete(trace: Option<Box<InferenceTrace>>) {
        drop(trace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr::null_mut;

    #[test]
    fn a_child_names_its_parent_and_has_its_context() {
        let trace = InferenceTrace::new("m", 3, "r", r#"{"traceparent":"x"}"#);
        let (mut child, mut parent, mut id, mut context) = (null_mut(), 0, 0, std::ptr::null());
        // SAFETY: our own variables, and traces that live.
        unsafe {
            assert!(TRITONSERVER_InferenceTraceSpawnChildTrace(&raw const *trace, &raw mut child).is_null());
            TRITONSERVER_InferenceTraceParentId(child, &raw mut parent);
            TRITONSERVER_InferenceTraceId(child, &raw mut id);
            TRITONSERVER_InferenceTraceContext(child, &raw mut context);
            assert_eq!((trace.parent, parent), (0, trace.id));
            assert_ne!(id, trace.id);
            assert_eq!(CStr::from_ptr(context), c"{\"traceparent\":\"x\"}");
            assert!(TRITONSERVER_InferenceTraceReportActivity(child, 1, c"A".as_ptr()).is_null());
            assert!(TRITONSERVER_InferenceTraceDelete(child).is_null());
        }
    }
}
