//! The functions that libraries call, by group. All of them have the C ABI, and none lets a panic out.
//!
//! Objects are opaque to the libraries: a pointer that they hold is a `Box` of ours, given away by the function that
//! makes it and taken back by the one that deletes it, or borrowed from an object that says so. Libraries are trusted
//! to pass pointers that they were given, as in Triton; a wrong one costs this process only.

#![allow(unsafe_code)] // pointers of a C API

pub(crate) mod agent;
pub(crate) mod allocator;
pub(crate) mod attributes;
pub(crate) mod backend;
pub(crate) mod cache;
pub(crate) mod error;
pub(crate) mod exports;
pub(crate) mod inference;
pub(crate) mod inference_response;
pub(crate) mod input;
pub(crate) mod instance;
pub(crate) mod log;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod metrics;
pub(crate) mod model;
pub(crate) mod parameter;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod server;
pub(crate) mod server_options;
pub(crate) mod state;
pub(crate) mod statistics;
pub(crate) mod strings;
pub(crate) mod trace;
pub(crate) mod values;

pub(crate) use error::Err;
use error::ServerError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use tensor::{Error, Result};
pub(crate) use values::{c_text, text, value};

/// Runs the body of an exported function; a panic becomes an INTERNAL error.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> Err {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => null_mut(),
        Ok(Err(error)) => ServerError::raw(&error),
        Err(_) => ServerError::raw(&Error::internal("the host of the backend failed; please report it")),
    }
}

/// Writes a result to where the caller wants it; nowhere if it passed null.
///
/// # Safety
/// `to` is null or valid for a write.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}

/// An object that the caller must pass.
///
/// # Safety
/// `object` is null or points at a live `T` that nothing changes meanwhile.
pub(crate) unsafe fn object<'a, T>(object: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { object.as_ref() }.ok_or_else(|| Error::invalid(format!("{what} was nullptr")))
}

/// The result of a function that Triton has and this host has not.
pub(crate) fn missing(name: &str) -> Err {
    guard(|| Err(Error::unsupported(format!("{name} is not provided by Nereid's backend host"))))
}
