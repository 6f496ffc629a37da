//! `TRITONSERVER_InferenceTrace`: requests have none here, as in a server without tracing.
//!
//! The server records a request itself, whatever its backend does; what is missing are activities that a backend adds.

#![allow(unsafe_code)] // pointers of a C API

use super::request::Request;
use super::{Err, guard, object, put};
use std::ffi::c_void;
use std::ptr::null_mut;

/// The trace of a request, which is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestTrace(request: *const Request, trace: *mut *mut c_void) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            object(request, "request")?;
            put(trace, null_mut());
        }
        Ok(())
    })
}
