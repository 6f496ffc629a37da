//! `TRITONSERVER_InferenceTrace`: that a request is traced, and traces for calls that are made for it.
//!
//! The server records a request and its calls itself. Activities that a library reports are not in the record: the
//! protocol has no frame for them.

#![allow(unsafe_code)] // pointers of a C API

use super::{Err, c_text, delete, get, guard, object, put};
use std::ffi::{CString, c_char};
use std::ptr::null_mut;
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

/// Gives what a trace says.
///
/// # Safety
/// `trace` is null or live; `to` is null or valid for a write.
unsafe fn give<T>(trace: *const InferenceTrace, to: *mut T, value: impl FnOnce(&InferenceTrace) -> T) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(to, || Ok(value(object(trace, "trace")?))) }
}

/// The number of a trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceId(trace: *const InferenceTrace, id: *mut u64) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(trace, id, |trace| trace.id) }
}

/// The number of its parent, 0 without one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceParentId(trace: *const InferenceTrace, parent_id: *mut u64) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(trace, parent_id, |trace| trace.parent) }
}

/// The name of the model, which belongs to the trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceModelName(
    trace: *const InferenceTrace,
    model_name: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(trace, model_name, |trace| trace.model.as_ptr()) }
}

/// The version of the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceModelVersion(
    trace: *const InferenceTrace,
    model_version: *mut i64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(trace, model_version, |trace| trace.version) }
}

/// The id of the request, which belongs to the trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceRequestId(
    trace: *const InferenceTrace,
    request_id: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(trace, request_id, |trace| trace.request.as_ptr()) }
}

/// The context as JSON, or "", which belongs to the trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceContext(
    trace: *const InferenceTrace,
    trace_context: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(trace, trace_context, |trace| trace.context.as_ptr()) }
}

/// Accepts an activity; it is not recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceReportActivity(
    trace: *const InferenceTrace,
    _timestamp: u64,
    _activity_name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe { object(trace, "trace") }.map(drop))
}

/// A new trace for a call that is made for a traced request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceSpawnChildTrace(
    trace: *const InferenceTrace,
    child_trace: *mut *mut InferenceTrace,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            put(child_trace, null_mut());
            put(child_trace, Box::into_raw(object(trace, "trace")?.child()));
        }
        Ok(())
    })
}

/// Deletes a trace that the library owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceTraceDelete(trace: *mut InferenceTrace) -> Err {
    // SAFETY: made by the function above, and the caller's.
    unsafe { delete(trace) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

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
