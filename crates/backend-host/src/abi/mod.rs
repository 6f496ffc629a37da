//! The functions that libraries call: one table, in parts by object (`exports`). None lets a panic out.
//!
//! Objects are opaque to the libraries: a pointer that they hold is a `Box` of ours, given away by the function that
//! makes it and taken back by the one that deletes it, or borrowed from an object that says so. Libraries are trusted
//! to pass pointers that they were given, as in Triton; a wrong one costs this process only.

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
pub(crate) use values::{at, c_text, check_config_version};

/// Runs the body of an exported function; a panic becomes an INTERNAL error.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> Err {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => null_mut(),
        Ok(Err(error)) => ServerError::raw(&error),
        Err(_) => ServerError::raw(&Error::internal("the host of the backend failed; please report it")),
    }
}

/// The result of a function that Triton has and this host has not.
pub(crate) fn missing(name: &str) -> Err {
    guard(|| Err(Error::unsupported(format!("{name} is not provided by Nereid's backend host"))))
}
