//! Errors thrown into JavaScript, with their class as `code`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use tensor::Error;

/// Result of a method that JavaScript calls. The derive of napi needs this name.
pub type Result<T> = std::result::Result<T, napi::Error<&'static str>>;

pub fn thrown(e: &Error) -> napi::Error<&'static str> {
    napi::Error::new(e.code().constant(), e.message())
}

/// Converts an error of napi itself, such as a callback that is not a function.
pub fn unbound(e: napi::Error) -> napi::Error<&'static str> {
    thrown(&Error::internal(e.reason.clone()))
}

/// Runs `work`; a panic becomes an error.
pub fn caught<T>(work: impl FnOnce() -> tensor::Result<T>) -> tensor::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::internal("the core panicked; this is a defect of the server, please report it with the log"))
    })
}
