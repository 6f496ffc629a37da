//! Errors thrown into JavaScript, with their class as `code`.

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
