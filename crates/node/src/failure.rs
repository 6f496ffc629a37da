//! Failures on their way to JavaScript: an error that is thrown has its class as `code`.

use tensor::Error;

/// Result of a method that JavaScript calls. The derive of napi knows it by this name.
pub type Result<T> = std::result::Result<T, napi::Error<&'static str>>;

pub fn thrown(e: &Error) -> napi::Error<&'static str> {
    napi::Error::new(e.code().constant(), e.message())
}

/// A failure of napi itself, such as of a callback that is no function.
pub fn unbound(e: napi::Error) -> napi::Error<&'static str> {
    thrown(&Error::internal(e.reason.clone()))
}
